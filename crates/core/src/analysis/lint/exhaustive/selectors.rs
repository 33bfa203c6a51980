//! Selectors that match nothing: no object at all, or no object in the input.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::is_annotation;
use super::possible::{LabelOwner, contradiction, never};
use crate::analysis::lint::{Code, Finding, FindingDetail, FindingTarget};
use crate::compile::count;
use crate::id_set::ones;
use crate::model::{
    Cluster, NamespaceId, NamespaceSet, Peer, PodSet, Policy, PolicyId, PolicyRank, label,
};
use crate::policy::Direction;
use crate::program::{Program, Rows, RulePlace};

/// Finds selectors that can never match, subjects without pods and peers without objects.
pub(super) fn find(cluster: &Cluster<'_>, program: &Program) -> Vec<Finding> {
    let mut finder = SelectorFinder {
        cluster,
        pods: Pods::new(cluster),
        selecting: selecting(program, cluster.policies.len()),
        matching: rules_with_full_sets(program),
        findings: Vec::new(),
    };
    for (id, policy) in (0..).map(PolicyId).zip(&cluster.policies) {
        let Some(subject) = policy.subject.as_ref().filter(|_| !is_annotation(policy)) else {
            continue;
        };
        finder.subject(id, subject);
        for direction in Direction::BOTH {
            if !is_ignored(policy, direction) {
                finder.peers(id, policy, subject, direction);
            }
        }
    }
    finder.findings
}

struct SelectorFinder<'c> {
    cluster: &'c Cluster<'c>,
    pods: Pods<'c>,
    /// For each policy, whether the program has a pod that it selects.
    selecting: Vec<bool>,
    /// The rules of which the program shows that all their peers match an object.
    matching: FxHashSet<RulePlace>,
    findings: Vec<Finding>,
}

impl<'c> SelectorFinder<'c> {
    /// Evaluates the subject of a policy.
    fn subject(&mut self, id: PolicyId, subject: &PodSet<'_>) {
        let at = FindingTarget::Subject(id);
        if let Some(key) = never(subject) {
            self.never(at, key);
        } else if !self.pods.is_empty && !self.selects(id, subject) {
            self.add(Code::SelectsNothing, at, false, FindingDetail::Nothing);
        }
    }

    fn selects(&self, id: PolicyId, subject: &PodSet<'_>) -> bool {
        // The compiled form shows only policies with an effect: `selecting` may miss a policy that
        // selects pods, but never names one that selects none.
        self.selecting.get(id.0 as usize) == Some(&true) || self.pods.any(subject, &[])
    }

    /// Evaluates the peers of the rules of a policy.
    fn peers(
        &mut self,
        id: PolicyId,
        policy: &Policy<'_>,
        subject: &PodSet<'_>,
        direction: Direction,
    ) {
        for (index, rule) in (0..).zip(&policy.rules(direction).list) {
            let place = RulePlace {
                policy: id,
                direction,
                index,
            };
            // The peers of a rule that fails closed are no longer what its author wrote.
            let effect = rule.effect.as_ref().filter(|_| !rule.failed_closed);
            let peers = effect.and_then(|it| it.peers.as_ref());
            let is_known = self.pods.is_empty || self.matching.contains(&place);
            for (at, peer) in (0..).zip(peers.into_iter().flatten()) {
                let at = FindingTarget::Peer(place, at);
                if let Some(key) = contradiction_of(peer) {
                    self.never(at, key);
                } else if !is_known && !self.has_match(peer, subject) {
                    self.add(Code::PeerMatchesNothing, at, false, FindingDetail::Nothing);
                }
            }
        }
    }

    /// Whether a peer matches some object of the input.
    fn has_match(&self, peer: &Peer<'_>, subject: &PodSet<'_>) -> bool {
        match peer {
            Peer::Pods(set) if is_relative(&set.namespaces) => {
                // Without a selected pod there is no subject to evaluate the peer for; the subject
                // has its own finding.
                let homes = self.pods.homes(subject);
                homes.is_empty() || self.pods.any(set, &homes)
            }
            Peer::Pods(set) => self.pods.any(set, &[]),
            Peer::Nodes(selector) => {
                // Without Node objects the input says nothing about nodes.
                let nodes = self.cluster.nodes.iter();
                let mut nodes = nodes.filter(|it| it.has_object).peekable();
                nodes.peek().is_none()
                    || nodes.any(|it| selector.matches(|key| label(&it.labels, key)))
            }
            Peer::Block { .. } | Peer::Domains(_) | Peer::All => true,
        }
    }

