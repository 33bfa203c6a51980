//! Which policies are on a pod, which of them is overridden, and by what.
//!
//! A policy is overridden by another if there is a flow of a pod it selects on which the two
//! disagree and the other one is asked first. That is found out exactly: no rule can tell apart the
//! pods of a class, the addresses of an atom or the ports of an atom, so one flow for each
//! combination stands for all of them. A flow that is found is kept as the witness.
//!
//! A rule that passes is taken to say what the later tiers say, and it overrides the rest of its
//! tier (D10). NetworkPolicies are a union, so that none of them overrides another (D101).

mod group;
mod mask;
pub(crate) mod peers;
mod ports;
mod search;
mod shared;
mod stack;
#[cfg(test)]
pub(crate) mod tests;

use std::num::NonZeroU16;

use rustc_hash::FxHashMap;

use self::group::{Group, groups};
use self::peers::Peers;
use self::shared::Shared;
use crate::answer::Transport;
use crate::compile::BASELINE_ADMIN_PRIORITY;
use crate::decide::Flow;
use crate::flow_end::EndName;
use crate::model::{
    BackendTarget, Cluster, NamespaceSet, PodId, Policy, PolicyId, PolicyRank, ServiceId, label,
};
use crate::net::{Family, Protocol};
use crate::policy::{Direction, PolicyApi, Tier, Verdict};
use crate::program::{Program, RulePlace};

/// What of a policy settles a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decider {
    /// A rule that matches.
    Rule(RulePlace),
    /// That it isolates, and no rule matches.
    Isolation(PolicyId, Direction),
}

impl Decider {
    /// The policy.
    pub fn policy(self) -> PolicyId {
        match self {
            Decider::Rule(place) => place.policy,
            Decider::Isolation(policy, _) => policy,
        }
    }

    /// The direction.
    pub fn direction(self) -> Direction {
        match self {
            Decider::Rule(place) => place.direction,
            Decider::Isolation(_, direction) => direction,
        }
    }

    /// The rule, if it is one.
    pub fn rule(self) -> Option<RulePlace> {
        match self {
            Decider::Rule(place) => Some(place),
            Decider::Isolation(..) => None,
        }
    }
}

/// A flow that shows something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Where it starts.
    pub source: EndName,
    /// Where it ends.
    pub destination: EndName,
    /// What it carries.
    pub carried: Transport,
    /// The family; none if an end has no known address.
    pub family: Option<Family>,
    /// The Service that brings a pod back to itself (D77).
    pub via: Option<ServiceId>,
    /// The flow as it is decided.
    pub flow: Flow,
}

/// A part of a policy that is overridden by a part of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// What comes first.
    pub winner: Decider,
    /// What would have said the opposite.
    pub loser: Decider,
    /// What becomes of the flow.
    pub verdict: Verdict,
    /// Such a flow.
    pub witness: Witness,
}

/// A rule that passes flows on, and who settles them then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// The rule that passes.
    pub rule: Decider,
    /// What settles the flow in a later tier.
    pub to: Decider,
    /// What becomes of the flow.
    pub verdict: Verdict,
    /// Such a flow.
    pub witness: Witness,
}

/// What policies do to one another on some pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// By winner, loser and verdict.
    pub overrides: Vec<Override>,
    /// By rule, target and verdict.
    pub deferrals: Vec<Deferral>,
    /// The parts that settle some flow, sorted; a rule that passes settles its tier.
    pub settling: Vec<Decider>,
}

impl Effects {
    /// Whether some part of a policy settles flows in a direction.
    pub fn settles(&self, policy: PolicyId, direction: Direction) -> bool {
        let is_its = |it: &&Decider| it.policy() == policy && it.direction() == direction;
        self.settling.iter().any(|it| is_its(&it))
    }
}

/// Finds out what policies do to one another in one cluster.
#[derive(Debug)]
pub struct OverrideFinder<'c> {
    cluster: &'c Cluster<'c>,
    program: &'c Program,
    peers: Peers<'c>,
    /// The ports at which Services lead to a pod.
    served: FxHashMap<PodId, Vec<(ServiceId, Protocol, NonZeroU16)>>,
}

