//! Replaces a file as a whole, or not at all.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

/// Writes a new text to a file that still has the old one. A symbolic link keeps its target; owner
/// and permissions stay.
pub(crate) fn replace(path: &Path, old: &str, new: &str) -> anyhow::Result<()> {
    let name = path.display();
    let path = path
        .canonicalize()
        .with_context(|| format!("cannot find {name}"))?;
    let now = std::fs::read(&path).with_context(|| format!("cannot read {name}"))?;
    ensure!(now == old.as_bytes(), "{name} changed on disk; not written");
    let temporary = temporary(&path).with_context(|| format!("{name} is not a file"))?;
    let written = write(&path, &temporary, new);
    if written.is_err() {
        // An incomplete copy is of no use.
        let _ = std::fs::remove_file(&temporary);
    }
    written.with_context(|| format!("cannot write {name}"))
}

/// Creates a file that does not exist yet.
pub(crate) fn create(path: &Path, text: &str) -> anyhow::Result<()> {
    let name = path.display();
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.with_context(|| format!("cannot create {name}"))?;
    let written = file.write_all(text.as_bytes());
    written.with_context(|| format!("cannot write {name}"))
}

/// Returns a name in the same directory: a rename is atomic only within a file system.
fn temporary(path: &Path) -> Option<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name()?);
    name.push(format!(".palisade-{}", std::process::id()));
    Some(path.with_file_name(name))
}

fn write(path: &Path, temporary: &Path, text: &str) -> std::io::Result<()> {
    let metadata = path.metadata()?;
    // `create_new` does not follow a link that another user placed at this name.
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(temporary)?;
    let own = file.metadata()?;
    if (own.uid(), own.gid()) != (metadata.uid(), metadata.gid()) {
        std::os::unix::fs::chown(temporary, Some(metadata.uid()), Some(metadata.gid()))?;
    }
    let permissions: Permissions = metadata.permissions();
    file.set_permissions(permissions)?;
    file.write_all(text.as_bytes())?;
    // Before the rename: after a crash the file has the old text or the new one.
    file.sync_all()?;
    std::fs::rename(temporary, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_keeps_its_permissions_and_a_link_its_target() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.yaml");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let link = directory.path().join("b.yaml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace(&link, "old", "new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert!(link.is_symlink());
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let refused = replace(&path, "old", "newer").unwrap_err().to_string();
        assert!(refused.contains("changed on disk"), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(directory.path().read_dir().unwrap().count(), 2);
    }
}
