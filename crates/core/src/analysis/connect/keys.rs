//! Keys: members that no policy distinguishes in one role, as sources or as destinations.

use rustc_hash::{FxHashMap, FxHashSet};

use super::members::MemberView;
use super::runs;
use crate::compile::count;
use crate::decide::Identity;
use crate::net::Family;
use crate::policy::{Direction, Tier};
use crate::program::{
    AddressAtom, Class, NONE, Program, RuleId, Union, direction_index, table_index,
};
use crate::set_hash::{SetInterner, ordered};

/// The role of a member in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowRole {
    Source,
    Destination,
}

impl FlowRole {
    /// Returns the direction in which a member of this role is the subject.
    pub(super) fn as_subject(self) -> Direction {
        match self {
            FlowRole::Source => Direction::Egress,
            FlowRole::Destination => Direction::Ingress,
        }
    }

    /// Returns the direction in which a member of this role is the peer.
    fn as_peer(self) -> Direction {
        match self {
            FlowRole::Source => Direction::Ingress,
            FlowRole::Destination => Direction::Egress,
        }
    }
}

/// Returns the rules of the NetworkPolicies that select a pod, for each direction, ascending.
pub(crate) fn union_rules(program: &Program) -> [Vec<RuleId>; 2] {
    // Rules outside of unions apply to no pod. Their blocks would only split keys.
    let of = |unions: &Vec<Union>| {
        let mut is_used = vec![false; program.rules.len()];
        for rule in unions.iter().flat_map(|union| &union.rules) {
            if let Some(is_used) = is_used.get_mut(rule.0 as usize) {
                *is_used = true;
            }
        }
        let used = is_used.iter().enumerate().filter(|(_, it)| **it);
        used.map(|(id, _)| RuleId(count(id))).collect()
    };
    program.unions.each_ref().map(of)
}

/// Returns a number for each address atom. Atoms share it if blocks of the same rules cover them.
pub(crate) fn distinguishing_blocks<'r>(
    program: &Program,
    rules: impl Iterator<Item = &'r RuleId>,
) -> Vec<u32> {
    let rules = rules.filter_map(|id| program.rules.get(id.0 as usize));
    let runs = rules.map(|rule| rule.blocks.of(&program.lists.blocks));
    runs::numbers(runs, program.addresses.len())
}

/// Returns one of the `possible` atoms for each set of blocks of these rules that an atom is in.
pub(crate) fn representatives(
    program: &Program,
    rules: &[RuleId],
    possible: &[AddressAtom],
) -> Vec<AddressAtom> {
    // An address decides only which blocks of these rules it is in. All atoms in the same blocks
    // give the same result, so one atom stands for them.
    let covered = distinguishing_blocks(program, rules.iter());
    let mut known = FxHashSet::default();
    let is_new = |atom: &&AddressAtom| known.insert(covered.get(atom.0 as usize));
    possible.iter().filter(is_new).copied().collect()
}

/// Classes of address atoms that no rule distinguishes, for each role.
#[derive(Debug)]
pub(crate) struct AddressClasses {
    source: Vec<u32>,
    destination: Vec<u32>,
}

impl AddressClasses {
    pub(crate) fn new(program: &Program, union_rules: &[Vec<RuleId>; 2]) -> AddressClasses {
        let of = |role: FlowRole| {
            let direction = role.as_peer();
            let rules = union_rules.get(direction_index(direction));
            let covered = distinguishing_blocks(program, rules.into_iter().flatten());
            let mut ids: FxHashMap<(u32, u32, u32), u32> = FxHashMap::default();
            let class = |(atom, covered): (usize, u32)| {
                let row = |tier| {
                    let table = program.table(tier, direction);
                    table.address_rows.get(atom).copied().unwrap_or(0)
                };
                let next = count(ids.len());
                let key = (row(Tier::Admin), row(Tier::Baseline), covered);
                *ids.entry(key).or_insert(next)
            };
            covered.into_iter().enumerate().map(class).collect()
        };
        AddressClasses {
            source: of(FlowRole::Source),
            destination: of(FlowRole::Destination),
        }
    }

    /// Returns the class of an atom as the address of a source.
    pub(crate) fn of_source(&self, atom: AddressAtom) -> u32 {
        self.source.get(atom.0 as usize).copied().unwrap_or(NONE)
    }

    /// Returns the class of an atom as the address of a destination.
    pub(crate) fn of_destination(&self, atom: AddressAtom) -> u32 {
        self.destination
            .get(atom.0 as usize)
            .copied()
            .unwrap_or(NONE)
    }

