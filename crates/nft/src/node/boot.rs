//! The closed table, for a node without an installed table whose objects are not all listed (D146).

use palisade_core::plan::Plan;

use super::base_chains::{established_answers, fast_paths};
use super::{Settings, ruleset};
use crate::load::GENERATION_SET;
use crate::ruleset::{Name, Ruleset};

/// Makes the closed table. It knows no pod: every address of the node's blocks is that of an
/// unknown pod, whose traffic is dropped. Only replies of established connections pass, with which
/// pods answer their node; the node's own packets pass no chain (D74).
pub fn closed(settings: &Settings) -> Ruleset {
    let mut closed = ruleset(&Plan::default(), settings);
    let fast_paths = fast_paths(settings);
    let rules = closed.chains.iter_mut().flat_map(|it| &mut it.rules);
    // A fast path accepts both directions of a connection with a mark. Where pods started before
    // the agent, connections may exist that the policies deny: they must not go on for as long as
    // the API server is away.
    for rule in rules.filter(|it| fast_paths.contains(it)) {
        *rule = established_answers();
    }
    // No generation: no connection is marked under this table, and no process knows which marks
    // exist. The next one must not trust them.
    let generation = Name::word(GENERATION_SET);
    for set in &mut closed.sets {
        if set.name == generation {
            set.keys.clear();
        }
    }
    closed
}

#[cfg(test)]
mod tests {
    use palisade_core::net::Cidr;

    use super::closed;
    use crate::node::{Generation, NodeOptions, Settings};
    use crate::ruleset::Match;

    /// No process knows which marks exist: no packet may pass because of one, and the next process
    /// must not continue from a generation.
    #[test]
    fn the_closed_table_has_no_generation_and_accepts_no_mark() {
        let block = Cidr::new([10, 0, 1, 0].into(), 24);
        let options = NodeOptions {
            pod_blocks: block.into_iter().collect(),
            ..NodeOptions::default()
        };
        let table = closed(&Settings::of_node(Generation::FIRST, &options));
        let hooked = table.chains.iter().filter(|it| it.hook.is_some());
        let firsts: Vec<_> = hooked.filter_map(|it| it.rules.first()).collect();
        assert_eq!(firsts.len(), 2);
        for rule in firsts {
            let matches = &rule.matches[..];
            let is_answer = matches!(matches, [Match::CtState(_), Match::CtIsReply(true)]);
            assert!(is_answer, "{rule:?}");
        }
        let generation = table
            .sets
            .iter()
            .find(|it| it.name.to_string() == "generation");
        assert!(generation.is_some_and(|it| it.keys.is_empty()));
    }
}
