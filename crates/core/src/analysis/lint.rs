//! Findings: valid policies with a likely mistake, found by comparing objects or evaluating flows.
//!
//! A finding is data. The caller locates it in a file and writes its message.

mod checks;
mod exhaustive;

use std::fmt;

use crate::analysis::affect::{Decider, Witness};
use crate::model::{Cluster, NamespaceId, PodId, PolicyId, ServiceId};
use crate::program::{Program, RulePlace};

/// Finds all problems, sorted by target and code.
pub fn lint(cluster: &Cluster<'_>, program: &Program) -> Vec<Finding> {
    // Neither needs the findings of the other.
    let (mut findings, exact) = rayon::join(
        || checks::find(cluster, program),
        || exhaustive::find(cluster, program),
    );
    findings.extend(exact);
    // Both halves collect from hash maps; sorting makes the output reproducible.
    findings.sort_by(|a, b| (a.at, a.code, &a.by).cmp(&(b.at, b.code, &b.by)));
    findings
}

/// The severity of a finding or a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// A fact worth knowing; nothing is wrong.
    Info,
    /// A valid object with a likely mistake.
    Warning,
    /// An object that an API server rejects or misreads, whose meaning is undefined, or that does
    /// harm.
    Error,
}

impl Severity {
    /// Returns the name used in every output.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The object or part of an object that a finding concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingTarget {
    /// A policy as a whole.
    Policy(PolicyId),
    /// The subject of a policy.
    Subject(PolicyId),
    /// A rule.
    Rule(RulePlace),
    /// A peer of a rule, by its index in the model's list.
    Peer(RulePlace, u32),
    /// A port of a rule, by its index in the model's list.
    Port(RulePlace, u32),
    /// A namespace.
    Namespace(NamespaceId),
    /// A pod.
    Pod(PodId),
    /// A Service.
    Service(ServiceId),
}

/// A likely mistake, with its evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of finding.
    pub code: Code,
    /// Its target.
    pub at: FindingTarget,
    /// The rules and isolations that cause it, sorted.
    pub by: Vec<Decider>,
    /// A flow that shows it, if one exists.
    pub witness: Option<Witness>,
    /// Whether it holds for any pods and namespaces, not only for those in the input.
    pub always: bool,
    /// Further data for the message.
    pub detail: FindingDetail,
}

/// The data of a finding that depend on its code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FindingDetail {
    /// No further data.
    #[default]
    Nothing,
    /// A text from the objects: a label key, a port name, a namespace.
    Text(String),
    /// A label that no object has, and the label that is probably intended: `key` or `key=value`.
    Typo {
        /// The label of the selector.
        wrong: String,
        /// The existing label.
        right: String,
    },
    /// A number out of a total.
    Share(u64, u64),
    /// Further targets besides [`Finding::at`].
    Others(Vec<FindingTarget>),
}

/// Defines an enum of codes: the name, severity and summary of each.
#[macro_export]
macro_rules! codes {
    ($(#[$about:meta])* { $($variant:ident = $name:literal, $severity:ident, $summary:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $summary] $variant,)*
        }

        impl Code {
            /// All codes, in the order of the documentation.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// Returns the name used in every output.
            pub fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            /// Returns the severity.
            pub fn severity(self) -> $crate::analysis::lint::Severity {
                match self { $(Code::$variant => $crate::analysis::lint::Severity::$severity,)* }
            }

            /// Returns a one-sentence description.
            pub fn summary(self) -> &'static str {
                match self { $(Code::$variant => $summary,)* }
            }
        }

        impl std::fmt::Display for Code {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

codes! {
    /// The kinds of findings. Their names are stable: scripts may rely on them.
    {
    Tie = "TIE", Info, "Policies of one tier have the same priority; their names decide precedence.";
    TieOverlap = "TIE-OVERLAP", Warning, "Policies of the same priority can select the same pod.";
    TieConflict = "TIE-CONFLICT", Error, "Policies of the same priority disagree about a flow; only their names decide it.";
    Shadowed = "SHADOWED", Warning, "Earlier rules decide all flows that the rule matches.";
    Unreachable = "UNREACHABLE", Warning, "No rule of the policy ever decides a flow; earlier rules or tiers decide all that it matches.";
    NeverMatches = "NEVER-MATCHES", Warning, "A selector contradicts itself; no object can match it.";
    SelectsNothing = "SELECTS-NOTHING", Warning, "The policy selects no pod in the input.";
    PeerMatchesNothing = "PEER-MATCHES-NOTHING", Info, "A peer of a rule matches no pod or node in the input.";
    RedundantRule = "REDUNDANT-RULE", Info, "Other rules also allow all flows that the rule of a NetworkPolicy allows.";
    RedundantPolicy = "REDUNDANT-POLICY", Info, "Without the NetworkPolicy, every flow would get the same verdict.";
    Overridden = "OVERRIDDEN", Warning, "Policies of the Admin tier decide all flows that the NetworkPolicy's rule allows.";
    OverriddenPartly = "OVERRIDDEN-PARTLY", Info, "Policies of the Admin tier deny some flows that the NetworkPolicy's rule allows.";
    PassNoEffect = "PASS-NO-EFFECT", Info, "A Pass rule has no effect: without it, every flow would get the same verdict.";
    NoEffect = "NO-EFFECT", Info, "The policy has neither ingress nor egress rules.";
    RuleNameDup = "RULE-NAME-DUP", Info, "Two rules of a policy have the same name.";
    PortUnexposed = "PORT-UNEXPOSED", Warning, "No possible destination pod of the rule has a port of this name.";
    NamedPortAddresses = "NAMED-PORT-ADDRESSES", Warning, "A rule combines a port name with addresses or nodes; only pods have port names.";
    DomainUnlearned = "DOMAIN-UNLEARNED", Info, "No address has been learned for a domain name.";
    TenantUnlabelled = "TENANT-UNLABELLED", Warning, "Namespaces without the label are not separated from the tenant's.";
    MixedGeneration = "MIXED-GENERATION", Warning, "Policies of different API versions share a tier; their order is undefined.";
    LabelTypo = "LABEL-TYPO", Warning, "A selector names a label that no object has; a similar one exists.";
    V6Open = "V6-OPEN", Warning, "A rule denies all addresses of one family; the other family stays open.";
    SnatIpBlock = "SNAT-IPBLOCK", Warning, "A rule matches client addresses for pods behind a Service that may hide them.";
    NodeLocalDns = "NODE-LOCAL-DNS", Warning, "Pods that may reach the cluster's DNS may not reach the resolver on their node.";
    NoDns = "NO-DNS", Warning, "Pods with some allowed egress may not reach the cluster's DNS.";
    DefaultIsolation = "DEFAULT-ISOLATION", Info, "The keys of a DefaultNetworkPolicy decide which directions it isolates.";
    PeerOr = "PEER-OR", Warning, "Two adjacent peers were probably meant as one peer with both selectors.";
    LockoutDns = "LOCKOUT-DNS", Error, "Cluster-wide policies block pods from the cluster's DNS.";
    LockoutApiServer = "LOCKOUT-API-SERVER", Error, "Cluster-wide policies block components of the cluster from the API server.";
    LockoutControlPlane = "LOCKOUT-CONTROL-PLANE", Error, "Cluster-wide policies block components of the cluster from each other.";
    LockoutKubelet = "LOCKOUT-KUBELET", Error, "Cluster-wide policies block components of the cluster from the kubelets.";
    }
}
