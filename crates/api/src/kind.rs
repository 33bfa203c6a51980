//! The kinds that Palisade knows, and how an apiVersion and a kind name one of them.

use crate::decode::listed;
use crate::metadata::{LabelUse, NameRule, Scope};
use crate::names::{is_dns_label, is_dns_subdomain};
use crate::problem::Code;
use palisade_core::incremental::ObjectKind;
use palisade_core::policy::PolicyApi;
use palisade_core::text::{nearest, ticked};

/// A kind of object that Palisade reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `networking.k8s.io/v1`.
    NetworkPolicy,
    /// The 2016 form: `v1beta` and `extensions/v1beta1`.
    NetworkPolicy2016,
    /// `policy.networking.k8s.io/v1alpha1`.
    AdminNetworkPolicy,
    /// `policy.networking.k8s.io/v1alpha1`.
    BaselineAdminNetworkPolicy,
    /// `policy.networking.k8s.io/v1alpha2`.
    ClusterNetworkPolicy,
    /// The 2021 form: `networking.k8s.io/v1alpha1`.
    EarlyClusterNetworkPolicy,
    /// The 2021 form: `networking.k8s.io/v1alpha1`.
    DefaultNetworkPolicy,
    /// A namespace.
    Namespace,
    /// A pod.
    Pod,
    /// A node.
    Node,
    /// A Service.
    Service,
    /// Backends of a Service.
    EndpointSlice,
    /// A workload.
    Deployment,
    /// A workload.
    StatefulSet,
    /// A workload.
    DaemonSet,
    /// A workload.
    ReplicaSet,
    /// A workload.
    ReplicationController,
    /// A workload.
    Job,
    /// A workload.
    CronJob,
}

