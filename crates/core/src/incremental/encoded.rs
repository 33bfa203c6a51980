//! Policies as bytes: what of them decides anything, in a few hundred bytes each.
//!
//! There are many policies, and a node is concerned with few of them. They are kept in this form, which
//! also says whether two are equal, and are made policies of the model again when they are needed.

mod read;
mod write;

use self::read::Reader;
use self::write::Writer;
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{
    Cluster, Namespace, NamespaceId, NamespaceSet, PodSet, Policy, PolicyRank, label,
};
use crate::policy::{Action, PolicyApi};

/// The encoded form of a policy of a cluster, with its rules or as if it had none.
pub(super) fn encode(cluster: &Cluster<'_>, policy: &Policy<'_>, with_rules: bool) -> Vec<u8> {
    let mut writer = Writer {
        cluster,
        own: policy.namespace,
        bytes: Vec::with_capacity(256),
    };
    writer.policy(policy, with_rules);
    writer.bytes
}

/// The policy of some bytes; `namespace` gives the numbers of the namespaces that it names. `None`
/// never comes back for what [`encode`] made.
pub(super) fn decode<'b>(
    bytes: &'b [u8],
    namespace: &mut dyn FnMut(&'b str) -> NamespaceId,
) -> Option<Policy<'b>> {
    let mut reader = Reader::new(bytes, namespace);
    reader.policy()
}

/// The policy of some bytes without its rules: what is left of it where it does not fit into the budget of its namespace (D148).
pub(super) fn isolation<'b>(
    bytes: &'b [u8],
    namespace: &mut dyn FnMut(&'b str) -> NamespaceId,
) -> Option<Policy<'b>> {
    let mut reader = Reader::new(bytes, namespace);
    let policy = reader.isolation()?;
    Some(Policy {
        is_over_budget: true,
        ..policy
    })
}

/// What has to be known of every policy: the parts that stand in front.
pub(super) struct Head<'b> {
    pub(super) title: Title<'b>,
    /// Whom it selects; `None`: nobody, or it only says what it would do.
    pub(super) subject: Option<PodSet<'b>>,
}

/// Reads only the parts in front; `NamespaceSet::Exact` has a number without meaning.
pub(super) fn head(bytes: &[u8]) -> Option<Head<'_>> {
    let mut namespace = |_: &str| NamespaceId(u32::MAX);
    let mut reader = Reader::new(bytes, &mut namespace);
    let (title, audited) = title_of(&mut reader)?;
    let subject = reader.option(Reader::pod_set)?;
    Some(Head {
        title,
        subject: subject.filter(|_| !audited),
    })
}

/// How a policy is called, and when it was created: few bytes, however large it is.
pub(super) struct Title<'b> {
    pub(super) rank: PolicyRank,
    pub(super) generation: PolicyApi,
    pub(super) namespace: Option<&'b str>,
    pub(super) name: &'b str,
    pub(super) created: Option<u64>,
}

/// Reads only how a policy is called.
pub(super) fn title(bytes: &[u8]) -> Option<Title<'_>> {
    let mut namespace = |_: &str| NamespaceId(u32::MAX);
    let (title, _) = title_of(&mut Reader::new(bytes, &mut namespace))?;
    Some(title)
}

/// The title, and whether the policy only says what it would do.
fn title_of<'b>(reader: &mut Reader<'b, '_>) -> Option<(Title<'b>, bool)> {
    let (generation, place, audited) = reader.front()?;
    let title = Title {
        rank: place,
        generation,
        namespace: reader.option(Reader::text)?,
        name: reader.text()?,
        created: reader.option(Reader::number)?,
    };
    Some((title, audited))
}

/// Some pods of some namespaces, no longer as seen from a subject, as bytes; `None`: nothing of the set is
/// left for subjects of that namespace (D46, D47). `exact` is the namespace, if it is one.
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
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let pairs = keys.into_iter().map(|key| {
            let value = label(&subject.labels, key)?;
            Some((key.to_owned(), value.to_owned()))
        });
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
        (NamespaceSet::Exact(_) | NamespaceSet::Own, None) => return None,
    }
    writer.option(set.pods.as_ref(), Writer::selector);
    Some(writer.bytes.into())
}

/// A selector as bytes.
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

/// The scope of what [`selection_bytes`] made.
pub(super) enum ScopeText<'b> {
    Exact(&'b str),
    Selected(Selector<&'b str>, Vec<Selector<&'b str>>),
    Other(&'b str),
    Differing(Vec<(&'b str, &'b str)>),
}

/// What [`selection_bytes`] made: which namespaces, and which of their pods.
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

/// What [`conditions_bytes`] made.
pub(super) fn conditions(bytes: &[u8]) -> Option<Selector<&str>> {
    let mut namespace = |_: &str| NamespaceId(u32::MAX);
    let mut reader = Reader::new(bytes, &mut namespace);
    reader.selector()
}

const GENERATIONS: [PolicyApi; 7] = [
    PolicyApi::Cluster,
    PolicyApi::Admin,
    PolicyApi::BaselineAdmin,
    PolicyApi::NetworkPolicy,
    PolicyApi::NetworkPolicy2016,
    PolicyApi::EarlyCluster,
    PolicyApi::Default,
];

const ACTIONS: [Action; 3] = [Action::Accept, Action::Deny, Action::Pass];

/// Texts that many policies have.
const WORDS: [&str; 4] = [
    "kubernetes.io/metadata.name",
    "app",
    "app.kubernetes.io/name",
    "k8s-app",
];