    /// Adds a selector that contradicts itself, with the key if it is of one label.
    fn never(&mut self, at: FindingTarget, key: Option<String>) {
        let detail = key.map_or(FindingDetail::Nothing, FindingDetail::Text);
        self.add(Code::NeverMatches, at, true, detail);
    }

    fn add(&mut self, code: Code, at: FindingTarget, always: bool, detail: FindingDetail) {
        self.findings.push(Finding {
            code,
            at,
            by: Vec::new(),
            witness: None,
            always,
            detail,
        });
    }
}

/// Returns why a peer can never match, with the key if the contradiction is of one label.
fn contradiction_of(peer: &Peer<'_>) -> Option<Option<String>> {
    match peer {
        Peer::Pods(set) => never(set),
        Peer::Nodes(selector) => {
            let key = contradiction(&selector.requirements, LabelOwner::Other);
            key.map(|key| Some(key.to_owned()))
        }
        Peer::Block { .. } | Peer::Domains(_) | Peer::All => None,
    }
}

/// Returns the rules whose peers all match: each pod set has a member.
fn rules_with_full_sets(program: &Program) -> FxHashSet<RulePlace> {
    // The program knows which pod sets have members. Only rules with a set that has none, or that
    // depends on the subject, or with nodes, need the slow search over labels.
    let inhabited = inhabited(program);
    let is_full = |set: &u32| {
        let relation = program.set_relations.get(*set as usize).copied().flatten();
        relation.is_none() && inhabited.get(*set as usize) == Some(&true)
    };
    let full = program.rules.iter().filter(|rule| {
        let sets = rule.sets.of(&program.lists.sets);
        sets.iter().all(is_full) && rule.nodes.start == rule.nodes.end
    });
    full.map(|rule| rule.place).collect()
}

/// Rules for a direction in which such a policy does not isolate are ignored (D31).
fn is_ignored(policy: &Policy<'_>, direction: Direction) -> bool {
    match policy.rank {
        PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup => !policy.rules(direction).isolates,
        PolicyRank::EarlyAdmin | PolicyRank::Ordered(..) => false,
    }
}

/// Whether a set of namespaces depends on the namespace of the subject.
fn is_relative(set: &NamespaceSet<'_>) -> bool {
    match set {
        NamespaceSet::Exact(_) | NamespaceSet::Selected { .. } => false,
        NamespaceSet::Own
        | NamespaceSet::NotOwn
        | NamespaceSet::SameLabels(_)
        | NamespaceSet::NotSameLabels(_) => true,
    }
}

/// Returns for each policy whether the program has a pod that it selects.
fn selecting(program: &Program, n_policies: usize) -> Vec<bool> {
    let mut selecting = vec![false; n_policies];
    let mut mark = |policy: PolicyId| {
        if let Some(it) = selecting.get_mut(policy.0 as usize) {
            *it = true;
        }
    };
    program.isolations.iter().flatten().for_each(|it| mark(*it));
    for table in &program.tables {
        for bit in all_ones_of(&table.subjects) {
            let rule = table.rules.get(bit as usize);
            if let Some(rule) = rule.and_then(|it| program.rules.get(it.0 as usize)) {
                mark(rule.place.policy);
            }
        }
    }
    selecting
}

/// Returns for each pod set whether it has a pod.
fn inhabited(program: &Program) -> Vec<bool> {
    let mut inhabited = vec![false; program.set_relations.len()];
    let wide = all_ones_of(&program.wide).into_iter();
    let wide = wide.filter_map(|column| program.wide_sets.get(column as usize));
    for set in program.narrow_sets.iter().chain(wide) {
        if let Some(it) = inhabited.get_mut(*set as usize) {
            *it = true;
        }
    }
    inhabited
}

/// A namespace and the labels of pods in it.
type Home<'c> = (NamespaceId, Vec<&'c [(&'c str, &'c str)]>);

