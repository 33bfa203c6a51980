//! The live cluster: what a command needs of it, read through a kubeconfig.

pub(crate) mod overlay;
mod print;
mod unread;

use anyhow::{anyhow, bail};
use palisade_api::{Kind, Source};
use palisade_kube::access::Error;
use palisade_kube::get::ListError;
use palisade_kube::list_many::{ListRequest, ListResult, ListScope, SyncClient, gather};
use palisade_kube::{Access, Resource};

pub(crate) use self::unread::{RelevantKinds, UnreadKind, check_unread, named};
use crate::draw::clean;

/// What a command needs of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Policies alone.
    Policies,
    /// What nodes enforce: policies, and whom they are about.
    Enforced,
    /// Also Services and what makes pods.
    Everything,
}

/// What a command wants to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs<'n> {
    pub(crate) scope: Scope,
    /// Where to look if not everything may be listed.
    pub(crate) namespaces: &'n [String],
}

/// What was read of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) sources: Vec<Source>,
    /// What could not be read.
    pub(crate) missing: Vec<UnreadKind>,
}

const POLICIES: [Kind; 6] = [
    Kind::NetworkPolicy,
    Kind::ClusterNetworkPolicy,
    Kind::AdminNetworkPolicy,
    Kind::BaselineAdminNetworkPolicy,
    Kind::EarlyClusterNetworkPolicy,
    Kind::DefaultNetworkPolicy,
];
// What takes longest comes first.
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

/// Whether a kind is one of policies.
pub(crate) fn is_policy(kind: Kind) -> bool {
    POLICIES.contains(&kind)
}

/// Reads what is needed. Fails if the cluster cannot be asked; what it does not let be read is told.
pub(crate) fn read(access: &Access, needs: &Needs<'_>) -> anyhow::Result<Live> {
    let asking = SyncClient::new(access).map_err(|error| no_server(&error))?;
    let kinds = needs.scope.kinds().into_iter();
    let wanted: Vec<ListRequest> = if needs.scope == Scope::Policies && !needs.namespaces.is_empty()
    {
        // As with kubectl, a namespace leaves out what has none.
        let resources = kinds.filter(|it| it.is_namespaced());
        let resources = resources.filter_map(Resource::of);
        resources
            .flat_map(|resource| narrowed(resource, needs.namespaces))
            .collect()
    } else {
        let everywhere = |resource| ListRequest {
            resource,
            within: ListScope::Everywhere,
        };
        kinds.filter_map(Resource::of).map(everywhere).collect()
    };
    let answers = gather(&asking, &wanted);
    let mut live = Live::default();
    for (wanted, answer) in wanted.iter().zip(answers) {
        let is_wide = wanted.within == ListScope::Everywhere;
        let answer = match answer {
            Err(ListError::Forbidden(words)) if is_wide && !needs.namespaces.is_empty() => {
                within(&asking, wanted.resource, needs.namespaces, words, &mut live)
            }
            answer => answer,
        };
        live.take(asking.url(), wanted.resource, answer)?;
    }
    Ok(live)
}

/// The same kind, in some namespaces only.
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

/// What may be read of a kind in some namespaces, if it may not be read in all of them.
fn within(
    asking: &SyncClient,
    resource: Resource,
    namespaces: &[String],
    words: String,
    live: &mut Live,
) -> ListResult {
    if !resource.kind.is_namespaced() && resource.kind != Kind::Namespace {
        return Err(ListError::Forbidden(words));
    }
    let mut pages = Vec::new();
    for answer in gather(asking, &narrowed(resource, namespaces)) {
        match answer {
            Ok(more) => pages.extend(more),
            // There is no namespace of that name.
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

impl Live {
    fn take(&mut self, url: &str, resource: Resource, answer: ListResult) -> anyhow::Result<()> {
        match answer {
            Ok(pages) if is_policy(resource.kind) => {
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
                "the cluster at {url} does not know who asks: {}; the token or certificate of the kubeconfig \
                 may have expired: log in again",
                clean(&words)
            ),
            Err(ListError::Failed(words)) => bail!("{}", unreadable(url, resource, &words)),
        }
        Ok(())
    }
}

/// Why there is no cluster to ask, and what to do.
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
            words = "nothing to read: no manifests are named, there is no kubeconfig, and this does not run in a cluster".to_owned();
            "name manifests with -f FILE, -f DIR or -f -, or a kubeconfig with --kubeconfig FILE"
        }
        Error::Kubeconfig(_) | Error::User(_) => {
            "`kubectl config get-contexts` shows what there is; --kubeconfig and --context choose; -f reads manifests instead"
        }
        Error::Client { .. } | Error::Runtime(_) => "is the kubeconfig complete?",
    };
    anyhow!("{}; {advice}", clean(&words))
}

/// That something broke on the way to the server, or in it, and what to do.
fn unreadable(url: &str, resource: Resource, words: &str) -> String {
    let has = |part: &str| words.to_lowercase().contains(part);
    let advice = if has("certificate") {
        "the certificate authority of the kubeconfig has to be the one that signed the server's certificate, for this address"
    } else if has("refused") || has("unreachable") || has("lookup") || has("no answer") {
        "is the server of the kubeconfig the right one, and does it run? --context chooses another, --request-timeout waits longer"
    } else {
        "the server may say more in its log"
    };
    let words = clean(words);
    let what = resource.name();
    format!("cannot read {what} from the cluster at {url}: {words}; {advice}")
}
