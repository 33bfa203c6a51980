//! Keys: members that no policy tells apart at one end of a flow.

use rustc_hash::FxHashMap;

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

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowRole {
    Source,
    Destination,
}

impl FlowRole {
    /// The direction in which whoever is at this end is the subject.
    pub(super) fn as_subject(self) -> Direction {
        match self {
            FlowRole::Source => Direction::Egress,
            FlowRole::Destination => Direction::Ingress,
        }
    }

    /// The direction in which it is the peer.
    fn as_peer(self) -> Direction {
        match self {
            FlowRole::Source => Direction::Ingress,
            FlowRole::Destination => Direction::Egress,
        }
    }
}

/// The rules of NetworkPolicies that select someone, for each direction, ascending.
pub(crate) fn union_rules(program: &Program) -> [Vec<RuleId>; 2] {
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

/// For each atom of addresses a number that it shares with those that blocks of the same rules cover.
pub(crate) fn distinguishing_blocks<'r>(
    program: &Program,
    rules: impl Iterator<Item = &'r RuleId>,
) -> Vec<u32> {
    let rules = rules.filter_map(|id| program.rules.get(id.0 as usize));
    let runs = rules.map(|rule| rule.blocks.of(&program.lists.blocks));
    runs::numbers(runs, program.addresses.len())
}

/// Address atoms that no rule of a direction tells apart.
#[derive(Debug)]
pub(crate) struct AddressClasses {
    source: Vec<u32>,
    destination: Vec<u32>,
}

impl AddressClasses {
    pub(crate) fn new(program: &Program, union_rules: &[Vec<RuleId>; 2]) -> AddressClasses {
        let of = |end: FlowRole| {
            let direction = end.as_peer();
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

    /// The class of an atom as the address of a source.
    pub(crate) fn of_source(&self, atom: AddressAtom) -> u32 {
        self.source.get(atom.0 as usize).copied().unwrap_or(NONE)
    }

    /// The class of an atom as the address of a destination.
    pub(crate) fn of_destination(&self, atom: AddressAtom) -> u32 {
        self.destination
            .get(atom.0 as usize)
            .copied()
            .unwrap_or(NONE)
    }

    pub(crate) fn of(&self, end: FlowRole, atom: AddressAtom) -> u32 {
        match end {
            FlowRole::Source => self.of_source(atom),
            FlowRole::Destination => self.of_destination(atom),
        }
    }
}

/// Members that no policy tells apart at one end.
#[derive(Debug)]
pub(crate) struct Key<'c> {
    /// What policies see of each of them, as far as it counts.
    pub(crate) view: MemberView<'c>,
    /// Ascending.
    pub(crate) members: Vec<u32>,
    /// How many of them are pods with a network of their own.
    pub(crate) n_pods: u64,
    /// What the caller tells them apart by.
    pub(crate) mark: u32,
}

/// The keys of one end.
#[derive(Debug)]
pub(crate) struct Keys<'c> {
    pub(crate) list: Vec<Key<'c>>,
    /// For each member its key; `NONE`: it is not at this end.
    pub(crate) of_member: Vec<u32>,
}

/// What tells keys apart: what policies see of the class and of the node, address classes, whether any
/// address is possible, and the caller's mark.
type KeyParts = (u32, u32, [u32; 2], bool, u32);

