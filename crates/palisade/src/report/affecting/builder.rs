//! Builds the reports of `affecting` from the effects that the engine finds.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use palisade_api::{Lines, Object, Source};
use palisade_core::analysis::affect::{
    Decider, Effects, Witness, applies_to, policies_on, precedence, selects, subjects,
};
use palisade_core::model::{Cluster, PodId, Policy, PolicyId, PolicyRank};
use palisade_core::policy::{Action, Direction, PolicyApi, Tier, Verdict};
use palisade_core::program::RulePlace;

use super::{
    EnforcementState, NamedRule, Override, OverridePart, PodReport, PolicyHead, PolicyReport,
    PolicyTier, SelectingPolicy, SelectingRule, Unreached,
};
use crate::report::flow::NamedFlow;

/// Egress first, as in explanations.
const DIRECTIONS: [Direction; 2] = [Direction::Egress, Direction::Ingress];

/// Builds the answers for one cluster.
#[derive(Debug)]
pub struct AffectingBuilder<'m> {
    cluster: &'m Cluster<'m>,
    objects: &'m [Object<'m>],
    sources: &'m [Source],
    lines: Vec<OnceCell<Lines<'m>>>,
}

impl<'m> AffectingBuilder<'m> {
    /// Creates a builder for the objects of a cluster.
    pub fn new(
        cluster: &'m Cluster<'m>,
        objects: &'m [Object<'m>],
        sources: &'m [Source],
    ) -> AffectingBuilder<'m> {
        AffectingBuilder {
            cluster,
            objects,
            sources,
            lines: sources.iter().map(|_| OnceCell::new()).collect(),
        }
    }

    /// Returns the answer for a pod.
    pub fn pod(&self, endpoint: &str, pod: PodId, effects: &Effects) -> PodReport {
        let of_pod = self.cluster.pods.get(pod.0 as usize);
        let entries = |direction| {
            let policies = policies_on(self.cluster, pod, direction);
            let entry = |id| self.entry(id, direction, effects);
            policies.into_iter().filter_map(entry).collect()
        };
        PodReport {
            endpoint: endpoint.to_owned(),
            pods: vec![self.cluster.pod_name(pod)],
            host_network: of_pod.is_some_and(|pod| pod.host_network),
            egress: entries(Direction::Egress),
            ingress: entries(Direction::Ingress),
        }
    }

    fn entry(
        &self,
        id: PolicyId,
        direction: Direction,
        effects: &Effects,
    ) -> Option<SelectingPolicy> {
        let policy = self.policy_of(id)?;
        let overrides = effects.overrides.iter();
        let overrides = overrides.filter(|it| is_part_of(it.loser, id, direction));
        let overrides = overrides.map(|it| Link {
            other: it.winner,
            own: it.loser,
            first: it.winner,
            verdict: it.verdict,
            witness: &it.witness,
        });
        let overridden_by = self.links(overrides.collect());
        let decides = effects.settles(id, direction);
        let rules = policy.rules(direction);
        let list = rules.list.iter().enumerate().map(|(index, rule)| {
            let place = RulePlace {
                policy: id,
                direction,
                index: u32::try_from(index).unwrap_or(u32::MAX),
            };
            SelectingRule {
                rule: self.named(place),
                action: rule.written_action.map(str::to_owned),
                name: rule.name.map(str::to_owned),
                decides: effects
                    .deciding
                    .binary_search(&Decider::Rule(place))
                    .is_ok(),
                failed_closed: rule.failed_closed,
                line: self.rule_position(place).map(|it| it.1),
            }
        });
        Some(SelectingPolicy {
            policy: self.head(id, policy),
            isolates: rules.isolates,
            over_budget: policy.is_over_budget,
            state: match (policy.audited, decides, overridden_by.is_empty()) {
                (true, _, _) => EnforcementState::DryRun,
                (false, true, true) => EnforcementState::InForce,
                (false, true, false) => EnforcementState::PartlyOverridden,
                (false, false, false) => EnforcementState::Overridden,
                (false, false, true) => EnforcementState::NeverDecides,
            },
            overridden_by,
            rules: list.collect(),
        })
    }

    /// Returns the answer for a policy.
    pub fn policy(&self, id: PolicyId, effects: &Effects) -> Option<PolicyReport> {
        let policy = self.policy_of(id)?;
        let selected = subjects(self.cluster, policy);
        let pods = selected.iter();
        let pods = pods.filter_map(|pod| self.cluster.pods.get(pod.0 as usize));
        let mut namespaces: Vec<_> = pods.map(|pod| pod.namespace).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        let links = |own_wins: bool| {
            let its = effects.overrides.iter().filter_map(|it| {
                let (own, other) = if own_wins {
                    (it.winner, it.loser)
                } else {
                    (it.loser, it.winner)
                };
                let link = Link {
                    other,
                    own,
                    first: it.winner,
                    verdict: it.verdict,
                    witness: &it.witness,
                };
                (own.policy() == id).then_some(link)
            });
            self.links(its.collect())
        };
        let deferrals = effects.deferrals.iter();
        let deferrals = deferrals.filter(|it| it.rule.policy() == id);
        let deferrals = deferrals.map(|it| Link {
            other: it.to,
            own: it.rule,
            first: it.rule,
            verdict: it.verdict,
            witness: &it.witness,
        });
        let directions = |holds: &dyn Fn(Direction) -> bool| {
            let directions = DIRECTIONS.into_iter().filter(|it| holds(*it));
            directions.collect()
        };
        Some(PolicyReport {
            policy: self.head(id, policy),
            dry_run: policy.audited,
            isolates: directions(&|it| policy.rules(it).isolates),
            directions: directions(&|it| applies_to(policy, it)),
            subjects: self.pod_names(&selected),
            namespaces: namespaces
                .into_iter()
                .map(|it| self.cluster.namespace_name(it).to_owned())
                .collect(),
            overrides: links(true),
            overridden_by: links(false),
            defers_to: self.links(deferrals.collect()),
            out_of_reach: self.out_of_reach(policy, &selected),
        })
    }

    /// Returns the NetworkPolicies that isolate the pods of a policy of the Baseline tier: for
    /// these pods it is not evaluated (D12).
    fn out_of_reach(&self, policy: &Policy<'_>, selected: &[PodId]) -> Vec<Unreached> {
        let mut unreached = Vec::new();
        match policy.rank {
            PolicyRank::Ordered(Tier::Baseline, _) | PolicyRank::DefaultGroup => {}
            PolicyRank::EarlyAdmin
            | PolicyRank::Ordered(Tier::Admin, _)
            | PolicyRank::NetworkPolicy => {
                return unreached;
            }
        }
        let isolating = self.cluster.policies.iter().enumerate();
        let isolating =
            isolating.filter(|(_, it)| it.rank == PolicyRank::NetworkPolicy && !it.audited);
        for (id, other) in isolating {
            let Ok(id) = u32::try_from(id).map(PolicyId) else {
                continue;
            };
            let pods = selected.iter().copied();
            let pods = pods.filter(|pod| selects(self.cluster, other, *pod));
            let pods: Vec<PodId> = pods.collect();
            for direction in DIRECTIONS {
                let isolates = other.rules(direction).isolates && applies_to(policy, direction);
                if isolates && !pods.is_empty() {
                    unreached.push(Unreached {
                        policy: self.cluster.policy_name(id),
                        direction,
                        subjects: self.pod_names(&pods),
                    });
                }
            }
        }
        unreached
    }

    /// Groups links by policy, direction and verdict, in order of precedence.
    fn links(&self, links: Vec<Link<'_>>) -> Vec<Override> {
        let mut overrides: BTreeMap<_, Override> = BTreeMap::new();
        for link in links {
            let policy = link.other.policy();
            let direction = link.other.direction();
            let order = self.policy_of(policy).map(precedence);
            let is_ingress = direction == Direction::Ingress;
            let key = (order, policy, is_ingress, link.verdict);
            let it = overrides.entry(key).or_insert_with(|| Override {
                policy: self.cluster.policy_name(policy),
                direction,
                other: OverridePart::default(),
                own: OverridePart::default(),
                verdict: link.verdict,
                passes: true,
                witness: NamedFlow::of_witness(self.cluster, link.witness),
            });
            for (decider, part) in [(link.other, &mut it.other), (link.own, &mut it.own)] {
                match decider {
                    Decider::Rule(place) => {
                        if part.rules.iter().all(|rule| rule.place != place) {
                            part.rules.push(self.named(place));
                        }
                    }
                    Decider::Isolation(..) => part.isolation = true,
                }
            }
            it.passes &= self.passes(link.first);
        }
        overrides.into_values().collect()
    }

    /// Returns what every report of a policy has.
    fn head(&self, id: PolicyId, policy: &Policy<'_>) -> PolicyHead {
        let position = self.policy_position(id);
        PolicyHead {
            name: self.cluster.policy_name(id),
            tier: tier(policy),
            priority: priority(policy),
            position: position.map(|(file, line)| (file.to_owned(), line)),
        }
    }

    fn named(&self, place: RulePlace) -> NamedRule {
        NamedRule {
            id: self.cluster.rule_name(place),
            place,
        }
    }

    fn passes(&self, part: Decider) -> bool {
        let effect = part.rule().and_then(|place| self.cluster.effect(place));
        effect.is_some_and(|effect| effect.action == Action::Pass)
    }

    fn policy_of(&self, id: PolicyId) -> Option<&'m Policy<'m>> {
        self.cluster.policies.get(id.0 as usize)
    }

    fn pod_names(&self, pods: &[PodId]) -> Vec<String> {
        let names = pods.iter().map(|pod| self.cluster.pod_name(*pod));
        names.collect()
    }

    fn policy_position(&self, id: PolicyId) -> Option<(&'m str, usize)> {
        let object = self.objects.get(self.policy_of(id)?.origin.0 as usize)?;
        self.position(object, object.metadata.name_span.start)
    }

    fn rule_position(&self, place: RulePlace) -> Option<(&'m str, usize)> {
        let policy = self.policy_of(place.policy)?;
        let object = self.objects.get(policy.origin.0 as usize)?;
        let span = object.rule_span(place.direction, place.index as usize)?;
        self.position(object, span.start)
    }

    fn position(&self, object: &Object<'_>, offset: u32) -> Option<(&'m str, usize)> {
        let index = object.source.0 as usize;
        let source = self.sources.get(index)?;
        let lines = self.lines.get(index)?;
        let lines = lines.get_or_init(|| Lines::new(source.text()));
        Some((source.name(), lines.position(offset as usize).0))
    }
}

/// One override between a policy and another.
struct Link<'e> {
    other: Decider,
    own: Decider,
    /// Which of the two is evaluated first.
    first: Decider,
    verdict: Verdict,
    witness: &'e Witness,
}

fn is_part_of(part: Decider, policy: PolicyId, direction: Direction) -> bool {
    part.policy() == policy && part.direction() == direction
}

fn tier(policy: &Policy<'_>) -> PolicyTier {
    match policy.rank {
        PolicyRank::EarlyAdmin | PolicyRank::Ordered(Tier::Admin, _) => PolicyTier::Admin,
        PolicyRank::NetworkPolicy => PolicyTier::NetworkPolicy,
        PolicyRank::Ordered(Tier::Baseline, _) | PolicyRank::DefaultGroup => PolicyTier::Baseline,
    }
}

/// Returns the priority of the object; kinds without one have a fixed rank.
fn priority(policy: &Policy<'_>) -> Option<i64> {
    match (policy.rank, policy.api) {
        (PolicyRank::Ordered(_, priority), PolicyApi::Cluster | PolicyApi::Admin) => Some(priority),
        _ => None,
    }
}