/// What objects of a kind are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The plans of nodes depend on them.
    Enforced(ObjectKind),
    /// They name backends of a Service. Packets are evaluated after the translation of Services
    /// (D78), so no plan depends on them.
    Service,
    /// They create pods. Only Pod objects have addresses, so no plan depends on them.
    Workload,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 19] = [
        Kind::NetworkPolicy,
        Kind::NetworkPolicy2016,
        Kind::AdminNetworkPolicy,
        Kind::BaselineAdminNetworkPolicy,
        Kind::ClusterNetworkPolicy,
        Kind::EarlyClusterNetworkPolicy,
        Kind::DefaultNetworkPolicy,
        Kind::Namespace,
        Kind::Pod,
        Kind::Node,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Deployment,
        Kind::StatefulSet,
        Kind::DaemonSet,
        Kind::ReplicaSet,
        Kind::ReplicationController,
        Kind::Job,
        Kind::CronJob,
    ];

    /// The object's `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NetworkPolicy | Kind::NetworkPolicy2016 => "NetworkPolicy",
            Kind::AdminNetworkPolicy => "AdminNetworkPolicy",
            Kind::BaselineAdminNetworkPolicy => "BaselineAdminNetworkPolicy",
            Kind::ClusterNetworkPolicy | Kind::EarlyClusterNetworkPolicy => "ClusterNetworkPolicy",
            Kind::DefaultNetworkPolicy => "DefaultNetworkPolicy",
            Kind::Namespace => "Namespace",
            Kind::Pod => "Pod",
            Kind::Node => "Node",
            Kind::Service => "Service",
            Kind::EndpointSlice => "EndpointSlice",
            Kind::Deployment => "Deployment",
            Kind::StatefulSet => "StatefulSet",
            Kind::DaemonSet => "DaemonSet",
            Kind::ReplicaSet => "ReplicaSet",
            Kind::ReplicationController => "ReplicationController",
            Kind::Job => "Job",
            Kind::CronJob => "CronJob",
        }
    }

    /// The API version of its objects; one kind had two.
    pub(crate) fn api_version(self, written: &str) -> &'static str {
        match self {
            Kind::NetworkPolicy => "networking.k8s.io/v1",
            Kind::NetworkPolicy2016 if written == "v1beta" => "v1beta",
            Kind::NetworkPolicy2016 => "extensions/v1beta1",
            Kind::AdminNetworkPolicy | Kind::BaselineAdminNetworkPolicy => {
                "policy.networking.k8s.io/v1alpha1"
            }
            Kind::ClusterNetworkPolicy => "policy.networking.k8s.io/v1alpha2",
            Kind::EarlyClusterNetworkPolicy | Kind::DefaultNetworkPolicy => {
                "networking.k8s.io/v1alpha1"
            }
            Kind::Namespace
            | Kind::Pod
            | Kind::Node
            | Kind::Service
            | Kind::ReplicationController => "v1",
            Kind::EndpointSlice => "discovery.k8s.io/v1",
            Kind::Deployment | Kind::StatefulSet | Kind::DaemonSet | Kind::ReplicaSet => "apps/v1",
            Kind::Job | Kind::CronJob => "batch/v1",
        }
    }

    /// The prefix of identifiers: `netpol/shop/db`.
    pub fn short(self) -> &'static str {
        match self {
            Kind::NetworkPolicy => "netpol",
            Kind::NetworkPolicy2016 => "np0",
            Kind::AdminNetworkPolicy => "anp",
            Kind::BaselineAdminNetworkPolicy => "banp",
            Kind::ClusterNetworkPolicy => "cnp",
            Kind::EarlyClusterNetworkPolicy => "cnp0",
            Kind::DefaultNetworkPolicy => "dnp",
            Kind::Namespace => "ns",
            Kind::Pod => "pod",
            Kind::Node => "node",
            Kind::Service => "svc",
            Kind::EndpointSlice => "endpointslice",
            Kind::Deployment => "deploy",
            Kind::StatefulSet => "sts",
            Kind::DaemonSet => "ds",
            Kind::ReplicaSet => "rs",
            Kind::ReplicationController => "rc",
            Kind::Job => "job",
            Kind::CronJob => "cronjob",
        }
    }

    /// Returns what objects of the kind are for.
    pub fn role(self) -> Role {
        let policy = |api| Role::Enforced(ObjectKind::Policy(api));
        match self {
            Kind::NetworkPolicy => policy(PolicyApi::NetworkPolicy),
            Kind::NetworkPolicy2016 => policy(PolicyApi::NetworkPolicy2016),
            Kind::AdminNetworkPolicy => policy(PolicyApi::Admin),
            Kind::BaselineAdminNetworkPolicy => policy(PolicyApi::BaselineAdmin),
            Kind::ClusterNetworkPolicy => policy(PolicyApi::Cluster),
            Kind::EarlyClusterNetworkPolicy => policy(PolicyApi::EarlyCluster),
            Kind::DefaultNetworkPolicy => policy(PolicyApi::Default),
            Kind::Namespace => Role::Enforced(ObjectKind::Namespace),
            Kind::Pod => Role::Enforced(ObjectKind::Pod),
            Kind::Node => Role::Enforced(ObjectKind::Node),
            Kind::Service | Kind::EndpointSlice => Role::Service,
            Kind::Deployment
            | Kind::StatefulSet
            | Kind::DaemonSet
            | Kind::ReplicaSet
            | Kind::ReplicationController
            | Kind::Job
            | Kind::CronJob => Role::Workload,
        }
    }

    /// Returns the kind as the plans of nodes know it; `None`: no plan depends on its objects.
    pub fn enforced(self) -> Option<ObjectKind> {
        match self.role() {
            Role::Enforced(kind) => Some(kind),
            Role::Service | Role::Workload => None,
        }
    }

    /// Whether objects of the kind are policies.
    pub fn is_policy(self) -> bool {
        matches!(self.role(), Role::Enforced(ObjectKind::Policy(_)))
    }

    /// Whether the kind is namespaced.
    pub fn is_namespaced(self) -> bool {
        self.scope() == Scope::Namespaced
    }

    pub(crate) fn scope(self) -> Scope {
        match self {
            Kind::AdminNetworkPolicy
            | Kind::BaselineAdminNetworkPolicy
            | Kind::ClusterNetworkPolicy
            | Kind::EarlyClusterNetworkPolicy
            | Kind::DefaultNetworkPolicy
            | Kind::Namespace
            | Kind::Node => Scope::Cluster,
            Kind::NetworkPolicy
            | Kind::NetworkPolicy2016
            | Kind::Pod
            | Kind::Service
            | Kind::EndpointSlice
            | Kind::Deployment
            | Kind::StatefulSet
            | Kind::DaemonSet
            | Kind::ReplicaSet
            | Kind::ReplicationController
            | Kind::Job
            | Kind::CronJob => Scope::Namespaced,
        }
    }

    pub(crate) fn labelled(self) -> LabelUse {
        // Nothing selects policies by their labels.
        if self.is_policy() {
            LabelUse::Named
        } else {
            LabelUse::Selected
        }
    }

    pub(crate) fn name_rule(self) -> NameRule {
        if matches!(self, Kind::Namespace | Kind::Service) {
            NameRule::Label
        } else {
            NameRule::Subdomain
        }
    }
}

