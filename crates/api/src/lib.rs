//! Kubernetes objects: every version of the network policy API and the objects it refers to, read
//! from manifests and validated field by field.
//!
//! ```text
//! bytes --Source--> text --documents--> Input --decode--> Object + Problems --lower--> Cluster
//! ```
//!
//! [`read`] takes sources and returns objects and problems; it cannot fail. An [`Object`] borrows
//! from its source. Its unreadable parts are [`Unreadable`] values: lowering decides, in one place,
//! how they fail closed. A [`Problem`] points at bytes of a source, names the object and the field,
//! and has a help.
//!
//! JSON is decoded straight from the text; YAML through a tree, which is scanned from the lines of
//! block style, or made of the full parser's events (see `input`). The decoders are one file a kind
//! and use the tools of `decode`.

mod admin_network_policy;
mod blocks;
mod cluster_network_policy;
mod cluster_policy;
mod cluster_policy_2021;
mod decode;
mod document;
mod fields;
mod input;
mod kind;
mod locate;
mod lower;
mod manifest;
mod metadata;
mod names;
mod network_policy;
mod network_policy_2016;
mod node;
mod object;
mod other_policies;
mod parallel_list;
mod path;
mod pod;
mod ports;
mod problem;
mod reader;
#[doc(hidden)]
pub mod reference;
mod selector;
mod service;
mod source;
mod syntax;
mod type_meta;
mod workload;

pub use blocks::IpBlock;
pub use cluster_policy::{ClusterPeer, ClusterPolicy, ClusterRule, NamespaceSet, Subject};
pub use cluster_policy_2021::{AppliedTo, Namespaces2021, Peer2021, Policy2021, Rule2021};
pub use decode::{Readable, Text, Unreadable};
pub use kind::{Kind, Role};
pub use locate::{Layout, Located, Locator, PathStep, locate, path_text};
pub use lower::{Lowered, Unread, UnreadScope, key, lower, lower_one, lower_within, unread};
pub use manifest::{Manifests, Options, read, read_served};
pub use metadata::{Labels, Metadata};
pub use network_policy::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyRule};
pub use network_policy_2016::{NetworkPolicy2016, Rule2016, Source2016};
pub use node::{Node, NodeAddress};
pub use object::{Namespace, Object, ObjectSpec};
pub use other_policies::{OtherPolicies, OtherPolicyKind, other_policies};
pub use pod::{ContainerPort, Phase, Pod, PodSpec, PodStatus, PodTemplate};
pub use ports::PortMatch;
pub use problem::{Code, Problem, Related, Severity, SourceId, Span};
pub use selector::Selector;
pub use service::{
    EndpointSlice, Service, ServiceKind, ServicePort, SliceEndpoint, SlicePort, TargetPort,
};
pub use source::{Lines, MAX_SOURCE_BYTES, Source};
pub use workload::Workload;
