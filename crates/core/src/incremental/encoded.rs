//! Policies as bytes: everything that can decide a flow, in a few hundred bytes each.
//!
//! There are many policies, and few of them select pods of the node. The store keeps this form.
//! Two policies are equal if their bytes are. A policy becomes one of the model again when a plan
//! needs it.

mod read;
mod write;

use self::read::Reader;
use self::write::Writer;
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{
    Cluster, Namespace, NamespaceId, NamespaceSet, PodSet, Policy, PolicyRank, label,
};
use crate::policy::{Action, PolicyApi};

/// Encodes a policy of a cluster, with its rules or as if it had none.
pub(super) fn encode(cluster: &Cluster<'_>, policy: &Policy<'_>, with_rules: bool) -> Vec<u8> {
    let mut writer = Writer {
        cluster,
        own: policy.namespace,
        bytes: Vec::with_capacity(256),
    };
    writer.policy(policy, with_rules);
    writer.bytes
}

/// Decodes a policy. `namespace` returns the numbers of the namespaces that it names. Never `None`
/// for the bytes of [`encode`].
pub(super) fn decode<'b>(
    bytes: &'b [u8],
    namespace: &mut dyn FnMut(&'b str) -> NamespaceId,
) -> Option<Policy<'b>> {
    let mut reader = Reader::new(bytes, namespace);
    reader.policy()
}

/// Decodes a policy without its rules: the part that stays in force if the policy does not fit into
/// the budget of its namespace (D148).
pub(super) fn isolation<'b>(
    bytes: &'b [u8],
    namespace: &mut dyn FnMut(&'b str) -> NamespaceId,
) -> Option<Policy<'b>> {
    // The rules come last; they are not read at all.
    let mut reader = Reader::new(bytes, namespace);
    let policy = reader.isolation()?;
    Some(Policy {
        is_over_budget: true,
        ..policy
    })
}

/// The first parts of a policy: its title and its subject.
pub(super) struct Head<'b> {
    pub(super) title: Title<'b>,
    /// The pods that the policy selects; `None` if its subject is unreadable (D20) or the policy is
    /// in audit mode.
    pub(super) subject: Option<PodSet<'b>>,
}

/// Decodes the head only. The number in `NamespaceSet::Exact` has no meaning there.
pub(super) fn head(bytes: &[u8]) -> Option<Head<'_>> {
    // The head is for a first choice by labels; numbers of namespaces need an excerpt.
    let mut namespace = |_: &str| NamespaceId(u32::MAX);
    let mut reader = Reader::new(bytes, &mut namespace);
    let (title, audited) = title_of(&mut reader)?;
    let subject = reader.option(Reader::pod_set)?;
    Some(Head {
        title,
        // A policy in audit mode decides nothing, so a change of it replans no class.
        subject: subject.filter(|_| !audited),
    })
}

/// The rank, name and creation time of a policy: few bytes, whatever the size of the policy.
pub(super) struct Title<'b> {
    pub(super) rank: PolicyRank,
    pub(super) api: PolicyApi,
    pub(super) namespace: Option<&'b str>,
    pub(super) name: &'b str,
    pub(super) created: Option<u64>,
}

/// Decodes the title only.
pub(super) fn title(bytes: &[u8]) -> Option<Title<'_>> {
    let mut namespace = |_: &str| NamespaceId(u32::MAX);
    let (title, _) = title_of(&mut Reader::new(bytes, &mut namespace))?;
    Some(title)
}

/// Reads the title, and whether the policy is in audit mode.
fn title_of<'b>(reader: &mut Reader<'b, '_>) -> Option<(Title<'b>, bool)> {
    let (generation, rank, audited) = reader.front()?;
    let title = Title {
        rank,
        api: generation,
        namespace: reader.option(Reader::text)?,
        name: reader.text()?,
        created: reader.option(Reader::number)?,
    };
    Some((title, audited))
}

