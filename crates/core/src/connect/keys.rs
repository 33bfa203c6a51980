//! Keys: members that no policy tells apart at one end of a flow.

use rustc_hash::FxHashMap;

use super::members::Seen;
use super::sign::{self, Signature};
use crate::compile::count;
use crate::decide::Who;
use crate::net::Family;
use crate::policy::{Direction, Tier};
use crate::program::{
    AddressAtom, Class, NONE, Program, RuleId, Union, direction_index, table_index,
};

/// An end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Destination,
}

impl End {
    /// The direction in which whoever is at this end is the subject.
    pub(super) fn as_subject(self) -> Direction {
        match self {
            End::Source => Direction::Egress,
            End::Destination => Direction::Ingress,
        }
    }

    /// The direction in which it is the peer.
    fn as_peer(self) -> Direction {
        match self {
            End::Source => Direction::Ingress,
            End::Destination => Direction::Egress,
        }
    }
}

/// The rules of NetworkPolicies that select someone, for each direction, ascending.
pub(super) fn union_rules(program: &Program) -> [Vec<RuleId>; 2] {
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

/// Address atoms that no rule of a direction tells apart.
#[derive(Debug)]
pub(super) struct AddressClasses {
    source: Vec<u32>,
    destination: Vec<u32>,
}

impl AddressClasses {
    pub(super) fn new(program: &Program, union_rules: &[Vec<RuleId>; 2]) -> AddressClasses {
        let of = |end: End| {
            let direction = end.as_peer();
            let n_atoms = program.addresses.len();
            let mut changes = vec![0; n_atoms + 1];
            let rules = union_rules.get(direction_index(direction));
            for id in rules.into_iter().flatten() {
                if let Some(rule) = program.rules.get(id.0 as usize) {
                    let runs = rule.blocks.of(&program.lists.blocks);
                    sign::mark(&mut changes, runs, sign::word(id.0));
                }
            }
            let signatures = sign::sums(&changes, n_atoms);
            let mut ids: FxHashMap<(u32, u32, Signature), u32> = FxHashMap::default();
            let class = |(atom, signature): (usize, Signature)| {
                let row = |tier| {
                    let table = program.table(tier, direction);
                    table.address_rows.get(atom).copied().unwrap_or(0)
                };
                let next = count(ids.len());
                let key = (row(Tier::Admin), row(Tier::Baseline), signature);
                *ids.entry(key).or_insert(next)
            };
            signatures.into_iter().enumerate().map(class).collect()
        };
        AddressClasses {
            source: of(End::Source),
            destination: of(End::Destination),
        }
    }

    /// The class of an atom as the address of a source.
    pub(super) fn of_source(&self, atom: AddressAtom) -> u32 {
        self.source.get(atom.0 as usize).copied().unwrap_or(NONE)
    }

    /// The class of an atom as the address of a destination.
    pub(super) fn of_destination(&self, atom: AddressAtom) -> u32 {
        self.destination
            .get(atom.0 as usize)
            .copied()
            .unwrap_or(NONE)
    }

    pub(super) fn of(&self, end: End, atom: AddressAtom) -> u32 {
        match end {
            End::Source => self.of_source(atom),
            End::Destination => self.of_destination(atom),
        }
    }
}

/// Members that no policy tells apart at one end.
#[derive(Debug)]
pub(super) struct Key<'c> {
    /// What policies see of each of them, as far as it counts.
    pub(super) seen: Seen<'c>,
    /// Ascending.
    pub(super) members: Vec<u32>,
    /// How many of them are pods with a network of their own.
    pub(super) n_pods: u64,
    /// What the caller tells them apart by.
    pub(super) mark: u32,
}

/// The keys of one end.
#[derive(Debug)]
pub(super) struct Keys<'c> {
    pub(super) list: Vec<Key<'c>>,
    /// For each member its key; `NONE`: it is not at this end.
    pub(super) of_member: Vec<u32>,
}

/// What tells keys apart: class, node, address classes, whether any address is possible, and the
/// caller's mark.
type KeyParts = (Signature, Signature, [u32; 2], bool, u32);