/// The result of looking up an apiVersion and a kind.
#[derive(Debug)]
pub(crate) enum RecognizedKind {
    /// A kind that we read.
    Known(Kind),
    /// Another kind, which policies do not refer to.
    Skipped,
    /// A mistake.
    Wrong(WrongKind),
}

/// A mistake in an apiVersion or a kind.
#[derive(Debug)]
pub(crate) struct WrongKind {
    pub(crate) code: Code,
    pub(crate) message: String,
    pub(crate) help: String,
    /// Whether the mistake is in the apiVersion or in the kind.
    pub(crate) in_version: bool,
    /// The kind that is certainly meant; its other problems can then be reported too.
    pub(crate) meant: Option<Kind>,
}

const POLICY_GROUP: &str = "policy.networking.k8s.io";
const NETWORKING: &str = "networking.k8s.io";

/// Kinds of groups whose kinds are all known: a misspelling is reported.
const CLOSED_GROUPS: [(&str, &[&str]); 10] = [
    (
        "v1",
        &[
            "Namespace",
            "Pod",
            "Node",
            "Service",
            "ReplicationController",
            "Binding",
            "ComponentStatus",
            "ConfigMap",
            "Endpoints",
            "Event",
            "LimitRange",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "PodTemplate",
            "ResourceQuota",
            "Secret",
            "ServiceAccount",
            "List",
            "Status",
            "Scale",
            "Eviction",
            "PodStatusResult",
        ],
    ),
    (
        "apps/v1",
        &[
            "Deployment",
            "StatefulSet",
            "DaemonSet",
            "ReplicaSet",
            "ControllerRevision",
        ],
    ),
    ("batch/v1", &["Job", "CronJob"]),
    ("discovery.k8s.io/v1", &["EndpointSlice"]),
    (
        "networking.k8s.io/v1",
        &[
            "NetworkPolicy",
            "Ingress",
            "IngressClass",
            "IPAddress",
            "ServiceCIDR",
        ],
    ),
    ("v1beta", &["NetworkPolicy"]),
    (
        "networking.k8s.io/v1alpha1",
        &[
            "ClusterNetworkPolicy",
            "DefaultNetworkPolicy",
            "ClusterCIDR",
            "IPAddress",
            "ServiceCIDR",
        ],
    ),
    (
        "networking.k8s.io/v1beta1",
        &["Ingress", "IngressClass", "IPAddress", "ServiceCIDR"],
    ),
    (
        "extensions/v1beta1",
        &[
            "NetworkPolicy",
            "Deployment",
            "DaemonSet",
            "ReplicaSet",
            "Ingress",
            "PodSecurityPolicy",
            "Scale",
            "DeploymentRollback",
            "Job",
            "HorizontalPodAutoscaler",
            "ThirdPartyResource",
        ],
    ),
    (
        "policy.networking.k8s.io/v1alpha2",
        &["ClusterNetworkPolicy"],
    ),
];

/// Whether the kind is a list of objects: `List`, or a list of a kind that can be one.
pub(crate) fn is_list_kind(api_version: &str, kind: &str) -> bool {
    match kind.strip_suffix("List") {
        Some("") => api_version == "v1",
        Some(item) => !matches!(recognize_kind(api_version, item), RecognizedKind::Wrong(_)),
        None => false,
    }
}

