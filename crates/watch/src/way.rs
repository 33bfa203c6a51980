//! The way to a file: every name on it that could come to mean something else.

use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// A name in a directory that is no link itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) directory: PathBuf,
    pub(crate) name: OsString,
}

/// The kernel follows so many links as well.
const MOST_LINKS: usize = 40;

/// The steps to a path, through all its links, as far as there is something. `visit` sees each before it is
/// looked at, so that who watches it misses nothing. Returns the last.
pub(crate) fn walk(path: &Path, visit: &mut dyn FnMut(&Step)) -> Option<Step> {
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
            Next::Root => {
                here = PathBuf::from("/");
                continue;
            }
            Next::Up => {
                here.pop();
                continue;
            }
            Next::Down(name) => name,
        };
        let step = Step {
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

enum Next {
    Root,
    Up,
    Down(OsString),
}

fn push(rest: &mut Vec<Next>, path: &Path) {
    let components: Vec<Component<'_>> = path.components().collect();
    rest.extend(components.into_iter().rev().filter_map(|it| match it {
        Component::RootDir => Some(Next::Root),
        Component::ParentDir => Some(Next::Up),
        Component::Normal(name) => Some(Next::Down(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    }));
}
