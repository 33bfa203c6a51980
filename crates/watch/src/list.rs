//! The files of a path.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::{AccessError, Root};

/// The files of a path.
#[derive(Debug, Default)]
pub struct Listing {
    /// A file by itself, or the manifests of a directory, sorted by name. Those of a directory
    /// inside are in its place.
    pub files: Vec<PathBuf>,
    /// The directories that could not be read.
    pub troubles: Vec<AccessError>,
    /// Whether the path is a directory.
    pub is_directory: bool,
}

/// Lists the files of a path. A path that is not a directory is a file, whatever its name and type.
/// In directories only regular files count that [`is_manifest`] accepts. Links are followed; each
/// directory is visited once.
pub fn list(root: &Root) -> Listing {
    let mut listing = Listing::default();
    match fs::metadata(&root.path) {
        Ok(metadata) if metadata.is_dir() => {
            listing.is_directory = true;
            visit(root, &mut |visited| match visited {
                VisitedEntry::Entry(path, file_type) => {
                    let is_file =
                        || file_type.is_file() || (file_type.is_symlink() && path.is_file());
                    if is_manifest(name(path)) && is_file() {
                        listing.files.push(path.to_owned());
                    }
                }
                VisitedEntry::Directory { .. } => {}
                VisitedEntry::Closed(path, error) => listing.troubles.push(AccessError {
                    path: path.to_owned(),
                    error,
                }),
            });
        }
        Ok(_) => listing.files.push(root.path.clone()),
        Err(error) => listing.troubles.push(AccessError {
            path: root.path.clone(),
            error,
        }),
    }
    listing
}

/// Reads a file as [`read_bounded`] does, with a buffer of its size from the start: a growing
/// buffer would copy a large file again and again.
pub fn read_file(file: &File, most_bytes: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    // One byte more than the file has: the read that finds its end needs no larger buffer.
    let mut bytes = Vec::with_capacity(length.min(most_bytes).saturating_add(1));
    read_into(&mut bytes, file, most_bytes)?;
    Ok(bytes)
}

/// Reads to the end, or one byte past a limit: a device may have no end.
pub fn read_bounded(file: impl Read, most_bytes: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_into(&mut bytes, file, most_bytes)?;
    Ok(bytes)
}

fn read_into(bytes: &mut Vec<u8>, file: impl Read, most_bytes: usize) -> io::Result<()> {
    file.take((most_bytes as u64).saturating_add(1))
        .read_to_end(bytes)?;
    Ok(())
}

/// Returns whether a file of a directory is read: manifests are `.yaml`, `.yml` or `.json`, each
/// also with `.gz`. Hidden files and backups of editors are skipped.
pub fn is_manifest(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let bytes = bytes.strip_suffix(b".gz").unwrap_or(bytes);
    let endings: [&[u8]; 3] = [b".yaml", b".yml", b".json"];
    !is_hidden(name) && endings.iter().any(|ending| bytes.ends_with(ending))
}

/// Returns whether a name starts with a dot. Mounts of ConfigMaps have their files in such
/// directories a second time, and version control has its own there.
pub fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// A step of [`visit`].
pub(crate) enum VisitedEntry<'p> {
    /// A directory, before its entries are read: as the user named it, and its canonical path.
    Directory { given: &'p Path, real: &'p Path },
    /// An entry of a directory.
    Entry(&'p Path, FileType),
    /// A directory that cannot be read.
    Closed(&'p Path, io::Error),
}

/// Visits a directory in the order of names.
pub(crate) fn visit(root: &Root, visitor: &mut dyn FnMut(VisitedEntry<'_>)) {
    enter(&root.path, root.recursive, &mut BTreeSet::new(), visitor);
}

fn enter(
    named: &Path,
    recursive: bool,
    visited: &mut BTreeSet<PathBuf>,
    visitor: &mut dyn FnMut(VisitedEntry<'_>),
) {
    let entries = fs::canonicalize(named).and_then(|real| {
        // Links can lead back to a directory above.
        if visited.contains(&real) {
            return Ok(None);
        }
        visitor(VisitedEntry::Directory {
            given: named,
            real: &real,
        });
        visited.insert(real);
        fs::read_dir(named).map(Some)
    });
    let entries = match entries {
        Ok(Some(entries)) => entries,
        Ok(None) => return,
        Err(error) => return visitor(VisitedEntry::Closed(named, error)),
    };
    let mut found: Vec<(PathBuf, FileType)> = Vec::new();
    for entry in entries {
        let typed = entry.and_then(|it| it.file_type().map(|file_type| (it.path(), file_type)));
        match typed {
            Ok(typed) => found.push(typed),
            // Deleted in the meantime.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                visitor(VisitedEntry::Closed(named, error));
                break;
            }
        }
    }
    found.sort_by(|(one, _), (other, _)| name(one).cmp(name(other)));
    for (path, file_type) in found {
        visitor(VisitedEntry::Entry(&path, file_type));
        let is_directory = file_type.is_dir() || (file_type.is_symlink() && path.is_dir());
        if is_directory && recursive && !is_hidden(name(&path)) {
            enter(&path, recursive, visited, visitor);
        }
    }
}

fn name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_have_three_endings_and_are_not_hidden() {
        for name in ["a.yaml", "a.yml", "a.json", "a.yaml.gz", "a.b.json.gz"] {
            assert!(is_manifest(OsStr::new(name)), "{name}");
        }
        for name in [
            "a.txt",
            "yaml",
            ".yaml",
            ".a.yaml",
            ".a.yaml.swp",
            "a.yaml~",
            "#a.yaml#",
            "a.yaml.bak",
            "a.gz",
        ] {
            assert!(!is_manifest(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn files_are_read_to_their_end_or_past_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        fs::write(&path, "x".repeat(1_000)).unwrap();
        let read = |most| read_file(&File::open(&path).unwrap(), most).unwrap();
        assert_eq!(read(5_000).len(), 1_000);
        assert_eq!(read(1_000).len(), 1_000);
        assert_eq!(read(999).len(), 1_000);
        assert_eq!(read(100).len(), 101);
        // Files of `/proc` have the size 0.
        let status = File::open("/proc/self/status").unwrap();
        assert!(!read_file(&status, 5_000).unwrap().is_empty());
    }
}
