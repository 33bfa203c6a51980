//! Closes a node's pods and ends, for what comes before any agent does.

use palisade_nft::node::{Generation, NodeOptions, Senders, Settings, closed};
use palisade_nft::{Error as KernelError, Kernel};

use super::Error;
use crate::config::Config;

/// What the kernel of a node holds now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseOutcome {
    /// The closed table, which outlives us.
    Closed,
    /// What it held before: policies, which say more than that pods are closed.
    Enforced,
    /// What an agent that runs says.
    Busy,
}

/// Closes the blocks of the node's pods (D146) where no policies are enforced. The table has no owner when we have ended, and is
/// replaced by that of the next agent without a moment between.
pub fn close(config: &Config) -> Result<CloseOutcome, Error> {
    let mut kernel = Kernel::open()?;
    match kernel.adopt() {
        // A table without a generation is a closed one, perhaps for other blocks.
        Ok(true) if kernel.generation()?.is_some() => return Ok(CloseOutcome::Enforced),
        Ok(_) => {}
        Err(KernelError::Owned { .. }) => return Ok(CloseOutcome::Busy),
        Err(error) => return Err(error.into()),
    }
    let options = NodeOptions {
        mark: config.mark,
        // Routes come later: what reaches the node by another way than it would go is not refused.
        senders: Senders::Trusted,
        pod_blocks: config.pod_blocks.clone(),
        judge_own_node: config.judge_own_node,
        established: config.established,
    };
    kernel.install(&closed(&Settings::of_node(Generation::FIRST, &options)))?;
    Ok(CloseOutcome::Closed)
}
