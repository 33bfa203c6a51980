//! Labels in selectors that no object has and that are similar to existing ones.
//!
//! Labels are compared word by word. Different words with digits, or of one or two letters, are
//! different labels on purpose (`web-1` and `web-2`, `team-a` and `team-b`).

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::context::CheckContext;
use super::{Code, Finding, FindingDetail, FindingTarget, always, now};
use crate::compile::count;
use crate::labels::{Operator, Selector};
use crate::model::{Labels, NamespaceSet, Peer, PodSet};
use crate::program::RulePlace;
use crate::text::distance;

/// The maximum number of pairs of labels to compare, which are quadratic. Inputs with more unknown
/// labels would have more findings than a reader can use.
const MAX_COMPARED: u32 = 4_000_000;

/// The label that the draft of 2021 writes for the name of a namespace, and the actual label.
const NAME_OF_DRAFT: &str = "k8s.metadata.io/name";
const NAME: &str = "kubernetes.io/metadata.name";

/// Labels that Kubernetes and common tools set, by kind of object. They count as existing even if
/// no object in the input has them.
const KNOWN_OF_PODS: [&str; 10] = [
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/version",
    "batch.kubernetes.io/job-name",
    "k8s-app",
    "pod-template-hash",
    "statefulset.kubernetes.io/pod-name",
];
const KNOWN_OF_NAMESPACES: [&str; 4] = [
    NAME,
    "pod-security.kubernetes.io/audit",
    "pod-security.kubernetes.io/enforce",
    "pod-security.kubernetes.io/warn",
];
const KNOWN_OF_NODES: [&str; 7] = [
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node-role.kubernetes.io/control-plane",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

pub(super) fn find(context: &CheckContext<'_>) -> Vec<Finding> {
    let named = Named::collect(context);
    if named.list.is_empty() {
        return Vec::new();
    }
    // Pods, namespaces and nodes are separate: a label of one kind is no correction for another.
    let mut spaces = [
        Space::new(
            &named,
            LabelOwner::Pods,
            &KNOWN_OF_PODS,
            distinct_pods(context),
        ),
        Space::new(&named, LabelOwner::Namespaces, &KNOWN_OF_NAMESPACES, {
            context.cluster.namespaces.iter().map(|it| &it.labels)
        }),
        Space::new(&named, LabelOwner::Nodes, &KNOWN_OF_NODES, {
            let nodes = context.cluster.nodes.iter();
            nodes.filter(|it| it.has_object).map(|it| &it.labels)
        }),
    ];
    let mut findings = Vec::new();
    let mut last: Option<(FindingTarget, FindingDetail)> = None;
    for it in &named.list {
        let [pods, namespaces, nodes] = &mut spaces;
        let space = match it.on {
            LabelOwner::Pods => pods,
            LabelOwner::Namespaces => namespaces,
            LabelOwner::Nodes => nodes,
        };
        let is_of_draft = it.on == LabelOwner::Namespaces && it.key == NAME_OF_DRAFT;
        let proposal = if is_of_draft && !space.values.contains_key(it.key) {
            Some((always(Code::LabelTypo, it.at), typo(NAME_OF_DRAFT, NAME)))
        } else if context.has_pods() {
            let near = space.near(it.key, it.value);
            near.map(|near| (now(Code::LabelTypo, it.at), near))
        } else {
            None
        };
        let Some((finding, detail)) = proposal else {
            continue;
        };
        // A misspelled key with several values is one finding.
        let finding_key = (it.at, detail);
        if last.as_ref() != Some(&finding_key) {
            findings.push(Finding {
                detail: finding_key.1.clone(),
                ..finding
            });
            last = Some(finding_key);
        }
    }
    findings
}

fn typo(wrong: &str, right: &str) -> FindingDetail {
    FindingDetail::Typo {
        wrong: wrong.to_owned(),
        right: right.to_owned(),
    }
}

/// Returns the label sets of pods. Pods of one workload are adjacent and share one, which is
/// returned once.
fn distinct_pods<'g, 'c>(
    context: &'g CheckContext<'c>,
) -> impl Iterator<Item = &'c Labels<'c>> + 'g {
    let mut last: Option<&Labels<'c>> = None;
    context.cluster.pods.iter().filter_map(move |pod| {
        let is_new = last.is_none_or(|last| !Arc::ptr_eq(last, &pod.labels));
        last = Some(&pod.labels);
        is_new.then_some(&pod.labels)
    })
}

/// The kind of object that has a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LabelOwner {
    Pods,
    Namespaces,
    Nodes,
}

/// A label in a selector of a policy.
#[derive(Clone, Copy, Debug)]
struct Mention<'c> {
    on: LabelOwner,
    key: &'c str,
    /// The value; none if the requirement has no values.
    value: Option<&'c str>,
    at: FindingTarget,
}

/// All labels in selectors of enforced policies.
#[derive(Debug, Default)]
struct Named<'c> {
    list: Vec<Mention<'c>>,
}

