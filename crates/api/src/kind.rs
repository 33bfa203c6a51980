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

    /// The API versions in which it is read, the present one first.
    fn versions(self) -> &'static [&'static str] {
        match self {
            Kind::NetworkPolicy => &["networking.k8s.io/v1"],
            Kind::NetworkPolicy2016 => &["extensions/v1beta1", "v1beta"],
            Kind::AdminNetworkPolicy | Kind::BaselineAdminNetworkPolicy => {
                &["policy.networking.k8s.io/v1alpha1"]
            }
            Kind::ClusterNetworkPolicy => &["policy.networking.k8s.io/v1alpha2"],
            Kind::EarlyClusterNetworkPolicy | Kind::DefaultNetworkPolicy => {
                &["networking.k8s.io/v1alpha1"]
            }
            Kind::Namespace
            | Kind::Pod
            | Kind::Node
            | Kind::Service
            | Kind::ReplicationController => &["v1"],
            Kind::EndpointSlice => &["discovery.k8s.io/v1", "discovery.k8s.io/v1beta1"],
            Kind::Deployment => &[
                "apps/v1",
                "apps/v1beta1",
                "apps/v1beta2",
                "extensions/v1beta1",
            ],
            Kind::StatefulSet => &["apps/v1", "apps/v1beta1", "apps/v1beta2"],
            Kind::DaemonSet | Kind::ReplicaSet => {
                &["apps/v1", "apps/v1beta2", "extensions/v1beta1"]
            }
            Kind::Job => &["batch/v1"],
            Kind::CronJob => &["batch/v1", "batch/v1beta1", "batch/v2alpha1"],
        }
    }

    /// The present API version of its objects; that of 2016 had two at the same time.
    pub(crate) fn api_version(self, written: &str) -> &'static str {
        let versions = self.versions();
        let same = versions.iter().find(|it| **it == written);
        let same = same.filter(|_| self == Kind::NetworkPolicy2016);
        same.or(versions.first()).copied().unwrap_or_default()
    }

    /// The prefix of identifiers: `netpol/shop/db`.
    pub fn short(self) -> &'static str {
        match self {
            Kind::Service => "svc",
            Kind::EndpointSlice => "endpointslice",
            Kind::Deployment => "deploy",
            Kind::StatefulSet => "sts",
            Kind::DaemonSet => "ds",
            Kind::ReplicaSet => "rs",
            Kind::ReplicationController => "rc",
            Kind::Job => "job",
            Kind::CronJob => "cronjob",
            Kind::NetworkPolicy
            | Kind::NetworkPolicy2016
            | Kind::AdminNetworkPolicy
            | Kind::BaselineAdminNetworkPolicy
            | Kind::ClusterNetworkPolicy
            | Kind::EarlyClusterNetworkPolicy
            | Kind::DefaultNetworkPolicy
            | Kind::Namespace
            | Kind::Pod
            | Kind::Node => self.enforced().map_or("", ObjectKind::short),
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

/// Groups whose kinds are all known, so a misspelling is reported: the kinds that we do not read.
const CLOSED_GROUPS: [(&str, &[&str]); 10] = [
    (
        "v1",
        &[
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
    ("apps/v1", &["ControllerRevision"]),
    ("batch/v1", &[]),
    ("discovery.k8s.io/v1", &[]),
    (
        "networking.k8s.io/v1",
        &["Ingress", "IngressClass", "IPAddress", "ServiceCIDR"],
    ),
    ("v1beta", &[]),
    (
        "networking.k8s.io/v1alpha1",
        &["ClusterCIDR", "IPAddress", "ServiceCIDR"],
    ),
    (
        "networking.k8s.io/v1beta1",
        &["Ingress", "IngressClass", "IPAddress", "ServiceCIDR"],
    ),
    (
        "extensions/v1beta1",
        &[
            "Ingress",
            "PodSecurityPolicy",
            "Scale",
            "DeploymentRollback",
            "Job",
            "HorizontalPodAutoscaler",
            "ThirdPartyResource",
        ],
    ),
    ("policy.networking.k8s.io/v1alpha2", &[]),
];

/// The names of the kinds of an API version that we read.
fn read_in(api_version: &str) -> Vec<&'static str> {
    let kinds = Kind::ALL.into_iter();
    let kinds = kinds.filter(|it| it.versions().contains(&api_version));
    kinds.map(Kind::name).collect()
}

/// All kinds of a closed group; `None`: the group is open.
fn closed_group(api_version: &str) -> Option<Vec<&'static str>> {
    let (_, others) = CLOSED_GROUPS.iter().find(|it| it.0 == api_version)?;
    let mut kinds = read_in(api_version);
    kinds.extend_from_slice(others);
    Some(kinds)
}

/// The first closed group that has a kind.
fn group_of(kind: &str) -> Option<&'static str> {
    let mut versions = CLOSED_GROUPS.iter().map(|it| it.0);
    versions.find(|it| closed_group(it).is_some_and(|kinds| kinds.contains(&kind)))
}

