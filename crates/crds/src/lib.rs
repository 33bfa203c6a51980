//! The CustomResourceDefinitions of the policy APIs, as data.
//!
//! [`crds`] returns the documents of a [`Channel`], [`legacy`] those of the 2021 draft. Except for
//! descriptions, standard and experimental equal the releases v0.2.0 (ClusterNetworkPolicy) and
//! v0.1.8 (the two of v1alpha1). The palisade channel accepts more (`all: {}`, every shape of
//! v1alpha1) and, within that, rejects the errors of `palisade check` wherever a schema or an
//! expression can; `docs/reference/apis/crds.md` has the table. Everything here is a pure function:
//! equal arguments give equal documents, key for key.

mod admin_network_policy;
mod cluster_network_policy;
mod cluster_policy_2021;
mod definition;
mod pieces;
mod schema;
mod tenancy;

use serde_json::Value;

/// Which set of CRDs a cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Channel {
    /// Upstream's stable fields.
    Standard,
    /// Upstream's experimental fields too: `nodes`, `domainNames` and, in v1alpha1, `namedPort`.
    Experimental,
    /// Everything that Palisade enforces: also `all`, the early shapes of v1alpha1, and Tenancy.
    Palisade,
}

impl Channel {
    /// Every channel.
    pub const ALL: [Channel; 3] = [Channel::Standard, Channel::Experimental, Channel::Palisade];

    /// Its name, as in the annotation `policy.networking.k8s.io/channel`.
    pub fn name(self) -> &'static str {
        match self {
            Channel::Standard => "standard",
            Channel::Experimental => "experimental",
            Channel::Palisade => "palisade",
        }
    }

    /// Whether it has the fields that upstream's standard channel does not have.
    fn is_experimental(self) -> bool {
        self != Channel::Standard
    }

    /// Whether it is the palisade channel, with the constraints that `check` adds to upstream's
    /// schemas.
    fn is_ours(self) -> bool {
        self == Channel::Palisade
    }
}

/// The CRDs of a channel, in the order to apply them.
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
        cluster_policy_2021::crd(cluster_policy_2021::Kind::Cluster),
        cluster_policy_2021::crd(cluster_policy_2021::Kind::Default),
    ]
}