    pub(crate) fn of(&self, role: FlowRole, atom: AddressAtom) -> u32 {
        match role {
            FlowRole::Source => self.of_source(atom),
            FlowRole::Destination => self.of_destination(atom),
        }
    }
}

/// Members that no policy distinguishes in one role.
#[derive(Debug)]
pub(crate) struct Key<'c> {
    /// The view of the first member, which stands for all of them.
    pub(crate) view: MemberView<'c>,
    /// The members, ascending.
    pub(crate) members: Vec<u32>,
    /// The number of pods among them, host-network pods not included.
    pub(crate) n_pods: u64,
    /// The mark by which the caller distinguishes members further.
    pub(crate) mark: u32,
}

/// The keys of one role.
#[derive(Debug)]
pub(crate) struct Keys<'c> {
    pub(crate) list: Vec<Key<'c>>,
    /// The key of each member; `NONE`: it does not have the role.
    pub(crate) of_member: Vec<u32>,
}

/// The parts of a key: the numbers of the class and of the node, address classes, whether the
/// address is unknown, and the caller's mark.
type KeyParts = (u32, u32, [u32; 2], bool, u32);

impl<'c> Keys<'c> {
    /// Groups the members for which `mark` returns a value.
    pub(crate) fn new(
        program: &Program,
        role: FlowRole,
        addresses: &AddressClasses,
        members: impl Iterator<Item = Option<MemberView<'c>>>,
        mark: impl Fn(u32) -> Option<u32>,
    ) -> Keys<'c> {
        let mut views = ViewNumbers::new(program, role);
        let mut ids: FxHashMap<KeyParts, u32> = FxHashMap::default();
        let mut keys = Keys {
            list: Vec::new(),
            of_member: Vec::new(),
        };
        for (member, view) in members.enumerate() {
            let member = count(member);
            let (Some(view), Some(mark)) = (view, mark(member)) else {
                keys.of_member.push(NONE);
                continue;
            };
            let address = |family: Family| match view.atom(family) {
                Some(atom) => addresses.of(role, atom),
                None => NONE,
            };
            // Parts are compared themselves. Each is a number from an interner that compared what
            // the number stands for, so a collision of hashes cannot merge two keys.
            let parts = (
                views.class(view.class),
                views.node(view.identity),
                Family::BOTH.map(address),
                view.is_unknown,
                mark,
            );
            let id = *ids.entry(parts).or_insert_with(|| {
                keys.list.push(Key {
                    view,
                    members: Vec::new(),
                    n_pods: 0,
                    mark,
                });
                count(keys.list.len() - 1)
            });
            keys.of_member.push(id);
            if let Some(key) = keys.list.get_mut(id as usize) {
                key.members.push(member);
                key.n_pods += u64::from(view.class.is_some());
            }
        }
        keys
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn of(&self, member: u32) -> Option<u32> {
        let key = self.of_member.get(member as usize).copied();
        key.filter(|key| *key != NONE)
    }
}

/// Numbers for the properties of classes and nodes that policies distinguish in one role.
struct ViewNumbers<'p> {
    program: &'p Program,
    role: FlowRole,
    /// The pod sets that distinguish peers beyond their rows: peers of NetworkPolicies, and peers
    /// of rules in which a peer depends on the subject.
    is_peer_set: Vec<bool>,
    /// A number for each union, which unions with the same rules share.
    unions: Vec<u32>,
    /// The number of each class, computed on first use.
    classes: Vec<Option<u32>>,
    class_ids: SetInterner,
    /// The first class of each number.
    first: Vec<&'p Class>,
    /// The number of each list of node sets that a node is in.
    node_ids: FxHashMap<Vec<u32>, u32>,
}

