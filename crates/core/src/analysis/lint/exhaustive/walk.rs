//! Walks over all flows of a direction: folds the Admin tier once for all groups with the same
//! Admin rules, then the union or the Baseline tier for each group.

use super::facts::{Cell, Facts};
use super::flow_space::FlowSpace;
use super::fold::{Cover, Planes, Step, Visit, both, cover, first_common, fold, only};
use super::partitions::{FlowPartition, Group};
use crate::analysis::connect::bits::{Words, or};
use crate::model::{PolicyId, PolicyRank};
use crate::policy::{Action, Direction, Tier};
use crate::program::{NONE, RuleId};

/// A walk in progress and the facts that it has found.
pub(super) struct Walk<'w, 'c> {
    pub(super) flows: &'w FlowSpace<'c>,
    pub(super) groups: &'w [Group],
    pub(super) facts: Facts,
}

/// Flows for which a fact depends on the verdict of later tiers.
struct Pending {
    what: What,
    columns: Vec<u32>,
    /// The fact holds if the later tiers deny a key of the first set or allow one of the second.
    if_denied: Words,
    if_allowed: Words,
}

#[derive(Clone, Copy)]
enum What {
    Pass(RuleId),
    Tie(usize),
}

/// The Baseline tier of some groups.
#[derive(Clone, Copy)]
struct LastTier<'t> {
    steps: &'t [Step<'t>],
    partition: &'t FlowPartition<'t>,
    range: (u32, u32),
    /// Whether default policies isolate the subjects.
    is_isolated: bool,
    /// Whether the flows reach the tier. If not, only the order of its rules matters.
    is_reached: bool,
}

impl<'w, 'c> Walk<'w, 'c> {
    /// Walks over the flows of `groups[from..to]`, which must agree in their Admin part.
    pub(super) fn admin(&mut self, from: usize, to: usize) {
        let flows = self.flows;
        let Some(groups) = self.groups.get(from..to) else {
            return;
        };
        let Some(first) = groups.first() else {
            return;
        };
        for partition in flows.partitions(groups) {
            let steps = flows.tier(&partition, Tier::Admin, first.admin);
            let apart = flows.excluded(groups, &partition);
            // Where each fold of the Admin tier has ended; the later tiers continue from there.
            let mut ends = Vec::new();
            let mut pending = Vec::new();
            let range = ids(from, to);
            for (columns, keys) in partition.parts(&apart, partition.all_columns()) {
                self.matches(&steps, range, &partition, &columns, &keys);
                let mut recorder = FactRecorder {
                    facts: &mut self.facts,
                    steps: &steps,
                    partition: &partition,
                    range,
                    direction: flows.direction,
                    is_last: false,
                    is_isolated: false,
                    is_reached: true,
                    pending: &mut pending,
                    ends: &mut ends,
                };
                fold(&steps, columns, Planes::new(keys), &mut recorder);
            }
            for (at, group) in groups.iter().enumerate() {
                self.later(from + at, group, &partition, &ends, &pending);
            }
        }
    }

    /// Finds which rules of the Baseline tier match, and which are the first of the tier to match,
    /// whether or not flows reach the tier.
    pub(super) fn baseline(&mut self, members: &[usize]) {
        let flows = self.flows;
        let groups = members.iter().filter_map(|it| self.groups.get(*it));
        for (at, group) in members.iter().zip(groups) {
            let is_isolated = group.default_isolation != NONE;
            let one = std::slice::from_ref(group);
            for partition in flows.partitions(one) {
                let mut steps = flows.tier(&partition, Tier::Baseline, group.baseline);
                // A fact needs one flow. Most rules have theirs from the walk over earlier groups.
                let is_settled = steps.iter().all(|it| {
                    let facts = self.facts.of(it.rule);
                    facts.is_none_or(|it| it.first.is_some())
                });
                if is_settled {
                    continue;
                }
                let apart = flows.excluded(one, &partition);
                let range = ids(*at, *at + 1);
                let parts = partition.parts(&apart, partition.all_columns());
                // Before `cut_after`: a rule behind the default policies still matches flows.
                for (columns, keys) in &parts {
                    self.matches(&steps, range, &partition, columns, keys);
                }
                cut_after(flows, &mut steps, is_isolated);
                let tier = LastTier {
                    steps: &steps,
                    partition: &partition,
                    range,
                    is_isolated,
                    is_reached: false,
                };
                for (columns, keys) in parts {
                    self.fold_last(tier, columns, keys);
                }
            }
        }
    }

