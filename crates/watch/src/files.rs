//! The contents of files, as of their last successful read.

mod stamp;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::stamp::{ReadOutcome, Stamp, read};
use crate::list::{Listing, list};
use crate::watch::{Notice, Stopper, Watch};
use crate::{AccessError, Root};

/// The timing and limits of [`Files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Files are read after this time without a change: a writer must be able to finish.
    pub quiet: Duration,
    /// They are read after this time even if changes continue.
    pub most_quiet: Duration,
    /// Everything is checked at this interval, with or without a notification.
    pub look_every: Duration,
    /// A file is read up to the first byte after this many. The consumer reports it as too large.
    pub most_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            quiet: Duration::from_millis(20),
            most_quiet: Duration::from_millis(200),
            look_every: Duration::from_secs(10),
            most_bytes: 1 << 30,
        }
    }
}

/// A file as it was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path, with the root as the user named it.
    pub path: PathBuf,
    /// The index of its root.
    pub root: usize,
    /// Its contents.
    pub bytes: Arc<Vec<u8>>,
}

/// The changes since the last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileChanges {
    /// Files that are new or have new contents, sorted.
    pub changed: Vec<PathBuf>,
    /// Files that are gone, sorted.
    pub gone: Vec<PathBuf>,
    /// Whether the set of unreadable paths or their causes have changed.
    pub troubles: bool,
}

impl FileChanges {
    /// Returns whether nothing has changed.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.gone.is_empty() && !self.troubles
    }
}

/// The result of waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// Nothing happened within the time.
    Nothing,
    /// Files have changed.
    Changed(FileChanges),
    /// A [`Stopper`] was used.
    Stopped,
}

/// The files of some roots. A file keeps its contents while it cannot be read. So do the files of
/// an unreadable directory, and those of a root that does not exist. A file that its directory no
/// longer lists is gone.
#[derive(Debug)]
pub struct Files {
    roots: Vec<Root>,
    options: Options,
    watch: Watch,
    /// In the order of the roots, each in the order of its listing.
    files: Vec<File>,
    known: HashMap<PathBuf, FileState>,
    troubles: Vec<AccessError>,
}

impl Files {
    /// Reads and watches the files of some roots. Fails only if the kernel has no descriptors left
    /// to wait with: unreadable paths are among the [`troubles`](Files::troubles).
    pub fn open(roots: Vec<Root>, options: Options) -> io::Result<Files> {
        // Watched before it is read: no change in between is missed.
        let watch = Watch::new(roots.clone(), options.look_every)?;
        let mut files = Files {
            roots,
            options,
            watch,
            files: Vec::new(),
            known: HashMap::new(),
            troubles: Vec::new(),
        };
        files.look(&Notice::All);
        Ok(files)
    }

    /// Returns the files in the order of the roots, then of the names. A file of two roots appears
    /// twice.
    pub fn iter(&self) -> std::slice::Iter<'_, File> {
        self.files.iter()
    }

    /// Returns the paths that could not be read.
    pub fn troubles(&self) -> &[AccessError] {
        &self.troubles
    }

    /// Returns the paths without notifications, whose changes are found by polling.
    pub fn unwatched(&self) -> &[AccessError] {
        self.watch.troubles()
    }

    /// Returns a handle that ends the waiting.
    pub fn stopper(&self) -> Stopper {
        self.watch.stopper()
    }

    /// Waits for a change, without a timeout for ever, and then until no change has followed for a
    /// moment.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<WaitResult> {
        let started = Instant::now();
        loop {
            // Notifications without a change of contents do not end the wait.
            let left = timeout.map(|it| it.saturating_sub(started.elapsed()));
            let mut notice = self.watch.wait(left)?;
            let noticed = Instant::now();
            loop {
                match notice {
                    Notice::Nothing => return Ok(WaitResult::Nothing),
                    Notice::Stopped => return Ok(WaitResult::Stopped),
                    Notice::Changed(_) | Notice::All => {}
                }
                let left = self.options.most_quiet.saturating_sub(noticed.elapsed());
                if left.is_zero() {
                    break;
                }
                match self.watch.wait(Some(self.options.quiet.min(left)))? {
                    Notice::Nothing => break,
                    more @ (Notice::Changed(_) | Notice::All | Notice::Stopped) => {
                        notice = both(notice, more);
                    }
                }
            }
            let difference = self.look(&notice);
            if !difference.is_empty() {
                return Ok(WaitResult::Changed(difference));
            }
        }
    }

    /// Reads what has changed.
    fn look(&mut self, notice: &Notice) -> FileChanges {
        let no_paths = BTreeSet::new();
        let noticed = match notice {
            Notice::Changed(paths) => paths,
            Notice::Nothing | Notice::All | Notice::Stopped => &no_paths,
        };
        let before = std::mem::take(&mut self.known);
        let mut scan = FileScan {
            before: &before,
            noticed,
            most_bytes: self.options.most_bytes,
            now: HashMap::with_capacity(before.len()),
            changed: Vec::new(),
            troubles: Vec::new(),
        };
        let mut files = Vec::with_capacity(self.files.len());
        for (index, root) in self.roots.iter().enumerate() {
            for path in scan.paths(root) {
                if let Some(bytes) = scan.bytes(&path) {
                    files.push(File {
                        path,
                        root: index,
                        bytes,
                    });
                }
            }
        }
        let FileScan {
            now,
            mut changed,
            troubles,
            ..
        } = scan;
        let gone = before.keys().filter(|path| !now.contains_key(*path));
        let mut gone: Vec<PathBuf> = gone.cloned().collect();
        changed.sort();
        gone.sort();
        let is_same = |(one, other): (&AccessError, &AccessError)| one.is_same(other);
        let difference = FileChanges {
            changed,
            gone,
            troubles: troubles.len() != self.troubles.len()
                || !troubles.iter().zip(&self.troubles).all(is_same),
        };
        self.files = files;
        self.known = now;
        self.troubles = troubles;
        difference
    }
}

