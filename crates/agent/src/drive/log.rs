//! The log, for people.

use tracing::{debug, error, info, warn};

use crate::command::SyncOutcome;
use crate::files::ObjectErrors;

/// An error and what it comes from.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        words.push_str(": ");
        words.push_str(&error.to_string());
        source = error.source();
    }
    words
}

pub(super) fn log_errors(path: &str, faults: &ObjectErrors) {
    if faults.errors == 0 {
        info!("{path} has no errors any more");
        return;
    }
    for line in &faults.lines {
        error!("{line}");
    }
    if faults.is_kept {
        error!("{path} cannot be read; what it said before is still enforced");
    } else if faults.is_unreadable {
        error!("{path} has parts that cannot be read, and what they say is not enforced");
    } else {
        warn!("{path} has errors; the rules that have them fail closed");
    }
}

pub(super) fn log(happening: &SyncOutcome) {
    match happening {
        SyncOutcome::Installed {
            why,
            generation,
            latency: took,
        } => {
            let took = took.arrived;
            info!(?why, generation, ?took, "the table is in place");
        }
        SyncOutcome::Closed => {
            info!("nothing was enforced: pods of this node are closed until every object is known");
        }
        // Where pods come and go all the time, so do these.
        SyncOutcome::Changed {
            transactions,
            generation,
            took,
        } => {
            let took = took.arrived;
            debug!(transactions, generation, ?took, "the table was changed");
        }
        SyncOutcome::Unaffected => debug!("nothing that this node enforces has changed"),
        SyncOutcome::Drifted(words) => {
            for words in words {
                warn!("somebody else changed what we enforce: {words}");
            }
        }
        SyncOutcome::Verified => debug!("the table is as it should be"),
        SyncOutcome::MarksCleared(range) => debug!(?range, "old marks were forgotten"),
        SyncOutcome::AddressesCleared(addresses) => {
            debug!(
                addresses,
                "connections of addresses that changed hands are judged anew"
            );
        }
        SyncOutcome::Failed {
            what,
            why,
            again_in,
            times,
        } => error!(times, ?again_in, "cannot {what}: {why}"),
    }
}