/// Looks up the kind, or reports what is wrong with it.
pub(crate) fn recognize_kind(api_version: &str, kind: &str) -> RecognizedKind {
    let known = match (api_version, kind) {
        ("networking.k8s.io/v1", "NetworkPolicy") => Kind::NetworkPolicy,
        ("v1beta" | "extensions/v1beta1", "NetworkPolicy") => Kind::NetworkPolicy2016,
        ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy") => Kind::AdminNetworkPolicy,
        ("policy.networking.k8s.io/v1alpha1", "BaselineAdminNetworkPolicy") => {
            Kind::BaselineAdminNetworkPolicy
        }
        ("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy") => Kind::ClusterNetworkPolicy,
        ("networking.k8s.io/v1alpha1", "ClusterNetworkPolicy") => Kind::EarlyClusterNetworkPolicy,
        ("networking.k8s.io/v1alpha1", "DefaultNetworkPolicy") => Kind::DefaultNetworkPolicy,
        ("v1", "Namespace") => Kind::Namespace,
        ("v1", "Pod") => Kind::Pod,
        ("v1", "Node") => Kind::Node,
        ("v1", "Service") => Kind::Service,
        ("v1", "ReplicationController") => Kind::ReplicationController,
        ("discovery.k8s.io/v1" | "discovery.k8s.io/v1beta1", "EndpointSlice") => {
            Kind::EndpointSlice
        }
        ("apps/v1" | "apps/v1beta1" | "apps/v1beta2" | "extensions/v1beta1", "Deployment") => {
            Kind::Deployment
        }
        ("apps/v1" | "apps/v1beta1" | "apps/v1beta2", "StatefulSet") => Kind::StatefulSet,
        ("apps/v1" | "apps/v1beta2" | "extensions/v1beta1", "DaemonSet") => Kind::DaemonSet,
        ("apps/v1" | "apps/v1beta2" | "extensions/v1beta1", "ReplicaSet") => Kind::ReplicaSet,
        ("batch/v1", "Job") => Kind::Job,
        ("batch/v1" | "batch/v1beta1" | "batch/v2alpha1", "CronJob") => Kind::CronJob,
        _ => return other(api_version, kind),
    };
    RecognizedKind::Known(known)
}

fn other(api_version: &str, kind: &str) -> RecognizedKind {
    if let Some(versions) = policy_versions(kind) {
        return policy_in_other_version(api_version, kind, versions);
    }
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let closed = CLOSED_GROUPS
        .iter()
        .find(|(version, _)| *version == api_version);
    let other_version = closed.is_none() && is_other_version(group, kind);
    if !is_api_version(api_version) || other_version {
        return unknown_version(api_version, kind);
    }
    let misspelt_policy = nearest(kind, &POLICY_KINDS);
    match closed {
        Some((_, kinds)) if !kinds.contains(&kind) => unknown_kind(api_version, kind, kinds),
        None if group == POLICY_GROUP => unknown_kind(
            api_version,
            kind,
            &["AdminNetworkPolicy", "BaselineAdminNetworkPolicy"],
        ),
        None if group == NETWORKING && misspelt_policy.is_some() => {
            unknown_kind(api_version, kind, &POLICY_KINDS)
        }
        _ => RecognizedKind::Skipped,
    }
}

/// Groups without a dot are those of Kubernetes itself; all others have one.
const DOTLESS_GROUPS: [&str; 5] = ["apps", "batch", "autoscaling", "extensions", "policy"];

/// Whether the text can be an apiVersion: `v1`, or a group and a version.
fn is_api_version(text: &str) -> bool {
    match text.split_once('/') {
        None => text == "v1" || text == "v1beta",
        Some((group, version)) => {
            is_dns_subdomain(group)
                && is_dns_label(version)
                && (group.contains('.') || DOTLESS_GROUPS.contains(&group))
        }
    }
}

/// Whether the object is of a kind that we read, in a version of its own group that does not exist.
fn is_other_version(group: &str, kind: &str) -> bool {
    if group == "extensions" {
        // Its one version is among the closed groups.
        return true;
    }
    let home = match kind {
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" => "apps",
        "Job" | "CronJob" => "batch",
        "EndpointSlice" => "discovery.k8s.io",
        _ => return false,
    };
    group == home
}