impl<'c> Named<'c> {
    fn collect(context: &CheckContext<'c>) -> Named<'c> {
        let mut named = Named::default();
        for (id, policy) in context.policies().filter(|(_, it)| !it.audited) {
            let subject = policy.subject.iter();
            subject.for_each(|set| named.pod_set(set, FindingTarget::Subject(id)));
        }
        for (place, effect) in context.rules() {
            for (index, peer) in effect.peers.iter().flatten().enumerate() {
                named.peer(peer, place, count(index));
            }
        }
        named
    }

    fn peer(&mut self, peer: &'c Peer<'c>, place: RulePlace, index: u32) {
        let at = FindingTarget::Peer(place, index);
        match peer {
            Peer::Pods(set) => self.pod_set(set, at),
            Peer::Nodes(selector) => self.selector(selector, LabelOwner::Nodes, at),
            Peer::Block { .. } | Peer::Domains(_) | Peer::All => {}
        }
    }

    fn pod_set(&mut self, set: &'c PodSet<'c>, at: FindingTarget) {
        match &set.namespaces {
            NamespaceSet::Selected { selector, except } => {
                let all = std::iter::once(selector).chain(except);
                all.for_each(|it| self.selector(it, LabelOwner::Namespaces, at));
            }
            NamespaceSet::SameLabels(keys) | NamespaceSet::NotSameLabels(keys) => {
                self.list.extend(keys.iter().map(|key| Mention {
                    on: LabelOwner::Namespaces,
                    key,
                    value: None,
                    at,
                }));
            }
            NamespaceSet::Exact(_) | NamespaceSet::Own | NamespaceSet::NotOwn => {}
        }
        let pods = set.pods.iter();
        pods.for_each(|it| self.selector(it, LabelOwner::Pods, at));
    }

    fn selector(&mut self, selector: &'c Selector<&'c str>, on: LabelOwner, at: FindingTarget) {
        for it in &selector.requirements {
            let mention = |value| Mention {
                on,
                key: it.key,
                value,
                at,
            };
            match it.operator {
                Operator::In | Operator::NotIn => {
                    let values = it.values.iter();
                    self.list.extend(values.map(|value| mention(Some(*value))));
                }
                Operator::Exists | Operator::DoesNotExist => self.list.push(mention(None)),
            }
        }
    }
}

/// The existing labels of one kind of object.
struct Space<'c> {
    /// The existing keys, and the known ones.
    keys: Vec<Word<'c>>,
    known: &'static [&'static str],
    /// The values of each existing key; only for keys in selectors, since labels such as
    /// `pod-template-hash` have a value for each ReplicaSet.
    values: FxHashMap<&'c str, Values<'c>>,
    /// The corrections found so far, by key and value: policies repeat their labels.
    corrections: FxHashMap<(&'c str, Option<&'c str>), Option<FindingDetail>>,
    compared: u32,
}

#[derive(Debug, Default)]
struct Values<'c> {
    set: FxHashSet<&'c str>,
    /// The same values sorted, once they are needed.
    list: Option<Vec<Word<'c>>>,
}

impl<'c> Space<'c> {
    fn new<'l>(
        named: &Named<'c>,
        on: LabelOwner,
        known: &'static [&'static str],
        labels: impl Iterator<Item = &'l Labels<'c>>,
    ) -> Space<'c>
    where
        'c: 'l,
    {
        let mentions = named.list.iter().filter(|it| it.on == on);
        let meant: FxHashSet<&str> = mentions.map(|it| it.key).collect();
        let mut keys: FxHashSet<&'c str> = FxHashSet::default();
        let mut values: FxHashMap<&'c str, Values<'c>> = FxHashMap::default();
        let labels = labels.filter(|_| !meant.is_empty());
        for (key, value) in labels.flat_map(|labels| labels.iter()) {
            if meant.contains(key) {
                values.entry(*key).or_default().set.insert(*value);
            } else {
                keys.insert(*key);
            }
        }
        keys.extend(values.keys().copied());
        keys.extend(known.iter().copied());
        Space {
            keys: words(keys),
            known,
            values,
            corrections: FxHashMap::default(),
            compared: 0,
        }
    }

    /// Returns the probable correction of a label that no object has.
    fn near(&mut self, key: &'c str, value: Option<&'c str>) -> Option<FindingDetail> {
        let value = value.filter(|_| self.values.contains_key(key));
        if let Some(known) = self.corrections.get(&(key, value)) {
            return known.clone();
        }
        let found = self.search(key, value);
        self.corrections.insert((key, value), found.clone());
        found
    }

    fn search(&mut self, key: &str, value: Option<&str>) -> Option<FindingDetail> {
        let Some(values) = self.values.get_mut(key) else {
            // A known label may be absent from the input without being misspelled.
            let is_known = self.known.contains(&key);
            let near = nearest(key, &self.keys, &mut self.compared).filter(|_| !is_known)?;
            return Some(typo(key, near));
        };
        let value = value.filter(|it| !values.set.contains(it))?;
        let set = &values.set;
        let list = values.list.get_or_insert_with(|| words(set.clone()));
        let near = nearest(value, list, &mut self.compared)?;
        Some(typo(&format!("{key}={value}"), &format!("{key}={near}")))
    }
}

