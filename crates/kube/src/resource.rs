//! The API resources of the kinds.

use palisade_api::Kind;

/// The API resource of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The kind.
    pub kind: Kind,
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The API version.
    pub version: &'static str,
    /// The plural name in paths.
    pub plural: &'static str,
    /// Whether every server has it; otherwise it comes with a CustomResourceDefinition.
    pub is_built_in: bool,
}

impl Resource {
    /// Returns the resource of a kind; `None`: the kind is in files only.
    pub fn of(kind: Kind) -> Option<Resource> {
        let policy = "policy.networking.k8s.io";
        let (group, version, plural) = match kind {
            Kind::NetworkPolicy => ("networking.k8s.io", "v1", "networkpolicies"),
            // `extensions/v1beta1` was removed in Kubernetes 1.16.
            Kind::NetworkPolicy2016 => return None,
            Kind::AdminNetworkPolicy => (policy, "v1alpha1", "adminnetworkpolicies"),
            Kind::BaselineAdminNetworkPolicy => {
                (policy, "v1alpha1", "baselineadminnetworkpolicies")
            }
            Kind::ClusterNetworkPolicy => (policy, "v1alpha2", "clusternetworkpolicies"),
            Kind::EarlyClusterNetworkPolicy => {
                ("networking.k8s.io", "v1alpha1", "clusternetworkpolicies")
            }
            Kind::DefaultNetworkPolicy => {
                ("networking.k8s.io", "v1alpha1", "defaultnetworkpolicies")
            }
            Kind::Namespace => ("", "v1", "namespaces"),
            Kind::Pod => ("", "v1", "pods"),
            Kind::Node => ("", "v1", "nodes"),
            Kind::Service => ("", "v1", "services"),
            Kind::EndpointSlice => ("discovery.k8s.io", "v1", "endpointslices"),
            Kind::Deployment => ("apps", "v1", "deployments"),
            Kind::StatefulSet => ("apps", "v1", "statefulsets"),
            Kind::DaemonSet => ("apps", "v1", "daemonsets"),
            Kind::ReplicaSet => ("apps", "v1", "replicasets"),
            Kind::ReplicationController => ("", "v1", "replicationcontrollers"),
            Kind::Job => ("batch", "v1", "jobs"),
            Kind::CronJob => ("batch", "v1", "cronjobs"),
        };
        Some(Resource {
            kind,
            group,
            version,
            plural,
            // NetworkPolicy is the one kind of policy that is no CustomResourceDefinition.
            is_built_in: kind == Kind::NetworkPolicy || !kind.is_policy(),
        })
    }

    /// Returns the resources that an agent watches. The kinds of 2021 are opt-in (D68).
    pub fn of_agents(with_legacy: bool) -> Vec<Resource> {
        let kinds = [
            Kind::Namespace,
            Kind::Node,
            Kind::NetworkPolicy,
            Kind::ClusterNetworkPolicy,
            Kind::AdminNetworkPolicy,
            Kind::BaselineAdminNetworkPolicy,
            Kind::Pod,
        ];
        let legacy = [Kind::EarlyClusterNetworkPolicy, Kind::DefaultNetworkPolicy];
        let legacy = legacy.into_iter().filter(|_| with_legacy);
        kinds
            .into_iter()
            .chain(legacy)
            .filter_map(Resource::of)
            .collect()
    }

    /// Returns group and version, as in `apiVersion`.
    pub fn group_version(self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns the path of its group and version: the discovery document.
    pub fn group_path(self) -> String {
        match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        }
    }

    /// Returns the path of all its objects.
    pub fn path(self) -> String {
        format!("{}/{}", self.group_path(), self.plural)
    }

    /// Returns the name that `kubectl` accepts: `clusternetworkpolicies.policy.networking.k8s.io`.
    pub fn name(self) -> String {
        match self.group {
            "" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use palisade_api::Kind;

    use super::Resource;

    #[test]
    fn paths_are_those_of_the_api() {
        let path = |kind| Resource::of(kind).map(Resource::path);
        assert_eq!(path(Kind::Pod).as_deref(), Some("/api/v1/pods"));
        assert_eq!(
            path(Kind::NetworkPolicy).as_deref(),
            Some("/apis/networking.k8s.io/v1/networkpolicies")
        );
        assert_eq!(
            path(Kind::ClusterNetworkPolicy).as_deref(),
            Some("/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies")
        );
        assert_eq!(path(Kind::NetworkPolicy2016), None);
    }

    #[test]
    fn agents_watch_every_kind_that_plans_depend_on() {
        let watched: BTreeSet<Kind> = Resource::of_agents(true).iter().map(|it| it.kind).collect();
        let enforced = Kind::ALL.into_iter().filter(|it| it.enforced().is_some());
        let served = enforced.filter(|it| Resource::of(*it).is_some());
        assert_eq!(watched, served.collect());
    }

    #[test]
    fn only_networkpolicy_is_a_policy_that_every_server_has() {
        let built_in = Kind::ALL.into_iter().filter_map(Resource::of);
        let built_in = built_in.filter(|it| it.kind.is_policy() && it.is_built_in);
        let kinds: Vec<Kind> = built_in.map(|it| it.kind).collect();
        assert_eq!(kinds, [Kind::NetworkPolicy]);
    }

    #[test]
    fn kinds_of_2021_are_watched_only_if_enabled() {
        let is_early = |it: &Resource| it.kind == Kind::DefaultNetworkPolicy;
        assert!(!Resource::of_agents(false).iter().any(is_early));
        assert!(Resource::of_agents(true).iter().any(is_early));
    }
}
