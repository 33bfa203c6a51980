//! The rules that select a subject in one direction, and their effects on a flow.

use super::Decider;
use super::mask::Mask;
use crate::model::{Cluster, PolicyId, PolicyRank};
use crate::policy::{Action, Direction, Tier, Verdict};
use crate::program::{
    Class, IsolationId, NONE, Program, Rule, RuleId, RulePlace, direction_index, table_index,
};

/// The rules that select a subject: those of the Admin tier in order, of the Baseline tier in
/// order, and of the NetworkPolicies.
///
/// Not in order of evaluation: many subjects share the rules of the ordered tiers, and masks over
/// these are a prefix of masks over all.
#[derive(Debug)]
pub(super) struct Stack<'p> {
    pub(super) direction: Direction,
    pub(super) rules: Vec<&'p Rule>,
    admin_end: usize,
    /// The end of the rules of the ordered tiers.
    pub(super) shared_end: usize,
    /// The end of the rules before and of the default policies (D62).
    group_end: usize,
    /// The rules of default policies.
    in_group: Mask,
    /// The NetworkPolicies that isolate the subject.
    isolating: Option<&'p [PolicyId]>,
    /// The default policies that isolate the subject.
    default_isolating: Option<&'p [PolicyId]>,
}

/// The effects of one flow: overrides, deferrals, and the parts that decide it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowEffects {
    pub(super) overrides: Vec<(Decider, Decider, Verdict)>,
    pub(super) deferrals: Vec<(Decider, Decider, Verdict)>,
    pub(super) settling: Vec<Decider>,
}

impl FlowEffects {
    /// Returns the effects that both have.
    pub(super) fn and(mut self, other: &FlowEffects) -> FlowEffects {
        self.overrides.retain(|it| other.overrides.contains(it));
        self.deferrals.retain(|it| other.deferrals.contains(it));
        self.settling.retain(|it| other.settling.contains(it));
        self
    }
}

/// A part of a policy and the verdict that it would give.
#[derive(Clone, Copy, Debug)]
struct Claim {
    part: Decider,
    verdict: Verdict,
}

/// The outcome of a tier.
#[derive(Clone, Debug)]
struct TierOutcome {
    /// The parts that decide; none if nothing does and the default applies.
    by: Vec<Decider>,
    verdict: Verdict,
}