    /// Folds the Baseline tier and records its facts.
    fn fold_last(&mut self, tier: LastTier<'_>, columns: Vec<u32>, keys: Words) {
        // Behind the last tier no verdict is open, and no fold continues where this one ends.
        let mut recorder = FactRecorder {
            facts: &mut self.facts,
            steps: tier.steps,
            partition: tier.partition,
            range: tier.range,
            direction: self.flows.direction,
            is_last: true,
            is_isolated: tier.is_isolated,
            is_reached: tier.is_reached,
            pending: &mut Vec::new(),
            ends: &mut Vec::new(),
        };
        fold(tier.steps, columns, Planes::new(keys), &mut recorder);
    }

    /// Records a match for each step that has none yet.
    fn matches(
        &mut self,
        steps: &[Step<'_>],
        range: (u32, u32),
        partition: &FlowPartition<'_>,
        columns: &[u32],
        keys: &[u64],
    ) {
        for step in steps {
            let Some(facts) = self.facts.rule(step.rule).filter(|it| it.matched.is_none()) else {
                continue;
            };
            if let Some(column) = step.first_covered(columns)
                && let Some(key) = step.first_hit(keys)
            {
                facts.matched = Some(Cell::new(range, partition, column, key));
            }
        }
    }

    /// Walks over the tiers behind the Admin tier for one group, from where the folds of the Admin
    /// tier have ended.
    fn later(
        &mut self,
        at: usize,
        group: &Group,
        partition: &FlowPartition<'_>,
        ends: &[(Vec<u32>, Planes)],
        pending: &[Pending],
    ) {
        let flows = self.flows;
        // The Admin tier was folded for several groups together. One group alone may have fewer
        // peers: a pod that is its only subject is no peer of itself.
        let apart = flows.excluded(std::slice::from_ref(group), partition);
        let is_isolated = group.default_isolation != NONE;
        let range = ids(at, at + 1);
        let mut steps = if group.union == NONE {
            flows.tier(partition, Tier::Baseline, group.baseline)
        } else {
            flows.union(partition, group.union)
        };
        if group.union == NONE {
            cut_after(flows, &mut steps, is_isolated);
        }
        for (columns, planes) in ends {
            for (columns, keys) in partition.parts(&apart, columns.clone()) {
                let rest = both(&planes.rest(), &keys);
                // Pods without isolation go on to the Baseline tier, the others end here (D12).
                if group.union == NONE {
                    let tier = LastTier {
                        steps: &steps,
                        partition,
                        range,
                        is_isolated,
                        is_reached: true,
                    };
                    self.fold_last(tier, columns.clone(), rest);
                    if pending.is_empty() {
                        continue;
                    }
                    // Pending facts concern orders of rules that are not in effect. Of two tied
                    // policies, the first by name may accept a key that the other passes: the key
                    // is not in `rest`, and the tie still depends on its verdict here. So this fold
                    // takes all keys.
                    let mut if_reached: Vec<(Vec<u32>, Planes)> = Vec::new();
                    fold(&steps, columns, Planes::new(keys.clone()), &mut if_reached);
                    for (columns, planes) in &if_reached {
                        let allowed = allowed(planes, is_isolated);
                        self.resolve(pending, range, partition, columns, &keys, &allowed);
                    }
                    continue;
                }
                // All keys for the same reason, and because `REDUNDANT-RULE` compares rules
                // whatever the Admin tier decides before them.
                let denied = both(&planes.denied, &keys);
                let mut covers: Vec<(Vec<u32>, Cover)> = Vec::new();
                cover(&steps, columns, &keys, &mut |columns, cover| {
                    covers.push((columns.to_vec(), cover.clone()));
                });
                for (columns, cover) in &covers {
                    self.union(
                        &steps,
                        range,
                        partition,
                        columns,
                        (&keys, &rest, &denied),
                        cover,
                    );
                    self.policies(group, partition, &steps, columns, &rest);
                    self.resolve(pending, range, partition, columns, &keys, &cover.ones);
                }
            }
        }
    }

    /// Records facts about the rules of a union. Each rule covers all of `columns` or none.
    fn union(
        &mut self,
        steps: &[Step<'_>],
        range: (u32, u32),
        partition: &FlowPartition<'_>,
        columns: &[u32],
        (keys, rest, denied): (&[u64], &[u64], &[u64]),
        cover: &Cover,
    ) {
        let Some(column) = columns.first().copied() else {
            return;
        };
        let n_columns = columns.len() as u64;
        // Keys that exactly one rule matches: that rule cannot be removed.
        let alone = only(&cover.ones, &cover.twos);
        for step in steps.iter().filter(|it| it.covers(column)) {
            let Some(facts) = self.facts.rule(step.rule) else {
                continue;
            };
            let cell = |key| Cell::new(range, partition, column, key);
            if facts.matched.is_none() {
                facts.matched = step.first_hit(keys).map(cell);
            }
            facts.is_alone = facts.is_alone || step.first_hit(&alone).is_some();
            facts.is_reached = facts.is_reached || step.first_hit(rest).is_some();
            let n_denied = step.n_hits(denied);
            if n_denied > 0 && facts.denied.is_none() {
                facts.denied = step.first_hit(denied).map(cell);
            }
            facts.share.0 += n_denied * n_columns;
            facts.share.1 += step.n_hits(keys) * n_columns;
        }
    }

    /// Records which of the policies that isolate a group are needed, for the keys that the Admin
    /// tier leaves.
    fn policies(
        &mut self,
        group: &Group,
        partition: &FlowPartition<'_>,
        steps: &[Step<'_>],
        columns: &[u32],
        rest: &[u64],
    ) {
        let flows = self.flows;
        let Some(union) = flows.union_of(group.union) else {
            return;
        };
        let removal = Removal {
            flows,
            group,
            partition,
            steps,
            columns,
            rest,
            isolating: flows.context.program.isolation(union.isolation),
        };
        for policy in removal.isolating {
            let is_needed = self.facts.is_needed.get(policy.0 as usize).copied();
            if is_needed == Some(false)
                && removal.changes(*policy, &|_| false)
                && let Some(is_needed) = self.facts.is_needed.get_mut(policy.0 as usize)
            {
                *is_needed = true;
            }
        }
    }

    /// Decides pending facts by the verdicts of the later tiers: `allowed`, out of `keys`.
    fn resolve(
        &mut self,
        pending: &[Pending],
        range: (u32, u32),
        partition: &FlowPartition<'_>,
        columns: &[u32],
        keys: &[u64],
        allowed: &[u64],
    ) {
        for it in pending {
            let is_open = match it.what {
                What::Pass(rule) => self.facts.of(rule).is_some_and(|it| !it.has_effect),
                What::Tie(tie) => {
                    let tie = self.facts.ties.get(tie);
                    tie.is_some_and(|it| it.is_open(self.flows.direction))
                }
            };
            // Both sides were split by their own rules; a pending fact holds in every common
            // column.
            let common = columns.iter().find(|column| it.columns.contains(column));
            let (true, Some(column)) = (is_open, common) else {
                continue;
            };
            let denied = only(keys, allowed);
            let key = first_common(&it.if_denied, &denied);
            let key = key.or_else(|| first_common(&it.if_allowed, &both(keys, allowed)));
            let Some(key) = key else {
                continue;
            };
            match it.what {
                What::Pass(rule) => {
                    if let Some(facts) = self.facts.rule(rule) {
                        facts.has_effect = true;
                    }
                }
                What::Tie(tie) => {
                    if let Some(tie) = self.facts.ties.get_mut(tie) {
                        let cell = Cell::new(range, partition, *column, key);
                        tie.conflict = Some((self.flows.direction, cell));
                    }
                }
            }
        }
    }
}

/// The removal of NetworkPolicies from a group, in columns that their rules do not separate.
pub(super) struct Removal<'r, 'c> {
    pub(super) flows: &'r FlowSpace<'c>,
    pub(super) group: &'r Group,
    pub(super) partition: &'r FlowPartition<'r>,
    /// The rules of the union.
    pub(super) steps: &'r [Step<'r>],
    pub(super) columns: &'r [u32],
    /// The keys that the Admin tier leaves.
    pub(super) rest: &'r [u64],
    pub(super) isolating: &'r [PolicyId],
}

impl Removal<'_, '_> {
    /// Whether some flow gets another verdict without `policy`, with the policies of `is_gone`
    /// removed already.
    pub(super) fn changes(&self, policy: PolicyId, is_gone: &dyn Fn(PolicyId) -> bool) -> bool {
        let Some(column) = self.columns.first().copied() else {
            return false;
        };
        let mut allowed = vec![0; self.rest.len()];
        let steps = || self.steps.iter().filter(|it| it.covers(column));
        for step in steps().filter(|it| it.place.policy == policy) {
            if let Some(hits) = step.hits(self.rest) {
                or(&mut allowed, &hits);
            }
        }
        let is_other = |it: PolicyId| it != policy && !is_gone(it);
        if self.isolating.iter().any(|it| is_other(*it)) {
            // The pod stays isolated: the policy matters only for keys that no other rule allows.
            for step in steps().filter(|it| is_other(it.place.policy)) {
                step.remove_from(&mut allowed);
            }
            return first_common(&allowed, &allowed).is_some();
        }
        // The policy alone isolates. Without it, the Baseline tier decides (D12); all rules of the
        // union are its own, since ignored directions have none (D31).
        let is_isolated = self.group.default_isolation != NONE;
        let mut steps = self
            .flows
            .tier(self.partition, Tier::Baseline, self.group.baseline);
        cut_after(self.flows, &mut steps, is_isolated);
        let mut ends: Vec<(Vec<u32>, Planes)> = Vec::new();
        let planes = Planes::new(self.rest.to_vec());
        fold(&steps, self.columns.to_vec(), planes, &mut ends);
        ends.iter().any(|(_, planes)| {
            let then = self::allowed(planes, is_isolated);
            let mut words = then.iter().zip(&allowed).zip(self.rest);
            words.any(|((then, now), rest)| (then ^ now) & rest != 0)
        })
    }
}

/// Removes the steps behind the default policies if these isolate the subject: they decide every
/// flow that gets as far (D62).
pub(super) fn cut_after(flows: &FlowSpace<'_>, steps: &mut Vec<Step<'_>>, is_isolated: bool) {
    if is_isolated {
        let program = flows.context.program;
        let end = program.table(Tier::Baseline, flows.direction).group_end;
        steps.retain(|it| it.bit < end);
    }
}

/// Returns the keys that the Baseline tier allows. Pass leads to the default, which allows (D10).
fn allowed(planes: &Planes, is_isolated: bool) -> Words {
    let mut allowed = planes.accepted.clone();
    or(&mut allowed, &planes.passed);
    if !is_isolated {
        or(&mut allowed, &planes.open);
    }
    allowed
}

/// Converts a range of groups.
fn ids(from: usize, to: usize) -> (u32, u32) {
    let id = |it| u32::try_from(it).unwrap_or(NONE);
    (id(from), id(to))
}

/// Records facts about rules while an ordered tier is folded.
struct FactRecorder<'t> {
    facts: &'t mut Facts,
    steps: &'t [Step<'t>],
    partition: &'t FlowPartition<'t>,
    range: (u32, u32),
    direction: Direction,
    /// Whether the tier is the Baseline, behind which everything is allowed.
    is_last: bool,
    /// Whether default policies isolate the subjects.
    is_isolated: bool,
    /// Whether the flows reach the tier. If not, only the order of its rules matters.
    is_reached: bool,
    pending: &'t mut Vec<Pending>,
    ends: &'t mut Vec<(Vec<u32>, Planes)>,
}

