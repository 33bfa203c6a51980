//! The walk over all flows of a direction: the Admin tier for all subjects that it sees alike, then
//! for each group the union or the Baseline tier.

use super::facts::{Cell, Facts};
use super::flow_space::FlowSpace;
use super::fold::{Cover, Planes, Step, Visit, both, cover, first_common, fold, only};
use super::partitions::{FlowPartition, Group};
use crate::connect::bits::{Words, or};
use crate::model::{PolicyId, PolicyRank};
use crate::policy::{Action, Direction, Tier};
use crate::program::{NONE, RuleId};

/// A walk over some of the flows.
pub(super) struct Walk<'w, 'c> {
    pub(super) flows: &'w FlowSpace<'c>,
    pub(super) groups: &'w [Group],
    pub(super) facts: Facts,
}

/// Flows on which something depends that only the later tiers say.
struct Pending {
    what: What,
    columns: Vec<u32>,
    /// There is an effect where the later tiers deny one of these, or allow one of those.
    if_denied: Words,
    if_allowed: Words,
}

#[derive(Clone, Copy)]
enum What {
    Pass(RuleId),
    Tie(usize),
}

impl<'w, 'c> Walk<'w, 'c> {
    /// The subjects from one group to before another, which the Admin tier sees alike.
    pub(super) fn admin(&mut self, from: usize, to: usize) {
        let field = self.flows;
        let Some(groups) = self.groups.get(from..to) else {
            return;
        };
        let Some(first) = groups.first() else {
            return;
        };
        for lane in field.lanes(groups) {
            let steps = field.tier(&lane, Tier::Admin, first.admin);
            let apart = field.distinction(groups, &lane);
            let mut ends = Vec::new();
            let mut pending = Vec::new();
            let range = ids(from, to);
            for (columns, keys) in lane.parts(&apart, lane.all_columns()) {
                self.matches(&steps, range, &lane, &columns, &keys);
                let mut told = FactRecorder {
                    facts: &mut self.facts,
                    steps: &steps,
                    lane: &lane,
                    range,
                    direction: field.direction,
                    is_last: false,
                    is_isolated: false,
                    is_asked: true,
                    pending: &mut pending,
                    ends: &mut ends,
                };
                fold(&steps, columns, Planes::new(keys), &mut told);
            }
            for (at, group) in groups.iter().enumerate() {
                self.later(from + at, group, &lane, &ends, &pending);
            }
        }
    }

    /// Finds out for the rules of the Baseline tier which match, and which are the first to.
    pub(super) fn baseline(&mut self, members: &[usize]) {
        let field = self.flows;
        let groups = members.iter().filter_map(|it| self.groups.get(*it));
        for (at, group) in members.iter().zip(groups) {
            let is_isolated = group.default_isolation != NONE;
            let one = std::slice::from_ref(group);
            for lane in field.lanes(one) {
                let mut steps = field.tier(&lane, Tier::Baseline, group.baseline);
                let is_settled = steps.iter().all(|it| {
                    let facts = self.facts.of(it.rule);
                    facts.is_none_or(|it| it.first.is_some())
                });
                if is_settled {
                    continue;
                }
                let apart = field.distinction(one, &lane);
                let range = ids(*at, *at + 1);
                let parts = lane.parts(&apart, lane.all_columns());
                for (columns, keys) in &parts {
                    self.matches(&steps, range, &lane, columns, keys);
                }
                cut_after(field, &mut steps, is_isolated);
                for (columns, keys) in parts {
                    let mut told = FactRecorder {
                        facts: &mut self.facts,
                        steps: &steps,
                        lane: &lane,
                        range,
                        direction: field.direction,
                        is_last: true,
                        is_isolated,
                        is_asked: false,
                        pending: &mut Vec::new(),
                        ends: &mut Vec::new(),
                    };
                    fold(&steps, columns, Planes::new(keys), &mut told);
                }
            }
        }
    }

