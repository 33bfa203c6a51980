//! What files say, as of the last time that they were read well.

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

/// How patient [`Files`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Files are read when nothing has happened to them for so long: whoever writes should be able to finish.
    pub quiet: Duration,
    /// They are read after this time in any case.
    pub most_quiet: Duration,
    /// Everything is looked at so often, notice or not.
    pub look_every: Duration,
    /// A file is read up to the first byte after so many; whoever understands files says that it is too
    /// large.
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
    /// Its path, as the root is named.
    pub path: PathBuf,
    /// The root that it belongs to, by its place among the roots.
    pub root: usize,
    /// What it held.
    pub bytes: Arc<Vec<u8>>,
}

/// What became different.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileChanges {
    /// Files that are new or hold something else, sorted.
    pub changed: Vec<PathBuf>,
    /// Files that are gone, sorted.
    pub gone: Vec<PathBuf>,
    /// Whether other files than before, or for other reasons, cannot be read.
    pub troubles: bool,
}

impl FileChanges {
    /// Whether everything is as it was.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.gone.is_empty() && !self.troubles
    }
}

/// What came of waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// Nothing, until the time was over.
    Nothing,
    /// Something is different now.
    Changed(FileChanges),
    /// A [`Stopper`] was used.
    Stopped,
}

/// The files of some roots. A file keeps what it held for as long as it cannot be read; so do the files
/// of a directory that cannot be looked into, and those of a root that is not there at all. A file that
/// its directory does not have any more is gone.
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
    /// Reads what there is, and watches it. It fails only if the kernel has nothing left to wait with: what
    /// cannot be read is among the [`troubles`](Files::troubles).
    pub fn open(roots: Vec<Root>, options: Options) -> io::Result<Files> {
        // Watched first, so that what happens from now on is noticed.
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

    /// The files in their order: that of the roots, then of names. Two roots that both have a file both
    /// show it.
    pub fn iter(&self) -> std::slice::Iter<'_, File> {
        self.files.iter()
    }

    /// What could not be read when it was last tried.
    pub fn troubles(&self) -> &[AccessError] {
        &self.troubles
    }

    /// What the kernel gives no notices of, so that changes are found late.
    pub fn unwatched(&self) -> &[AccessError] {
        self.watch.troubles()
    }

    /// What ends the waiting.
    pub fn stopper(&self) -> Stopper {
        self.watch.stopper()
    }

    /// Waits until something is different, for a time or, without one, for ever, and then until it has
    /// been quiet for a moment.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<WaitResult> {
        let started = Instant::now();
        loop {
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

    /// Reads what is different now.
    fn look(&mut self, notice: &Notice) -> FileChanges {
        let no_paths = BTreeSet::new();
        let told = match notice {
            Notice::Changed(paths) => paths,
            Notice::Nothing | Notice::All | Notice::Stopped => &no_paths,
        };
        let before = std::mem::take(&mut self.known);
        let mut looked = FileScan {
            before: &before,
            told,
            most_bytes: self.options.most_bytes,
            now: HashMap::with_capacity(before.len()),
            changed: Vec::new(),
            troubles: Vec::new(),
        };
        let mut files = Vec::with_capacity(self.files.len());
        for (root, named) in self.roots.iter().enumerate() {
            for path in looked.paths(named) {
                if let Some(bytes) = looked.bytes(&path) {
                    files.push(File { path, root, bytes });
                }
            }
        }
        let FileScan {
            now,
            mut changed,
            troubles,
            ..
        } = looked;
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

/// A file descriptor that can be read from when there may be something to [`wait`](Files::wait) for.
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

/// What is known of a file.
#[derive(Clone, Debug)]
struct FileState {
    bytes: Arc<Vec<u8>>,
    /// None if it could not be read when it was last tried.
    stamp: Option<Stamp>,
}

/// One look at all files.
struct FileScan<'b> {
    before: &'b HashMap<PathBuf, FileState>,
    /// What something is said to have happened to: it is read, whatever it looks like.
    told: &'b BTreeSet<PathBuf>,
    most_bytes: usize,
    now: HashMap<PathBuf, FileState>,
    changed: Vec<PathBuf>,
    troubles: Vec<AccessError>,
}

impl FileScan<'_> {
    /// The files of a root, and those that it still stands for.
    fn paths(&mut self, root: &Root) -> Vec<PathBuf> {
        let Listing {
            mut files,
            troubles,
            ..
        } = list(root);
        let is_complete = troubles.is_empty();
        for AccessError { path, error } in troubles {
            let is_root = path == root.path;
            // A directory that is gone from within another is no trouble.
            if error.kind() == io::ErrorKind::NotFound && !is_root {
                continue;
            }
            let kept = self.before.keys().filter(|it| it.starts_with(&path));
            files.extend(kept.cloned());
            self.troubles.push(AccessError { path, error });
        }
        if !is_complete {
            // Which is the order of a listing.
            files.sort();
            files.dedup();
        }
        files
    }

    /// What a file holds, or held.
    fn bytes(&mut self, path: &Path) -> Option<Arc<Vec<u8>>> {
        if let Some(now) = self.now.get(path) {
            return Some(Arc::clone(&now.bytes));
        }
        let old = self.before.get(path);
        let is_told = || path.ancestors().any(|it| self.told.contains(it));
        let stamp = old.and_then(|it| it.stamp.as_ref());
        let stamp = stamp.filter(|it| it.is_final() || !is_told());
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
                let is_new = self.troubles.iter().all(|it| !path.starts_with(&it.path));
                self.troubles
                    .extend(is_new.then_some(AccessError { path, error }));
                // Read again as soon as it can be.
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