/// Whether the kind is a list of objects: `List`, or a list of a kind that can be one.
pub(crate) fn is_list_kind(api_version: &str, kind: &str) -> bool {
    match kind.strip_suffix("List") {
        Some("") => api_version == "v1",
        Some(item) => !matches!(recognize_kind(api_version, item), RecognizedKind::Wrong(_)),
        None => false,
    }
}

/// Whether an object, or the items of a list, may be meant as policies that Palisade reads.
pub(crate) fn may_be_policy(api_version: &str, kind: &str) -> bool {
    let kind = match kind.strip_suffix("List") {
        Some("") => return true,
        Some(item) => item,
        None => kind,
    };
    match recognize_kind(api_version, kind) {
        RecognizedKind::Known(kind) => kind.is_policy(),
        RecognizedKind::Skipped => false,
        RecognizedKind::Wrong(_) => {
            // A kind that no policy has, of a group whose kinds are all known, is no policy.
            policies().any(|it| it.name() == kind) || group_of(kind).is_none()
        }
    }
}

/// Looks up the kind, or reports what is wrong with it.
pub(crate) fn recognize_kind(api_version: &str, kind: &str) -> RecognizedKind {
    let mut kinds = Kind::ALL.into_iter();
    let known = kinds.find(|it| it.name() == kind && it.versions().contains(&api_version));
    known.map_or_else(|| other(api_version, kind), RecognizedKind::Known)
}

fn other(api_version: &str, kind: &str) -> RecognizedKind {
    if let Some(newest) = policies().find(|it| it.name() == kind) {
        return policy_in_other_version(api_version, kind, newest);
    }
    let group = group(api_version);
    let closed = closed_group(api_version);
    let other_version = closed.is_none() && is_other_version(group, kind);
    if !is_api_version(api_version) || other_version {
        return unknown_version(api_version, kind);
    }
    let mut policies: Vec<&str> = policies().map(Kind::name).collect();
    policies.dedup();
    match closed {
        Some(kinds) if !kinds.contains(&kind) => unknown_kind(api_version, kind, &kinds),
        None if group == POLICY_GROUP => {
            let kinds = read_in("policy.networking.k8s.io/v1alpha1");
            unknown_kind(api_version, kind, &kinds)
        }
        None if group == NETWORKING && nearest(kind, &policies).is_some() => {
            unknown_kind(api_version, kind, &policies)
        }
        _ => RecognizedKind::Skipped,
    }
}

/// The kinds of policies; of one name the newest first.
fn policies() -> impl Iterator<Item = Kind> {
    Kind::ALL.into_iter().filter(|it| it.is_policy())
}

fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
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
    let mut kinds = Kind::ALL.into_iter();
    let home = kinds.find(|it| it.name() == kind && !it.is_policy());
    let home = home.map_or("", |it| self::group(it.api_version("")));
    !home.is_empty() && group == home
}

fn unknown_version(api_version: &str, kind: &str) -> RecognizedKind {
    RecognizedKind::Wrong(WrongKind {
        code: Code::UnknownVersion,
        message: format!(
            "unknown apiVersion {} of kind {}",
            ticked(api_version),
            ticked(kind)
        ),
        help: match group_of(kind) {
            Some(version) => format!("write `apiVersion: {version}`"),
            None => "an apiVersion is `v1`, or a group and a version, like `apps/v1`".to_owned(),
        },
        in_version: true,
        meant: None,
    })
}

fn unknown_kind(api_version: &str, kind: &str, kinds: &[&str]) -> RecognizedKind {
    let help = match (group_of(kind), nearest(kind, kinds)) {
        (Some(version), _) => format!("write `apiVersion: {version}`"),
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

/// Other projects have kinds of the same names in groups of their own: those are skipped. In the
/// groups of Kubernetes, and in a likely misspelling of them, it is a mistake.
fn policy_in_other_version(api_version: &str, kind: &str, newest: Kind) -> RecognizedKind {
    let group = group(api_version);
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
            format!("write `apiVersion: {}`", newest.api_version("")),
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
