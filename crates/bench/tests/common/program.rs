//! The program of another package, for tests that run it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Where it is; it is built if it is not there, or old.
pub(crate) fn palisade() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "-p", "palisade"]);
    assert!(build.current_dir(root).status().unwrap().success());
    let own = PathBuf::from(env!("CARGO_BIN_EXE_palisade-bench"));
    own.with_file_name("palisade")
}
