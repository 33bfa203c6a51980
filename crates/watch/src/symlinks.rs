//! The path to a file through its links: every directory entry whose change can change the file.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// A directory entry. The path of the directory has no links in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathEntry {
    pub(crate) directory: PathBuf,
    pub(crate) name: OsString,
}

/// The kernel's own limit of links in one path (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// Resolves a path through all its links, as far as it exists. `visit` gets each entry before it is
/// read: a caller that watches the entry misses no change. Returns the last entry.
pub(crate) fn walk(path: &Path, visit: &mut dyn FnMut(&PathEntry)) -> Option<PathEntry> {
    let mut last = None;
    let mut links = 0;
    let mut directory = PathBuf::from("/");
    // In reverse order: the next component is at the end.
    let mut rest = Vec::new();
    if path.is_relative() {
        let Ok(start) = std::env::current_dir() else {
            return last;
        };
        directory = start;
    }
    push(&mut rest, path);
    while let Some(next) = rest.pop() {
        let name = match next {
            NextEntry::Root => {
                directory = PathBuf::from("/");
                continue;
            }
            NextEntry::Up => {
                directory.pop();
                continue;
            }
            NextEntry::Down(name) => name,
        };
        let entry = PathEntry {
            directory: directory.clone(),
            name,
        };
        visit(&entry);
        let path = directory.join(&entry.name);
        last = Some(entry);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => {
                links += 1;
                match fs::read_link(&path) {
                    // The target is relative to the directory of the link, or begins with the root.
                    Ok(target) if links <= MOST_LINKS => push(&mut rest, &target),
                    _ => return last,
                }
            }
            Ok(_) => directory = path,
            Err(_) => return last,
        }
    }
    last
}

enum NextEntry {
    Root,
    Up,
    Down(OsString),
}

fn push(rest: &mut Vec<NextEntry>, path: &Path) {
    let components: Vec<Component<'_>> = path.components().collect();
    rest.extend(components.into_iter().rev().filter_map(|it| match it {
        Component::RootDir => Some(NextEntry::Root),
        Component::ParentDir => Some(NextEntry::Up),
        Component::Normal(name) => Some(NextEntry::Down(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    }));
}