impl<'c> Keys<'c> {
    /// The keys of those members at an end for which `mark` has something.
    pub(super) fn new(
        program: &Program,
        end: End,
        addresses: &AddressClasses,
        members: impl Iterator<Item = Option<Seen<'c>>>,
        mark: impl Fn(u32) -> Option<u32>,
    ) -> Keys<'c> {
        let mut signer = Signer::new(program, end);
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
                signer.class(seen.class),
                signer.node(seen.who),
                Family::BOTH.map(address),
                seen.is_unknown,
                mark,
            );
            let id = *ids.entry(parts).or_insert_with(|| {
                keys.list.push(Key {
                    seen,
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

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn of(&self, member: u32) -> Option<u32> {
        let key = self.of_member.get(member as usize).copied();
        key.filter(|key| *key != NONE)
    }
}

/// Signs what policies see of classes and nodes at one end.
struct Signer<'p> {
    program: &'p Program,
    end: End,
    /// The pod sets that rules of NetworkPolicies have as peers, in the direction of peers, and
    /// those that depend on the subject.
    is_peer_set: Vec<bool>,
    unions: Vec<Signature>,
    classes: Vec<Option<Signature>>,
}

impl<'p> Signer<'p> {
    fn new(program: &'p Program, end: End) -> Signer<'p> {
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
        let sign = |union: &Union| sign::ordered(union.rules.iter().map(|it| u64::from(it.0)));
        Signer {
            program,
            end,
            is_peer_set,
            unions: subject_unions.into_iter().flatten().map(sign).collect(),
            classes: vec![None; program.classes.len()],
        }
    }

    fn class(&mut self, class: Option<u32>) -> Signature {
        let Some(id) = class else {
            return 0;
        };
        if let Some(Some(known)) = self.classes.get(id as usize) {
            return *known;
        }
        let class = self.program.classes.get(id as usize);
        let signature = class.map_or(0, |class| self.sign(class));
        if let Some(slot) = self.classes.get_mut(id as usize) {
            *slot = Some(signature);
        }
        signature
    }

    fn sign(&self, class: &Class) -> Signature {
        let (subject, peer) = (self.end.as_subject(), self.end.as_peer());
        let row = |rows: &[u32; 4], tier, direction| {
            let row = rows.get(table_index(tier, direction)).copied();
            u64::from(row.unwrap_or(0))
        };
        let at = |of: &[u32; 2]| of.get(direction_index(subject)).copied().unwrap_or(NONE);
        let union = self.unions.get(at(&class.unions) as usize);
        let [high, low] = halves(union.copied().unwrap_or(0));
        let is_default_isolated = at(&class.default_isolations) != NONE;
        let port_map = match self.end {
            End::Source => 0,
            End::Destination => class.port_map,
        };
        let fixed = [
            row(&class.subject_rows, Tier::Admin, subject),
            row(&class.subject_rows, Tier::Baseline, subject),
            row(&class.peer_rows, Tier::Admin, peer),
            row(&class.peer_rows, Tier::Baseline, peer),
            u64::from(union.is_some()),
            high,
            low,
            u64::from(is_default_isolated),
            u64::from(port_map),
        ];
        let relations = self.program.relations.iter().map(|relation| {
            let group = relation.groups.get(class.namespace as usize).copied();
            u64::from(group.unwrap_or(NONE))
        });
        let sets = self.program.sets_of(class);
        let sets = sets.filter(|set| {
            let is_peer = self.is_peer_set.get(*set as usize);
            is_peer.copied().unwrap_or(false)
        });
        let sets = sets.map(u64::from);
        sign::ordered(fixed.into_iter().chain(relations).chain(sets))
    }

    fn node(&self, who: Who) -> Signature {
        let node = match who {
            Who::Pod(_) => return 0,
            Who::External => return 1,
            Who::Node(node) => node,
        };
        let sets = self.program.node_sets.iter().enumerate();
        let of_node =
            sets.filter(|(_, nodes)| node.is_some_and(|node| nodes.binary_search(&node).is_ok()));
        sign::ordered(of_node.map(|(set, _)| set as u64))
    }
}

fn halves(signature: Signature) -> [u64; 2] {
    let high = u64::try_from(signature >> 64).unwrap_or(0);
    let low = u64::try_from(signature & Signature::from(u64::MAX)).unwrap_or(0);
    [high, low]
}
