//! The CustomResourceDefinitions of the policy APIs, as data.
//!
//! [`crds`] gives the documents of a [`Channel`], [`legacy`] those of the 2021 draft. Standard and
//! experimental say exactly what the releases v0.2.0 (ClusterNetworkPolicy) and v0.1.8 (the two of
//! v1alpha1) say, descriptions aside. The palisade channel accepts more (`all: {}`, every shape of
//! v1alpha1) and, within that, refuses what `palisade check` calls an error wherever a schema or an
//! expression can tell; `docs/reference/apis/crds.md` has the table. Everything here is a pure function:
//! equal arguments give equal documents, key for key.

mod admin_network_policy;
mod cluster_network_policy;
mod definition;
mod early_cluster_policy;
mod pieces;
mod schema;
mod tenancy;

use serde_json::Value;

/// Which set of CRDs a cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// What upstream promises to keep.
    Standard,
    /// What upstream tries out: also `nodes`, `domainNames` and, in v1alpha1, `namedPort`.
    Experimental,
    /// Everything that Palisade enforces: also `all`, the early shapes of v1alpha1, and Tenancy.
    Palisade,
}

impl Channel {
    /// Every channel.
    pub const ALL: [Channel; 3] = [Channel::Standard, Channel::Experimental, Channel::Palisade];

    /// The word for it, as in the annotation `policy.networking.k8s.io/channel`.
    pub fn name(self) -> &'static str {
        match self {
            Channel::Standard => "standard",
            Channel::Experimental => "experimental",
            Channel::Palisade => "palisade",
        }
    }

    /// Whether it has what upstream's standard channel leaves out.
    fn is_experimental(self) -> bool {
        self != Channel::Standard
    }

    /// Whether it is ours, with what `check` adds to upstream's schemas.
    fn is_ours(self) -> bool {
        self == Channel::Palisade
    }
}

/// The CRDs of a channel, in the order in which they are best applied.
pub fn crds(channel: Channel) -> Vec<Value> {
    let mut crds = vec![
        cluster_network_policy::crd(channel),
        admin_network_policy::crd(channel, admin_network_policy::Kind::Admin),
        admin_network_policy::crd(channel, admin_network_policy::Kind::Baseline),
    ];
    if channel.is_ours() {
        crds.push(tenancy::crd());
    }
    crds
}

/// The CRDs of the 2021 draft: ClusterNetworkPolicy and DefaultNetworkPolicy of
/// `networking.k8s.io/v1alpha1`.
pub fn legacy() -> Vec<Value> {
    vec![
        early_cluster_policy::crd(early_cluster_policy::Kind::Cluster),
        early_cluster_policy::crd(early_cluster_policy::Kind::Default),
    ]
}
