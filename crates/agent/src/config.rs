//! The configuration of an agent.

use std::hash::{BuildHasher as _, RandomState};

use palisade_core::budget::Budget;
use palisade_core::incremental::HashKey;
use palisade_core::net::Cidr;
use palisade_core::plan::SHARE_FROM;

/// The settings with which an agent starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// The name of the node whose policies are enforced.
    pub node: String,
    /// Whether established connections stop or continue when they are no longer allowed (D94).
    pub established: Established,
    /// Whether packets of unknown pods are dropped (D84).
    pub unknown_pods: UnknownPods,
    /// Whether this node's pods are closed while no table is installed and objects are missing
    /// (D146).
    pub boot: BootPolicy,
    /// Whether packets with a false source address are dropped (D147).
    pub false_senders: FalseSenders,
    /// Whether eBPF programs on the path to pods make the agent not ready (D103).
    pub programs: Programs,
    /// The budget for the NetworkPolicies of each namespace (D148).
    pub budget: Budget,
    /// The address blocks that only pods of this node have; empty: those of its Node object.
    pub pod_blocks: Vec<Cidr>,
    /// Whether policies apply to connections from pods to this node itself (D75).
    pub evaluate_own_node: bool,
    /// The key of its hashes. It must be secret from the authors of objects, who could otherwise
    /// choose names that collide.
    pub hash_key: HashKey,
    /// The number of members from which groups with the same members are merged.
    pub share_from: usize,
}

impl Config {
    /// Returns the default settings of a node, with a random hash key.
    pub fn new(node: &str) -> Config {
        Config {
            node: node.to_owned(),
            established: Established::Evaluate,
            unknown_pods: UnknownPods::Drop,
            boot: BootPolicy::Closed,
            false_senders: FalseSenders::Drop,
            programs: Programs::Refuse,
            budget: Budget::default(),
            pod_blocks: Vec::new(),
            evaluate_own_node: true,
            hash_key: random_key(),
            share_from: SHARE_FROM,
        }
    }
}

/// Returns a random key.
fn random_key() -> HashKey {
    // The standard library has no other source of randomness: SipHash of two constants, under keys
    // that it takes from the system.
    let random = RandomState::new();
    HashKey::new(random.hash_one(0_u64), random.hash_one(1_u64))
}

/// Handling of established connections after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Established {
    /// Their next packet is evaluated by the new rules (D94).
    Evaluate,
    /// They continue until they end, whatever generation evaluated them. The marks of connections
    /// of addresses that change hands are cleared.
    Keep,
}

/// Handling of packets of local addresses that no known pod has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnknownPods {
    /// Drops them.
    Drop,
    /// Lets them pass.
    Allow,
}

/// Handling of packets of this node's pods while no table is installed and objects are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BootPolicy {
    /// Drops them, but for replies of established connections and what the node itself sends.
    Closed,
    /// Lets them pass.
    Open,
}

/// Handling of packets that arrive on another interface than their source address is reached
/// through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FalseSenders {
    /// Drops them, unless they belong to an evaluated connection.
    Drop,
    /// Drops all of them. Every packet is checked, which costs time.
    DropEvery,
    /// Evaluates them by their source address, without a check.
    Allow,
}

/// Handling of eBPF programs on the path to pods, which may send packets past netfilter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Programs {
    /// The agent is not ready while there is one.
    Refuse,
    /// The operator knows that they leave packets to netfilter.
    Allow,
}