    fn matches(
        &mut self,
        steps: &[Step<'_>],
        range: (u32, u32),
        lane: &FlowPartition<'_>,
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
                facts.matched = Some(Cell::new(range, lane, column, key));
            }
        }
    }

    /// What stands behind the Admin tier, for one group.
    fn later(
        &mut self,
        at: usize,
        group: &Group,
        lane: &FlowPartition<'_>,
        ends: &[(Vec<u32>, Planes)],
        pending: &[Pending],
    ) {
        let field = self.flows;
        let apart = field.distinction(std::slice::from_ref(group), lane);
        let is_isolated = group.default_isolation != NONE;
        let range = ids(at, at + 1);
        let mut steps = if group.union == NONE {
            field.tier(lane, Tier::Baseline, group.baseline)
        } else {
            field.union(lane, group.union)
        };
        if group.union == NONE {
            cut_after(field, &mut steps, is_isolated);
        }
        for (columns, planes) in ends {
            for (columns, keys) in lane.parts(&apart, columns.clone()) {
                let rest = both(&planes.rest(), &keys);
                if group.union == NONE {
                    let mut told = FactRecorder {
                        facts: &mut self.facts,
                        steps: &steps,
                        lane,
                        range,
                        direction: field.direction,
                        is_last: true,
                        is_isolated,
                        is_asked: true,
                        pending: &mut Vec::new(),
                        ends: &mut Vec::new(),
                    };
                    fold(&steps, columns.clone(), Planes::new(rest), &mut told);
                    if pending.is_empty() {
                        continue;
                    }
                    // What a tied policy would pass on is asked about as well.
                    let mut if_asked: Vec<(Vec<u32>, Planes)> = Vec::new();
                    fold(&steps, columns, Planes::new(keys.clone()), &mut if_asked);
                    for (columns, planes) in &if_asked {
                        let allowed = allowed(planes, is_isolated);
                        self.resolve(pending, range, lane, columns, &keys, &allowed);
                    }
                    continue;
                }
                let denied = both(&planes.denied, &keys);
                let mut covers: Vec<(Vec<u32>, Cover)> = Vec::new();
                cover(&steps, columns, &keys, &mut |columns, cover| {
                    covers.push((columns.to_vec(), cover.clone()));
                });
                for (columns, cover) in &covers {
                    self.union(&steps, range, lane, columns, (&keys, &rest, &denied), cover);
                    self.policies(group, lane, &steps, columns, &rest);
                    self.resolve(pending, range, lane, columns, &keys, &cover.ones);
                }
            }
        }
    }

    /// The rules of a union in some columns in which they all cover everything or nothing.
    fn union(
        &mut self,
        steps: &[Step<'_>],
        range: (u32, u32),
        lane: &FlowPartition<'_>,
        columns: &[u32],
        (keys, rest, denied): (&[u64], &[u64], &[u64]),
        cover: &Cover,
    ) {
        let Some(column) = columns.first().copied() else {
            return;
        };
        let n_columns = columns.len() as u64;
        let alone = only(&cover.ones, &cover.twos);
        for step in steps.iter().filter(|it| it.covers(column)) {
            let Some(facts) = self.facts.rule(step.rule) else {
                continue;
            };
            let cell = |key| Cell::new(range, lane, column, key);
            if facts.matched.is_none() {
                facts.matched = step.first_hit(keys).map(cell);
            }
            facts.is_alone = facts.is_alone || step.first_hit(&alone).is_some();
            facts.is_asked = facts.is_asked || step.first_hit(rest).is_some();
            let n_denied = step.n_hits(denied);
            if n_denied > 0 && facts.denied.is_none() {
                facts.denied = step.first_hit(denied).map(cell);
            }
            facts.share.0 += n_denied * n_columns;
            facts.share.1 += step.n_hits(keys) * n_columns;
        }
    }

    /// Which of the policies that isolate a group are needed, from what the Admin tier leaves.
    fn policies(
        &mut self,
        group: &Group,
        lane: &FlowPartition<'_>,
        steps: &[Step<'_>],
        columns: &[u32],
        rest: &[u64],
    ) {
        let field = self.flows;
        let Some(union) = field.union_of(group.union) else {
            return;
        };
        let removal = Removal {
            flows: field,
            group,
            lane,
            steps,
            columns,
            rest,
            isolating: field.context.program.isolation(union.isolation),
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

    /// What depends on the later tiers, now that they have said it.
    fn resolve(
        &mut self,
        pending: &[Pending],
        range: (u32, u32),
        lane: &FlowPartition<'_>,
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
                        let cell = Cell::new(range, lane, *column, key);
                        tie.conflict = Some((self.flows.direction, cell));
                    }
                }
            }
        }
    }
}

/// What would be without some NetworkPolicies on a group, in columns that their rules do not tell
/// apart.
pub(super) struct Removal<'r, 'c> {
    pub(super) flows: &'r FlowSpace<'c>,
    pub(super) group: &'r Group,
    pub(super) lane: &'r FlowPartition<'r>,
    /// The rules of the union.
    pub(super) steps: &'r [Step<'r>],
    pub(super) columns: &'r [u32],
    /// What the Admin tier leaves.
    pub(super) rest: &'r [u64],
    pub(super) isolating: &'r [PolicyId],
}

impl Removal<'_, '_> {
    /// Whether some flow gets another verdict without a policy, where others are gone already.
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
            for step in steps().filter(|it| is_other(it.place.policy)) {
                step.remove_from(&mut allowed);
            }
            return first_common(&allowed, &allowed).is_some();
        }
        // It alone isolates: without it the Baseline tier is asked.
        let is_isolated = self.group.default_isolation != NONE;
        let mut steps = self
            .flows
            .tier(self.lane, Tier::Baseline, self.group.baseline);
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

