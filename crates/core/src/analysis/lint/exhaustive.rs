//! Exact findings about flows: each is checked against every possible flow of the input.
//!
//! A flow is possible between a pod and any other pod, node or outside address, on every port and
//! in every family that both have. A pod reaches itself only through a Service (D77), and processes
//! of its own node are no sources for it (D74). An unknown address can be any address. Each
//! direction is analyzed alone, because policies decide each direction alone (D1).
//!
//! Pods that the same rules select form a group, peers that no rule distinguishes a key, and such
//! ports a column (`flow_space`, `partitions`). `walk` folds the rules of a group over bit sets of
//! keys (`fold`) and keeps one flow class as evidence for each fact about a rule (`facts`).
//! `report` turns facts into findings.
//!
//! * `SHADOWED`: a rule of an ordered tier matches flows, and an earlier rule of the tier matches
//!   each of them. Rules of default policies are a union; they do not shadow each other. Whether
//!   the flows reach the tier does not count. The finding holds *always* if earlier rules of the
//!   same policy cover the rule for any objects (D8); it is then reported even if the rule matches
//!   nothing in the input.
//! * `UNREACHABLE`: a policy of an ordered tier has rules that match flows, and none of them ever
//!   decides or passes a flow: earlier rules match first, or the flows do not reach the tier. Its
//!   rules are then reported as shadowed only if that holds always.
//! * `NEVER-MATCHES`: no pod, namespace or node can match a selector. `SELECTS-NOTHING` and
//!   `PEER-MATCHES-NOTHING`: none in the input does. A peer that depends on the subject is
//!   evaluated for the selected pods.
//! * `OVERRIDDEN`: a rule of a NetworkPolicy matches flows, and the Admin tier accepts or denies
//!   each. `OVERRIDDEN-PARTLY`: it denies some of them. The share counts flow classes: one for each
//!   subject group, peer key and port column.
//! * `REDUNDANT-POLICY`: without a NetworkPolicy that isolates pods, every flow gets the same
//!   verdict. `REDUNDANT-RULE`: a rule of another NetworkPolicy matches flows, and for every pod
//!   that the rule applies to, other rules match each of them. Everything that is reported can be
//!   deleted together: see [`redundant`].
//! * `PASS-NO-EFFECT`: a rule passes flows, and without it each gets the same verdict, from the
//!   rest of its tier or from later tiers.
//! * `TIE-CONFLICT`: two policies of one tier and priority match a flow that no rule of an
//!   earlier priority matches, and their first matching rules lead to different verdicts.
//!   `TIE-OVERLAP`: both can select the same pod. `TIE`: policies share tier and priority, and no
//!   two of them overlap. Of two policies only the most severe finding is reported.

mod always;
mod deciders;
mod facts;
mod flow_space;
mod fold;
mod partitions;
mod possible;
mod redundant;
mod report;
mod selectors;
#[cfg(test)]
mod tests;
mod walk;
mod witness;

use self::facts::Facts;
use self::flow_space::{FlowSpace, SpaceContext};
use self::partitions::{Group, groups};
use self::walk::Walk;
use super::Finding;
use crate::model::{Cluster, Policy};
use crate::policy::{Direction, PolicyApi};
use crate::program::Program;

/// The flows of one direction and the groups of their subjects.
#[derive(Debug)]
struct DirectionSpace<'c> {
    flows: FlowSpace<'c>,
    groups: Vec<Group>,
}

/// Finds all problems that are defined over flows and selectors.
pub(super) fn find(cluster: &Cluster<'_>, program: &Program) -> Vec<Finding> {
    // Neither of these evaluates flows, so they run while the flow space is prepared.
    let symbolic = || (selectors::find(cluster, program), always::covered(cluster));
    let ((mut findings, always), (facts, context)) = rayon::join(symbolic, || {
        (
            Facts::new(cluster, program),
            SpaceContext::new(cluster, program),
        )
    });
    // Without pods there is no flow. Only findings that hold for any objects remain.
    if cluster.pods.is_empty() {
        report::ties(cluster, program, &facts, &[], &mut findings);
        report::always(cluster, &always, &mut findings);
        return findings;
    }
    let space = |direction| {
        let flows = FlowSpace::new(&context, direction);
        let groups = groups(&flows);
        let facts = walk(&flows, &groups, facts.clone());
        (DirectionSpace { flows, groups }, facts)
    };
    // A rule belongs to one direction, so the walks are independent. A tie belongs to both; it
    // keeps the conflict of the first direction that has one.
    let ((ingress, mut facts), (egress, of_egress)) =
        rayon::join(|| space(Direction::Ingress), || space(Direction::Egress));
    facts.add(of_egress);
    let sides = [ingress, egress];
    report::ties(cluster, program, &facts, &sides, &mut findings);
    let of_tiers = || {
        let mut found = Vec::new();
        report::ordered(cluster, program, &facts, &sides, &always, &mut found);
        found
    };
    let of_unions = || {
        let mut found = Vec::new();
        report::unions(cluster, program, &facts, &sides, &mut found);
        found
    };
    let (of_tiers, of_unions) = rayon::join(of_tiers, of_unions);
    findings.extend(of_tiers);
    findings.extend(of_unions);
    findings
}

/// Walks over all flows of a direction.
fn walk(flows: &FlowSpace<'_>, groups: &[Group], facts: Facts) -> Facts {
    let mut walk = Walk {
        flows,
        groups,
        facts,
    };
    // `groups` is sorted by this part, so each chunk needs only one fold of the Admin tier.
    let mut from = 0;
    for chunk in groups.chunk_by(|a, b| a.admin_part() == b.admin_part()) {
        walk.admin(from, from + chunk.len());
        from += chunk.len();
    }
    // The walk above folds the Baseline tier only over flows that reach it. Shadowing inside the
    // tier is defined over all flows, so its rules need a walk of their own.
    let with_baseline = groups.iter().enumerate().filter(|(_, it)| it.baseline != 0);
    let with_baseline: Vec<usize> = with_baseline.map(|(at, _)| at).collect();
    walk.baseline(&with_baseline);
    walk.facts
}

/// Whether a policy is the isolation by the annotation of a namespace (D69): its findings would
/// have no object to correct.
fn is_annotation(policy: &Policy<'_>) -> bool {
    policy.api == PolicyApi::IsolationAnnotation
}
