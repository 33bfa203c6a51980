//! `palisade version`.

use std::io::Write;

use crate::Outcome;

/// Prints the version.
pub(crate) fn run() -> anyhow::Result<Outcome> {
    writeln!(std::io::stdout(), "palisade {}", env!("CARGO_PKG_VERSION"))?;
    Ok(Outcome::Clean)
}