impl<'c> OverrideFinder<'c> {
    /// Prepares the questions about a cluster and its program.
    pub fn new(cluster: &'c Cluster<'c>, program: &'c Program) -> OverrideFinder<'c> {
        OverrideFinder {
            cluster,
            program,
            peers: Peers::new(cluster, program),
            served: served(cluster),
        }
    }

    /// Pods put together for which the effects are the same, whatever else tells them apart.
    pub fn pod_classes(&self, pods: &[PodId]) -> Vec<Vec<PodId>> {
        let mut alike: Vec<Vec<PodId>> = Vec::new();
        let mut places = FxHashMap::default();
        for id in pods {
            let pod = self.cluster.pods.get(id.0 as usize);
            let addresses = pod.map_or(&[][..], |pod| &pod.addresses).iter();
            let atoms = addresses.map(|it| self.program.address_atom(*it));
            let key = (
                self.program.class_id(*id),
                atoms.collect::<Vec<_>>(),
                pod.is_some_and(|pod| pod.template.is_some()),
                pod.and_then(|pod| pod.node)
                    .filter(|it| self.peers.is_lonely(it)),
                self.served.get(id),
            );
            let place = *places.entry(key).or_insert(alike.len());
            match alike.get_mut(place) {
                Some(known) => known.push(*id),
                None => alike.push(vec![*id]),
            }
        }
        alike
    }

    /// What the policies on some pods do to one another there. Pods that no policy can select have
    /// no part in it.
    pub fn effects(&self, pods: &[PodId]) -> Effects {
        let mut found = FoundEffects::default();
        for direction in Direction::BOTH {
            // What groups have in common is worked out once.
            let mut alike: FxHashMap<_, Vec<Group<'_>>> = FxHashMap::default();
            let mut order = Vec::new();
            for group in groups(self.cluster, self.program, pods, direction) {
                let list = alike.entry(group.shared.clone()).or_default();
                if list.is_empty() {
                    order.push(group.shared.clone());
                }
                list.push(group);
            }
            for groups in order.iter().filter_map(|key| alike.get(key)) {
                let Some(first) = groups.first() else {
                    continue;
                };
                let shared = Shared::new(&self.peers, self.program, first);
                for group in groups {
                    self.search(&shared, group, &mut found);
                }
            }
        }
        found.finish()
    }
}

/// Effects under construction: the first witness of each is kept.
#[derive(Debug, Default)]
struct FoundEffects {
    overrides: FxHashMap<(Decider, Decider, Verdict), Witness>,
    deferrals: FxHashMap<(Decider, Decider, Verdict), Witness>,
    settling: FxHashMap<Decider, ()>,
}

impl FoundEffects {
    fn add(&mut self, story: &stack::Story, witness: &Witness) {
        for key in &story.overrides {
            self.overrides.entry(*key).or_insert(*witness);
        }
        for key in &story.deferrals {
            self.deferrals.entry(*key).or_insert(*witness);
        }
        for part in &story.settling {
            self.settling.insert(*part, ());
        }
    }

