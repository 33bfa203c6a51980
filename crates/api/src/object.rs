//! Objects: their identity and their fields.

use palisade_core::policy::Direction;

use crate::admin_network_policy::{self, AdminKind};
use crate::cluster_network_policy;
use crate::cluster_policy::{self, ClusterPolicy, Conditions};
use crate::cluster_policy_2021::{self, Kind2021, Policy2021};
use crate::decode::{Decode, Readable, Unreadable};
use crate::fields::{Fields, ObjectFields};
use crate::kind::Kind;
use crate::metadata::{Metadata, metadata, missing_name};
use crate::network_policy::{self, NetworkPolicy};
use crate::network_policy_2016::{self, NetworkPolicy2016};
use crate::node::{self, Node};
use crate::path::At;
use crate::pod::{Pod, pod_spec, pod_status};
use crate::problem::{Code, SourceId, Span};
use crate::service::{self, EndpointSlice, Service};
use crate::workload::{self, Workload, WorkloadKind};
use palisade_core::text::{object_id, ticked};

/// An object, borrowed from its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// What kind of object it is.
    pub kind: Kind,
    /// The version of the API that it is written in.
    pub api_version: &'static str,
    /// Its name, namespace and labels.
    pub metadata: Metadata<'a>,
    /// Its fields.
    pub spec: ObjectSpec<'a>,
    /// Its source.
    pub source: SourceId,
    /// Its place in the source.
    pub span: Span,
    /// Whether it has no error; only `--lenient` continues with an object that has one.
    pub valid: bool,
}