impl<'p> ViewNumbers<'p> {
    fn new(program: &'p Program, role: FlowRole) -> ViewNumbers<'p> {
        // A row has a rule if any set of the rule has the class. For a relative set that is not
        // enough: the relation decides, and which set it is.
        let relations = program.set_relations.iter();
        let mut is_peer_set: Vec<bool> = relations.map(Option::is_some).collect();
        // Other sets of such a rule count as well: a class that one of them has is a peer for every
        // subject, and with the relative set alone it is one for some.
        for rule in &program.rules {
            let sets = rule.sets.of(&program.lists.sets);
            let is_relative = |set: &u32| {
                let relation = program.set_relations.get(*set as usize);
                relation.is_some_and(Option::is_some)
            };
            if sets.iter().any(is_relative) {
                for set in sets {
                    if let Some(is_peer_set) = is_peer_set.get_mut(*set as usize) {
                        *is_peer_set = true;
                    }
                }
            }
        }
        let peer_unions = program.unions.get(direction_index(role.as_peer()));
        let mut is_visited = vec![false; program.rules.len()];
        for id in peer_unions.into_iter().flatten().flat_map(|it| &it.rules) {
            let Some(is_visited) = is_visited.get_mut(id.0 as usize).filter(|it| !**it) else {
                continue;
            };
            *is_visited = true;
            let rule = program.rules.get(id.0 as usize);
            for set in rule
                .into_iter()
                .flat_map(|it| it.sets.of(&program.lists.sets))
            {
                if let Some(is_peer_set) = is_peer_set.get_mut(*set as usize) {
                    *is_peer_set = true;
                }
            }
        }
        let subject_unions = program.unions.get(direction_index(role.as_subject()));
        let mut union_ids: FxHashMap<&[RuleId], u32> = FxHashMap::default();
        let number = |union: &'p Union| {
            let next = count(union_ids.len());
            *union_ids.entry(&union.rules).or_insert(next)
        };
        ViewNumbers {
            program,
            role,
            is_peer_set,
            unions: subject_unions.into_iter().flatten().map(number).collect(),
            classes: vec![None; program.classes.len()],
            class_ids: SetInterner::default(),
            first: Vec::new(),
            node_ids: FxHashMap::default(),
        }
    }

    /// Returns the number of a class; `NONE`: policies cannot select the member.
    fn class(&mut self, id: Option<u32>) -> u32 {
        let Some(id) = id else {
            return NONE;
        };
        if let Some(Some(known)) = self.classes.get(id as usize) {
            return *known;
        }
        let Some(class) = self.program.classes.get(id as usize) else {
            return NONE;
        };
        // The hash only finds candidates: it is a fixed function, and colliding classes can be
        // constructed. What decides is the comparison with the first class of the number.
        let hash = ordered(self.views_of(class).map(u64::from));
        let mut ids = std::mem::take(&mut self.class_ids);
        let number = ids.number(hash, |id| {
            let first = self.first.get(id as usize);
            first.is_some_and(|first| self.views_of(first).eq(self.views_of(class)))
        });
        self.class_ids = ids;
        if number.is_new {
            self.first.push(class);
        }
        if let Some(slot) = self.classes.get_mut(id as usize) {
            *slot = Some(number.id);
        }
        number.id
    }

    /// Iterates over all properties of a class that policies distinguish.
    fn views_of(&self, class: &Class) -> impl Iterator<Item = u32> {
        let (subject, peer) = (self.role.as_subject(), self.role.as_peer());
        let row = |rows: &[u32; 4], tier, direction| {
            let row = rows.get(table_index(tier, direction)).copied();
            row.unwrap_or(0)
        };
        let at = |of: &[u32; 2]| of.get(direction_index(subject)).copied().unwrap_or(NONE);
        let union = self.unions.get(at(&class.unions) as usize);
        let is_default_isolated = at(&class.default_isolations) != NONE;
        let port_map = match self.role {
            // Port names are resolved at the destination.
            FlowRole::Source => 0,
            FlowRole::Destination => class.port_map,
        };
        let fixed = [
            row(&class.subject_rows, Tier::Admin, subject),
            row(&class.subject_rows, Tier::Baseline, subject),
            row(&class.peer_rows, Tier::Admin, peer),
            row(&class.peer_rows, Tier::Baseline, peer),
            union.copied().unwrap_or(NONE),
            u32::from(is_default_isolated),
            port_map,
        ];
        let namespace = class.namespace as usize;
        // The group of the namespace in each relation, not the namespace itself: namespaces of
        // one group have the same relations to all others.
        let relations = self.program.relations.iter().map(move |relation| {
            let group = relation.groups.get(namespace).copied();
            group.unwrap_or(NONE)
        });
        let sets = self.program.sets_of(class);
        let sets = sets.filter(|set| {
            let is_peer = self.is_peer_set.get(*set as usize);
            is_peer.copied().unwrap_or(false)
        });
        fixed.into_iter().chain(relations).chain(sets)
    }

    /// Returns a number for the node sets that a member is in.
    fn node(&mut self, identity: Identity) -> u32 {
        let node = match identity {
            Identity::Pod(_) => return 0,
            Identity::External => return 1,
            Identity::Node(node) => node,
        };
        let sets = (0..).zip(&self.program.node_sets);
        let of_node =
            sets.filter(|(_, nodes)| node.is_some_and(|node| nodes.binary_search(&node).is_ok()));
        // 0 and 1 are pods and addresses outside, which are in no set of nodes.
        let next = count(self.node_ids.len()) + 2;
        let of_node = of_node.map(|(set, _)| set).collect();
        *self.node_ids.entry(of_node).or_insert(next)
    }
}