/// The distinct label sets of the pods that policies can select, by namespace.
struct Pods<'c> {
    cluster: &'c Cluster<'c>,
    is_empty: bool,
    homes: Vec<Home<'c>>,
}

impl<'c> Pods<'c> {
    fn new(cluster: &'c Cluster<'c>) -> Pods<'c> {
        let mut homes: Vec<Home<'c>> = Vec::new();
        let ids = 0..count(cluster.namespaces.len());
        homes.extend(ids.map(|id| (NamespaceId(id), Vec::new())));
        let mut last = None;
        for pod in cluster.pods.iter().filter(|it| it.is_selectable()) {
            // Pods of one workload are adjacent and share one allocation of their labels. Comparing
            // the pointer drops most duplicates without hashing; one that stays costs time only.
            let this = (pod.namespace, Arc::as_ptr(&pod.labels));
            if last.replace(this) != Some(this)
                && let Some((_, labels)) = homes.get_mut(pod.namespace.0 as usize)
            {
                labels.push(&pod.labels);
            }
        }
        Pods {
            cluster,
            is_empty: cluster.pods.is_empty(),
            homes,
        }
    }

    fn namespace(&self, id: NamespaceId, key: &str) -> Option<&'c str> {
        let namespace = self.cluster.namespaces.get(id.0 as usize)?;
        label(&namespace.labels, key)
    }

    /// Whether a set has a pod in a namespace, for a subject in another.
    fn is_in(&self, set: &PodSet<'_>, (id, pods): &Home<'c>, subject: Option<NamespaceId>) -> bool {
        let has = |key: &str| self.namespace(*id, key);
        let as_subject = |key: &str| subject.and_then(|it| self.namespace(it, key));
        let has_namespace = match &set.namespaces {
            NamespaceSet::Exact(namespace) => namespace == id,
            NamespaceSet::Selected { selector, except } => {
                selector.matches(has) && !except.iter().any(|it| it.matches(has))
            }
            NamespaceSet::Own => subject == Some(*id),
            NamespaceSet::NotOwn => subject.is_some_and(|it| it != *id),
            NamespaceSet::SameLabels(keys) => {
                let is_same = |key: &&str| has(key).is_some() && has(key) == as_subject(key);
                !keys.is_empty() && keys.iter().all(is_same)
            }
            NamespaceSet::NotSameLabels(keys) => {
                let both = |key: &&str| has(key).is_some() && as_subject(key).is_some();
                keys.iter().all(both) && keys.iter().any(|key| has(key) != as_subject(key))
            }
        };
        let selector = set.pods.as_ref();
        let matches = |labels: &[(&str, &str)]| {
            selector.is_none_or(|it| it.matches(|key| label(labels, key)))
        };
        has_namespace && pods.iter().any(|labels| matches(labels))
    }

    /// Whether a set has a pod at all. If it depends on the subject, for one in any of `subjects`.
    fn any(&self, set: &PodSet<'_>, subjects: &[NamespaceId]) -> bool {
        if let NamespaceSet::Exact(id) = set.namespaces {
            let home = self.homes.get(id.0 as usize);
            return home.is_some_and(|home| self.is_in(set, home, None));
        }
        if !is_relative(&set.namespaces) {
            return self.homes.iter().any(|home| self.is_in(set, home, None));
        }
        let mut subjects = subjects.iter();
        subjects.any(|it| {
            self.homes
                .iter()
                .any(|home| self.is_in(set, home, Some(*it)))
        })
    }

    /// Returns the namespaces in which a policy selects pods.
    fn homes(&self, subject: &PodSet<'_>) -> Vec<NamespaceId> {
        let homes = self.homes.iter().filter(|it| self.is_in(subject, it, None));
        homes.map(|(id, _)| *id).collect()
    }
}

/// Returns the bits that any of the rows has.
fn all_ones_of(rows: &Rows) -> Vec<u32> {
    if rows.words == 0 {
        return Vec::new();
    }
    let mut all = vec![0; rows.words];
    for row in rows.bits.chunks(rows.words) {
        for (all, word) in all.iter_mut().zip(row) {
            *all |= word;
        }
    }
    ones(&all).collect()
}
