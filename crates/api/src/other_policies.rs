//! Policies of other vendors: Palisade reads past them, and they may decide about the same flows.

use std::collections::BTreeMap;

use crate::manifest::Manifests;

/// A kind of policy that Palisade does not evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OtherPolicyKind {
    /// The API group.
    pub group: &'static str,
    /// The kind.
    pub kind: &'static str,
}

/// How many policies there are of each kind.
pub type OtherPolicies = BTreeMap<OtherPolicyKind, usize>;

const CALICO: &[&str] = &[
    "NetworkPolicy",
    "GlobalNetworkPolicy",
    "StagedNetworkPolicy",
    "StagedGlobalNetworkPolicy",
    "StagedKubernetesNetworkPolicy",
];

/// The kinds of each group.
const GROUPS: [(&str, &[&str]); 9] = [
    (
        "cilium.io",
        &["CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy"],
    ),
    (
        "crd.antrea.io",
        &["NetworkPolicy", "ClusterNetworkPolicy", "Tier"],
    ),
    ("crd.projectcalico.org", CALICO),
    ("k8s.cni.cncf.io", &["MultiNetworkPolicy"]),
    ("k8s.ovn.org", &["EgressFirewall"]),
    ("kubeovn.io", &["SecurityGroup"]),
    ("network.openshift.io", &["EgressNetworkPolicy"]),
    ("projectcalico.org", CALICO),
    ("security.istio.io", &["AuthorizationPolicy"]),
];

impl OtherPolicyKind {
    /// Returns every kind.
    pub fn all() -> impl Iterator<Item = OtherPolicyKind> {
        GROUPS.iter().flat_map(|(group, kinds)| {
            let kind = |kind: &&'static str| OtherPolicyKind { group, kind };
            kinds.iter().map(kind)
        })
    }

    /// Returns the kind of a group; `None`: it is no policy of another vendor.
    pub fn of(group: &str, kind: &str) -> Option<OtherPolicyKind> {
        OtherPolicyKind::all().find(|it| it.group == group && it.kind == kind)
    }

    /// Whether Kubernetes has a kind of the same name.
    pub fn is_ambiguous(self) -> bool {
        matches!(self.kind, "NetworkPolicy" | "ClusterNetworkPolicy")
    }
}

/// Counts the policies of other vendors among the skipped objects.
pub fn other_policies(manifests: &Manifests<'_>) -> OtherPolicies {
    let mut found = OtherPolicies::new();
    for ((api_version, kind), count) in &manifests.skipped {
        let group = api_version.split('/').next().unwrap_or_default();
        if let Some(kind) = OtherPolicyKind::of(group, kind) {
            *found.entry(kind).or_default() += count;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{OtherPolicyKind, other_policies};
    use crate::manifest::{Options, read};
    use crate::source::Source;

    #[test]
    fn every_kind_is_skipped_and_counted() {
        let document = |it: OtherPolicyKind| {
            let OtherPolicyKind { group, kind } = it;
            format!("---\napiVersion: {group}/v1\nkind: {kind}\nmetadata: {{name: a}}\n")
        };
        let text: String = OtherPolicyKind::all().map(document).collect();
        let sources = [Source::new("a.yaml", text.into_bytes())];
        let manifests = read(&sources, Options::default(), &|_| {});
        assert!(manifests.problems.is_empty(), "{:#?}", manifests.problems);
        let counted = other_policies(&manifests);
        let mut all: Vec<OtherPolicyKind> = OtherPolicyKind::all().collect();
        all.sort();
        assert!(counted.keys().eq(&all), "{counted:?}");
        assert!(counted.values().all(|it| *it == 1));
    }
}
