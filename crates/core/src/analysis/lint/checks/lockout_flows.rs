//! Evaluates the flows of lockout checks: one pod stands for all that no rule distinguishes.

use std::cell::RefCell;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::FindingTarget;
use super::context::CheckContext;
use super::targets::Target;
use crate::analysis::affect::{Decider, Witness};
use crate::analysis::connect::keys::representatives;
use crate::analysis::connect::members::family_index;
use crate::answer::Transport;
use crate::decide::{Cause, Flow, FlowEnd, Identity, Traffic};
use crate::flow_end::{self, EndCandidate};
use crate::id_set::set_bit;
use crate::model::{ContainerPort, Pod, PodId, PolicyId};
use crate::net::Family;
use crate::policy::{Action, Direction, Tier, Verdict};
use crate::program::{AddressAtom, Class, IsolationId, NONE, direction_index, table_index};

/// Pods that no rule distinguishes, neither as sources nor by their addresses.
pub(super) struct Group<'c> {
    pub(super) class: &'c Class,
    /// Two of its pods, if there are two: one of them may be the destination, and traffic of a pod
    /// to itself is exempt (D76).
    pub(super) pods: [Option<PodId>; 2],
    pub(super) size: u64,
    pub(super) ports: &'c [ContainerPort<'c>],
}

/// The properties by which pods are distinguished, besides their class and families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodDistinction {
    /// None. Only ingress rules of the destination match the address of a source.
    Classes,
    /// The address atoms.
    Addresses,
    /// The address atoms and the declared ports.
    AddressesAndPorts,
}

/// An evaluated flow. A cause is absent if it was found to depend on an unknown address.
pub(super) struct CertainFlow {
    pub(super) witness: Witness,
    pub(super) egress: Option<Cause>,
    pub(super) ingress: Option<Cause>,
}

impl CertainFlow {
    pub(super) fn cause(&self, direction: Direction) -> Option<Cause> {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        }
    }
}

/// Atoms of each family.
type AtomsByFamily = [Vec<AddressAtom>; 2];

pub(super) struct LockoutEvaluator<'g, 'c> {
    pub(super) context: &'g CheckContext<'c>,
    /// For each table and row of subjects, whether a rule of the row denies.
    denying: [Vec<bool>; 4],
    /// The atoms that an unknown address can be in, for each family.
    possible: AtomsByFamily,
    /// One of these for each set of blocks that the rules on a class distinguish.
    assumed: RefCell<FxHashMap<(u32, Direction), Rc<AtomsByFamily>>>,
}

impl<'g, 'c> LockoutEvaluator<'g, 'c> {
    pub(super) fn new(context: &'g CheckContext<'c>) -> LockoutEvaluator<'g, 'c> {
        let denying = context.program.tables.each_ref().map(|table| {
            let mut denying: Vec<u64> = vec![0; table.subjects.words];
            for (bit, action) in (0..).zip(&table.actions) {
                if *action == Action::Deny {
                    set_bit(&mut denying, bit);
                }
            }
            // An empty table has rows of no words, and `chunks` does not accept 0.
            let words = table.subjects.words.max(1);
            let rows = table.subjects.bits.chunks(words);
            let denies = |row: &[u64]| row.iter().zip(&denying).any(|(a, b)| a & b != 0);
            rows.map(denies).collect()
        });
        LockoutEvaluator {
            context,
            denying,
            possible: Family::BOTH.map(|family| context.program.addresses.possible(family)),
            assumed: RefCell::default(),
        }
    }

    /// Whether any rule of the ordered tiers denies, or any default policy isolates.
    pub(super) fn may_deny_something(&self) -> bool {
        let mut isolations = self.context.program.classes.iter();
        self.denying.iter().flatten().any(|it| *it)
            || isolations.any(|class| class.default_isolations != [NONE; 2])
    }

