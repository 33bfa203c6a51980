//! The directories that are watched, and what in them matters.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, Inotify, InotifyEvent, WatchDescriptor};

use crate::list::{VisitedEntry, is_hidden, is_manifest, visit};
use crate::symlinks::walk;
use crate::{AccessError, Root};

/// What happens to names, and to directories themselves.
pub(super) const STRUCTURE: AddWatchFlags = AddWatchFlags::IN_CREATE
    .union(AddWatchFlags::IN_DELETE)
    .union(AddWatchFlags::IN_MOVE)
    .union(AddWatchFlags::IN_ATTRIB)
    .union(GONE);

/// The directory itself is not what or where it was.
const GONE: AddWatchFlags = AddWatchFlags::IN_DELETE_SELF
    .union(AddWatchFlags::IN_MOVE_SELF)
    .union(AddWatchFlags::IN_UNMOUNT)
    .union(AddWatchFlags::IN_IGNORED);

/// What happens to the bytes of files.
const CONTENT: AddWatchFlags = AddWatchFlags::IN_MODIFY.union(AddWatchFlags::IN_CLOSE_WRITE);

/// Everything that is watched.
#[derive(Debug, Default)]
pub(super) struct WatchSet {
    directories: BTreeMap<WatchDescriptor, Interest>,
    pub(super) troubles: Vec<AccessError>,
}

/// What matters in a directory.
#[derive(Debug, Default)]
struct Interest {
    real: PathBuf,
    /// If all its manifests do: how it is named, and whether directories in it do as well.
    whole: BTreeSet<(PathBuf, bool)>,
    /// Names on the way to something, and what they are on the way to.
    names: BTreeMap<OsString, BTreeSet<PathBuf>>,
}

impl WatchSet {
    /// Watches what the roots mean now, and nothing else of what was watched before.
    pub(super) fn arm(inotify: &Inotify, roots: &[Root], before: &WatchSet) -> WatchSet {
        let mut armed = WatchSet::default();
        for root in roots {
            armed.follow(inotify, &root.path);
            if !root.path.is_dir() {
                continue;
            }
            visit(root, &mut |entered| match entered {
                // Watched first and read then, so that nothing can come between.
                VisitedEntry::Directory { given, real } => {
                    if let Some(interest) = armed.directory(inotify, real, CONTENT) {
                        interest.whole.insert((given.to_owned(), root.recursive));
                    }
                }
                VisitedEntry::Entry(path, file_type) => {
                    let name = path.file_name().unwrap_or_default();
                    let matters = is_manifest(name) || (root.recursive && !is_hidden(name));
                    if file_type.is_symlink() && matters {
                        armed.follow(inotify, path);
                    }
                }
                // Whoever reads it will be told.
                VisitedEntry::Closed(..) => {}
            });
        }
        for old in before.directories.keys() {
            if !armed.directories.contains_key(old) {
                // It may have ended by itself.
                let _ = inotify.rm_watch(*old);
            }
        }
        armed
    }

    /// Watches every name on the way to a path.
    fn follow(&mut self, inotify: &Inotify, path: &Path) {
        let last = walk(path, &mut |step| {
            // A directory that is only on the way may be closed to us, without anything being wrong.
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
        let add = AddWatchFlags::from_bits_retain(nix::libc::IN_MASK_ADD);
        let told_by_itself = AddWatchFlags::IN_UNMOUNT | AddWatchFlags::IN_IGNORED;
        let mask = STRUCTURE.difference(told_by_itself) | more | AddWatchFlags::IN_ONLYDIR | add;
        match inotify.add_watch(real, mask) {
            Ok(descriptor) => {
                let interest = self.directories.entry(descriptor).or_default();
                interest.real = real.to_owned();
                Some(interest)
            }
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

    /// Which of what was asked for is touched by an event.
    pub(super) fn touched(&self, event: &InotifyEvent) -> BTreeSet<PathBuf> {
        let mut touched = BTreeSet::new();
        let Some(interest) = self.directories.get(&event.wd) else {
            return touched;
        };
        let whole = interest.whole.iter();
        let Some(name) = event.name.as_deref() else {
            // The directory itself: other rights, another place, or gone.
            touched.extend(whole.map(|(given, _)| given.clone()));
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
        for (given, recursive) in whole {
            let is_below = || {
                *recursive && !is_hidden(name) && event.mask.intersects(STRUCTURE) && is_directory()
            };
            if is_manifest(name) || is_below() {
                touched.insert(given.join(name));
            }
        }
        touched
    }
}
