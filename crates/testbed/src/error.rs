//! What can go wrong with a testbed, with enough of the logs to see why.

use std::io;
use std::path::{Path, PathBuf};

use crate::binaries::Missing;

/// Why a testbed could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something that has to be on the machine is not.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A file or directory could not be read or written.
    #[error("cannot {deed} `{}`", path.display())]
    File {
        /// What was tried, as a verb.
        deed: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A program could not be started.
    #[error("cannot run `{program}`")]
    Run {
        /// The program.
        program: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A program said no.
    #[error("`{program}` failed: {said}")]
    Failed {
        /// The program with its arguments.
        program: String,
        /// What it wrote.
        said: String,
    },
    /// A process ended that should have gone on.
    #[error("{process} has ended; its last lines:\n{log}")]
    Ended {
        /// The name of the process.
        process: String,
        /// The end of its log.
        log: String,
    },
    /// Something did not happen in time.
    #[error("{what} is not there after {seconds} s: {said}")]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
        /// What was seen last.
        said: String,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// What was asked for is not possible.
    #[error("{0}")]
    Refused(String),
}

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says which file an error of the system is about.
pub(crate) fn at(deed: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { deed, path, source }
}
