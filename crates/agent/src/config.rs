//! What an agent is configured with.

use std::hash::{BuildHasher as _, RandomState};

use palisade_core::budget::Budget;
use palisade_core::incremental::HashKey;
use palisade_core::net::Cidr;
use palisade_core::plan::SHARE_FROM;
use palisade_nft::node::{Established, MarkBits};
use palisade_nft::update::PIECE;

/// What an agent is told when it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node that it runs on.
    pub node: String,
    /// What becomes of connections that the policies do not allow any more.
    pub established: Established,
    /// What becomes of packets of pods that nobody knows yet (D84).
    pub unknown_pods: UnknownPods,
    /// What becomes of packets of this node's pods while not every object is known and nothing is enforced (D146).
    pub boot: BootPolicy,
    /// What becomes of packets whose sender is not who they say (D147).
    pub false_senders: FalseSenders,
    /// What is made of programs of eBPF on the way to pods (D103).
    pub programs: Programs,
    /// What the NetworkPolicies of each namespace may be together (D148).
    pub budget: Budget,
    /// The blocks that only pods of this node have addresses of; none: those that its Node object
    /// names.
    pub pod_blocks: Vec<Cidr>,
    /// Whether connections from pods to this node itself are judged (D75).
    pub judge_own_node: bool,
    /// The bits of the connection's mark that are ours.
    pub mark: MarkBits,
    /// How many elements and rules are changed at once, where they need not be changed at one moment.
    pub piece: usize,
    /// The key of its hashes. Nobody who names objects may know it.
    pub hash_key: HashKey,
    /// How many members groups have at least that are told as one where they have the same.
    pub share_from: usize,
}

impl Config {
    /// What holds unless something else is said; the key is a random one.
    pub fn new(node: &str) -> Config {
        Config {
            node: node.to_owned(),
            established: Established::Judge,
            unknown_pods: UnknownPods::Drop,
            boot: BootPolicy::Closed,
            false_senders: FalseSenders::Drop,
            programs: Programs::Refuse,
            budget: Budget::default(),
            pod_blocks: Vec::new(),
            judge_own_node: true,
            mark: MarkBits::DEFAULT,
            piece: PIECE,
            hash_key: random_key(),
            share_from: SHARE_FROM,
        }
    }
}

/// A key that nobody knows.
fn random_key() -> HashKey {
    let random = RandomState::new();
    HashKey::new(random.hash_one(0_u64), random.hash_one(1_u64))
}

/// What becomes of packets of local addresses that no known pod has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UnknownPods {
    /// They are dropped.
    Drop,
    /// They pass.
    Allow,
}

/// What becomes of packets of this node's pods while not every object is known and nothing is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BootPolicy {
    /// They are dropped, but for answers of established connections and what the node itself sends.
    Closed,
    /// They pass.
    Open,
}

/// What becomes of packets that come from another interface than their sender's address is reached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FalseSenders {
    /// They are dropped, unless they belong to a connection that was judged.
    Drop,
    /// All of them are dropped, for which every packet has to be asked.
    DropEvery,
    /// They are judged as whoever they say.
    Allow,
}

/// What is made of programs of eBPF on the way to pods, which may send packets past netfilter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Programs {
    /// The agent is not ready while there is one.
    Refuse,
    /// Somebody knows that they do not.
    Allow,
}
