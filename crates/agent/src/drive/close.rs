//! Closes a node's pods without an agent, for the boot of the node.

use super::Error;
use crate::backend::{AdoptError, Connect, Leftover, NodeSettings, Senders};
use crate::config::Config;

/// The state of the node after a call of [`close`].
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
pub fn close(backend: &impl Connect, config: &Config) -> Result<CloseOutcome, Error> {
    let mut enforcer = backend.open().map_err(Error::Backend)?;
    match enforcer.adopt() {
        // A closed table is replaced: it may be for other blocks.
        Ok(Leftover::Nothing | Leftover::Closed) => {}
        Ok(Leftover::Rules(_)) => return Ok(CloseOutcome::Enforced),
        Err(AdoptError::Busy(_)) => return Ok(CloseOutcome::Busy),
        Ok(Leftover::Unreadable(error)) | Err(AdoptError::Failed(error)) => {
            return Err(Error::Backend(error));
        }
    }
    let settings = NodeSettings {
        // At boot there are no routes yet. A check of source addresses would drop packets to the
        // node itself.
        senders: Senders::Trusted,
        pod_blocks: config.pod_blocks.clone(),
        evaluate_own_node: config.evaluate_own_node,
        established: config.established,
    };
    let rules = backend.closed(&settings);
    enforcer.install(&rules).map_err(Error::Backend)?;
    Ok(CloseOutcome::Closed)
}
