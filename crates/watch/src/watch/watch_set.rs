//! The watched directories, and which of their entries matter.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, Inotify, InotifyEvent, WatchDescriptor};

use crate::list::{VisitedEntry, is_hidden, is_manifest, visit};
use crate::symlinks::walk;
use crate::{AccessError, Root};

/// Changes of entries, and of directories themselves.
pub(super) const STRUCTURE: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVE)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(GONE);

/// The directory itself was moved or deleted.
const GONE: AddWatchFlags = AddWatchFlags::IN_DELETE_SELF
    .union(AddWatchFlags::IN_MOVE_SELF)
    .union(AddWatchFlags::IN_UNMOUNT)
    .union(AddWatchFlags::IN_IGNORED);

/// Changes of contents.
const CONTENT: AddWatchFlags = AddWatchFlags::IN_MODIFY.union(AddWatchFlags::IN_CLOSE_WRITE);

/// All watched directories.
#[derive(Debug, Default)]
pub(super) struct WatchSet {
    directories: BTreeMap<WatchDescriptor, Interest>,
    pub(super) troubles: Vec<AccessError>,
}

/// The entries of a directory that matter.
#[derive(Debug, Default)]
struct Interest {
    real: PathBuf,
    /// If all its manifests matter: its path as the user named it, and whether its directories
    /// matter, too.
    whole: BTreeSet<(PathBuf, bool)>,
    /// Entries on the path to a root or a link, with the paths that they lead to.
    names: BTreeMap<OsString, BTreeSet<PathBuf>>,
}

impl WatchSet {
    /// Watches the current state of some roots, and ends all other watches of `before`.
    pub(super) fn arm(inotify: &Inotify, roots: &[Root], before: &WatchSet) -> WatchSet {
        let mut armed = WatchSet::default();
        for root in roots {
            armed.follow(inotify, &root.path);
            if !root.path.is_dir() {
                continue;
            }
            visit(root, &mut |visited| match visited {
                // Watched before it is read: no change in between is missed.
                VisitedEntry::Directory { given: path, real } => {
                    if let Some(interest) = armed.directory(inotify, real, CONTENT) {
                        interest.whole.insert((path.to_owned(), root.recursive));
                    }
                }
                VisitedEntry::Entry(path, file_type) => {
                    let name = path.file_name().unwrap_or_default();
                    let matters = is_manifest(name) || (root.recursive && !is_hidden(name));
                    if file_type.is_symlink() && matters {
                        armed.follow(inotify, path);
                    }
                }
                // The reader of the directory reports the error.
                VisitedEntry::Closed(..) => {}
            });
        }
        for old in before.directories.keys() {
            if !armed.directories.contains_key(old) {
                // The kernel ends the watch of a deleted directory by itself.
                let _ = inotify.rm_watch(*old);
            }
        }
        armed
    }

    /// Watches every component of a path.
    fn follow(&mut self, inotify: &Inotify, path: &Path) {
        let last = walk(path, &mut |step| {
            // A directory on the path need not be readable for this process.
            if let Some(interest) = self.directory(inotify, &step.directory, AddWatchFlags::empty())
            {
                let names = interest.names.entry(step.name.clone()).or_default();
                names.insert(path.to_owned());
            }
        });
        if let Some(step) = last
            && !path.is_dir()
        {
            self.directory(inotify, &step.directory, CONTENT);
        }
    }

    fn directory(
        &mut self,
        inotify: &Inotify,
        real: &Path,
        more: AddWatchFlags,
    ) -> Option<&mut Interest> {
        // Added to the mask of an existing watch: another root may need more of the same directory.
        let add = AddWatchFlags::from_bits_retain(nix::libc::IN_MASK_ADD);
        // The kernel sends these two without a request.
        let implicit = AddWatchFlags::IN_UNMOUNT | AddWatchFlags::IN_IGNORED;
        let mask = STRUCTURE.difference(implicit) | more | AddWatchFlags::IN_ONLYDIR | add;
        match inotify.add_watch(real, mask) {
            Ok(descriptor) => {
                let interest = self.directories.entry(descriptor).or_default();
                interest.real = real.to_owned();
                Some(interest)
            }
            // Its appearance is an event of its parent directory.
            Err(Errno::ENOENT | Errno::ENOTDIR) => None,
            Err(Errno::EACCES) if more.is_empty() => None,
            Err(errno) => {
                let is_new = self.troubles.iter().all(|it| it.path != real);
                self.troubles.extend(is_new.then(|| AccessError {
                    path: real.to_owned(),
                    error: errno.into(),
                }));
                None
            }
        }
    }

    /// Returns the paths that an event touches.
    pub(super) fn touched(&self, event: &InotifyEvent) -> BTreeSet<PathBuf> {
        let mut touched = BTreeSet::new();
        let Some(interest) = self.directories.get(&event.wd) else {
            return touched;
        };
        let whole = interest.whole.iter();
        let Some(name) = event.name.as_deref() else {
            // The directory itself: its permissions have changed, or it was moved or deleted.
            touched.extend(whole.map(|(path, _)| path.clone()));
            if event.mask.intersects(GONE) {
                touched.extend(interest.names.values().flatten().cloned());
            }
            return touched;
        };
        touched.extend(interest.names.get(name).into_iter().flatten().cloned());
        let is_directory = || {
            let metadata = fs::metadata(interest.real.join(name));
            event.mask.contains(AddWatchFlags::IN_ISDIR) || metadata.is_ok_and(|it| it.is_dir())
        };
        for (path, recursive) in whole {
            let is_below = || {
                *recursive && !is_hidden(name) && event.mask.intersects(STRUCTURE) && is_directory()
            };
            if is_manifest(name) || is_below() {
                touched.insert(path.join(name));
            }
        }
        touched
    }
}