/// A text and a bit for each character in it, by which most other texts are ruled out cheaply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Word<'c> {
    text: &'c str,
    letters: u64,
}

impl<'c> Word<'c> {
    fn new(text: &'c str) -> Word<'c> {
        let bytes = text.bytes().map(|it| it.to_ascii_lowercase());
        let letters = bytes.fold(0, |letters, it| letters | 1 << (it % 64));
        Word { text, letters }
    }
}

fn words<'c>(texts: FxHashSet<&'c str>) -> Vec<Word<'c>> {
    let mut words: Vec<Word<'c>> = texts.into_iter().map(Word::new).collect();
    words.sort_unstable();
    words
}

/// Returns the most similar of some words, if one is similar enough.
fn nearest<'c>(wrong: &str, words: &[Word<'c>], compared: &mut u32) -> Option<&'c str> {
    let wrong = Word::new(wrong);
    // Counted before the comparison, for the whole list: beyond the limit nothing more is compared.
    *compared = compared.saturating_add(count(words.len()));
    if *compared > MAX_COMPARED || wrong.text.len() > 128 {
        return None;
    }
    // At most two edits are accepted below, and each removes at most one letter and adds at most
    // one. So the sets of letters differ in four bits at most, and the lengths by two.
    let may_be = |it: &&Word<'_>| {
        (it.letters ^ wrong.letters).count_ones() <= 4
            && it.text.len().abs_diff(wrong.text.len()) <= 2
    };
    let near = words.iter().filter(may_be);
    let near = near.filter_map(|it| Some((edits(wrong.text, it.text)?, it.text)));
    near.min().map(|(_, text)| text)
}

/// Returns the number of edits between two labels, if they are few enough for a misspelling.
fn edits(a: &str, b: &str) -> Option<usize> {
    let is_border = |c: char| !c.is_ascii_alphanumeric();
    let (of_a, of_b) = (a.split(is_border), b.split(is_border));
    if of_a.clone().count() != of_b.clone().count() {
        // The labels have different numbers of words: only separators may differ.
        let bare = |text: &str| text.replace(is_border, "");
        let few = distance(a, b);
        return (bare(a) == bare(b) && few <= 2).then_some(few);
    }
    let mut edits = 0;
    for (a, b) in of_a.zip(of_b).filter(|(a, b)| a != b) {
        edits += if a.eq_ignore_ascii_case(b) {
            1
        } else {
            edits_of_word(a, b)?
        };
    }
    // No word differs, so the separators do.
    let edits = if edits == 0 { distance(a, b) } else { edits };
    (1..=2).contains(&edits).then_some(edits)
}

fn edits_of_word(a: &str, b: &str) -> Option<usize> {
    // Numbers distinguish labels on purpose.
    let has_digit = |text: &str| text.bytes().any(|it| it.is_ascii_digit());
    if has_digit(a) || has_digit(b) {
        return None;
    }
    // The shorter a word, the more likely a similar word is a different one. Of three letters, only
    // transpositions count (`wbe` and `web`, but not `api` and `app`).
    let most = match a.len().max(b.len()) {
        0..=2 => return None,
        3 if !has_same_letters(a, b) => return None,
        3..=7 => 1,
        _ => 2,
    };
    Some(distance(a, b)).filter(|edits| *edits <= most)
}

fn has_same_letters(a: &str, b: &str) -> bool {
    let sorted = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.sort_unstable();
        bytes
    };
    sorted(a) == sorted(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_are_similar_and_other_labels_are_not() {
        for (wrong, right, expected) in [
            ("fronted", "frontend", 1),
            ("app.kubernetes.io/nmae", "app.kubernetes.io/name", 1),
            ("app.kubernets.io/name", "app.kubernetes.io/name", 1),
            ("Web", "web", 1),
            ("wbe", "web", 1),
            ("apps", "app", 1),
            ("kubedns", "kube-dns", 1),
            ("kube_dns", "kube-dns", 1),
            ("monitornig", "monitoring", 1),
            ("prometehsu", "prometheus", 2),
        ] {
            assert_eq!(edits(wrong, right), Some(expected), "{wrong}");
        }
        for (one, other) in [
            ("web-1", "web-2"),
            ("team-a", "team-b"),
            ("v1", "v2"),
            ("db", "dc"),
            ("api", "app"),
            ("test", "rust"),
            ("us-east", "us-west"),
            ("web", "web"),
        ] {
            assert_eq!(edits(one, other), None, "{one}");
        }
    }
}
