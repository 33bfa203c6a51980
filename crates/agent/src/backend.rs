//! The seam between the agent and what enforces policies on its node.
//!
//! A [`Backend`] turns the plan of a node into rules, and changes of the plan into steps, as
//! values: the agent decides with it without I/O. A [`Connect`] is a backend that also reaches what
//! enforces. [`nft`] is the kernel's nftables; the unit tests have one in memory.

#[cfg(test)]
pub(crate) mod memory;
pub mod nft;

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use palisade_core::net::Cidr;
use palisade_core::plan::{Generation, Plan, PlanChange};
use palisade_route::Flowtable;

use crate::command::{AuditOutcome, MarksToClear};
use crate::config::Established;

/// What the rules of a node depend on, apart from its plan and the generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// How source addresses are checked (D147).
    pub senders: Senders,
    /// Blocks whose addresses only pods of this node have. Without any, addresses of unknown pods
    /// are not dropped (D84).
    pub pod_blocks: Vec<Cidr>,
    /// Whether connections from pods to this node itself are evaluated (D75).
    pub evaluate_own_node: bool,
    /// How established connections are treated after a change.
    pub established: Established,
}

/// How source addresses are checked (D147).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Senders {
    /// A packet must arrive on the interface through which its source address is reached.
    Checked {
        /// The names of the interfaces that do not lead to pods of this node.
        elsewhere: BTreeSet<String>,
        /// Whether packets of evaluated connections are checked as well.
        every: bool,
    },
    /// Source addresses are not checked.
    Trusted,
}

/// A change of installed rules.
#[derive(Clone, Copy, Debug)]
pub struct RulesChange<'c> {
    /// The change of the plan.
    pub plan: &'c PlanChange,
    /// The interfaces that do not lead to pods of this node, if they have changed.
    pub elsewhere: Option<&'c BTreeSet<String>>,
    /// The new generation, if connections must be evaluated again.
    pub generation: Option<Generation>,
}

/// The installed rules cannot be changed in place: all rules must be installed anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NotInPlace;

/// Turns plans into rules. It does no I/O.
pub trait Backend: Clone + fmt::Debug + Eq + 'static {
    /// All rules of a node.
    type Rules: Clone + fmt::Debug + Eq;
    /// A part of a change that takes effect as a whole or not at all.
    type Step: Clone + fmt::Debug + Eq;
    /// The rules that an audit must find.
    type Expected: Clone + fmt::Debug + Eq + Send;
    /// The state of the installed rules that their changes depend on.
    type Installed: fmt::Debug;

    /// Returns the largest number of a generation.
    fn last_generation(&self) -> u16;

    /// Returns the rules that close the node's pods until all objects are synced (D146).
    fn closed(&self, settings: &NodeSettings) -> Self::Rules;

    /// Returns the rules of a plan, and the state that they are in once they are installed.
    fn rules(
        &self,
        plan: &Plan,
        settings: &NodeSettings,
        generation: Generation,
    ) -> (Self::Installed, Self::Rules);

    /// Returns the steps of a change. Each may begin when the one before has succeeded. If one
    /// fails, or the change cannot be made in place, the state is of no use any more.
    fn change(
        &self,
        installed: &mut Self::Installed,
        change: RulesChange<'_>,
    ) -> Result<Vec<Self::Step>, NotInPlace>;

    /// Returns the rules that an audit must find for the current plan. It is cheap: the audit makes
    /// what is large of it.
    fn expected(&self, installed: &Self::Installed, plan: Plan) -> Self::Expected;
}

/// Why something that enforces failed.
pub type Failure = Box<dyn Error + Send + Sync>;

/// A backend that reaches what enforces: a kernel, a switch.
pub trait Connect: Backend {
    /// Opens a handle for changes only.
    fn open(&self) -> Result<Box<dyn Enforcer<Self>>, Failure>;

    /// Opens all handles.
    fn connect(&self) -> Result<Handles<Self>, Failure>;

    /// Deletes everything of Palisade.
    fn clean_up(&self) -> Result<Removed, Failure>;
}

/// The handles of one node. They are used side by side: no change waits for an audit or for the
/// clearing of marks.
#[allow(missing_debug_implementations, reason = "handles have nothing to show")]
pub struct Handles<B: Backend> {
    /// Changes the rules.
    pub enforcer: Box<dyn Enforcer<B>>,
    /// Reports changes by other programs. It is subscribed already: none is missed from here on.
    pub watcher: Box<dyn Watcher>,
    /// Compares the rules with the expected ones.
    pub auditor: Box<dyn Auditor<B>>,
    /// Clears marks of connections.
    pub clearer: Box<dyn MarkClearer>,
}

/// Changes the rules of a node.
pub trait Enforcer<B: Backend>: Send {
    /// Takes over the rules that an earlier process left. Must come before any change: their
    /// generation must be known.
    fn adopt(&mut self) -> Result<Leftover, AdoptError>;

    /// Installs rules in place of the installed ones, without a gap. After an error the previous
    /// rules enforce, or both do.
    fn install(&mut self, rules: &B::Rules) -> Result<(), Failure>;

    /// Carries out a step of a change of the installed rules.
    fn commit(&mut self, step: &B::Step) -> Result<(), Failure>;

    /// Returns the place of the installed rules, for an audit; `None`: nothing was installed yet.
    fn place(&self) -> Option<String>;

    /// Returns the number of tracked connections and its limit, if known.
    fn connections(&mut self) -> Option<(u32, u32)>;

    /// Returns the flowtables of all programs. Packets in them do not meet the rules.
    fn flowtables(&self) -> Result<Vec<Flowtable>, Failure>;
}

/// Reports changes of Palisade's rules by other programs.
pub trait Watcher: Send {
    /// Returns the next notice, if there is one within the timeout.
    fn next(&mut self, timeout: Duration) -> Result<Option<Notice>, Failure>;
}

/// Compares installed rules with the expected ones.
pub trait Auditor<B: Backend>: Send {
    /// Compares everything, or what follows `from`. Where it can resume later, it calls `go_on`,
    /// and stops there if that returns `false`.
    fn audit(
        &mut self,
        place: Option<&str>,
        expected: &B::Expected,
        from: Option<&str>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<AuditOutcome, Failure>;
}

/// Clears marks of connections, which are then evaluated again.
pub trait MarkClearer: Send {
    /// Clears the marks of all of these connections.
    fn clear(&mut self, marks: &MarksToClear) -> Result<(), Failure>;
}

/// A change by another program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Palisade's rules were changed; the text says what.
    Changed(String),
    /// Notices were lost: any change is possible.
    Lost,
}

/// The rules that an earlier process left.
#[derive(Debug)]
pub enum Leftover {
    /// There are none: the node's pods are open.
    Nothing,
    /// Rules that close the node's pods, without a generation.
    Closed,
    /// Rules of this generation; `None`: its number is invalid.
    Rules(Option<Generation>),
    /// Rules whose generation cannot be read.
    Unreadable(Failure),
}

/// Why the rules that an earlier process left cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// Another process has them.
    #[error(transparent)]
    Busy(Failure),
    /// They cannot be read or changed.
    #[error(transparent)]
    Failed(Failure),
}

/// What [`Connect::clean_up`] has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The number of tables.
    pub tables: usize,
    /// The number of connections that had a mark.
    pub connections: usize,
}
