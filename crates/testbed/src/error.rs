//! The errors of a testbed, with the end of the logs.

use std::io;
use std::path::{Path, PathBuf};

use crate::binaries::Missing;

/// An error of a testbed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine lacks a program.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A file or directory could not be read or written.
    #[error("cannot {verb} `{}`", path.display())]
    File {
        /// The operation, as a verb.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A program could not be started.
    #[error("cannot run `{program}`")]
    Run {
        /// The program.
        program: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("`{program}` failed: {output}")]
    Failed {
        /// The program with its arguments.
        program: String,
        /// Its output.
        output: String,
    },
    /// A process ended unexpectedly.
    #[error("{process} has ended; its last lines:\n{log}")]
    Ended {
        /// The name of the process.
        process: String,
        /// The end of its log.
        log: String,
    },
    /// A timeout.
    #[error("timeout after {seconds} s waiting for {what}: {output}")]
    Timeout {
        /// The event.
        what: String,
        /// The timeout.
        seconds: u64,
        /// The last observation.
        output: String,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The request is not possible.
    #[error("{0}")]
    Refused(String),
}

/// The result of fallible functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds the file to an error of the system.
pub(crate) fn at(verb: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { verb, path, source }
}