impl Visit for FactRecorder<'_> {
    fn before(&mut self, at: usize, columns: &[u32], planes: &Planes) {
        let Some(step) = self.steps.get(at) else {
            return;
        };
        // Only the first step of a run of one priority goes on: the keys that are open there are
        // those that no rule of an earlier priority matches.
        let last = at.checked_sub(1).and_then(|at| self.steps.get(at));
        if last.is_some_and(|last| last.priority == step.priority) {
            return;
        }
        let rest = self.steps.get(at..).unwrap_or_default().iter();
        let n = rest.take_while(|it| it.priority == step.priority).count();
        let run = self.steps.get(at..at + n).unwrap_or_default();
        match step.priority {
            // Default policies are a union (D62): each of their rules that matches counts as first.
            PolicyRank::DefaultGroup => {
                for step in run {
                    if let Some(column) = step.first_covered(columns)
                        && let Some(key) = step.first_hit(&planes.open)
                    {
                        self.found(step.rule, column, key);
                    }
                }
            }
            PolicyRank::Ordered(..) if self.is_reached => self.tie(run, columns, planes),
            PolicyRank::Ordered(..) | PolicyRank::EarlyAdmin | PolicyRank::NetworkPolicy => {}
        }
    }

    fn first(&mut self, at: usize, columns: &[u32], hits: &[u64]) {
        let (Some(step), Some(column)) = (self.steps.get(at), columns.first()) else {
            return;
        };
        if step.is_default {
            return;
        }
        if let Some(key) = first_common(hits, hits) {
            self.found(step.rule, *column, key);
        }
        // One flow proves an effect; later ones need no second fold.
        let is_open = self.facts.of(step.rule).is_some_and(|it| !it.has_effect);
        if step.action == Action::Pass && self.is_reached && is_open {
            self.without(at, step.rule, columns, hits);
        }
    }

    fn end(&mut self, columns: &[u32], planes: &Planes) {
        self.ends.push((columns.to_vec(), planes.clone()));
    }
}

