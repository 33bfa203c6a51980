//! Kinds that a cluster refused to list, and their consequence for an answer.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::bail;
use palisade_api::Kind;
use palisade_core::query::Endpoint;
use palisade_core::text::ticked;
use palisade_kube::Resource;

use crate::draw::clean;

/// A kind that could not be read, or not in every namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnreadKind {
    pub(crate) resource: Resource,
    /// The message of the server.
    pub(crate) words: String,
    /// The namespaces in which it could be read.
    pub(crate) read: Vec<String>,
}

impl UnreadKind {
    /// Describes the reason.
    pub(crate) fn reason(&self) -> String {
        if self.read.is_empty() {
            return self.words.clone();
        }
        format!("read in {} only: {}", self.read.join(", "), self.words)
    }
}

/// Which objects an answer depends on, besides policies, pods and namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RelevantKinds {
    /// Whether every kind matters.
    pub(crate) everything: bool,
    /// The kinds that the query names.
    pub(crate) kinds: BTreeSet<Kind>,
}

impl RelevantKinds {
    /// Returns a value by which every kind matters.
    pub(crate) fn everything() -> RelevantKinds {
        RelevantKinds {
            everything: true,
            kinds: BTreeSet::new(),
        }
    }

    fn depends_on(&self, kind: Kind) -> bool {
        self.everything || self.kinds.contains(&kind)
    }
}

/// Returns the kinds that endpoints name.
pub(crate) fn named<'e>(endpoints: impl IntoIterator<Item = &'e Endpoint>) -> RelevantKinds {
    let mut kinds = BTreeSet::new();
    for endpoint in endpoints {
        match endpoint {
            Endpoint::Pod(..) => {}
            Endpoint::Workload(_, word, _) => {
                let workloads = super::REST.into_iter();
                kinds.extend(workloads.filter(|it| it.short() == *word));
            }
            Endpoint::Service(..) => kinds.extend([Kind::Service, Kind::EndpointSlice]),
            Endpoint::Node(_) => kinds.extend([Kind::Node]),
            // The address may belong to a Service or to a node.
            Endpoint::Address(_) | Endpoint::Block(_) => {
                kinds.extend([Kind::Service, Kind::EndpointSlice, Kind::Node]);
            }
        }
    }
    RelevantKinds {
        everything: false,
        kinds,
    }
}

/// The consequence of a kind that could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnreadSeverity {
    /// There is no answer.
    Fatal,
    /// The answer may be wrong.
    Grave,
    /// The answer lacks objects that the query names.
    Slight,
    /// No consequence.
    None,
}

fn weight(kind: Kind, relevant: &RelevantKinds) -> UnreadSeverity {
    if kind == Kind::Pod {
        // There is no endpoint to evaluate.
        UnreadSeverity::Fatal
    } else if kind.is_policy() || kind == Kind::Namespace {
        // A policy or the labels of a namespace may change any verdict.
        UnreadSeverity::Grave
    } else if !relevant.depends_on(kind) {
        UnreadSeverity::None
    } else if kind == Kind::Node {
        UnreadSeverity::Grave
    } else {
        UnreadSeverity::Slight
    }
}

/// Describes what the answer lacks, after the name of the kind.
fn meaning(kind: Kind) -> &'static str {
    if kind.is_policy() {
        "the verdicts ignore them"
    } else if kind == Kind::Namespace {
        "the verdicts use names of namespaces, not labels"
    } else if kind == Kind::Node {
        "addresses and labels of nodes are unknown"
    } else {
        "those that the query names are missing"
    }
}

/// Returns the plural of a kind.
fn many(resource: Resource) -> String {
    let name = resource.kind.name();
    match name.strip_suffix('y') {
        Some(start) if resource.kind.is_policy() => format!("{start}ies"),
        _ => format!("{name}s"),
    }
}