/// Whatever stands behind the default policies is not for pods that they isolate (D62).
pub(super) fn cut_after(field: &FlowSpace<'_>, steps: &mut Vec<Step<'_>>, is_isolated: bool) {
    if is_isolated {
        let program = field.context.program;
        let end = program.table(Tier::Baseline, field.direction).group_end;
        steps.retain(|it| it.bit < end);
    }
}

/// What the Baseline tier allows of what it was asked.
fn allowed(planes: &Planes, is_isolated: bool) -> Words {
    let mut allowed = planes.accepted.clone();
    or(&mut allowed, &planes.passed);
    if !is_isolated {
        or(&mut allowed, &planes.open);
    }
    allowed
}

fn ids(from: usize, to: usize) -> (u32, u32) {
    let id = |it| u32::try_from(it).unwrap_or(NONE);
    (id(from), id(to))
}

/// Writes facts down while an ordered tier is folded.
struct FactRecorder<'t> {
    facts: &'t mut Facts,
    steps: &'t [Step<'t>],
    lane: &'t FlowPartition<'t>,
    range: (u32, u32),
    direction: Direction,
    /// Whether it is the Baseline tier, behind which everything is allowed.
    is_last: bool,
    /// Whether default policies isolate the subjects.
    is_isolated: bool,
    /// Whether these flows are really asked about, or only what comes first matters.
    is_asked: bool,
    pending: &'t mut Vec<Pending>,
    ends: &'t mut Vec<(Vec<u32>, Planes)>,
}

impl Visit for FactRecorder<'_> {
    fn before(&mut self, at: usize, columns: &[u32], planes: &Planes) {
        let Some(step) = self.steps.get(at) else {
            return;
        };
        let last = at.checked_sub(1).and_then(|at| self.steps.get(at));
        if last.is_some_and(|last| last.priority == step.priority) {
            return;
        }
        let rest = self.steps.get(at..).unwrap_or_default().iter();
        let n = rest.take_while(|it| it.priority == step.priority).count();
        let run = self.steps.get(at..at + n).unwrap_or_default();
        match step.priority {
            // The rules of default policies are a union, so that all that match are first.
            PolicyRank::DefaultGroup => {
                for step in run {
                    if let Some(column) = step.first_covered(columns)
                        && let Some(key) = step.first_hit(&planes.open)
                    {
                        self.found(step.rule, column, key);
                    }
                }
            }
            PolicyRank::Ordered(..) if self.is_asked => self.tie(run, columns, planes),
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
        let is_open = self.facts.of(step.rule).is_some_and(|it| !it.has_effect);
        if step.action == Action::Pass && self.is_asked && is_open {
            self.without(at, step.rule, columns, hits);
        }
    }

    fn end(&mut self, columns: &[u32], planes: &Planes) {
        self.ends.push((columns.to_vec(), planes.clone()));
    }
}

impl FactRecorder<'_> {
    fn found(&mut self, rule: RuleId, column: u32, key: u32) {
        let cell = Cell::new(self.range, self.lane, column, key);
        if let Some(facts) = self.facts.rule(rule) {
            facts.first = facts.first.or(Some(cell));
            if self.is_asked {
                facts.decides = facts.decides.or(Some(cell));
            }
        }
    }

    /// What the rest of the tier says about what a rule passes on.
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
            self.pending.push(Pending {
                what: What::Pass(rule),
                columns,
                if_denied: accepted,
                if_allowed: denied,
            });
        }
    }

    /// Whether the first matches of tied policies lead to different verdicts.
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
        let end = |steps: &[Step<'_>], columns: &[u32]| {
            let mut ends: Vec<(Vec<u32>, Planes)> = Vec::new();
            fold(
                steps,
                columns.to_vec(),
                Planes::new(open.to_vec()),
                &mut ends,
            );
            ends
        };
        for (columns, a) in end(first, columns) {
            for (columns, b) in end(second, &columns) {
                let crossed = |mine: &[u64], its: &[u64], other: (&[u64], &[u64])| {
                    let mut words = both(mine, its);
                    or(&mut words, &both(other.0, other.1));
                    words
                };
                let mut differ = crossed(&a.accepted, &b.denied, (&a.denied, &b.accepted));
                let to_allowed = crossed(&a.passed, &b.denied, (&a.denied, &b.passed));
                let to_denied = crossed(&a.passed, &b.accepted, (&a.accepted, &b.passed));
                if self.is_last {
                    or(&mut differ, &to_allowed);
                }
                let key = first_common(&differ, &differ);
                if let (Some(key), Some(column)) = (key, columns.first()) {
                    let cell = Cell::new(self.range, self.lane, *column, key);
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
