//! A cluster from manifests, completed as the lab completes it.

use std::net::IpAddr;

use palisade_api::{Options, Source, lower, read};
use palisade_lab::complete::{AddedNames, CompletedCluster, complete};

/// Passes the cluster of some manifests to a function.
pub(crate) fn with<T>(
    yaml: &str,
    outside: &[&str],
    work: impl FnOnce(&CompletedCluster<'_>) -> T,
) -> T {
    let sources = [Source::new("objects.yaml", yaml.as_bytes().to_vec())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let errors: Vec<_> = manifests
        .problems
        .iter()
        .filter(|it| it.is_error())
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let lowered = lower(&manifests.objects, Vec::new());
    let names = AddedNames::of(&lowered.cluster);
    let outside: Vec<IpAddr> = outside.iter().map(|it| it.parse().unwrap()).collect();
    work(&complete(&lowered.cluster, &names, &outside))
}