fn unknown_version(api_version: &str, kind: &str) -> RecognizedKind {
    let home = CLOSED_GROUPS
        .iter()
        .find(|(_, kinds)| kinds.contains(&kind));
    RecognizedKind::Wrong(WrongKind {
        code: Code::UnknownVersion,
        message: format!(
            "unknown apiVersion {} of kind {}",
            ticked(api_version),
            ticked(kind)
        ),
        help: match home {
            Some((version, _)) => format!("write `apiVersion: {version}`"),
            None => "an apiVersion is `v1`, or a group and a version, like `apps/v1`".to_owned(),
        },
        in_version: true,
        meant: None,
    })
}

fn unknown_kind(api_version: &str, kind: &str, kinds: &[&str]) -> RecognizedKind {
    let elsewhere = CLOSED_GROUPS
        .iter()
        .find(|(_, kinds)| kinds.contains(&kind));
    let help = match (elsewhere, nearest(kind, kinds)) {
        (Some((version, _)), _) => format!("write `apiVersion: {version}`"),
        (None, Some(name)) => format!("did you mean `{name}`?"),
        (None, None) if kinds.len() > 8 => {
            "check the spelling of `kind` and `apiVersion`".to_owned()
        }
        (None, None) => format!("the kinds are {}", listed(kinds)),
    };
    RecognizedKind::Wrong(WrongKind {
        code: Code::UnknownKind,
        message: format!(
            "API version {} has no kind {}",
            ticked(api_version),
            ticked(kind)
        ),
        help,
        in_version: false,
        meant: None,
    })
}

const POLICY_KINDS: [&str; 5] = [
    "NetworkPolicy",
    "AdminNetworkPolicy",
    "BaselineAdminNetworkPolicy",
    "ClusterNetworkPolicy",
    "DefaultNetworkPolicy",
];

/// The apiVersions of a policy kind, newest first.
fn policy_versions(kind: &str) -> Option<&'static [&'static str]> {
    match kind {
        "NetworkPolicy" => Some(&["networking.k8s.io/v1", "extensions/v1beta1", "v1beta"]),
        "AdminNetworkPolicy" | "BaselineAdminNetworkPolicy" => {
            Some(&["policy.networking.k8s.io/v1alpha1"])
        }
        "ClusterNetworkPolicy" => Some(&[
            "policy.networking.k8s.io/v1alpha2",
            "networking.k8s.io/v1alpha1",
        ]),
        "DefaultNetworkPolicy" => Some(&["networking.k8s.io/v1alpha1"]),
        _ => None,
    }
}

/// Other projects have kinds of the same names in groups of their own: those are skipped. In the
/// groups of Kubernetes, and in a likely misspelling of them, it is a mistake.
fn policy_in_other_version(api_version: &str, kind: &str, versions: &[&str]) -> RecognizedKind {
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let foreign = is_api_version(api_version)
        && group.contains('.')
        && !group.ends_with("k8s.io")
        && !group.ends_with("kubernetes.io")
        && nearest(group, &[NETWORKING, POLICY_GROUP]).is_none();
    if foreign {
        return RecognizedKind::Skipped;
    }
    let (help, meant) = match (api_version, kind) {
        ("policy.networking.k8s.io/v1alpha1", "ClusterNetworkPolicy") => (
            "in v1alpha1 the kind is `AdminNetworkPolicy`; ClusterNetworkPolicy exists since v1alpha2"
                .to_owned(),
            Some(Kind::ClusterNetworkPolicy),
        ),
        (
            "policy.networking.k8s.io/v1alpha2",
            "AdminNetworkPolicy" | "BaselineAdminNetworkPolicy",
        ) => (
            "v1alpha2 has only `ClusterNetworkPolicy`, with a `tier`".to_owned(),
            None,
        ),
        _ => (
            format!("write `apiVersion: {}`", versions.first().unwrap_or(&"")),
            None,
        ),
    };
    RecognizedKind::Wrong(WrongKind {
        code: Code::UnknownVersion,
        message: format!(
            "API version {} has no kind {}",
            ticked(api_version),
            ticked(kind)
        ),
        help,
        in_version: true,
        meant,
    })
}