impl FactRecorder<'_> {
    /// Records that a rule is the first to match a key, and decides it if the flow reaches the
    /// tier.
    fn found(&mut self, rule: RuleId, column: u32, key: u32) {
        let cell = Cell::new(self.range, self.partition, column, key);
        if let Some(facts) = self.facts.rule(rule) {
            facts.first = facts.first.or(Some(cell));
            if self.is_reached {
                facts.decides = facts.decides.or(Some(cell));
            }
        }
    }

    /// Evaluates the keys that a rule passes as if the rule were absent: with the rest of its tier.
    fn without(&mut self, at: usize, rule: RuleId, columns: &[u32], hits: &[u64]) {
        let rest = self.steps.get(at + 1..).unwrap_or_default();
        let mut ends: Vec<(Vec<u32>, Planes)> = Vec::new();
        fold(
            rest,
            columns.to_vec(),
            Planes::new(hits.to_vec()),
            &mut ends,
        );
        for (columns, planes) in ends {
            let Planes {
                accepted,
                mut denied,
                open,
                ..
            } = planes;
            // Pass in the Baseline allows. It has an effect where the rest of the tier denies.
            if self.is_last {
                if self.is_isolated {
                    or(&mut denied, &open);
                }
                if first_common(&denied, &denied).is_some()
                    && let Some(facts) = self.facts.rule(rule)
                {
                    facts.has_effect = true;
                }
                continue;
            }
            // In the Admin tier, the later tiers give the verdict with the rule. Keys that the rest
            // of the tier passes or leaves open get the same one without it.
            self.pending.push(Pending {
                what: What::Pass(rule),
                columns,
                if_denied: accepted,
                if_allowed: denied,
            });
        }
    }

    /// Compares each pair of tied policies in a run of steps of one priority.
    fn tie(&mut self, run: &[Step<'_>], columns: &[u32], planes: &Planes) {
        let policies: Vec<&[Step<'_>]> = run
            .chunk_by(|a, b| a.place.policy == b.place.policy)
            .collect();
        for (at, first) in policies.iter().enumerate() {
            for second in policies.iter().skip(at + 1) {
                let pair = first.first().zip(second.first());
                let pair = pair.map(|(a, b)| (a.place.policy, b.place.policy));
                let tie = pair.and_then(|pair| self.facts.tie_of.get(&pair).copied());
                if let Some(tie) = tie {
                    self.two(tie, first, second, columns, &planes.open);
                }
            }
        }
    }

    /// Compares the outcomes of two tied policies for the keys that no earlier priority matches.
    fn two(
        &mut self,
        id: usize,
        first: &[Step<'_>],
        second: &[Step<'_>],
        columns: &[u32],
        open: &[u64],
    ) {
        let Some(tie) = self.facts.ties.get_mut(id) else {
            return;
        };
        if !tie.is_open(self.direction) {
            return;
        }
        // Each policy is folded without the other, as if its name came first.
        let outcomes = |steps: &[Step<'_>], columns: &[u32]| {
            let mut ends: Vec<(Vec<u32>, Planes)> = Vec::new();
            fold(
                steps,
                columns.to_vec(),
                Planes::new(open.to_vec()),
                &mut ends,
            );
            ends
        };
        for (columns, a) in outcomes(first, columns) {
            for (columns, b) in outcomes(second, &columns) {
                let crossed = |mine: &[u64], its: &[u64], other: (&[u64], &[u64])| {
                    let mut words = both(mine, its);
                    or(&mut words, &both(other.0, other.1));
                    words
                };
                let mut differ = crossed(&a.accepted, &b.denied, (&a.denied, &b.accepted));
                // Pass against Deny is a conflict where the later tiers allow; Pass against Accept,
                // where they deny. A policy that matches nothing leaves the key to the other: no
                // conflict.
                let to_allowed = crossed(&a.passed, &b.denied, (&a.denied, &b.passed));
                let to_denied = crossed(&a.passed, &b.accepted, (&a.accepted, &b.passed));
                if self.is_last {
                    or(&mut differ, &to_allowed);
                }
                let key = first_common(&differ, &differ);
                if let (Some(key), Some(column)) = (key, columns.first()) {
                    let cell = Cell::new(self.range, self.partition, *column, key);
                    tie.conflict = Some((self.direction, cell));
                    return;
                }
                if !self.is_last {
                    self.pending.push(Pending {
                        what: What::Tie(id),
                        columns,
                        if_denied: to_denied,
                        if_allowed: to_allowed,
                    });
                }
            }
        }
    }
}
