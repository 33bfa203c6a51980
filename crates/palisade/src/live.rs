//! Reads what a command needs of the live cluster, through a kubeconfig.

pub(crate) mod overlay;
mod print;
mod unread;

use anyhow::{anyhow, bail};
use palisade_api::{Kind, Options, OtherPolicies, OtherPolicyKind, Source};
use palisade_core::text::ticked;
use palisade_kube::access::Error;
use palisade_kube::count::{CountRequest, count_many};
use palisade_kube::get::ListError;
use palisade_kube::list_many::{ListRequest, ListResult, ListScope, SyncClient, list_many};
use palisade_kube::{Access, Resource};

pub(crate) use self::unread::{RelevantKinds, UnreadKind, check_unread, named};
use crate::args::live::no_namespace;
use crate::draw::clean;

/// The kinds that a command needs of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Policies only.
    Policies,
    /// What nodes enforce: policies, and the pods, namespaces and nodes that these select.
    Enforced,
    /// Also Services, and the workloads that create pods.
    Everything,
}

/// What a command reads of a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'n> {
    pub(crate) scope: Scope,
    /// The namespaces to read if the cluster refuses to list all.
    pub(crate) namespaces: &'n [String],
}

/// The objects of a cluster.
#[derive(Debug, Default)]
pub(crate) struct LiveInput {
    pub(crate) sources: Vec<Source>,
    /// The kinds that could not be read.
    pub(crate) missing: Vec<UnreadKind>,
    /// The policies of other vendors.
    pub(crate) other_policies: OtherPolicies,
}

const POLICIES: [Kind; 6] = [
    Kind::NetworkPolicy,
    Kind::ClusterNetworkPolicy,
    Kind::AdminNetworkPolicy,
    Kind::BaselineAdminNetworkPolicy,
    Kind::EarlyClusterNetworkPolicy,
    Kind::DefaultNetworkPolicy,
];
// The longest lists come first: lists are read in parallel, and the last one ends the wait.
const SUBJECTS: [Kind; 3] = [Kind::Pod, Kind::Namespace, Kind::Node];
const REST: [Kind; 9] = [
    Kind::EndpointSlice,
    Kind::Service,
    Kind::ReplicaSet,
    Kind::Deployment,
    Kind::StatefulSet,
    Kind::DaemonSet,
    Kind::ReplicationController,
    Kind::Job,
    Kind::CronJob,
];

impl Scope {
    pub(crate) fn kinds(self) -> Vec<Kind> {
        let (subjects, rest): (&[Kind], &[Kind]) = match self {
            Scope::Policies => (&[], &[]),
            Scope::Enforced => (&SUBJECTS, &[]),
            Scope::Everything => (&SUBJECTS, &REST),
        };
        [subjects, &POLICIES, rest].concat()
    }
}

/// Returns the namespace of the kubeconfig's context.
pub(crate) fn namespace(access: &Access) -> anyhow::Result<String> {
    access.namespace().map_err(|error| no_server(&error))
}

/// Reads what a command needs. Fails if the API server does not answer; kinds that it refuses to
/// list are recorded.
pub(crate) fn read(access: &Access, needs: &Needs<'_>) -> anyhow::Result<LiveInput> {
    let client = SyncClient::new(access).map_err(|error| no_server(&error))?;
    let kinds = needs.scope.kinds().into_iter();
    let wanted: Vec<ListRequest> = if needs.scope == Scope::Policies && !needs.namespaces.is_empty()
    {
        // As with kubectl, a namespace leaves out what has none. The Namespace itself is requested
        // because a server lists the objects of an unknown one as none.
        let kinds = kinds.filter(|it| it.is_namespaced());
        let resources = kinds.chain([Kind::Namespace]).filter_map(Resource::of);
        resources
            .flat_map(|resource| narrowed(resource, needs.namespaces))
            .collect()
    } else {
        let all_namespaces = |resource| ListRequest {
            resource,
            within: ListScope::Everywhere,
        };
        kinds.filter_map(Resource::of).map(all_namespaces).collect()
    };
    let answers = list_many(&client, &wanted);
    let mut live = LiveInput::default();
    for (wanted, answer) in wanted.iter().zip(answers) {
        let answer = match (&wanted.within, answer) {
            (ListScope::Named(name), Err(ListError::Absent)) => {
                return Err(unknown_namespace(&client, wanted.resource, name));
            }
            // A user who may not read the Namespace may still read its policies.
            (ListScope::Named(_), Ok(_) | Err(ListError::Forbidden(_))) => continue,
            (ListScope::Everywhere, Err(ListError::Forbidden(words)))
                if !needs.namespaces.is_empty() =>
            {
                within(&client, wanted.resource, needs.namespaces, words, &mut live)
            }
            (_, answer) => answer,
        };
        live.take(client.url(), wanted.resource, answer)?;
    }
    if needs.scope != Scope::Policies {
        live.other_policies = other_policies(&client);
    }
    Ok(live)
}

/// Counts the policies of other vendors.
fn other_policies(client: &SyncClient) -> OtherPolicies {
    let kinds: Vec<OtherPolicyKind> = OtherPolicyKind::all().collect();
    let wanted = kinds.iter().map(|it| CountRequest {
        group: it.group,
        kind: it.kind,
    });
    let counts = count_many(client, &wanted.collect::<Vec<CountRequest>>());
    let served = kinds.into_iter().zip(counts);
    let served: Vec<_> = served
        .filter_map(|(kind, count)| Some((kind, count?)))
        .collect();
    // Calico serves its policies in two groups. The second one also has those of Kubernetes.
    let is_stored = |group| served.iter().any(|(kind, _)| kind.group == group);
    let is_twice = is_stored("crd.projectcalico.org");
    let counted = served
        .into_iter()
        .filter(|(kind, count)| *count > 0 && !(is_twice && kind.group == "projectcalico.org"));
    counted.collect()
}

