//! Proves that a fix changes the model as planned and changes no verdict.

use std::collections::HashMap;

use palisade_api::{Manifests, SourceId, lower_within};
use palisade_core::analysis::connect::diff::{Limits, Version, diff};
use palisade_core::compile::compile;
use palisade_core::model::Cluster;
use palisade_core::program::RulePlace;

use super::Fix;
use crate::edit::TextEdit;
use crate::edit::input::EditInput;
use crate::live::overlay::read_over;

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
pub(super) fn prove(known: &EditInput<'_>, fixes: &[Fix]) -> Result<(), &'static str> {
    let mut edits: HashMap<SourceId, Vec<TextEdit>> = HashMap::new();
    for fix in fixes {
        let of_source = edits.entry(fix.source).or_default();
        of_source.extend(fix.cuts.iter().cloned());
    }
    let sources = known.edited(edits);
    let n_live = sources.len().saturating_sub(known.n_files);
    let Manifests {
        objects, problems, ..
    } = read_over(&sources, n_live, known.options, &|_| {});
    if objects.len() != known.objects.len() {
        return Err("its removal changes which objects are read");
    }
    let lowered = lower_within(&objects, known.learned.to_vec(), known.budget);
    if known.has_new(problems.iter().chain(&lowered.problems)) {
        return Err("its removal causes a new problem");
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
        Err("its removal would change a verdict")
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