    /// Whether a rule that denies, or a default isolation, selects a class in a direction.
    pub(super) fn may_deny(&self, class: &Class, direction: Direction) -> bool {
        let by_rule = [Tier::Admin, Tier::Baseline].iter().any(|tier| {
            let index = table_index(*tier, direction);
            // Row 0 has no rule, so it denies nothing.
            let row = class.subject_rows.get(index).copied().unwrap_or(0);
            let rows = self.denying.get(index);
            rows.and_then(|rows| rows.get(row as usize)) == Some(&true)
        });
        let isolation = class.default_isolations.get(direction_index(direction));
        by_rule || isolation.is_some_and(|it| *it != NONE)
    }

    /// Groups those selectable pods for which `is_included` holds.
    pub(super) fn groups(
        &self,
        is_included: &dyn Fn(PodId, &Pod<'_>) -> bool,
        distinction: PodDistinction,
    ) -> Vec<Group<'c>> {
        let mut groups: Vec<Group<'c>> = Vec::new();
        let mut places = FxHashMap::default();
        // Pods of one workload are adjacent, so the last key often saves a lookup in the map.
        let mut last = None;
        for (id, pod) in self.context.pods() {
            let class = self.context.program.class(id);
            let Some(class) = class.filter(|_| is_included(id, pod)) else {
                continue;
            };
            let source = flow_end::pod(self.context.cluster, self.context.program, id);
            let atoms = match distinction {
                PodDistinction::Classes => [None; 2],
                PodDistinction::Addresses | PodDistinction::AddressesAndPorts => {
                    self.context.atoms(&source)
                }
            };
            let ports: &'c [ContainerPort<'c>] = match distinction {
                PodDistinction::Classes | PodDistinction::Addresses => &[],
                PodDistinction::AddressesAndPorts => &pod.ports,
            };
            let families = Family::BOTH.map(|family| source.addresses.may_have(family));
            let key = (class.id, families, atoms, ports);
            let place = match last {
                Some((its, place)) if its == key => place,
                _ => *places.entry(key).or_insert(groups.len()),
            };
            last = Some((key, place));
            match groups.get_mut(place) {
                Some(group) => {
                    // Two are enough: at most one of them is the destination.
                    let [_, second] = &mut group.pods;
                    second.get_or_insert(id);
                    group.size += 1;
                }
                None => groups.push(Group {
                    class,
                    pods: [Some(id), None],
                    size: 1,
                    ports,
                }),
            }
        }
        groups
    }

    /// Returns a pod of a group that is not the destination.
    pub(super) fn other_than(
        &self,
        group: &Group<'c>,
        destination: Identity,
    ) -> Option<EndCandidate<'c>> {
        let mut pods = group.pods.iter().flatten();
        let pod = pods.find(|pod| Identity::Pod(**pod) != destination)?;
        Some(flow_end::pod(
            self.context.cluster,
            self.context.program,
            *pod,
        ))
    }

    /// Evaluates a flow in every family that source and destination share.
    pub(super) fn evaluate(
        &self,
        source: &EndCandidate<'c>,
        target: &Target<'c>,
    ) -> impl Iterator<Item = CertainFlow> + use<'c> {
        let destination = &target.end;
        let in_family = |family: Family| {
            let flow = Flow {
                source: FlowEnd {
                    identity: source.identity,
                    address: self.some_atom(source, family)?,
                },
                destination: FlowEnd {
                    identity: destination.identity,
                    address: self.some_atom(destination, family)?,
                },
                traffic: Traffic::Port(target.protocol, target.port),
                via_service: false,
                node_local: false,
            };
            let decision = self.context.program.decide(&flow);
            let is_known =
                source.addresses.of(family).is_some() && destination.addresses.of(family).is_some();
            // Egress rules match the destination's address, ingress rules the source's.
            let certain = |direction, peer: &EndCandidate<'_>| {
                let cause = decision.cause(direction);
                let is_certain = peer.addresses.of(family).is_some()
                    || self.holds_for_every_peer_address(cause, &flow, direction, family);
                is_certain.then_some(cause)
            };
            Some(CertainFlow {
                witness: Witness {
                    source: source.name,
                    destination: destination.name,
                    transport: Transport::Port(target.protocol, target.port),
                    family: is_known.then_some(family),
                    via: None,
                    flow,
                },
                egress: certain(Direction::Egress, destination),
                ingress: certain(Direction::Ingress, source),
            })
        };
        Family::BOTH.map(in_family).into_iter().flatten()
    }

    /// Returns an atom of an endpoint in a family: of its address, or of one that it can have.
    fn some_atom(&self, candidate: &EndCandidate<'_>, family: Family) -> Option<AddressAtom> {
        if !candidate.addresses.may_have(family) {
            return None;
        }
        match candidate.addresses.of(family) {
            Some(address) => Some(self.context.program.address_atom(address)),
            None => self.possible.get(family_index(family))?.first().copied(),
        }
    }

    /// Whether a direction has the same cause for every address that the peer of a flow can have.
    fn holds_for_every_peer_address(
        &self,
        cause: Cause,
        flow: &Flow,
        direction: Direction,
        family: Family,
    ) -> bool {
        let program = self.context.program;
        let subject = match direction {
            Direction::Ingress => flow.destination.identity,
            Direction::Egress => flow.source.identity,
        };
        let class = match subject {
            Identity::Pod(pod) => program.class(pod),
            // Only pods have rules.
            Identity::Node(_) | Identity::External => None,
        };
        let Some(class) = class else {
            return true;
        };
        let assumed = self.assumed(class, direction);
        let mut atoms = assumed.get(family_index(family)).into_iter().flatten();
        atoms.all(|atom| {
            let mut flow = *flow;
            let peer = match direction {
                Direction::Ingress => &mut flow.source,
                Direction::Egress => &mut flow.destination,
            };
            peer.address = *atom;
            program.direction(&flow, direction) == cause
        })
    }

    /// Returns the atoms to try for an unknown peer of a class, for each family.
    fn assumed(&self, class: &Class, direction: Direction) -> Rc<AtomsByFamily> {
        let program = self.context.program;
        let mut known = self.assumed.borrow_mut();
        let atoms = known.entry((class.id, direction)).or_insert_with(|| {
            let rules = program.rules_selecting(class, direction);
            let of = |possible: &Vec<AddressAtom>| representatives(program, &rules, possible);
            Rc::new(self.possible.each_ref().map(of))
        });
        Rc::clone(atoms)
    }

    /// Whether ingress to a target may be denied. Only pods have ingress rules.
    pub(super) fn may_refuse(&self, target: &Target<'c>) -> bool {
        let class = match target.end.identity {
            Identity::Pod(pod) => self.context.program.class(pod),
            Identity::Node(_) | Identity::External => None,
        };
        class.is_some_and(|class| self.may_deny(class, Direction::Ingress))
    }

    /// Returns the rule or isolation that denies, if it is of a cluster-wide policy.
    pub(super) fn denier(
        &self,
        cause: Cause,
        direction: Direction,
    ) -> Option<(FindingTarget, Vec<Decider>)> {
        match cause {
            Cause::AdminRule(Verdict::Deny, rule) | Cause::BaselineRule(Verdict::Deny, rule) => {
                Some((
                    FindingTarget::Rule(self.context.program.place(rule)?),
                    Vec::new(),
                ))
            }
            Cause::DefaultIsolation(id) => self.isolators(id, direction),
            Cause::AdminRule(Verdict::Allow, _)
            | Cause::BaselineRule(Verdict::Allow, _)
            | Cause::NetworkPolicyRule(_)
            | Cause::Isolation(_)
            | Cause::Default
            | Cause::Exempt(_)
            | Cause::NotApplicable(_) => None,
        }
    }

    /// Returns the target for an isolation by several policies, and the others: the first policy
    /// with rules, since a rule that allows the flow belongs there.
    pub(super) fn isolators(
        &self,
        id: IsolationId,
        direction: Direction,
    ) -> Option<(FindingTarget, Vec<Decider>)> {
        let policies = self.context.program.isolation(id);
        let has_rules = |id: &&PolicyId| {
            let policy = self.context.policy(**id);
            policy.is_some_and(|it| !it.rules(direction).list.is_empty())
        };
        let first = policies.iter().find(has_rules).or(policies.first())?;
        let others = policies.iter().filter(|it| *it != first);
        let others = others.map(|it| Decider::Isolation(*it, direction));
        Some((FindingTarget::Policy(*first), others.collect()))
    }
}
