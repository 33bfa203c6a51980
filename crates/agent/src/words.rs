//! What an agent is told, what it wants done, and what it says has happened.

use std::collections::BTreeSet;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use palisade_core::budget::Budget;
use palisade_core::live::HashKey;
use palisade_core::net::Cidr;
use palisade_core::plan::SHARE_FROM;
use palisade_nft::node::{Established, MarkBits};
use palisade_nft::ruleset::Ruleset;
use palisade_nft::transaction::Transaction;
use palisade_nft::upkeep::{Expected, PIECE};

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
    pub boot: Boot,
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
            boot: Boot::Closed,
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
pub enum Boot {
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

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This; [`Agent::finished`](crate::Agent::finished) takes how it went.
    Do(Command),
    /// This, in the background; [`Agent::task_finished`](crate::Agent::task_finished) takes what came of it.
    Spawn(Task),
    /// Nothing, until something happens or until this time; `None`: whatever the time is.
    Wait(Option<Duration>),
}

/// Something to be done in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Put a ruleset in place of whatever enforces.
    Install(Box<Ruleset>),
    /// Change the table that enforces, one transaction after the other, up to the first that fails.
    Commit(Vec<Transaction>),
}

/// Something that reads whole tables of the kernel, which takes seconds where they are large. Commands go on meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Forget marks of connections.
    Forget(Marked),
    /// Compare the table that enforces with what it should hold.
    Audit {
        /// What it should hold.
        expected: Box<Expected>,
        /// The set to go on from; `None`: everything is compared.
        from: Option<String>,
    },
}

/// Connections whose marks have to be forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marked {
    /// Those that were judged under these generations.
    Generations(RangeInclusive<u16>),
    /// Those of these addresses.
    Addresses(BTreeSet<IpAddr>),
}

/// What came of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskOutcome {
    /// Marks were forgotten.
    Forget(Result<(), Failed>),
    /// The table was compared.
    Audit(Result<Compared, Failed>),
}

/// What came of comparing the table that enforces with what it should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// What is different, in words.
    pub differences: Vec<String>,
    /// The set that it has to go on from, if it ended early.
    pub stopped_at: Option<String>,
}

/// Why a command could not be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub String);

/// Something that happened, for whoever writes it down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A whole table was put in place.
    Installed {
        /// Why.
        why: Why,
        /// The generation.
        generation: u16,
        /// How long its changes had to wait.
        took: Took,
    },
    /// The node's pods were closed until every object is known.
    Closed,
    /// The table was changed.
    Changed {
        /// How many transactions it took.
        transactions: usize,
        /// The generation, if connections are judged anew.
        generation: Option<u16>,
        /// How long its changes had to wait.
        took: Took,
    },
    /// The objects changed, but nothing that this node enforces.
    Unaffected,
    /// Somebody else changed the table, which is put in place again.
    Drifted(Vec<String>),
    /// The kernel was asked, and the table is as it should be.
    Audited,
    /// Old marks were forgotten.
    Forgot(RangeInclusive<u16>),
    /// The marks of all connections of so many addresses were forgotten.
    LetGo(usize),
    /// A command failed.
    Failed {
        /// What was to be done.
        what: &'static str,
        /// Why it failed.
        why: String,
        /// When it is tried again.
        again_in: Duration,
        /// How often it has failed since it last worked.
        times: u32,
    },
}

/// How long changes had to wait for the kernel's yes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// Since the first of them came.
    pub arrived: Duration,
    /// Since the first of them was written, as far as objects say.
    pub written: Option<Duration>,
    /// Since each pod of this node that was programmed came with its address, or changed.
    pub pods: Vec<Duration>,
}

/// Why a whole table is put in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The agent has started.
    Start,
    /// Somebody asked for it.
    Asked,
    /// Somebody else changed the table.
    Drift,
    /// A change failed, so that nobody knows what the table holds.
    Failure,
    /// A change does not fit into the table, or cannot be made in place.
    Growth,
    /// What the table depends on beside the plan has changed.
    Settings,
}
