//! The way to a file: every name on it that could come to mean something else.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// A name in a directory that is no link itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathEntry {
    pub(crate) directory: PathBuf,
    pub(crate) name: OsString,
}

/// The kernel follows so many links as well.
const MOST_LINKS: usize = 40;

/// The steps to a path, through all its links, as far as there is something. `visit` sees each before it is
/// looked at, so that who watches it misses nothing. Returns the last.
pub(crate) fn walk(path: &Path, visit: &mut dyn FnMut(&PathEntry)) -> Option<PathEntry> {
    let mut last = None;
    let mut links = 0;
    let mut here = PathBuf::from("/");
    // In reverse: what comes next stands at the end.
    let mut rest = Vec::new();
    if path.is_relative() {
        let Ok(start) = std::env::current_dir() else {
            return last;
        };
        here = start;
    }
    push(&mut rest, path);
    while let Some(next) = rest.pop() {
        let name = match next {
            NextEntry::Root => {
                here = PathBuf::from("/");
                continue;
            }
            NextEntry::Up => {
                here.pop();
                continue;
            }
            NextEntry::Down(name) => name,
        };
        let step = PathEntry {
            directory: here.clone(),
            name,
        };
        visit(&step);
        let path = here.join(&step.name);
        last = Some(step);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => {
                links += 1;
                match fs::read_link(&path) {
                    Ok(target) if links <= MOST_LINKS => push(&mut rest, &target),
                    _ => return last,
                }
            }
            Ok(_) => here = path,
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
