//! Closes a node's pods without an agent, for the boot of the node.

use palisade_nft::node::{Generation, NodeOptions, Senders, Settings, closed};
use palisade_nft::{Error as KernelError, Kernel};

use super::Error;
use crate::config::Config;

/// The state of the kernel after a call of [`close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseOutcome {
    /// The closed table is installed, and outlives the process.
    Closed,
    /// Policies were enforced already. They do more than a closed table, and stay.
    Enforced,
    /// An agent is running, and its table stays.
    Busy,
}

/// Closes the blocks of the node's pods where no policies are enforced (D146). The table has no
/// owner after the process has ended. The next agent replaces it without a gap.
pub fn close(config: &Config) -> Result<CloseOutcome, Error> {
    let mut kernel = Kernel::open()?;
    match kernel.adopt() {
        // Only a closed table has no generation. It is replaced: it may be for other blocks.
        Ok(true) if kernel.generation()?.is_some() => return Ok(CloseOutcome::Enforced),
        Ok(_) => {}
        Err(KernelError::Owned { .. }) => return Ok(CloseOutcome::Busy),
        Err(error) => return Err(error.into()),
    }
    let options = NodeOptions {
        mark: config.mark,
        // At boot there are no routes yet. A check of source addresses would drop packets to the
        // node itself.
        senders: Senders::Trusted,
        pod_blocks: config.pod_blocks.clone(),
        judge_own_node: config.judge_own_node,
        established: config.established,
    };
    kernel.install(&closed(&Settings::of_node(Generation::FIRST, &options)))?;
    Ok(CloseOutcome::Closed)
}