/// Encodes a pod set with its relation to the subject's namespace resolved. `None` if the set is
/// empty for subjects of that namespace (D46, D47). `exact` is the name of the namespace if the set
/// is in one namespace.
// Subjects with the same values of the keys then have the same bytes, and share a group.
pub(super) fn selection_bytes(
    set: &PodSet<'_>,
    exact: Option<&str>,
    subject: &Namespace<'_>,
) -> Option<Box<[u8]>> {
    let cluster = Cluster::default();
    let mut writer = Writer {
        cluster: &cluster,
        own: None,
        bytes: Vec::with_capacity(64),
    };
    let own_values = |keys: &[&str]| {
        // The order in which an author lists the keys must not make another group.
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let pairs = keys.into_iter().map(|key| {
            let value = label(&subject.labels, key)?;
            Some((key.to_owned(), value.to_owned()))
        });
        // A missing key or an empty list matches nothing (D46, D47).
        let pairs: Option<Vec<(String, String)>> = pairs.collect();
        pairs.filter(|pairs| !pairs.is_empty())
    };
    match (&set.namespaces, exact) {
        (_, Some(name)) => {
            writer.byte(0);
            writer.text(name);
        }
        (NamespaceSet::Selected { selector, except }, None) => {
            writer.byte(1);
            writer.selector(selector);
            writer.list(except, Writer::selector);
        }
        (NamespaceSet::NotOwn, None) => {
            writer.byte(2);
            writer.text(subject.name);
        }
        (NamespaceSet::SameLabels(keys), None) => {
            let pairs = own_values(keys)?;
            // The same as a selector of these labels; a policy that writes that selector shares
            // the group.
            writer.byte(1);
            let requirements = pairs.iter().map(|(key, value)| Requirement {
                key: key.as_str(),
                operator: Operator::In,
                values: vec![value.as_str()],
            });
            let requirements = requirements.collect();
            writer.selector(&Selector { requirements });
            writer.list(&[], Writer::selector);
        }
        (NamespaceSet::NotSameLabels(keys), None) => {
            let pairs = own_values(keys)?;
            writer.byte(3);
            writer.list(&pairs, |it, (key, value)| {
                it.text(key);
                it.text(value);
            });
        }
        // The caller resolves both to a name; without one there is no namespace.
        (NamespaceSet::Exact(_) | NamespaceSet::Own, None) => return None,
    }
    writer.option(set.pods.as_ref(), Writer::selector);
    Some(writer.bytes.into())
}

/// Encodes a selector.
pub(super) fn conditions_bytes(selector: &Selector<&str>) -> Box<[u8]> {
    let cluster = Cluster::default();
    let mut writer = Writer {
        cluster: &cluster,
        own: None,
        bytes: Vec::new(),
    };
    writer.selector(selector);
    writer.bytes.into()
}

/// The namespaces of a selection in bytes ([`selection_bytes`]).
pub(super) enum ScopeText<'b> {
    Exact(&'b str),
    Selected(Selector<&'b str>, Vec<Selector<&'b str>>),
    Other(&'b str),
    Differing(Vec<(&'b str, &'b str)>),
}

/// Decodes [`selection_bytes`]: the namespaces, and the selector of their pods.
pub(super) fn selection(bytes: &[u8]) -> Option<(ScopeText<'_>, Option<Selector<&str>>)> {
    let mut namespace = |_: &str| NamespaceId(u32::MAX);
    let mut reader = Reader::new(bytes, &mut namespace);
    let scope = match reader.byte()? {
        0 => ScopeText::Exact(reader.text()?),
        1 => ScopeText::Selected(reader.selector()?, reader.list(Reader::selector)?),
        2 => ScopeText::Other(reader.text()?),
        _ => ScopeText::Differing(reader.list(|it| Some((it.text()?, it.text()?)))?),
    };
    Some((scope, reader.option(Reader::selector)?))
}

/// Decodes [`conditions_bytes`].
pub(super) fn conditions(bytes: &[u8]) -> Option<Selector<&str>> {
    let mut namespace = |_: &str| NamespaceId(u32::MAX);
    let mut reader = Reader::new(bytes, &mut namespace);
    reader.selector()
}

// The bytes never leave the process: the order of lists may change with any version.
const ACTIONS: [Action; 3] = [Action::Accept, Action::Deny, Action::Pass];

/// Frequent texts, written as their index.
// A text costs its length and its bytes. An index takes the place of the length: lengths are
// written with the number of these texts added.
const WORDS: [&str; 4] = [
    "kubernetes.io/metadata.name",
    "app",
    "app.kubernetes.io/name",
    "k8s-app",
];
