//! What is valid and probably not what was meant: findings that need more than one object, or an
//! evaluation.
//!
//! Findings are data. Where they stand in a file, and the sentences about them, are for whoever
//! prints them.

mod checks;
mod exhaustive;

use std::fmt;

use crate::affect::{Decider, Witness};
use crate::model::{Cluster, NamespaceId, PodId, PolicyId, ServiceId};
use crate::program::{Program, RulePlace};

/// Finds everything, sorted by place and kind.
pub fn lint(cluster: &Cluster<'_>, program: &Program) -> Vec<Finding> {
    let (mut findings, exact) = rayon::join(
        || checks::find(cluster, program),
        || exhaustive::find(cluster, program),
    );
    findings.extend(exact);
    findings.sort_by(|a, b| (a.at, a.code, &a.by).cmp(&(b.at, b.code, &b.by)));
    findings
}

/// How bad a finding or a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Info,
    /// Valid, and probably not what was meant, or not everywhere.
    Warning,
    /// An API server would refuse or misread it, its meaning is not defined, or it does harm.
    Error,
}

impl Severity {
    /// The word in every output.
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

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingTarget {
    /// A policy as a whole.
    Policy(PolicyId),
    /// Whom a policy selects.
    Subject(PolicyId),
    /// A rule.
    Rule(RulePlace),
    /// One of the peers of a rule, by its place in the model's list.
    Peer(RulePlace, u32),
    /// One of the ports of a rule, by its place in the model's list.
    Port(RulePlace, u32),
    /// A namespace.
    Namespace(NamespaceId),
    /// A pod.
    Pod(PodId),
    /// A Service.
    Service(ServiceId),
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of finding it is.
    pub code: Code,
    /// What it is about.
    pub at: FindingTarget,
    /// The rules and isolations of other policies, or other rules, that make it so; sorted.
    pub by: Vec<Decider>,
    /// A flow that shows it, where there is one.
    pub witness: Option<Witness>,
    /// Whether it is so whatever pods and namespaces there are, and not only now.
    pub always: bool,
    /// What else there is to say.
    pub detail: FindingDetail,
}

/// What else there is to say about a finding, by its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FindingDetail {
    /// Nothing.
    #[default]
    Nothing,
    /// A text from the objects: a label key, a port name, a namespace.
    Text(String),
    /// So many of so many.
    Share(u64, u64),
    /// More places that are meant, besides [`Finding::at`].
    Others(Vec<FindingTarget>),
}

/// An enum of codes: for each its name, its severity, and a sentence on the kind.
#[macro_export]
macro_rules! codes {
    ($(#[$about:meta])* { $($variant:ident = $name:literal, $severity:ident, $summary:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $(#[doc = $summary] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The name in every output.
            pub fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }

            /// How bad it is.
            pub fn severity(self) -> $crate::lint::Severity {
                match self { $(Code::$variant => $crate::lint::Severity::$severity,)* }
            }

            /// One sentence on the kind.
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
    Tie = "TIE", Info, "Policies of one tier have the same priority; their names decide which goes first.";
    TieOverlap = "TIE-OVERLAP", Warning, "Policies of the same priority can select the same pod.";
    TieConflict = "TIE-CONFLICT", Error, "Policies of the same priority disagree about a flow, so that only their names decide it.";
    Shadowed = "SHADOWED", Warning, "Whatever the rule matches is decided by rules before it.";
    Unreachable = "UNREACHABLE", Warning, "No rule of the policy ever decides anything, because of what is asked before it.";
    NeverMatches = "NEVER-MATCHES", Warning, "A selector contradicts itself, so that nothing can ever match it.";
    SelectsNothing = "SELECTS-NOTHING", Warning, "The policy selects no pod that is given.";
    PeerMatchesNothing = "PEER-MATCHES-NOTHING", Info, "A peer of a rule matches no pod or node that is given.";
    RedundantRule = "REDUNDANT-RULE", Info, "Whatever the rule of a NetworkPolicy allows, others allow too.";
    RedundantPolicy = "REDUNDANT-POLICY", Info, "Without the NetworkPolicy every flow would get the same verdict.";
    Overridden = "OVERRIDDEN", Warning, "Whatever the NetworkPolicy's rule allows is decided by policies of the Admin tier.";
    OverriddenPartly = "OVERRIDDEN-PARTLY", Info, "Some of what the NetworkPolicy's rule allows is denied by policies of the Admin tier.";
    PassNoEffect = "PASS-NO-EFFECT", Info, "A rule passes flows on that would get the same verdict without it.";
    NoEffect = "NO-EFFECT", Info, "The policy has neither ingress nor egress rules.";
    RuleNameDup = "RULE-NAME-DUP", Info, "Two rules of a policy have the same name.";
    PortUnexposed = "PORT-UNEXPOSED", Warning, "No pod that the rule can lead to has a port of this name.";
    NamedPortAddresses = "NAMED-PORT-ADDRESSES", Warning, "A port is named together with addresses or nodes; only pods have names for ports.";
    DomainUnlearned = "DOMAIN-UNLEARNED", Info, "No address has been learned for a domain name.";
    TenantUnlabelled = "TENANT-UNLABELLED", Warning, "Namespaces without the label are not told apart from the tenant's.";
    MixedGeneration = "MIXED-GENERATION", Warning, "Policies of different generations meet, whose order no source defines.";
    LabelTypo = "LABEL-TYPO", Warning, "A selector names a label that nobody has, and that is nearly one that exists.";
    V6Open = "V6-OPEN", Warning, "All addresses of one family are denied, and the other family is left open.";
    SnatIpBlock = "SNAT-IPBLOCK", Warning, "Addresses of clients are named for pods behind a Service that may hide them.";
    NodeLocalDns = "NODE-LOCAL-DNS", Warning, "Pods that may reach the cluster's DNS may not reach the resolver on their node.";
    NoDns = "NO-DNS", Warning, "Pods that may send something may not ask the cluster's DNS.";
    DefaultIsolation = "DEFAULT-ISOLATION", Info, "Which directions a DefaultNetworkPolicy isolates follows from the keys that it has.";
    PeerOr = "PEER-OR", Warning, "Two peers look like one that was meant to have both selectors.";
    LockoutDns = "LOCKOUT-DNS", Error, "Policies of the cluster keep pods from its DNS.";
    LockoutApiServer = "LOCKOUT-API-SERVER", Error, "Policies of the cluster keep its own components from the API server.";
    LockoutControlPlane = "LOCKOUT-CONTROL-PLANE", Error, "Policies of the cluster keep its own components from each other.";
    LockoutKubelet = "LOCKOUT-KUBELET", Error, "Policies of the cluster keep its own components from the kubelets.";
    }
}