    fn finish(self) -> Effects {
        let overrides = self.overrides.into_iter();
        let overrides = overrides.map(|((winner, loser, verdict), witness)| Override {
            winner,
            loser,
            verdict,
            witness,
        });
        let deferrals = self.deferrals.into_iter();
        let deferrals = deferrals.map(|((rule, to, verdict), witness)| Deferral {
            rule,
            to,
            verdict,
            witness,
        });
        let mut effects = Effects {
            overrides: overrides.collect(),
            deferrals: deferrals.collect(),
            settling: self.settling.into_keys().collect(),
        };
        effects
            .overrides
            .sort_by_key(|it| (it.winner, it.loser, it.verdict));
        effects
            .deferrals
            .sort_by_key(|it| (it.rule, it.to, it.verdict));
        effects.settling.sort_unstable();
        effects
    }
}

/// The ports at which Services that translate lead to pods (D78).
pub(crate) fn served(
    cluster: &Cluster<'_>,
) -> FxHashMap<PodId, Vec<(ServiceId, Protocol, NonZeroU16)>> {
    let mut served: FxHashMap<PodId, Vec<_>> = FxHashMap::default();
    for (index, service) in cluster.services.iter().enumerate() {
        if service.is_headless || service.is_external_name {
            continue;
        }
        let id = ServiceId(u32::try_from(index).unwrap_or(u32::MAX));
        for port in &service.ports {
            for backend in &port.backends {
                if let BackendTarget::Pod(pod) = backend.target {
                    let list = served.entry(pod).or_default();
                    list.push((id, port.protocol, backend.port));
                }
            }
        }
    }
    served
}

/// Whether a policy selects a pod.
pub fn selects(cluster: &Cluster<'_>, policy: &Policy<'_>, pod: PodId) -> bool {
    let Some(pod) = cluster.pods.get(pod.0 as usize) else {
        return false;
    };
    let Some(subject) = policy.subject.as_ref().filter(|_| pod.is_selectable()) else {
        return false;
    };
    let namespace = cluster.namespaces.get(pod.namespace.0 as usize);
    let has = |key: &str| namespace.and_then(|it| label(&it.labels, key));
    let namespace_fits = match &subject.namespaces {
        NamespaceSet::Exact(id) => *id == pod.namespace,
        NamespaceSet::Selected { selector, except } => {
            selector.matches(has) && !except.iter().any(|it| it.matches(has))
        }
        // Only peers are related to a subject.
        NamespaceSet::Own
        | NamespaceSet::NotOwn
        | NamespaceSet::SameLabels(_)
        | NamespaceSet::NotSameLabels(_) => false,
    };
    let pods = subject.pods.as_ref();
    namespace_fits && pods.is_none_or(|it| it.matches(|key| label(&pod.labels, key)))
}

/// The pods that a policy selects, in order.
pub fn subjects(cluster: &Cluster<'_>, policy: &Policy<'_>) -> Vec<PodId> {
    let pods = (0..cluster.pods.len()).filter_map(|index| u32::try_from(index).ok());
    let pods = pods.map(PodId);
    pods.filter(|pod| selects(cluster, policy, *pod)).collect()
}

/// Whether a policy says anything about a direction.
pub fn speaks(policy: &Policy<'_>, direction: Direction) -> bool {
    let rules = policy.rules(direction);
    match policy.rank {
        // Rules for a direction in which such a policy does not isolate are ignored (D31).
        PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup => rules.isolates,
        PolicyRank::EarlyAdmin | PolicyRank::Ordered(..) => !rules.list.is_empty(),
    }
}

/// The policies that select a pod and speak of a direction, in order of precedence; also those that
/// only say what they would do.
pub fn policies_on(cluster: &Cluster<'_>, pod: PodId, direction: Direction) -> Vec<PolicyId> {
    let policies = cluster.policies.iter().enumerate();
    let on_it = policies.filter(|(_, it)| speaks(it, direction) && selects(cluster, it, pod));
    let mut on_it: Vec<(usize, &Policy<'_>)> = on_it.collect();
    on_it.sort_by_key(|(_, policy)| precedence(policy));
    let ids = on_it.iter().filter_map(|(id, _)| u32::try_from(*id).ok());
    ids.map(PolicyId).collect()
}

/// Where a policy stands among all: stage, priority, kind, namespace, name.
type Precedence<'a> = (u8, i64, Option<PolicyApi>, Option<u32>, &'a str, PolicyApi);

/// The key that sorts policies by precedence (1.2); NetworkPolicies, among which there is none, go by
/// name (D137). Of the early cluster policies every Deny goes before every Allow, whatever the policy.
pub fn precedence<'a>(policy: &Policy<'a>) -> Precedence<'a> {
    let generation = policy.generation;
    let (stage, priority, kind) = match policy.rank {
        PolicyRank::EarlyAdmin => (0, 0, None),
        PolicyRank::Ordered(Tier::Admin, priority) => (1, priority, Some(generation)),
        PolicyRank::NetworkPolicy => (2, 0, None),
        PolicyRank::Ordered(Tier::Baseline, priority) => (3, priority, Some(generation)),
        PolicyRank::DefaultGroup => (3, BASELINE_ADMIN_PRIORITY + 1, Some(generation)),
    };
    let namespace = policy.namespace.map(|it| it.0);
    (stage, priority, kind, namespace, policy.name, generation)
}