/// The fields of an object, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectSpec<'a> {
    /// A NetworkPolicy of v1.
    NetworkPolicy(NetworkPolicy<'a>),
    /// A NetworkPolicy of 2016.
    NetworkPolicy2016(NetworkPolicy2016<'a>),
    /// An AdminNetworkPolicy, BaselineAdminNetworkPolicy or ClusterNetworkPolicy.
    ClusterPolicy(ClusterPolicy<'a>),
    /// A ClusterNetworkPolicy or DefaultNetworkPolicy of 2021.
    EarlyPolicy(Policy2021<'a>),
    /// A namespace.
    Namespace(Namespace),
    /// A pod.
    Pod(Pod<'a>),
    /// A node.
    Node(Node),
    /// A Service.
    Service(Service<'a>),
    /// Backends of a Service.
    EndpointSlice(EndpointSlice<'a>),
    /// A workload: an object that creates pods.
    Workload(Workload<'a>),
    /// An unreadable object: it has no effect, but it exists (D123).
    Unreadable,
}

/// A namespace, apart from its labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Whether the 2016 annotation isolates its pods for ingress.
    pub isolated: bool,
}

impl Object<'_> {
    /// Its namespace, `default` if it has none (D140).
    pub fn namespace(&self) -> Option<&str> {
        namespace(self.kind, &self.metadata)
    }

    /// The place of a rule, if the object is a policy that has it.
    pub fn rule_span(&self, direction: Direction, index: usize) -> Option<Span> {
        let ingress = direction == Direction::Ingress;
        match &self.spec {
            ObjectSpec::NetworkPolicy(policy) => {
                let rules = if ingress {
                    &policy.ingress
                } else {
                    &policy.egress
                };
                rules.get(index).map(|rule| rule.span)
            }
            ObjectSpec::NetworkPolicy2016(policy) => {
                policy.ingress.get(index).map(|rule| rule.span)
            }
            ObjectSpec::ClusterPolicy(policy) => {
                let rules = if ingress {
                    &policy.ingress
                } else {
                    &policy.egress
                };
                rules.get(index).map(|rule| rule.span)
            }
            ObjectSpec::EarlyPolicy(policy) => {
                let rules = if ingress {
                    &policy.ingress
                } else {
                    &policy.egress
                };
                rules.as_ref()?.get(index).map(|rule| rule.span)
            }
            ObjectSpec::Namespace(_)
            | ObjectSpec::Pod(_)
            | ObjectSpec::Node(_)
            | ObjectSpec::Service(_)
            | ObjectSpec::EndpointSlice(_)
            | ObjectSpec::Workload(_)
            | ObjectSpec::Unreadable => None,
        }
    }

    /// The identifier: `netpol/shop/db`, `cnp/tenants`.
    pub fn id(&self) -> String {
        id(self.kind, &self.metadata)
    }
}

/// The namespace of an object of the kind.
fn namespace<'m>(kind: Kind, metadata: &'m Metadata<'_>) -> Option<&'m str> {
    if !kind.is_namespaced() {
        return None;
    }
    let written = metadata.namespace.as_deref().filter(|it| !it.is_empty());
    Some(written.unwrap_or("default"))
}

fn id(kind: Kind, metadata: &Metadata<'_>) -> String {
    let namespace = namespace(kind, metadata).unwrap_or_default();
    object_id(kind.short(), namespace, &metadata.name)
}

const SPEC_HINTS: &[(&str, &str)] = &[
    ("name", "indent it under `metadata`"),
    ("namespace", "indent it under `metadata`"),
    ("labels", "indent it under `metadata`"),
    ("annotations", "indent it under `metadata`"),
    ("podSelector", "indent it under `spec`"),
    ("subject", "indent it under `spec`"),
    ("appliedTo", "indent it under `spec`"),
    ("priority", "indent it under `spec`"),
    ("tier", "indent it under `spec`"),
    ("policyTypes", "indent it under `spec`"),
    ("ingress", "indent it under `spec`"),
    ("egress", "indent it under `spec`"),
    ("template", "indent it under `spec`"),
    ("selector", "indent it under `spec`"),
    ("containers", "indent it under `spec`"),
];
const ROOT: Fields =
    Fields::strict(&["apiVersion", "kind", "metadata", "spec", "status"]).hints(SPEC_HINTS);
const SLICE_ROOT: Fields = Fields::strict(&[
    "apiVersion",
    "kind",
    "metadata",
    "addressType",
    "endpoints",
    "ports",
])
.hints(&[(
    "spec",
    "move the fields of an EndpointSlice to the top level",
)]);

/// Reads an object of a known kind; `None` if its identity is unreadable. Problems have been
/// reported.
pub(crate) fn object<'a>(
    d: &mut Decode<'a, '_>,
    kind: Kind,
    source: SourceId,
) -> Option<Object<'a>> {
    let span = d.span();
    let (metadata, body) = body(d, kind).ok()?;
    if kind == Kind::BaselineAdminNetworkPolicy
        && metadata.name != "default"
        && !metadata.name.is_empty()
    {
        let at = At::Root;
        let at = at.field("metadata");
        d.report(
            Code::BanpName,
            &at.field("name"),
            metadata.name_span,
            format!(
                "the name of a BaselineAdminNetworkPolicy must be `default`, not {}",
                ticked(&metadata.name)
            ),
            "write `name: default`; a cluster has only one",
        );
    }
    Some(Object {
        kind,
        api_version: kind.api_version(d.api_version()),
        metadata,
        spec: body.unwrap_or(ObjectSpec::Unreadable),
        source,
        span,
        valid: true,
    })
}

fn body<'a>(
    d: &mut Decode<'a, '_>,
    kind: Kind,
) -> Readable<(Metadata<'a>, Readable<ObjectSpec<'a>>)> {
    match kind {
        Kind::NetworkPolicy => policy(d, kind, |d, at| {
            network_policy::spec(d, at).map(ObjectSpec::NetworkPolicy)
        }),
        Kind::NetworkPolicy2016 => policy(d, kind, |d, at| {
            network_policy_2016::spec(d, at).map(ObjectSpec::NetworkPolicy2016)
        }),
        Kind::AdminNetworkPolicy => policy(d, kind, |d, at| {
            admin_network_policy::spec(d, at, AdminKind::Admin).map(ObjectSpec::ClusterPolicy)
        }),
        Kind::BaselineAdminNetworkPolicy => policy(d, kind, |d, at| {
            admin_network_policy::spec(d, at, AdminKind::Baseline).map(ObjectSpec::ClusterPolicy)
        }),
        Kind::ClusterNetworkPolicy => policy(d, kind, |d, at| {
            cluster_network_policy::spec(d, at).map(ObjectSpec::ClusterPolicy)
        }),
        Kind::EarlyClusterNetworkPolicy => policy(d, kind, |d, at| {
            cluster_policy_2021::spec(d, at, Kind2021::Cluster).map(ObjectSpec::EarlyPolicy)
        }),
        Kind::DefaultNetworkPolicy => policy(d, kind, |d, at| {
            cluster_policy_2021::spec(d, at, Kind2021::Default).map(ObjectSpec::EarlyPolicy)
        }),
        Kind::Namespace => {
            let (metadata, _) = root(d, kind, ROOT, |d, _, _| d.skip())?;
            let isolated = network_policy_2016::isolation(d, &metadata);
            Ok((metadata, Ok(ObjectSpec::Namespace(Namespace { isolated }))))
        }
        Kind::Pod => {
            let mut pod = Pod::default();
            let (metadata, _) = root(d, kind, ROOT, |d, name, at| match name {
                "spec" => pod.spec = pod_spec(d, at).unwrap_or_default(),
                _ => pod.status = pod_status(d, at).unwrap_or_default(),
            })?;
            Ok((metadata, Ok(ObjectSpec::Pod(pod))))
        }
        Kind::Node => {
            let mut node = Node::default();
            let (metadata, _) = root(d, kind, ROOT, |d, name, at| match name {
                "spec" => node::spec(d, at, &mut node),
                _ => drop(node::status(d, at, &mut node)),
            })?;
            Ok((metadata, Ok(ObjectSpec::Node(node))))
        }
        Kind::Service => {
            let mut service = Service::default();
            let (metadata, _) = root(d, kind, ROOT, |d, name, at| match name {
                "spec" => drop(service::spec(d, at, &mut service)),
                _ => service::status(d, at, &mut service),
            })?;
            Ok((metadata, Ok(ObjectSpec::Service(service))))
        }
        Kind::EndpointSlice => {
            let mut slice = EndpointSlice::default();
            let (metadata, _) = root(d, kind, SLICE_ROOT, |d, name, at| {
                service::slice_field(d, name, at, &mut slice);
            })?;
            slice.check_addresses(d);
            Ok((metadata, Ok(ObjectSpec::EndpointSlice(slice))))
        }
        Kind::Deployment | Kind::StatefulSet | Kind::DaemonSet | Kind::ReplicaSet | Kind::Job => {
            workload(d, kind, WorkloadKind::Selecting)
        }
        Kind::ReplicationController => workload(d, kind, WorkloadKind::ReplicationController),
        Kind::CronJob => workload(d, kind, WorkloadKind::CronJob),
    }
}

/// Reads a policy: everything is in its `spec`, which is required.
fn policy<'a>(
    d: &mut Decode<'a, '_>,
    kind: Kind,
    read_spec: impl Fn(&mut Decode<'a, '_>, &At<'_>) -> Readable<ObjectSpec<'a>>,
) -> Readable<(Metadata<'a>, Readable<ObjectSpec<'a>>)> {
    let mut spec = None;
    let mut repeated = Vec::new();
    let anchor = d.span();
    let (metadata, found_fields) = root(d, kind, ROOT, |d, name, at| match name {
        "spec" => spec = Some(read_spec(d, at)),
        _ => {
            // A NetworkPolicy had an empty status for a few releases of Kubernetes.
            let conditions = if kind == Kind::NetworkPolicy {
                Conditions::Optional
            } else {
                Conditions::Required
            };
            repeated = d.independent(|d| cluster_policy::status(d, at, conditions));
        }
    })?;
    let is_early = matches!(&spec, Some(Ok(ObjectSpec::ClusterPolicy(spec))) if spec.early_shape);
    if !is_early {
        cluster_policy::report_repeated(d, repeated);
    }
    if spec.is_none() && !found_fields.advises("spec") {
        let root = At::Root;
        d.report(
            Code::Required,
            &root.field("spec"),
            anchor,
            "the policy has no `spec`",
            if kind == Kind::NetworkPolicy {
                "add `spec`; an API server reads an empty one, which isolates every pod of the namespace"
            } else {
                "add `spec`"
            },
        );
    }
    // How an API server reads a NetworkPolicy without a `spec`.
    let absent = || {
        if kind == Kind::NetworkPolicy {
            Ok(ObjectSpec::NetworkPolicy(NetworkPolicy::default()))
        } else if kind == Kind::NetworkPolicy2016 {
            Ok(ObjectSpec::NetworkPolicy2016(NetworkPolicy2016::default()))
        } else {
            Err(Unreadable)
        }
    };
    Ok((metadata, spec.unwrap_or_else(absent)))
}

fn workload<'a>(
    d: &mut Decode<'a, '_>,
    kind: Kind,
    shape: WorkloadKind,
) -> Readable<(Metadata<'a>, Readable<ObjectSpec<'a>>)> {
    let mut workload = Workload::default();
    let (metadata, _) = root(d, kind, ROOT, |d, name, at| match name {
        "spec" => workload = workload::spec(d, at, shape).unwrap_or_default(),
        _ => d.skip(),
    })?;
    Ok((metadata, Ok(ObjectSpec::Workload(workload))))
}

/// Reads the common fields of all objects and passes the others to `each`.
fn root<'a>(
    d: &mut Decode<'a, '_>,
    kind: Kind,
    fields: Fields,
    mut each: impl FnMut(&mut Decode<'a, '_>, &'static str, &At<'_>),
) -> Readable<(Metadata<'a>, ObjectFields)> {
    let mut read = None;
    let at = At::Root;
    let found_fields = d.object(&at, fields, |d, name, at| match name {
        "apiVersion" | "kind" => d.skip(),
        "metadata" => {
            read = metadata(d, at, kind.scope(), kind.name_rule(), kind.labelled())
                .ok()
                .map(|(metadata, _)| metadata);
        }
        _ => each(d, name, at),
    })?;
    if !found_fields.has("metadata") && !found_fields.advises("metadata") {
        missing_name(d, &at.field("metadata"), found_fields.anchor);
    }
    let metadata = read.unwrap_or_else(|| Metadata {
        name_span: found_fields.anchor,
        ..Metadata::default()
    });
    Ok((metadata, found_fields))
}
