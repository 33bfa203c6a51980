//! The effects of policies on each other: which ones select a pod, which are overridden, and by
//! what.
//!
//! A policy overrides another if some flow of a pod that both select gets different verdicts from
//! the two, and the first takes precedence. The result is exact: no rule distinguishes the pods of
//! a class, the addresses of an atom or the ports of an atom, so one flow for each combination
//! stands for all. The first flow found is kept as the witness.
//!
//! A rule that passes has the verdict of the later tiers, and it overrides the rest of its tier
//! (D10). NetworkPolicies are a union; none of them overrides another (D101).

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
use crate::decide::Flow;
use crate::flow_end::EndName;
use crate::model::{
    BackendTarget, Cluster, NamespaceSet, PodId, Policy, PolicyId, PolicyRank, ServiceId, label,
};
use crate::net::{Family, Protocol};
use crate::policy::{BASELINE_ADMIN_PRIORITY, Direction, PolicyApi, Tier, Verdict};
use crate::program::{Program, RulePlace};

/// The part of a policy that decides a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decider {
    /// A rule that matches the flow.
    Rule(RulePlace),
    /// The isolation of the pod, where no rule matches.
    Isolation(PolicyId, Direction),
}

impl Decider {
    /// Returns the policy.
    pub fn policy(self) -> PolicyId {
        match self {
            Decider::Rule(place) => place.policy,
            Decider::Isolation(policy, _) => policy,
        }
    }

    /// Returns the direction.
    pub fn direction(self) -> Direction {
        match self {
            Decider::Rule(place) => place.direction,
            Decider::Isolation(_, direction) => direction,
        }
    }

    /// Returns the rule, if the part is one.
    pub fn rule(self) -> Option<RulePlace> {
        match self {
            Decider::Rule(place) => Some(place),
            Decider::Isolation(..) => None,
        }
    }
}

/// A flow that proves an effect or a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// The source.
    pub source: EndName,
    /// The destination.
    pub destination: EndName,
    /// The protocol, and the port if it has one.
    pub transport: Transport,
    /// The family; none if source or destination has no known address.
    pub family: Option<Family>,
    /// The Service that leads the pod back to itself, if source and destination are one pod (D77).
    pub via: Option<ServiceId>,
    /// The flow as the engine evaluates it.
    pub flow: Flow,
}

/// A part of a policy that overrides a part of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override {
    /// The part that decides.
    pub winner: Decider,
    /// The part that would give the opposite verdict.
    pub loser: Decider,
    /// The verdict of the flow.
    pub verdict: Verdict,
    /// A flow that shows it.
    pub witness: Witness,
}

/// A rule that passes flows, and the part of a later tier that decides them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deferral {
    /// The rule that passes.
    pub rule: Decider,
    /// The part of a later tier that decides the flow.
    pub to: Decider,
    /// The verdict of the flow.
    pub verdict: Verdict,
    /// A flow that shows it.
    pub witness: Witness,
}

/// The effects of policies on each other, for some pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The overrides, sorted by winner, loser and verdict.
    pub overrides: Vec<Override>,
    /// The deferrals, sorted by rule, target and verdict.
    pub deferrals: Vec<Deferral>,
    /// The parts that decide some flow, sorted. A rule that passes decides for its tier.
    pub deciding: Vec<Decider>,
}

impl Effects {
    /// Whether some part of a policy decides flows in a direction.
    pub fn settles(&self, policy: PolicyId, direction: Direction) -> bool {
        let is_its = |it: &&Decider| it.policy() == policy && it.direction() == direction;
        self.deciding.iter().any(|it| is_its(&it))
    }
}

/// Finds the effects of policies on each other in one cluster.
#[derive(Debug)]
pub struct OverrideFinder<'c> {
    cluster: &'c Cluster<'c>,
    program: &'c Program,
    peers: Peers<'c>,
    /// The ports at which Services lead to a pod.
    served: FxHashMap<PodId, Vec<(ServiceId, Protocol, NonZeroU16)>>,
}

