//! Findings that need no comparison of rules: from the shape of a policy, from its names and
//! addresses, and from what the components of the cluster need.
//!
//! The checks iterate over classes of pods, distinct label sets and policies, never over pairs of
//! pods and policies: 100,000 pods and 20,000 policies would make two billion pairs.

mod addresses;
mod context;
mod dns;
mod lockout;
mod lockout_flows;
mod names;
mod shape;
mod targets;
#[cfg(test)]
mod tests;
mod typos;

use self::context::CheckContext;
use super::{Code, Finding, FindingDetail, FindingTarget};
use crate::model::Cluster;
use crate::program::Program;

/// Runs all checks. The findings have no order.
pub(super) fn find(cluster: &Cluster<'_>, program: &Program) -> Vec<Finding> {
    let context = CheckContext::new(cluster, program);
    let mut findings = shape::find(&context);
    findings.extend(names::find(&context));
    findings.extend(typos::find(&context));
    findings.extend(addresses::find(&context));
    findings.extend(lockout::find(&context));
    findings
}

/// Returns a finding that holds for the objects in the input, without further data.
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

/// Returns a finding that holds for any pods and namespaces.
fn always(code: Code, at: FindingTarget) -> Finding {
    Finding {
        always: true,
        ..now(code, at)
    }
}