/// Returns the error for a namespace that the cluster does not have.
fn unknown_namespace(client: &SyncClient, resource: Resource, name: &str) -> anyhow::Error {
    let all = ListRequest {
        resource,
        within: ListScope::Everywhere,
    };
    let answers = list_many(client, &[all]).into_iter();
    // A user who may not list the namespaces gets no suggestion.
    let pages = answers.flat_map(Result::unwrap_or_default);
    let sources: Vec<Source> = pages
        .map(|page| Source::new("cluster:namespaces", page.into_bytes()))
        .collect();
    let manifests = palisade_api::read(&sources, Options::default(), &|_| {});
    let names: Vec<&str> = manifests
        .objects
        .iter()
        .map(|it| &*it.metadata.name)
        .collect();
    if names.is_empty() {
        return anyhow!("namespace {} not found", ticked(name));
    }
    anyhow!(no_namespace(&names, name))
}

/// Requests a kind in some namespaces only.
fn narrowed(resource: Resource, namespaces: &[String]) -> Vec<ListRequest> {
    let narrow = |namespace: &String| {
        let name = namespace.clone();
        let within = if resource.kind == Kind::Namespace {
            ListScope::Named(name)
        } else {
            ListScope::Namespace(name)
        };
        ListRequest { resource, within }
    };
    namespaces.iter().map(narrow).collect()
}

/// Reads a kind in some namespaces, if the cluster refuses to list it in all.
fn within(
    client: &SyncClient,
    resource: Resource,
    namespaces: &[String],
    words: String,
    live: &mut LiveInput,
) -> ListResult {
    if !resource.kind.is_namespaced() && resource.kind != Kind::Namespace {
        return Err(ListError::Forbidden(words));
    }
    let mut pages = Vec::new();
    for answer in list_many(client, &narrowed(resource, namespaces)) {
        match answer {
            Ok(more) => pages.extend(more),
            // The namespace does not exist.
            Err(ListError::Absent) => {}
            Err(other) => return Err(other),
        }
    }
    live.missing.push(UnreadKind {
        resource,
        words,
        read: namespaces.to_vec(),
    });
    Ok(pages)
}

impl LiveInput {
    fn take(&mut self, url: &str, resource: Resource, answer: ListResult) -> anyhow::Result<()> {
        match answer {
            Ok(pages) if resource.kind.is_policy() => {
                for page in pages {
                    self.sources.extend(print::policies(resource, page));
                }
            }
            Ok(pages) => {
                for (number, page) in pages.into_iter().enumerate() {
                    let name = match number {
                        0 => format!("cluster:{}", resource.plural),
                        _ => format!("cluster:{} (page {})", resource.plural, number + 1),
                    };
                    self.sources.push(Source::new(name, page.into_bytes()));
                }
            }
            Err(ListError::Absent) => {}
            Err(ListError::Forbidden(words)) => self.missing.push(UnreadKind {
                resource,
                words,
                read: Vec::new(),
            }),
            Err(ListError::Unauthenticated(words)) => bail!(
                "the cluster at {url} rejected the credentials: {}; the token or certificate of the kubeconfig \
                 may have expired: log in again",
                clean(&words)
            ),
            Err(ListError::Failed(words)) => bail!("{}", unreadable(url, resource, &words)),
        }
        Ok(())
    }
}

/// Explains why there is no API server, and what to do.
fn no_server(error: &Error) -> anyhow::Error {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let more = inner.to_string();
        if !words.ends_with(&more) {
            words += ": ";
            words += &more;
        }
        source = inner.source();
    }
    let advice = match error {
        Error::Nowhere(_) => {
            words = "nothing to read: no manifests, no kubeconfig, and no cluster that the command runs in".to_owned();
            "name manifests with -f FILE, -f DIR or -f -, or a kubeconfig with --kubeconfig FILE"
        }
        Error::Kubeconfig(_) | Error::User(_) => {
            "`kubectl config get-contexts` lists the contexts; choose with --kubeconfig and --context; -f reads manifests instead"
        }
        Error::Client { .. } | Error::Runtime(_) => "is the kubeconfig complete?",
    };
    anyhow!("{}; {advice}", clean(&words))
}

/// Explains a failure of the connection or of the server, and what to do.
fn unreadable(url: &str, resource: Resource, words: &str) -> String {
    let has = |part: &str| words.to_lowercase().contains(part);
    let advice = if has("certificate") {
        "the certificate authority of the kubeconfig must be the one that signed the server's certificate, for this address"
    } else if has("refused") || has("unreachable") || has("lookup") || has("no response") {
        "check that the server of the kubeconfig is the right one and runs; --context chooses another, --request-timeout waits longer"
    } else {
        "the log of the server may have more details"
    };
    let words = clean(words);
    let what = resource.name();
    format!("cannot read {what} from the cluster at {url}: {words}; {advice}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_that_servers_have_is_read() {
        for (scope, is_read) in [
            (Scope::Policies, Kind::is_policy as fn(Kind) -> bool),
            (Scope::Enforced, |it| it.enforced().is_some()),
            (Scope::Everything, |_| true),
        ] {
            let served = Kind::ALL.into_iter().filter(|it| is_read(*it));
            let served = served.filter(|it| Resource::of(*it).is_some());
            let read: BTreeSet<Kind> = scope.kinds().into_iter().collect();
            assert_eq!(read, served.collect(), "{scope:?}");
        }
    }
}
