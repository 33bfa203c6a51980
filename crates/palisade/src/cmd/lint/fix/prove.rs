//! Proves that a fix changes the model as planned and changes no verdict.

use std::collections::HashMap;
use std::net::IpAddr;

use palisade_api::{Code, Manifests, Object, Options, Problem, Source, SourceId, lower_within};
use palisade_core::analysis::connect::diff::{Limits, Version, diff};
use palisade_core::budget::Budget;
use palisade_core::compile::compile;
use palisade_core::model::Cluster;
use palisade_core::program::RulePlace;

use super::Fix;
use super::edit::TextEdit;
use crate::live::overlay::read_over;

/// The input before any fix.
pub(crate) struct FixInput<'k> {
    pub(crate) sources: &'k [Source],
    /// The number of files among the sources; the others are the cluster's.
    pub(crate) n_files: usize,
    pub(crate) options: Options,
    pub(crate) learned: &'k [(String, IpAddr)],
    /// The budget for the NetworkPolicies of each namespace.
    pub(crate) budget: Budget,
    pub(crate) objects: &'k [Object<'k>],
    pub(crate) problems: Vec<&'k Problem>,
    pub(crate) cluster: &'k Cluster<'k>,
}

impl FixInput<'_> {
    pub(super) fn text(&self, id: SourceId) -> &str {
        self.sources.get(id.0 as usize).map_or("", Source::text)
    }
}

/// The planned change of the model. Everything else must stay.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ModelChange {
    /// Removes a rule.
    Rule(RulePlace),
    /// Removes peers of a rule, by their indexes in the model.
    Peers(RulePlace, Vec<u32>),
}

/// Proves that the fixed files have no new problem, and that every verdict stays; otherwise returns
/// why not.
// Equality with the planned model shows that the edit of the text changes nothing else. The
// comparison of verdicts shows that the planned change itself is harmless.
pub(super) fn prove(known: &FixInput<'_>, fixes: &[Fix]) -> Result<(), &'static str> {
    let mut cuts: HashMap<SourceId, Vec<TextEdit>> = HashMap::new();
    for fix in fixes {
        let of_source = cuts.entry(fix.source).or_default();
        of_source.extend(fix.cuts.iter().cloned());
    }
    let sources = known.sources.iter().enumerate().map(|(index, source)| {
        let id = SourceId(u32::try_from(index).unwrap_or(u32::MAX));
        let Some(mut cuts) = cuts.remove(&id) else {
            return source.clone();
        };
        cuts.sort_by_key(|cut| cut.range.start);
        let text = edited(source.text(), &cuts);
        Source::new(source.name(), text.into_bytes())
    });
    let sources: Vec<Source> = sources.collect();
    let n_live = sources.len().saturating_sub(known.n_files);
    let Manifests {
        objects, problems, ..
    } = read_over(&sources, n_live, known.options, &|_| {});
    if objects.len() != known.objects.len() {
        return Err("without it another object would be read");
    }
    let lowered = lower_within(&objects, known.learned.to_vec(), known.budget);
    if has_new(&known.problems, problems.iter().chain(&lowered.problems)) {
        return Err("without it there would be a new problem");
    }
    let mut expected = known.cluster.clone();
    let mut changes: Vec<&ModelChange> = fixes.iter().flat_map(|fix| &fix.changes).collect();
    // From the last change to the first: indexes before it stay valid. Peers come before their
    // rule.
    changes.sort_by_key(|change| {
        let (place, is_rule) = match change {
            ModelChange::Rule(place) => (*place, true),
            ModelChange::Peers(place, _) => (*place, false),
        };
        std::cmp::Reverse((place, !is_rule))
    });
    changes.dedup();
    for change in changes {
        apply(&mut expected, change);
    }
    if expected == lowered.cluster && is_same(known.cluster, &lowered.cluster) {
        Ok(())
    } else {
        Err("without it a verdict would change")
    }
}

/// Reports whether every flow has the same verdict in both clusters.
fn is_same(old: &Cluster<'_>, new: &Cluster<'_>) -> bool {
    if old == new {
        return true;
    }
    let programs = [compile(old), compile(new)];
    let [old_program, new_program] = &programs;
    let version = |cluster, program| Version { cluster, program };
    // One difference refutes the proof.
    let limits = Limits {
        blocks: 1,
        reasons: 1,
    };
    let found = diff(
        version(old, old_program),
        version(new, new_program),
        limits,
        &|_, _| {},
    );
    found.is_ok_and(|found| found.blocks.is_empty())
}

fn apply(cluster: &mut Cluster<'_>, change: &ModelChange) {
    let (ModelChange::Rule(place) | ModelChange::Peers(place, _)) = change;
    let Some(policy) = cluster.policies.get_mut(place.policy.0 as usize) else {
        return;
    };
    let rules = match place.direction {
        palisade_core::policy::Direction::Ingress => &mut policy.ingress.list,
        palisade_core::policy::Direction::Egress => &mut policy.egress.list,
    };
    let index = place.index as usize;
    match change {
        ModelChange::Rule(_) => {
            if index < rules.len() {
                rules.remove(index);
            }
        }
        ModelChange::Peers(_, gone) => {
            let effect = rules.get_mut(index).and_then(|rule| rule.effect.as_mut());
            if let Some(peers) = effect.and_then(|effect| effect.peers.as_mut()) {
                let mut at = 0;
                peers.retain(|_| {
                    at += 1;
                    !gone.contains(&(at - 1))
                });
            }
        }
    }
}

/// Reports whether there is a problem that was not there before.
fn has_new<'n>(old: &[&Problem], new: impl Iterator<Item = &'n Problem>) -> bool {
    // Without positions: an edit moves what comes after it.
    let mut left: HashMap<(Code, Option<&str>, &str), usize> = HashMap::new();
    for it in old {
        *left
            .entry((it.code, it.object.as_deref(), &it.message))
            .or_default() += 1;
    }
    for it in new {
        let count = left.get_mut(&(it.code, it.object.as_deref(), &*it.message));
        match count.filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => return true,
        }
    }
    false
}

/// Applies edits, which must be in order and must not overlap.
pub(super) fn edited(text: &str, cuts: &[TextEdit]) -> String {
    let mut edited = String::with_capacity(text.len());
    let mut at = 0;
    for cut in cuts {
        edited += text.get(at..cut.range.start).unwrap_or_default();
        edited += &cut.insert;
        at = cut.range.end;
    }
    edited += text.get(at..).unwrap_or_default();
    edited
}
