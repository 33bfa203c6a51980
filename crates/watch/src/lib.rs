//! Files that change: which exist, what they contain, and when to read them again.
//!
//! [`list`](list::list) lists the files of a path, [`Watch`] notices changes, and [`Files`] has the
//! contents of the last successful read.

pub mod files;
pub mod list;
mod symlinks;
pub mod watch;

use std::io;
use std::path::PathBuf;

pub use files::{File, FileChanges, Files, Options, WaitResult};
pub use list::Listing;
pub use watch::{Notice, Stopper, Watch};

/// A path named by the user.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Root {
    /// A file or a directory.
    pub path: PathBuf,
    /// Whether to read the directories below it, too.
    pub recursive: bool,
}

/// Something that could not be opened, read or watched.
#[derive(Debug)]
pub struct AccessError {
    /// Its path.
    pub path: PathBuf,
    /// The cause.
    pub error: io::Error,
}

impl AccessError {
    /// Returns whether two errors are the same one that lasts.
    fn is_same(&self, other: &AccessError) -> bool {
        let cause = |it: &AccessError| (it.error.kind(), it.error.raw_os_error());
        self.path == other.path && cause(self) == cause(other)
    }
}
