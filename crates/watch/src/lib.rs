//! Files that change: which there are, what they hold, and when to look again.
//!
//! [`list`](list::list) says which files a path stands for, [`Watch`] notices that something happened to
//! them, and [`Files`] holds what they said when they were last read well.

pub mod files;
pub mod list;
mod symlinks;
pub mod watch;

use std::io;
use std::path::PathBuf;

pub use files::{File, FileChanges, Files, Options, WaitResult};
pub use list::Listing;
pub use watch::{Notice, Stopper, Watch};

/// A path that somebody named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Root {
    /// A file or a directory.
    pub path: PathBuf,
    /// Whether the directories below it belong to it.
    pub recursive: bool,
}

/// Something that could not be opened, read or watched.
#[derive(Debug)]
pub struct AccessError {
    /// What.
    pub path: PathBuf,
    /// Why not.
    pub error: io::Error,
}

impl AccessError {
    /// Whether two troubles are one that goes on.
    fn is_same(&self, other: &AccessError) -> bool {
        let cause = |it: &AccessError| (it.error.kind(), it.error.raw_os_error());
        self.path == other.path && cause(self) == cause(other)
    }
}