impl<'p> Stack<'p> {
    pub(super) fn new(
        cluster: &Cluster<'_>,
        program: &'p Program,
        subject: &Class,
        direction: Direction,
    ) -> Stack<'p> {
        let rule = |id: &RuleId| program.rules.get(id.0 as usize);
        let index = direction_index(direction);
        let (admin, _) = selecting(program, subject, Tier::Admin, direction);
        let (baseline, n_up_to_group) = selecting(program, subject, Tier::Baseline, direction);
        let union = subject.unions.get(index).copied();
        let union = union.and_then(|id| program.unions.get(index)?.get(id as usize));
        let mut rules: Vec<&Rule> = admin.iter().filter_map(rule).collect();
        let admin_end = rules.len();
        rules.extend(baseline.iter().filter_map(rule));
        let shared_end = rules.len();
        let of_union = union.iter().flat_map(|union| &union.rules);
        rules.extend(of_union.filter_map(rule));
        let is_in_group = |at: usize| {
            let rule = rules.get(at);
            let policy = rule.and_then(|it| cluster.policies.get(it.place.policy.0 as usize));
            policy.is_some_and(|it| it.rank == PolicyRank::DefaultGroup)
        };
        // `NONE` is the absence of an isolation, not an id.
        let default_isolation = subject.default_isolations.get(index).copied();
        let default_isolation = default_isolation.filter(|id| *id != NONE).map(IsolationId);
        Stack {
            direction,
            in_group: Mask::of(rules.len(), is_in_group),
            rules,
            admin_end,
            shared_end,
            group_end: admin_end + n_up_to_group,
            isolating: union.map(|union| program.isolation(union.isolation)),
            default_isolating: default_isolation.map(|id| program.isolation(id)),
        }
    }

    /// Whether no rule and no isolation selects the subject.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.isolating.is_none() && self.default_isolating.is_none()
    }

    /// Returns the rules for which `matches` holds.
    pub(super) fn mask(&self, matches: impl Fn(&Rule) -> bool) -> Mask {
        Mask::of(self.rules.len(), |at| {
            self.rules.get(at).is_some_and(|rule| matches(rule))
        })
    }

    /// Returns the rules of the ordered tiers for which `matches` holds.
    pub(super) fn shared_mask(&self, matches: impl Fn(&Rule) -> bool) -> Mask {
        Mask::of(self.shared_end, |at| {
            self.rules.get(at).is_some_and(|rule| matches(rule))
        })
    }

    /// Returns the rules of the NetworkPolicies, with their places.
    pub(super) fn of_union(&self) -> impl Iterator<Item = (usize, &'p Rule)> + '_ {
        let rules = self.rules.iter().copied().enumerate();
        rules.skip(self.shared_end)
    }

    /// Returns the effects of a flow that matches these rules.
    pub(super) fn story(&self, matched: &Mask) -> FlowEffects {
        let mut story = FlowEffects::default();
        // From the last tier to the first: a Pass has the verdict of the tiers behind it.
        let baseline = self.baseline(matched);
        let union = self.union(matched);
        let later = union.as_ref().unwrap_or(&baseline).clone();
        let admin = self.hits(matched, 0, self.admin_end);
        let of_admin = self.claims(&admin, later.verdict);
        let mut actual = later.verdict;
        if let Some(first) = of_admin.first() {
            actual = first.verdict;
            story.settling.push(first.part);
            let winner = [first.part];
            story.override_all(&winner, actual, of_admin.iter());
        }
        let first_action = admin.first().map(|rule| rule.action);
        let of_union = union.iter().flat_map(|it| it.claims());
        let of_union: Vec<Claim> = of_union.collect();
        let of_baseline = self.baseline_claims(matched);
        match (first_action, of_admin.first()) {
            (Some(Action::Accept | Action::Deny), Some(first)) => {
                // The flow never reaches the later tiers. All of their parts with another verdict
                // are overridden.
                let winner = [first.part];
                let later = of_union.iter().chain(&of_baseline);
                story.override_all(&winner, actual, later);
                return story;
            }
            (Some(Action::Pass), Some(first)) => {
                let to = later.by.iter();
                let deferrals = to.map(|to| (first.part, *to, later.verdict));
                story.deferrals.extend(deferrals);
            }
            _ => {}
        }
        // The flow reaches the later tiers. NetworkPolicies decide if they isolate the pod, else
        // the Baseline does; either overrides parts of the Baseline with another verdict.
        story.settling.extend(&later.by);
        story.override_all(&later.by, later.verdict, of_baseline.iter());
        story
    }

    fn hits(&self, matched: &Mask, start: usize, end: usize) -> Vec<&'p Rule> {
        let hits = (start..end).filter(|at| matched.has(*at));
        hits.filter_map(|at| self.rules.get(at).copied()).collect()
    }

    /// Returns the verdict that each policy would give by its first matching rule. `later` is the
    /// verdict of the later tiers, which a Pass has.
    fn claims(&self, hits: &[&Rule], later: Verdict) -> Vec<Claim> {
        let mut claims: Vec<Claim> = Vec::new();
        for rule in hits {
            // Later rules of a policy do not count: it overrides them itself.
            if claims
                .iter()
                .any(|it| it.part.policy() == rule.place.policy)
            {
                continue;
            }
            let verdict = match rule.action {
                Action::Accept => Verdict::Allow,
                Action::Deny => Verdict::Deny,
                Action::Pass => later,
            };
            let part = Decider::Rule(rule.place);
            claims.push(Claim { part, verdict });
        }
        claims
    }

    /// Returns the outcome of the NetworkPolicies, if any isolates the pod. Each matching rule
    /// decides (D101).
    fn union(&self, matched: &Mask) -> Option<TierOutcome> {
        let isolating = self.isolating?;
        let hits = self.hits(matched, self.shared_end, self.rules.len());
        Some(self.by_isolation(&hits, isolating))
    }

    /// Returns the outcome of policies that isolate together: the rules that match allow, else all
    /// of the policies deny.
    fn by_isolation(&self, hits: &[&Rule], isolating: &[PolicyId]) -> TierOutcome {
        if hits.is_empty() {
            let isolation = |policy: &PolicyId| Decider::Isolation(*policy, self.direction);
            return TierOutcome {
                by: isolating.iter().map(isolation).collect(),
                verdict: Verdict::Deny,
            };
        }
        let place = |rule: &&Rule| -> RulePlace { rule.place };
        TierOutcome {
            by: hits.iter().map(place).map(Decider::Rule).collect(),
            verdict: Verdict::Allow,
        }
    }

    /// Returns the outcome of the Baseline tier. Rules behind the default policies count only if
    /// these do not isolate the pod (D62).
    fn baseline(&self, matched: &Mask) -> TierOutcome {
        let mut places = self.admin_end..self.shared_end;
        let first = places.find(|at| matched.has(*at));
        match (first, self.default_isolating) {
            // A rule before the default policies decides alone. A rule of theirs decides together
            // with all others of them that match, if they isolate the pod.
            (Some(at), isolating) if at < self.group_end || isolating.is_none() => {
                let rule = self.rules.get(at).copied();
                if let (Some(isolating), true) = (isolating, self.in_group.has(at)) {
                    return self.by_isolation(&self.group_hits(matched), isolating);
                }
                let claims = self.claims(rule.as_slice(), Verdict::Allow);
                TierOutcome {
                    by: claims.iter().map(|it| it.part).collect(),
                    verdict: claims.first().map_or(Verdict::Allow, |it| it.verdict),
                }
            }
            (_, Some(isolating)) => self.by_isolation(&[], isolating),
            (_, None) => TierOutcome {
                by: Vec::new(),
                verdict: Verdict::Allow,
            },
        }
    }

    fn group_hits(&self, matched: &Mask) -> Vec<&'p Rule> {
        let group = matched.and(&self.in_group);
        self.hits(&group, self.admin_end, self.shared_end)
    }

    /// Returns the verdict that each policy of the Baseline tier would give; the default policies
    /// give one together (D62).
    fn baseline_claims(&self, matched: &Mask) -> Vec<Claim> {
        let hits = self.hits(matched, self.admin_end, self.shared_end);
        let group = self.group_hits(matched);
        let is_in_group = |rule: &&Rule| group.iter().any(|it| it.place == rule.place);
        let ordered: Vec<&Rule> = hits.into_iter().filter(|it| !is_in_group(it)).collect();
        let mut claims = self.claims(&ordered, Verdict::Allow);
        if let Some(isolating) = self.default_isolating {
            claims.extend(self.by_isolation(&group, isolating).claims());
        }
        claims
    }
}

