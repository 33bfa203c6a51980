//! What a cluster did not let be read, and what that means for an answer.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::bail;
use palisade_api::Kind;
use palisade_core::query::Endpoint;
use palisade_core::text::ticked;
use palisade_kube::Resource;

use super::is_policy;
use crate::draw::clean;

/// A kind that could not be read, or not everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnreadKind {
    pub(crate) resource: Resource,
    /// What the server says about it.
    pub(crate) words: String,
    /// The namespaces in which it could be read.
    pub(crate) read: Vec<String>,
}

impl UnreadKind {
    /// Why, in words.
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
    /// Those that take part in every answer.
    pub(crate) everything: bool,
    /// Those that the question names.
    pub(crate) kinds: BTreeSet<Kind>,
}

impl RelevantKinds {
    /// Everything that was read takes part.
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

/// The kinds that endpoints name.
pub(crate) fn named<'e>(endpoints: impl IntoIterator<Item = &'e Endpoint>) -> RelevantKinds {
    let mut kinds = BTreeSet::new();
    for endpoint in endpoints {
        match endpoint {
            Endpoint::Pod(..) => {}
            Endpoint::Workload(_, word, _) => {
                let makers = super::REST.into_iter();
                kinds.extend(makers.filter(|it| it.short() == *word));
            }
            Endpoint::Service(..) => kinds.extend([Kind::Service, Kind::EndpointSlice]),
            Endpoint::Node(_) => kinds.extend([Kind::Node]),
            // It may be a Service's or a node's.
            Endpoint::Address(_) => {
                kinds.extend([Kind::Service, Kind::EndpointSlice, Kind::Node]);
            }
        }
    }
    RelevantKinds {
        everything: false,
        kinds,
    }
}

/// How much it means that a kind could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnreadSeverity {
    /// There is no answer.
    Fatal,
    /// The answer may be wrong.
    Grave,
    /// Something that is asked about is not known.
    Slight,
    /// Nothing.
    None,
}

fn weight(kind: Kind, matters: &RelevantKinds) -> UnreadSeverity {
    if kind == Kind::Pod {
        UnreadSeverity::Fatal
    } else if is_policy(kind) || kind == Kind::Namespace {
        UnreadSeverity::Grave
    } else if !matters.depends_on(kind) {
        UnreadSeverity::None
    } else if kind == Kind::Node {
        UnreadSeverity::Grave
    } else {
        UnreadSeverity::Slight
    }
}

/// What the answer lacks, after the name of what could not be read.
fn meaning(kind: Kind) -> &'static str {
    if is_policy(kind) {
        "the answer ignores them"
    } else if kind == Kind::Namespace {
        "the answer knows namespaces by their names only, not by their labels"
    } else if kind == Kind::Node {
        "the answer knows neither addresses nor labels of nodes"
    } else {
        "the answer does not know those that it is about"
    }
}

/// As people call several of them.
fn many(resource: Resource) -> String {
    let name = resource.kind.name();
    match name.strip_suffix('y') {
        Some(start) if is_policy(resource.kind) => format!("{start}ies"),
        _ => format!("{name}s"),
    }
}

/// Tells what could not be read and what that means. Fails if there can be no answer, or none that is right; those that may be
/// wrong are `lenient`'s to accept.
pub(crate) fn check_unread(
    missing: &[UnreadKind],
    matters: &RelevantKinds,
    lenient: bool,
    told: &mut dyn Write,
) -> anyhow::Result<()> {
    let partial: Vec<&UnreadKind> = missing.iter().filter(|it| !it.read.is_empty()).collect();
    let whole = missing.iter().filter(|it| it.read.is_empty());
    let mut n_grave = 0;
    for it in whole {
        let words = clean(&it.words);
        let what = many(it.resource);
        match weight(it.resource.kind, matters) {
            UnreadSeverity::Fatal => bail!(
                "cannot answer: {} may not be listed: {words}; if you may read a namespace, name it with -n NS",
                it.resource.plural
            ),
            UnreadSeverity::Grave => {
                n_grave += 1;
                let meaning = meaning(it.resource.kind);
                writeln!(
                    told,
                    "palisade: {what} could not be read; {meaning}: {words}"
                )?;
            }
            UnreadSeverity::Slight => {
                let meaning = meaning(it.resource.kind);
                writeln!(
                    told,
                    "palisade: {what} could not be read; {meaning}: {words}"
                )?;
            }
            UnreadSeverity::None => {}
        }
    }
    if let Some(first) = partial.first() {
        let namespaces: Vec<String> = first.read.iter().map(|it| ticked(it)).collect();
        let kinds: Vec<String> = partial.iter().map(|it| many(it.resource)).collect();
        writeln!(
            told,
            "palisade: {} were read in {} only: what is elsewhere is not known, and its addresses count as \
             outside: {}",
            kinds.join(", "),
            namespaces.join(", "),
            clean(&first.words)
        )?;
    }
    if n_grave > 0 && !lenient {
        bail!("cannot answer: what could not be read may change it; go on without with --lenient");
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
        matters: &RelevantKinds,
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
        let mut told = Vec::new();
        let judged = check_unread(&missing, matters, lenient, &mut told);
        let mut text = String::from_utf8(told).unwrap();
        if let Err(error) = &judged {
            text += &error.to_string();
        }
        (judged.is_ok(), text)
    }

    #[test]
    fn without_pods_there_is_no_answer() {
        let (is_answered, told) = check(&[Kind::Pod], &[], &RelevantKinds::default(), true);
        assert!(!is_answered);
        assert!(
            told.starts_with("cannot answer: pods may not be listed: no"),
            "{told}"
        );
    }

    #[test]
    fn policies_that_are_not_known_make_an_answer_that_somebody_has_to_want() {
        let kinds = [Kind::ClusterNetworkPolicy];
        let (is_answered, told) = check(&kinds, &[], &RelevantKinds::default(), false);
        assert!(!is_answered, "{told}");
        let (is_answered, told) = check(&kinds, &[], &RelevantKinds::default(), true);
        assert!(is_answered);
        assert_eq!(
            told,
            "palisade: ClusterNetworkPolicies could not be read; the answer ignores them: no\n"
        );
    }

    #[test]
    fn services_matter_to_whom_they_are_named_by() {
        let kinds = [Kind::Service, Kind::Deployment];
        let (is_answered, told) = check(&kinds, &[], &RelevantKinds::default(), false);
        assert!(is_answered);
        assert_eq!(told, "");
        let endpoint = Endpoint::parse("shop/svc/db").unwrap();
        let (is_answered, told) = check(&kinds, &[], &named([&endpoint]), false);
        assert!(is_answered);
        assert!(told.contains("Services could not be read"), "{told}");
        assert!(!told.contains("Deployments"), "{told}");
    }

    #[test]
    fn a_namespace_instead_of_all_is_told() {
        let kinds = [Kind::Pod, Kind::NetworkPolicy];
        let (is_answered, told) = check(&kinds, &["shop"], &RelevantKinds::default(), false);
        assert!(is_answered);
        assert!(
            told.starts_with("palisade: Pods, NetworkPolicies were read in `shop` only"),
            "{told}"
        );
    }
}