/// Reports unread kinds and their consequence. Fails if there can be no answer, or if the answer
/// may be wrong and `lenient` does not accept that.
pub(crate) fn check_unread(
    missing: &[UnreadKind],
    relevant: &RelevantKinds,
    lenient: bool,
    messages: &mut dyn Write,
) -> anyhow::Result<()> {
    let partial: Vec<&UnreadKind> = missing.iter().filter(|it| !it.read.is_empty()).collect();
    let whole = missing.iter().filter(|it| it.read.is_empty());
    let mut n_grave = 0;
    for it in whole {
        let words = clean(&it.words);
        let what = many(it.resource);
        match weight(it.resource.kind, relevant) {
            UnreadSeverity::Fatal => bail!(
                "cannot answer: the server refuses to list {}: {words}; to read one namespace, add -n NS",
                it.resource.plural
            ),
            UnreadSeverity::Grave => {
                n_grave += 1;
                let meaning = meaning(it.resource.kind);
                writeln!(messages, "palisade: cannot read {what}; {meaning}: {words}")?;
            }
            UnreadSeverity::Slight => {
                let meaning = meaning(it.resource.kind);
                writeln!(messages, "palisade: cannot read {what}; {meaning}: {words}")?;
            }
            UnreadSeverity::None => {}
        }
    }
    if let Some(first) = partial.first() {
        let namespaces: Vec<String> = first.read.iter().map(|it| ticked(it)).collect();
        let kinds: Vec<String> = partial.iter().map(|it| many(it.resource)).collect();
        writeln!(
            messages,
            "palisade: the server lists {} in {} only; other objects are unknown, and their addresses \
             count as outside: {}",
            kinds.join(", "),
            namespaces.join(", "),
            clean(&first.words)
        )?;
    }
    if n_grave > 0 && !lenient {
        bail!("cannot answer: unread kinds may change the verdict; ignore them with --lenient");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use palisade_api::Kind;
    use palisade_core::query::Endpoint;
    use palisade_kube::Resource;

    use super::{RelevantKinds, UnreadKind, check_unread, named};

    fn check(
        kinds: &[Kind],
        read: &[&str],
        relevant: &RelevantKinds,
        lenient: bool,
    ) -> (bool, String) {
        let missing: Vec<UnreadKind> = kinds
            .iter()
            .map(|kind| UnreadKind {
                resource: Resource::of(*kind).unwrap(),
                words: "no".to_owned(),
                read: read.iter().map(|it| (*it).to_owned()).collect(),
            })
            .collect();
        let mut messages = Vec::new();
        let result = check_unread(&missing, relevant, lenient, &mut messages);
        let mut text = String::from_utf8(messages).unwrap();
        if let Err(error) = &result {
            text += &error.to_string();
        }
        (result.is_ok(), text)
    }

    #[test]
    fn without_pods_there_is_no_answer() {
        let (is_answered, text) = check(&[Kind::Pod], &[], &RelevantKinds::default(), true);
        assert!(!is_answered);
        assert!(
            text.starts_with("cannot answer: the server refuses to list pods: no"),
            "{text}"
        );
    }

    #[test]
    fn an_answer_without_some_policies_needs_lenient() {
        let kinds = [Kind::ClusterNetworkPolicy];
        let (is_answered, text) = check(&kinds, &[], &RelevantKinds::default(), false);
        assert!(!is_answered, "{text}");
        let (is_answered, text) = check(&kinds, &[], &RelevantKinds::default(), true);
        assert!(is_answered);
        assert_eq!(
            text,
            "palisade: cannot read ClusterNetworkPolicies; the verdicts ignore them: no\n"
        );
    }

    #[test]
    fn services_matter_only_to_queries_that_name_one() {
        let kinds = [Kind::Service, Kind::Deployment];
        let (is_answered, text) = check(&kinds, &[], &RelevantKinds::default(), false);
        assert!(is_answered);
        assert_eq!(text, "");
        let endpoint = Endpoint::parse("shop/svc/db").unwrap();
        let (is_answered, text) = check(&kinds, &[], &named([&endpoint]), false);
        assert!(is_answered);
        assert!(text.contains("cannot read Services"), "{text}");
        assert!(!text.contains("Deployments"), "{text}");
    }

    #[test]
    fn reading_one_namespace_only_is_reported() {
        let kinds = [Kind::Pod, Kind::NetworkPolicy];
        let (is_answered, text) = check(&kinds, &["shop"], &RelevantKinds::default(), false);
        assert!(is_answered);
        assert!(
            text.starts_with("palisade: the server lists Pods, NetworkPolicies in `shop` only"),
            "{text}"
        );
    }
}
