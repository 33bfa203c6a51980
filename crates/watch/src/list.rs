//! Which files a path stands for.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::{AccessError, Root};

/// The files that a path stands for.
#[derive(Debug, Default)]
pub struct Listing {
    /// A file by itself, or the manifests of a directory: sorted by name, those of a directory below it in
    /// its place.
    pub files: Vec<PathBuf>,
    /// What could not be looked into.
    pub troubles: Vec<AccessError>,
    /// Whether the path is a directory.
    pub is_directory: bool,
}

/// Lists the files of a path. Whatever is named by itself is a file of its own, whatever its name and
/// nature; in directories only regular files count that [`is_manifest`] accepts. Links are followed, to a
/// directory once.
pub fn list(root: &Root) -> Listing {
    let mut listing = Listing::default();
    match fs::metadata(&root.path) {
        Ok(metadata) if metadata.is_dir() => {
            listing.is_directory = true;
            visit(root, &mut |entered| match entered {
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

/// [`read_bounded`] of a file that says how long it is: a large one is not copied while room for it is made again and again.
pub fn read_file(file: &File, most_bytes: usize) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    // One more than there are, so that reading finds the end without more room.
    let mut bytes = Vec::with_capacity(length.min(most_bytes).saturating_add(1));
    read_into(&mut bytes, file, most_bytes)?;
    Ok(bytes)
}

/// Reads to the end, or just past a number of bytes: a device may have no end.
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

/// Whether a file of a directory is read: manifests are `.yaml`, `.yml` or `.json`, each also with `.gz`.
/// Hidden files are passed over, as are the copies that editors keep.
pub fn is_manifest(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    let bytes = bytes.strip_suffix(b".gz").unwrap_or(bytes);
    let endings: [&[u8]; 3] = [b".yaml", b".yml", b".json"];
    !is_hidden(name) && endings.iter().any(|ending| bytes.ends_with(ending))
}

/// Whether a name starts with a dot. What is mounted from a ConfigMap stands in such directories a
/// second time, and version control keeps its own files in them.
pub fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

/// What [`visit`] comes across.
pub(crate) enum VisitedEntry<'p> {
    /// A directory, before its entries are read: as it is named, and where it is.
    Directory { given: &'p Path, real: &'p Path },
    /// An entry of a directory that is not gone into.
    Entry(&'p Path, FileType),
    /// A directory that cannot be read.
    Closed(&'p Path, io::Error),
}

/// Goes through a directory in the order of names.
pub(crate) fn visit(root: &Root, seen_by: &mut dyn FnMut(VisitedEntry<'_>)) {
    enter(&root.path, root.recursive, &mut BTreeSet::new(), seen_by);
}

fn enter(
    given: &Path,
    recursive: bool,
    seen: &mut BTreeSet<PathBuf>,
    seen_by: &mut dyn FnMut(VisitedEntry<'_>),
) {
    let entries = fs::canonicalize(given).and_then(|real| {
        if seen.contains(&real) {
            return Ok(None);
        }
        seen_by(VisitedEntry::Directory { given, real: &real });
        seen.insert(real);
        fs::read_dir(given).map(Some)
    });
    let entries = match entries {
        Ok(Some(entries)) => entries,
        Ok(None) => return,
        Err(error) => return seen_by(VisitedEntry::Closed(given, error)),
    };
    let mut found: Vec<(PathBuf, FileType)> = Vec::new();
    for entry in entries {
        let typed = entry.and_then(|it| it.file_type().map(|file_type| (it.path(), file_type)));
        match typed {
            Ok(typed) => found.push(typed),
            // It is gone again.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                seen_by(VisitedEntry::Closed(given, error));
                break;
            }
        }
    }
    found.sort_by(|(one, _), (other, _)| name(one).cmp(name(other)));
    for (path, file_type) in found {
        seen_by(VisitedEntry::Entry(&path, file_type));
        let is_directory = file_type.is_dir() || (file_type.is_symlink() && path.is_dir());
        if is_directory && recursive && !is_hidden(name(&path)) {
            enter(&path, recursive, seen, seen_by);
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
        // The kernel's own files say that they are empty.
        let status = File::open("/proc/self/status").unwrap();
        assert!(!read_file(&status, 5_000).unwrap().is_empty());
    }
}
