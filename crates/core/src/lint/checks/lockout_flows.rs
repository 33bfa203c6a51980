//! The guard's eyes: flows of one pod for all that no rule tells apart, decided by the engine.

use rustc_hash::FxHashMap;

use super::FindingTarget;
use super::context::CheckContext;
use super::targets::Target;
use crate::affect::{Decider, Witness};
use crate::answer::Transport;
use crate::decide::{Cause, Flow, FlowEnd, Identity, Traffic};
use crate::flow_end::{self, EndCandidate};
use crate::id_set::set_bit;
use crate::model::{ContainerPort, Pod, PodId, PolicyId};
use crate::net::Family;
use crate::policy::{Action, Direction, Tier, Verdict};
use crate::program::{AddressAtom, Class, IsolationId, NONE, direction_index, table_index};
/// Pods that no rule tells apart, neither as sources nor by their addresses.
pub(super) struct Group<'c> {
    pub(super) class: &'c Class,
    /// Two of them, if there are two: one may be whom it is asked about.
    pub(super) pods: [Option<PodId>; 2],
    pub(super) size: u64,
    pub(super) ports: &'c [ContainerPort<'c>],
}

/// What pods are told apart by, besides their class and families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodDistinction {
    /// Nothing: the addresses of sources count only where they arrive.
    Classes,
    /// What rules say of their addresses.
    Addresses,
    /// That, and the ports that they declare.
    AddressesAndPorts,
}

/// A flow that was decided for certain, whatever addresses its ends have.
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

pub(super) struct LockoutEvaluator<'g, 'c> {
    pub(super) context: &'g CheckContext<'c>,
    /// For each table the rows of subjects with a rule that denies.
    denying: [Vec<bool>; 4],
    /// The first and last atom that an unknown address could be in, for each family.
    possible: [[Option<AddressAtom>; 2]; 2],
}

impl<'g, 'c> LockoutEvaluator<'g, 'c> {
    pub(super) fn new(ground: &'g CheckContext<'c>) -> LockoutEvaluator<'g, 'c> {
        let denying = ground.program.tables.each_ref().map(|table| {
            let mut denying: Vec<u64> = vec![0; table.subjects.words];
            for (bit, action) in (0..).zip(&table.actions) {
                if *action == Action::Deny {
                    set_bit(&mut denying, bit);
                }
            }
            let words = table.subjects.words.max(1);
            let rows = table.subjects.bits.chunks(words);
            let denies = |row: &[u64]| row.iter().zip(&denying).any(|(a, b)| a & b != 0);
            rows.map(denies).collect()
        });
        LockoutEvaluator {
            context: ground,
            denying,
            possible: Family::BOTH.map(|family| {
                let all = ground.program.addresses.possible(family);
                [all.first().copied(), all.last().copied()]
            }),
        }
    }

    /// Whether a rule of the ordered tiers or a default isolation denies anything to anyone.
    pub(super) fn may_deny_something(&self) -> bool {
        let mut isolations = self.context.program.classes.iter();
        self.denying.iter().flatten().any(|it| *it)
            || isolations.any(|class| class.default_isolations != [NONE; 2])
    }

    /// Whether one of them could deny a class something in a direction.
    pub(super) fn may_deny(&self, class: &Class, direction: Direction) -> bool {
        let by_rule = [Tier::Admin, Tier::Baseline].iter().any(|tier| {
            let index = table_index(*tier, direction);
            let row = class.subject_rows.get(index).copied().unwrap_or(0);
            let rows = self.denying.get(index);
            rows.and_then(|rows| rows.get(row as usize)) == Some(&true)
        });
        let isolation = class.default_isolations.get(direction_index(direction));
        by_rule || isolation.is_some_and(|it| *it != NONE)
    }

