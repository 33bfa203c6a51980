//! The log lines of outcomes and errors.

use tracing::{debug, error, info, warn};

use crate::command::SyncOutcome;
use crate::files::ObjectErrors;

/// Joins an error and its sources.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

pub(super) fn log_errors(path: &str, faults: &ObjectErrors) {
    if faults.errors == 0 {
        info!("{path} has no more errors");
        return;
    }
    // At most `MOST_LINES`: a hostile file must not fill the log.
    for line in &faults.lines {
        error!("{line}");
    }
    if faults.is_kept {
        error!("cannot read {path}; its previous content stays enforced");
    } else if faults.is_unreadable {
        error!("cannot read parts of {path}; they are not enforced");
    } else {
        warn!("{path} has errors; the affected rules fail closed");
    }
}

pub(super) fn log(outcome: &SyncOutcome) {
    match outcome {
        SyncOutcome::Installed {
            why,
            generation,
            latency,
        } => {
            let latency = latency.arrived;
            info!(?why, generation, ?latency, "table installed");
        }
        SyncOutcome::Closed => {
            info!("no table installed; pods of this node are closed until all objects are synced");
        }
        // Too frequent for `info` where pods come and go all the time.
        SyncOutcome::Changed {
            transactions,
            generation,
            took,
        } => {
            let latency = took.arrived;
            debug!(transactions, generation, ?latency, "table updated");
        }
        SyncOutcome::Unaffected => debug!("no change for this node"),
        SyncOutcome::Drifted(changes) => {
            for change in changes {
                warn!("another program changed the table: {change}");
            }
        }
        SyncOutcome::Verified => debug!("table verified"),
        SyncOutcome::MarksCleared(range) => debug!(?range, "stale marks cleared"),
        SyncOutcome::AddressesCleared(addresses) => {
            debug!(addresses, "marks of reassigned addresses cleared");
        }
        SyncOutcome::Failed {
            what,
            why,
            again_in,
            times,
        } => error!(attempts = times, retry_in = ?again_in, "cannot {what}: {why}"),
    }
}
