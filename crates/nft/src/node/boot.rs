//! A node on which nothing is enforced and of whose objects not all are known yet (D146).

use palisade_core::plan::Plan;

use super::base_chains::{established_answers, fast_paths};
use super::{Settings, ruleset};
use crate::load::GENERATION_SET;
use crate::ruleset::{Name, Ruleset};

/// The closed table: no pod is known, so that all addresses of the node's blocks are those of unknown pods, and what they
/// send or are sent is dropped. Only answers of established connections pass, so that pods can answer their node, whose own
/// packets no table of ours evaluates (D74).
///
/// Both directions of established connections would be too much: where pods started before the agent, what the policies
/// deny may have begun, and would go on for as long as the API server is away.
///
/// It is of no generation. No connection is marked as judged under it, and nobody knows yet which marks there are: the next
/// process must not believe that it does.
pub fn closed(settings: &Settings) -> Ruleset {
    let mut closed = ruleset(&Plan::default(), settings);
    let fast_paths = fast_paths(settings);
    let rules = closed.chains.iter_mut().flat_map(|it| &mut it.rules);
    for rule in rules.filter(|it| fast_paths.contains(it)) {
        *rule = established_answers();
    }
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

    /// Nobody knows which marks there are: none may let anything pass, and no next process may go on from a generation.
    #[test]
    fn no_mark_counts_and_no_generation_is_said() {
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