    /// Some of the pods that policies can select, by what rules tell apart.
    pub(super) fn groups(
        &self,
        is_meant: &dyn Fn(PodId, &Pod<'_>) -> bool,
        apart: PodDistinction,
    ) -> Vec<Group<'c>> {
        let mut groups: Vec<Group<'c>> = Vec::new();
        let mut places = FxHashMap::default();
        // The next pod is often like the last one.
        let mut last = None;
        for (id, pod) in self.context.pods() {
            let class = self.context.program.class(id);
            let Some(class) = class.filter(|_| is_meant(id, pod)) else {
                continue;
            };
            let party = flow_end::pod(self.context.cluster, self.context.program, id);
            let atoms = match apart {
                PodDistinction::Classes => [None; 2],
                PodDistinction::Addresses | PodDistinction::AddressesAndPorts => {
                    self.context.atoms(&party)
                }
            };
            let ports: &'c [ContainerPort<'c>] = match apart {
                PodDistinction::Classes | PodDistinction::Addresses => &[],
                PodDistinction::AddressesAndPorts => &pod.ports,
            };
            let families = Family::BOTH.map(|family| party.addresses.may_have(family));
            let key = (class.id, families, atoms, ports);
            let place = match last {
                Some((its, place)) if its == key => place,
                _ => *places.entry(key).or_insert(groups.len()),
            };
            last = Some((key, place));
            match groups.get_mut(place) {
                Some(group) => {
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

    /// A pod of a group that is not somebody.
    pub(super) fn other_than(&self, group: &Group<'c>, who: Identity) -> Option<EndCandidate<'c>> {
        let mut pods = group.pods.iter().flatten();
        let pod = pods.find(|pod| Identity::Pod(**pod) != who)?;
        Some(flow_end::pod(
            self.context.cluster,
            self.context.program,
            *pod,
        ))
    }

    /// Asks for a flow in every family that both ends have.
    pub(super) fn evaluate(
        &self,
        source: &EndCandidate<'c>,
        target: &Target<'c>,
    ) -> impl Iterator<Item = CertainFlow> + use<'c> {
        let traffic = Traffic::Port(target.protocol, target.port);
        let destination = &target.end;
        let in_family = |family: Family| {
            let from = self.atoms(source, family);
            let to = self.atoms(destination, family);
            let mut asked: Option<CertainFlow> = None;
            let pairs = from
                .iter()
                .flatten()
                .flat_map(|from| to.iter().flatten().map(move |to| (from, to)));
            for (source_atom, atom) in pairs {
                let flow = Flow {
                    source: FlowEnd {
                        identity: source.identity,
                        address: *source_atom,
                    },
                    destination: FlowEnd {
                        identity: destination.identity,
                        address: *atom,
                    },
                    traffic,
                    via_service: false,
                    node_local: false,
                };
                let decision = self.context.program.decide(&flow);
                match &mut asked {
                    Some(asked) => {
                        asked.egress = asked.egress.filter(|it| *it == decision.egress);
                        asked.ingress = asked.ingress.filter(|it| *it == decision.ingress);
                    }
                    None => {
                        let is_known = source.addresses.of(family).is_some()
                            && destination.addresses.of(family).is_some();
                        asked = Some(CertainFlow {
                            witness: Witness {
                                source: source.name,
                                destination: destination.name,
                                carried: Transport::Port(target.protocol, target.port),
                                family: is_known.then_some(family),
                                via: None,
                                flow,
                            },
                            egress: Some(decision.egress),
                            ingress: Some(decision.ingress),
                        });
                    }
                }
            }
            asked
        };
        Family::BOTH.map(in_family).into_iter().flatten()
    }

    /// The atoms of a party's address in a family; of an unknown one those at both ends.
    fn atoms(&self, party: &EndCandidate<'_>, family: Family) -> [Option<AddressAtom>; 2] {
        if !party.addresses.may_have(family) {
            return [None; 2];
        }
        let [v4, v6] = self.possible;
        match (party.addresses.of(family), family) {
            (Some(address), _) => [Some(self.context.program.address_atom(address)), None],
            (None, Family::V4) => v4,
            (None, Family::V6) => v6,
        }
    }

    /// Whether somebody that is asked could be kept from hearing it.
    pub(super) fn may_refuse(&self, target: &Target<'c>) -> bool {
        let class = match target.end.identity {
            Identity::Pod(pod) => self.context.program.class(pod),
            Identity::Node(_) | Identity::External => None,
        };
        class.is_some_and(|class| self.may_deny(class, Direction::Ingress))
    }

    /// What denies, if it is a policy for the whole cluster.
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

    /// The policies that isolate together: the first that has rules, which are the ones to add to.
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
