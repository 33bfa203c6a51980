//! Which policies select a pod, and which policies a policy overrides.

mod builder;
mod text;

use palisade_core::policy::{Direction, Verdict};
use palisade_core::program::RulePlace;

use super::flow::NamedFlow;

pub use self::builder::AffectingBuilder;

/// The policies that select a pod, or pods with the same answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodReport {
    /// The queried endpoint.
    pub endpoint: String,
    /// The pods of a workload.
    pub pods: Vec<String>,
    /// Whether it is a host-network pod, which no policy selects.
    pub host_network: bool,
    /// The policies for what it sends, by precedence.
    pub egress: Vec<SelectingPolicy>,
    /// The policies for what it receives, by precedence.
    pub ingress: Vec<SelectingPolicy>,
}

impl PodReport {
    /// Returns the policies for a direction.
    pub fn policies(&self, direction: Direction) -> &[SelectingPolicy] {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }

    /// Returns the answer without witnesses: pods that agree in the rest share one answer.
    pub fn without_witnesses(&self) -> PodReport {
        let mut report = PodReport {
            pods: Vec::new(),
            ..self.clone()
        };
        for policy in report.egress.iter_mut().chain(&mut report.ingress) {
            for it in &mut policy.overridden_by {
                it.witness = NamedFlow::default();
            }
        }
        report
    }
}

/// A policy that selects a pod, in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectingPolicy {
    /// The identifier, the tier and the position.
    pub policy: PolicyHead,
    /// Whether it isolates the pod.
    pub isolates: bool,
    /// Whether it does not fit into the budget of its namespace (D148).
    pub over_budget: bool,
    /// Whether it takes effect.
    pub state: EnforcementState,
    /// The policies that override it.
    pub overridden_by: Vec<Override>,
    /// Its rules, in order.
    pub rules: Vec<SelectingRule>,
}

/// What every report of a policy has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyHead {
    /// The identifier.
    pub name: String,
    /// The tier.
    pub tier: PolicyTier,
    /// The priority, if the kind has one.
    pub priority: Option<i64>,
    /// The file and the line.
    pub position: Option<(String, usize)>,
}

/// The tier of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyTier {
    /// Before NetworkPolicies.
    Admin,
    /// NetworkPolicies.
    NetworkPolicy,
    /// After NetworkPolicies.
    Baseline,
}

impl PolicyTier {
    /// Returns the name in every output.
    pub fn name(self) -> &'static str {
        match self {
            PolicyTier::Admin => "Admin",
            PolicyTier::NetworkPolicy => "NetworkPolicy",
            PolicyTier::Baseline => "Baseline",
        }
    }
}

/// Whether a policy takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcementState {
    /// It decides flows, and is overridden on none.
    InForce,
    /// It decides some flows, and is overridden on others.
    PartlyOverridden,
    /// It decides no flow, and on some flow an earlier policy has the opposite verdict.
    Overridden,
    /// It decides no flow, which changes no verdict.
    NeverDecides,
    /// It is in audit mode.
    DryRun,
}

/// A rule of a policy that selects a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectingRule {
    /// The rule.
    pub rule: NamedRule,
    /// The action as it was written.
    pub action: Option<String>,
    /// The name in the policy.
    pub name: Option<String>,
    /// Whether it decides a flow of the pod.
    pub decides: bool,
    /// Whether it fails closed.
    pub failed_closed: bool,
    /// The line.
    pub line: Option<usize>,
}

/// A rule, and its identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedRule {
    /// `netpol/shop/db#ingress[0]`.
    pub id: String,
    /// The policy, the direction and the index.
    pub place: RulePlace,
}

/// An override between the queried policy and another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The other policy.
    pub policy: String,
    /// The direction.
    pub direction: Direction,
    /// What of the other policy takes part.
    pub other: OverridePart,
    /// What of the queried policy takes part.
    pub own: OverridePart,
    /// The verdict for the witness; the overridden policy has the opposite verdict.
    pub verdict: Verdict,
    /// Whether the earlier policy matches with Pass: later tiers decide.
    pub passes: bool,
    /// A flow that shows it.
    pub witness: NamedFlow,
}

/// The part of a policy that takes part in an override.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverridePart {
    /// Its rules.
    pub rules: Vec<NamedRule>,
    /// Whether its isolation takes part.
    pub isolation: bool,
}

/// The overrides of a policy, in both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyReport {
    /// The identifier, the tier and the position.
    pub policy: PolicyHead,
    /// Whether it is in audit mode; the answer is as if it were enforced.
    pub dry_run: bool,
    /// The directions in which it isolates.
    pub isolates: Vec<Direction>,
    /// The directions in which it has rules or isolates.
    pub directions: Vec<Direction>,
    /// The pods that it selects.
    pub subjects: Vec<String>,
    /// Their namespaces.
    pub namespaces: Vec<String>,
    /// The policies that it overrides.
    pub overrides: Vec<Override>,
    /// The policies that override it.
    pub overridden_by: Vec<Override>,
    /// The policies that decide the flows that its Pass rules match.
    pub defers_to: Vec<Override>,
    /// The NetworkPolicies that isolate its pods, if it is a policy of the Baseline tier.
    pub out_of_reach: Vec<Unreached>,
}

/// A NetworkPolicy that isolates pods which a policy of the Baseline tier selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// The NetworkPolicy.
    pub policy: String,
    /// The direction in which it isolates.
    pub direction: Direction,
    /// The pods.
    pub subjects: Vec<String>,
}
