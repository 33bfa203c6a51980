//! A node on which nothing is enforced and of whose objects not all are known yet (D146).

use palisade_core::plan::Plan;

use super::base::{established, fast_paths};
use super::{Settings, ruleset};
use crate::load::GENERATION_SET;
use crate::ruleset::{Name, Ruleset};

/// The closed table: no pod is known, so that all addresses of the node's blocks are those of unknown pods, and what they
/// send or are sent is dropped. Only connections that are established go on, which have begun before, and what the node
/// itself has to do with its pods, which no table of ours judges (D74).
///
/// It is of no generation. No connection is marked as judged under it, and nobody knows yet which marks there are: the next
/// process must not believe that it does.
pub fn closed(settings: &Settings) -> Ruleset {
    let mut closed = ruleset(&Plan::default(), settings);
    let fast_paths = fast_paths(settings);
    let rules = closed.chains.iter_mut().flat_map(|it| &mut it.rules);
    for rule in rules.filter(|it| fast_paths.contains(it)) {
        *rule = established();
    }
    let generation = Name::word(GENERATION_SET);
    for set in &mut closed.sets {
        if set.name == generation {
            set.keys.clear();
        }
    }
    closed
}
