//! Findings that are exact: each claim is about every flow that is possible in the given cluster.
//!
//! A flow is possible between a pod and any other pod, node, or address outside, on every port and in
//! every family that both have; a pod meets itself only through a Service (D77), and the processes of
//! its own node do not count when they call it (D74). An address that is not known could be any. A
//! direction of a flow is looked at by itself, since policies decide each by itself (D1).
//!
//! * `SHADOWED`: a rule of an ordered tier matches flows, and is the first of its tier to match none of
//!   them. The rules of default policies are a union, so that they come first together. Whether the
//!   tier is asked at all is not looked at. It is so *always* if earlier rules of the same policy
//!   cover it whatever objects there are (D8); then it is told even if the rule matches nothing now.
//! * `UNREACHABLE`: a policy of an ordered tier has rules that match flows, and none of them ever
//!   decides one or passes one on: because of rules before it, or because flows are decided before its
//!   tier is asked. Its rules are not told as shadowed then, unless always.
//! * `NEVER-MATCHES`: no pod, namespace or node can ever fit a selector. `SELECTS-NOTHING` and
//!   `PEER-MATCHES-NOTHING`: none that is given does. A peer that depends on the subject is seen from
//!   the pods that are selected.
//! * `OVERRIDDEN`: a rule of a NetworkPolicy matches flows, and the Admin tier accepts or denies each.
//!   `OVERRIDDEN-PARTLY`: it denies some of them; the share counts sorts of flows: a sort of subject, a
//!   sort of other end, a sort of port, as the policies tell them apart.
//! * `REDUNDANT-POLICY`: without a NetworkPolicy that isolates pods every flow would get the same
//!   verdict. `REDUNDANT-RULE`: a rule of another NetworkPolicy matches flows, and for every pod that
//!   it is for other rules match each. Everything that is told can be deleted at once: see
//!   [`redundant`].
//! * `PASS-NO-EFFECT`: a rule passes flows on, and without it each would get the same verdict, from the
//!   rest of its tier or from the later ones.
//! * `TIE-CONFLICT`: two policies of one tier and priority are asked about a flow that no policy of an
//!   earlier priority matches, and the first rule of each that matches leads to another verdict.
//!   `TIE-OVERLAP`: a pod could be selected by both. `TIE`: policies share tier and priority, and no two
//!   of them overlap. Of two policies only the worst is told.

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
use crate::policy::Direction;
use crate::program::Program;

/// A direction with all of its flows.
#[derive(Debug)]
struct DirectionSpace<'c> {
    flows: FlowSpace<'c>,
    groups: Vec<Group>,
}

/// Finds everything that this module is about.
pub(super) fn find(cluster: &Cluster<'_>, program: &Program) -> Vec<Finding> {
    let symbolic = || (selectors::find(cluster, program), always::covered(cluster));
    let ((mut findings, always), (facts, ground)) = rayon::join(symbolic, || {
        (
            Facts::new(cluster, program),
            SpaceContext::new(cluster, program),
        )
    });
    if cluster.pods.is_empty() {
        report::ties(cluster, program, &facts, &[], &mut findings);
        report::always(cluster, &always, &mut findings);
        return findings;
    }
    let side = |direction| {
        let field = FlowSpace::new(&ground, direction);
        let groups = groups(&field);
        let facts = walk(&field, &groups, facts.clone());
        (
            DirectionSpace {
                flows: field,
                groups,
            },
            facts,
        )
    };
    // What is known of rules is of one direction, so that the two do not need each other.
    let ((ingress, mut facts), (egress, more)) =
        rayon::join(|| side(Direction::Ingress), || side(Direction::Egress));
    facts.add(more);
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
fn walk(field: &FlowSpace<'_>, groups: &[Group], facts: Facts) -> Facts {
    let mut walk = Walk {
        flows: field,
        groups,
        facts,
    };
    let mut from = 0;
    for chunk in groups.chunk_by(|a, b| a.admin_part() == b.admin_part()) {
        walk.admin(from, from + chunk.len());
        from += chunk.len();
    }
    let with_baseline = groups.iter().enumerate().filter(|(_, it)| it.baseline != 0);
    let with_baseline: Vec<usize> = with_baseline.map(|(at, _)| at).collect();
    walk.baseline(&with_baseline);
    walk.facts
}

/// Whether a policy is the isolation that an annotation of a namespace causes (D69).
fn is_annotation(policy: &Policy<'_>) -> bool {
    policy.name.starts_with('(')
}