impl TierOutcome {
    fn claims(&self) -> impl Iterator<Item = Claim> + '_ {
        let verdict = self.verdict;
        self.by.iter().map(move |part| Claim {
            part: *part,
            verdict,
        })
    }
}

impl FlowEffects {
    /// Adds an override by each winner of each claim with another verdict. A claim with the same
    /// verdict is not overridden: nothing would change without the winner.
    fn override_all<'c>(
        &mut self,
        winners: &[Decider],
        verdict: Verdict,
        claims: impl Iterator<Item = &'c Claim>,
    ) {
        for claim in claims.filter(|claim| claim.verdict != verdict) {
            let pairs = winners.iter().map(|winner| (*winner, claim.part, verdict));
            self.overrides.extend(pairs);
        }
    }
}

/// Returns the rules of an ordered tier whose policies select a subject, in order, and the number
/// of those up to the end of the default policies.
fn selecting(
    program: &Program,
    subject: &Class,
    tier: Tier,
    direction: Direction,
) -> (Vec<RuleId>, usize) {
    let table = program.table(tier, direction);
    let row = subject.subject_rows.get(table_index(tier, direction));
    let row = table.subjects.row(row.copied().unwrap_or(0));
    let mut rules = Vec::new();
    let mut n_up_to_group = 0;
    for (bit, rule) in table.rules.iter().enumerate() {
        let word = row.get(bit / 64);
        if word.is_some_and(|word| word >> (bit % 64) & 1 == 1) {
            rules.push(*rule);
            n_up_to_group += usize::from(bit < table.group_end as usize);
        }
    }
    (rules, n_up_to_group)
}
