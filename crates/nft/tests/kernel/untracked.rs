//! Untracked connections that the node's settings name, with packets. The agent has no option for
//! them: no other test has this chain in a kernel.

use std::sync::Arc;

use palisade_core::net::Family;
use palisade_core::plan::{MergedUnion, PodChains, RuleChain, RuleChainId};
use palisade_core::policy::{Direction, Verdict};
use palisade_nft::node::ruleset;
use palisade_nft::ruleset::{Chain, Hook, Match, Name, Point, Ruleset, Statement};

use crate::Test;
use crate::node::{A, B, Checks, NODE, Node, address, open_plan, settings};
use crate::rules::rule;

pub(crate) const TESTS: &[Test] = &[(
    "untracked::flows_pass_if_they_are_named",
    flows_pass_if_they_are_named,
)];

const RESOLVER: u16 = 53;
const OTHER: u16 = 54;

/// Keeps two ports out of connection tracking, as a resolver on the node does.
fn untrack() -> Ruleset {
    let matches = [Match::L4(17), Match::HeaderPort(RESOLVER, OTHER)];
    Ruleset {
        table: Name::word("untrack"),
        sets: Vec::new(),
        chains: vec![Chain {
            name: Name::word("prerouting"),
            hook: Some(Hook {
                point: Point::Prerouting,
                priority: -300,
                nat: false,
            }),
            rules: vec![rule(&matches, &[Statement::Notrack])],
        }],
    }
}

/// `B` has no egress. Untracked packets pass an isolated pod only if the settings name them.
fn flows_pass_if_they_are_named() {
    let mut plan = open_plan();
    let nothing = RuleChain {
        direction: Direction::Egress,
        admin: Vec::new(),
        merged: MergedUnion::default(),
        rest: Vec::new(),
        verdict: Verdict::Deny,
    };
    plan.chains.insert(RuleChainId(0), Arc::new(nothing));
    let mut named = settings(Checks::None);
    for family in Family::BOTH {
        let (b, node) = (address(B, family), address(NODE, family));
        let pod_chains = PodChains {
            egress: Some(RuleChainId(0)),
            ingress: None,
        };
        plan.pods.insert(b, pod_chains);
        named.untracked.push((b, node, 17, RESOLVER));
    }
    let mut node = Node::build();
    node.kernel.install_plain(&untrack()).unwrap();
    for (settings, is_named) in [(settings(Checks::None), false), (named, true)] {
        node.install(&ruleset(&plan, &settings));
        for family in Family::BOTH {
            let (a, b) = (address(A, family), address(B, family));
            assert_eq!(node.passes(B, b, NODE, RESOLVER), is_named, "{family}");
            assert!(!node.passes(B, b, NODE, OTHER), "{family}");
            assert!(!node.passes(B, b, A, RESOLVER), "{family}");
            // No policy selects A.
            assert!(node.passes(A, a, NODE, OTHER), "{family}");
        }
    }
}