/// A file descriptor that is readable when there may be something to [`wait`](Files::wait) for.
impl AsFd for Files {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

fn both(one: Notice, other: Notice) -> Notice {
    match (one, other) {
        (Notice::Stopped, _) | (_, Notice::Stopped) => Notice::Stopped,
        (Notice::All, _) | (_, Notice::All) => Notice::All,
        (Notice::Nothing, notice) | (notice, Notice::Nothing) => notice,
        (Notice::Changed(mut paths), Notice::Changed(more)) => {
            paths.extend(more);
            Notice::Changed(paths)
        }
    }
}

/// The last state of a file.
#[derive(Clone, Debug)]
struct FileState {
    bytes: Arc<Vec<u8>>,
    /// `None`: the last read failed.
    stamp: Option<Stamp>,
}

/// One pass over all files.
struct FileScan<'b> {
    before: &'b HashMap<PathBuf, FileState>,
    /// The paths of notifications. They are read even if their metadata is the same.
    noticed: &'b BTreeSet<PathBuf>,
    most_bytes: usize,
    now: HashMap<PathBuf, FileState>,
    changed: Vec<PathBuf>,
    troubles: Vec<AccessError>,
}

impl FileScan<'_> {
    /// Returns the files of a root, and those that stay because their directory is unreadable.
    fn paths(&mut self, root: &Root) -> Vec<PathBuf> {
        let Listing {
            mut files,
            troubles,
            ..
        } = list(root);
        let is_complete = troubles.is_empty();
        for AccessError { path, error } in troubles {
            let is_root = path == root.path;
            // A directory that was deleted from another is no error.
            if error.kind() == io::ErrorKind::NotFound && !is_root {
                continue;
            }
            let kept = self.before.keys().filter(|it| it.starts_with(&path));
            files.extend(kept.cloned());
            self.troubles.push(AccessError { path, error });
        }
        if !is_complete {
            // As a listing is sorted.
            files.sort();
            files.dedup();
        }
        files
    }

    /// Returns the contents of a file, or the last readable ones.
    fn bytes(&mut self, path: &Path) -> Option<Arc<Vec<u8>>> {
        // Two roots may have the same file.
        if let Some(now) = self.now.get(path) {
            return Some(Arc::clone(&now.bytes));
        }
        let old = self.before.get(path);
        let is_noticed = || path.ancestors().any(|it| self.noticed.contains(it));
        let stamp = old.and_then(|it| it.stamp.as_ref());
        let stamp = stamp.filter(|it| it.is_final() || !is_noticed());
        let old = old.map(|it| &it.bytes);
        let now = match read(path, stamp, self.most_bytes) {
            Ok(ReadOutcome::Same(stamp)) => FileState {
                bytes: Arc::clone(old?),
                stamp: Some(stamp),
            },
            Ok(ReadOutcome::New(bytes, stamp)) => FileState {
                bytes: match old {
                    Some(old) if **old == bytes => Arc::clone(old),
                    Some(_) | None => {
                        self.changed.push(path.to_owned());
                        Arc::new(bytes)
                    }
                },
                stamp: Some(stamp),
            },
            Err(error) => {
                let path = path.to_owned();
                // One error for an unreadable directory, not one for each of its files.
                let is_new = self.troubles.iter().all(|it| !path.starts_with(&it.path));
                self.troubles
                    .extend(is_new.then_some(AccessError { path, error }));
                // Without a stamp, the next pass reads it again.
                FileState {
                    bytes: Arc::clone(old?),
                    stamp: None,
                }
            }
        };
        let bytes = Arc::clone(&now.bytes);
        self.now.insert(path.to_owned(), now);
        Some(bytes)
    }
}