impl<'c> Keys<'c> {
    /// The keys of those members at an end for which `mark` has something.
    pub(crate) fn new(
        program: &Program,
        end: FlowRole,
        addresses: &AddressClasses,
        members: impl Iterator<Item = Option<MemberView<'c>>>,
        mark: impl Fn(u32) -> Option<u32>,
    ) -> Keys<'c> {
        let mut views = ViewNumbers::new(program, end);
        let mut ids: FxHashMap<KeyParts, u32> = FxHashMap::default();
        let mut keys = Keys {
            list: Vec::new(),
            of_member: Vec::new(),
        };
        for (member, seen) in members.enumerate() {
            let member = count(member);
            let (Some(seen), Some(mark)) = (seen, mark(member)) else {
                keys.of_member.push(NONE);
                continue;
            };
            let address = |family: Family| match seen.atom(family) {
                Some(atom) => addresses.of(end, atom),
                None => NONE,
            };
            let parts = (
                views.class(seen.class),
                views.node(seen.identity),
                Family::BOTH.map(address),
                seen.is_unknown,
                mark,
            );
            let id = *ids.entry(parts).or_insert_with(|| {
                keys.list.push(Key {
                    view: seen,
                    members: Vec::new(),
                    n_pods: 0,
                    mark,
                });
                count(keys.list.len() - 1)
            });
            keys.of_member.push(id);
            if let Some(key) = keys.list.get_mut(id as usize) {
                key.members.push(member);
                key.n_pods += u64::from(seen.class.is_some());
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

/// Numbers for what policies see of classes and nodes at one end.
struct ViewNumbers<'p> {
    program: &'p Program,
    role: FlowRole,
    /// The pod sets that rules of NetworkPolicies have as peers, in the direction of peers, and
    /// those that depend on the subject.
    is_peer_set: Vec<bool>,
    /// For each union a number that it shares with those of the same rules.
    unions: Vec<u32>,
    /// The number of each class, once it was asked for.
    classes: Vec<Option<u32>>,
    class_ids: SetInterner,
    /// The first class of each number.
    first: Vec<&'p Class>,
    /// The sets of nodes that a node can be in, ascending, with their number.
    node_ids: FxHashMap<Vec<u32>, u32>,
}

impl<'p> ViewNumbers<'p> {
    fn new(program: &'p Program, end: FlowRole) -> ViewNumbers<'p> {
        // Of peers that depend on the subject a row does not say which of them it is.
        let relations = program.set_relations.iter();
        let mut is_peer_set: Vec<bool> = relations.map(Option::is_some).collect();
        // Nor does it say by which of its peers a rule means somebody, if one of them depends on the subject.
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
        let peer_unions = program.unions.get(direction_index(end.as_peer()));
        let mut is_seen = vec![false; program.rules.len()];
        for id in peer_unions.into_iter().flatten().flat_map(|it| &it.rules) {
            let Some(is_seen) = is_seen.get_mut(id.0 as usize).filter(|it| !**it) else {
                continue;
            };
            *is_seen = true;
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
        let subject_unions = program.unions.get(direction_index(end.as_subject()));
        let mut union_ids: FxHashMap<&[RuleId], u32> = FxHashMap::default();
        let number = |union: &'p Union| {
            let next = count(union_ids.len());
            *union_ids.entry(&union.rules).or_insert(next)
        };
        ViewNumbers {
            program,
            role: end,
            is_peer_set,
            unions: subject_unions.into_iter().flatten().map(number).collect(),
            classes: vec![None; program.classes.len()],
            class_ids: SetInterner::default(),
            first: Vec::new(),
            node_ids: FxHashMap::default(),
        }
    }

    /// The number of what policies see of a class; `NONE`: they see none.
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
        let signature = ordered(self.views_of(class).map(u64::from));
        let mut ids = std::mem::take(&mut self.class_ids);
        let number = ids.number(signature, |id| {
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

    /// All that policies see of a class.
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

    /// The number of what policies see of a node.
    fn node(&mut self, who: Identity) -> u32 {
        let node = match who {
            Identity::Pod(_) => return 0,
            Identity::External => return 1,
            Identity::Node(node) => node,
        };
        let sets = (0..).zip(&self.program.node_sets);
        let of_node =
            sets.filter(|(_, nodes)| node.is_some_and(|node| nodes.binary_search(&node).is_ok()));
        let next = count(self.node_ids.len()) + 2;
        let of_node = of_node.map(|(set, _)| set).collect();
        *self.node_ids.entry(of_node).or_insert(next)
    }
}