impl<'c> OverrideFinder<'c> {
    /// Prepares the search in a cluster and its program.
    pub fn new(cluster: &'c Cluster<'c>, program: &'c Program) -> OverrideFinder<'c> {
        OverrideFinder {
            cluster,
            program,
            peers: Peers::new(cluster, program),
            served: served(cluster),
        }
    }

    /// Groups pods with the same effects.
    pub fn pod_classes(&self, pods: &[PodId]) -> Vec<Vec<PodId>> {
        let mut classes: Vec<Vec<PodId>> = Vec::new();
        let mut places = FxHashMap::default();
        for id in pods {
            let pod = self.cluster.pods.get(id.0 as usize);
            let addresses = pod.map_or(&[][..], |pod| &pod.addresses).iter();
            let atoms = addresses.map(|it| self.program.address_atom(*it));
            // Beyond the class: its addresses, which give the families and the atom of a flow back
            // to the pod; whether it stands for several pods (D76); its node, if some peer exists
            // only there (D74); and Services that lead it back to itself (D77).
            let key = (
                self.program.class_id(*id),
                atoms.collect::<Vec<_>>(),
                pod.is_some_and(|pod| pod.template.is_some()),
                pod.and_then(|pod| pod.node)
                    .filter(|it| self.peers.has_local_peer(it)),
                self.served.get(id),
            );
            let place = *places.entry(key).or_insert(classes.len());
            match classes.get_mut(place) {
                Some(known) => known.push(*id),
                None => classes.push(vec![*id]),
            }
        }
        classes
    }

    /// Returns the effects of policies on each other for some pods. Pods that policies cannot
    /// select have none.
    pub fn effects(&self, pods: &[PodId]) -> Effects {
        let mut found = FoundEffects::default();
        for direction in Direction::BOTH {
            // The ordered tiers cost the most, and many groups share them. They are evaluated once
            // for each distinct value of `shared`, in the order of first use, so witnesses are
            // reproducible.
            let mut by_shared: FxHashMap<_, Vec<Group<'_>>> = FxHashMap::default();
            let mut order = Vec::new();
            for group in groups(self.cluster, self.program, pods, direction) {
                let list = by_shared.entry(group.shared.clone()).or_default();
                if list.is_empty() {
                    order.push(group.shared.clone());
                }
                list.push(group);
            }
            for groups in order.iter().filter_map(|key| by_shared.get(key)) {
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

/// Effects under construction, with the first witness of each.
#[derive(Debug, Default)]
struct FoundEffects {
    overrides: FxHashMap<(Decider, Decider, Verdict), Witness>,
    deferrals: FxHashMap<(Decider, Decider, Verdict), Witness>,
    settling: FxHashMap<Decider, ()>,
}

impl FoundEffects {
    fn add(&mut self, story: &stack::FlowEffects, witness: &Witness) {
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
        // The maps have no order.
        let mut effects = Effects {
            overrides: overrides.collect(),
            deferrals: deferrals.collect(),
            deciding: self.settling.into_keys().collect(),
        };
        effects
            .overrides
            .sort_by_key(|it| (it.winner, it.loser, it.verdict));
        effects
            .deferrals
            .sort_by_key(|it| (it.rule, it.to, it.verdict));
        effects.deciding.sort_unstable();
        effects
    }
}

/// Returns the ports at which Services lead to each pod. Headless Services and external names do
/// not translate (D78): a flow to them is a flow to a pod by its own address.
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
        // A subject is absolute: only peers are relative to another namespace.
        NamespaceSet::Own
        | NamespaceSet::NotOwn
        | NamespaceSet::SameLabels(_)
        | NamespaceSet::NotSameLabels(_) => false,
    };
    let pods = subject.pods.as_ref();
    namespace_fits && pods.is_none_or(|it| it.matches(|key| label(&pod.labels, key)))
}

/// Returns the pods that a policy selects, in order.
pub fn subjects(cluster: &Cluster<'_>, policy: &Policy<'_>) -> Vec<PodId> {
    let pods = (0..cluster.pods.len()).filter_map(|index| u32::try_from(index).ok());
    let pods = pods.map(PodId);
    pods.filter(|pod| selects(cluster, policy, *pod)).collect()
}

/// Whether a policy applies to a direction: it isolates there, or has rules.
pub fn applies_to(policy: &Policy<'_>, direction: Direction) -> bool {
    let rules = policy.rules(direction);
    match policy.rank {
        // Rules for a direction in which such a policy does not isolate are ignored (D31).
        PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup => rules.isolates,
        PolicyRank::EarlyAdmin | PolicyRank::Ordered(..) => !rules.list.is_empty(),
    }
}

/// Returns the policies that select a pod and apply to a direction, in order of precedence,
/// including audited ones.
pub fn policies_on(cluster: &Cluster<'_>, pod: PodId, direction: Direction) -> Vec<PolicyId> {
    let policies = cluster.policies.iter().enumerate();
    let selecting =
        policies.filter(|(_, it)| applies_to(it, direction) && selects(cluster, it, pod));
    let mut selecting: Vec<(usize, &Policy<'_>)> = selecting.collect();
    selecting.sort_by_key(|(_, policy)| precedence(policy));
    let ids = selecting
        .iter()
        .filter_map(|(id, _)| u32::try_from(*id).ok());
    ids.map(PolicyId).collect()
}

/// The sort key of a policy: tier, priority, kind, namespace, name.
type Precedence<'a> = (u8, i64, Option<PolicyApi>, Option<u32>, &'a str, PolicyApi);

/// Returns the key that sorts policies by precedence (1.2). NetworkPolicies have none among each
/// other and are sorted by name (D137). The key does not order single rules: of early cluster
/// policies, every Deny precedes every Allow, whatever the policy (D61).
pub fn precedence<'a>(policy: &Policy<'a>) -> Precedence<'a> {
    let api = policy.api;
    let (tier, priority, kind) = match policy.rank {
        PolicyRank::EarlyAdmin => (0, 0, None),
        PolicyRank::Ordered(Tier::Admin, priority) => (1, priority, Some(api)),
        PolicyRank::NetworkPolicy => (2, 0, None),
        PolicyRank::Ordered(Tier::Baseline, priority) => (3, priority, Some(api)),
        PolicyRank::DefaultGroup => (3, BASELINE_ADMIN_PRIORITY + 1, Some(api)),
    };
    let namespace = policy.namespace.map(|it| it.0);
    (tier, priority, kind, namespace, policy.name, api)
}
