//! The stamp of a file: metadata that shows whether it changed since it was read.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::list::read_file;

/// The metadata of a file that changes with its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// Whether every later content has another stamp.
    is_sure: bool,
    /// Whether the file can be read only once: a pipe or a device.
    is_final: bool,
}

/// The clock of a file system may stand still for this time: a write in it has the time of the
/// state before it.
const TICK: Duration = Duration::from_millis(50);

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        let seconds = u64::try_from(metadata.ctime()).unwrap_or_default();
        let nanoseconds = u32::try_from(metadata.ctime_nsec()).unwrap_or_default();
        let since = Duration::new(seconds, nanoseconds);
        let changed = SystemTime::UNIX_EPOCH.checked_add(since);
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            // By the change time: unlike the modification time, programs cannot set it.
            is_sure: changed
                .and_then(|changed| SystemTime::now().duration_since(changed).ok())
                .is_some_and(|age| age > TICK),
            is_final: !metadata.is_file(),
        }
    }

    /// Returns whether the file cannot be read again.
    pub(super) fn is_final(&self) -> bool {
        self.is_final
    }

    fn is_same(&self, other: &Stamp) -> bool {
        let marks = |it: &Stamp| (it.device, it.inode, it.size, it.modified, it.changed);
        marks(self) == marks(other)
    }
}

/// The result of [`read`].
pub(super) enum ReadOutcome {
    /// The file is unchanged.
    Same(Stamp),
    /// The contents, which may be the same as before.
    New(Vec<u8>, Stamp),
}

/// Reads a file, unless its stamp shows that it is unchanged.
pub(super) fn read(
    path: &Path,
    known: Option<&Stamp>,
    most_bytes: usize,
) -> io::Result<ReadOutcome> {
    if let Some(known) = known {
        if known.is_final {
            return Ok(ReadOutcome::Same(*known));
        }
        let now = Stamp::of(&std::fs::metadata(path)?);
        if known.is_sure && known.is_same(&now) {
            return Ok(ReadOutcome::Same(*known));
        }
    }
    let file = File::open(path)?;
    // Before the contents: a write during the read then changes the stamp.
    let stamp = Stamp::of(&file.metadata()?);
    let bytes = read_file(&file, most_bytes)?;
    Ok(ReadOutcome::New(bytes, stamp))
}
