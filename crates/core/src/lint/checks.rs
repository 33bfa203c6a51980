//! What can be told without weighing rules against each other: from the shape of a policy, from the
//! names and addresses that it uses, and from what the cluster itself needs.
//!
//! Everything here is worked out for classes of pods, for distinct labels and for policies, never
//! for pods and policies together.

mod addresses;
mod context;
mod dns;
mod lockout;
mod lockout_flows;
mod names;
mod shape;
mod targets;
mod typos;

use self::context::CheckContext;
use super::{Code, Finding, FindingDetail, FindingTarget};
use crate::model::Cluster;
use crate::program::Program;

/// Finds all of it, in no order.
pub(super) fn find(cluster: &Cluster<'_>, program: &Program) -> Vec<Finding> {
    let ground = CheckContext::new(cluster, program);
    let mut findings = shape::find(&ground);
    findings.extend(names::find(&ground));
    findings.extend(typos::find(&ground));
    findings.extend(addresses::find(&ground));
    findings.extend(lockout::find(&ground));
    findings
}

/// A finding that is so now, with nothing else to say.
fn now(code: Code, at: FindingTarget) -> Finding {
    Finding {
        code,
        at,
        by: Vec::new(),
        witness: None,
        always: false,
        detail: FindingDetail::Nothing,
    }
}

/// A finding that is so whatever pods and namespaces there are.
fn always(code: Code, at: FindingTarget) -> Finding {
    Finding {
        always: true,
        ..now(code, at)
    }
}
