//! Upstream's own CustomResourceDefinitions in two releases, for comparison with ours; Go downloads
//! them as modules.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::binaries::{Missing, cache};
use crate::error::{Error, Result, at};

/// A release, and the module that pins it.
struct Release {
    name: &'static str,
    module: &'static str,
    sum: &'static str,
}

const RELEASES: [Release; 2] = [
    Release {
        name: "v0.2.0",
        module: include_str!("../go/upstream/v0.2.0/go.mod"),
        sum: include_str!("../go/upstream/v0.2.0/go.sum"),
    },
    Release {
        name: "v0.1.7",
        module: include_str!("../go/upstream/v0.1.7/go.mod"),
        sum: include_str!("../go/upstream/v0.1.7/go.sum"),
    },
];

const MODULE: &str = "sigs.k8s.io/network-policy-api";
const CHANNELS: [&str; 2] = ["standard", "experimental"];

/// The directory of the definitions of all releases: `RELEASE/CHANNEL/FILE.yaml`.
pub fn upstream() -> std::result::Result<PathBuf, Missing> {
    let directory = directory();
    let absent = RELEASES
        .iter()
        .find(|it| !directory.join(it.name).is_dir())
        .map(|it| it.name);
    match absent {
        None => Ok(directory),
        Some(release) => Err(Missing {
            what: format!("upstream's definitions of {release} not found"),
            remedy: "run `cargo run -p palisade-testbed -- build --only upstream`, which needs Go"
                .to_owned(),
        }),
    }
}

/// The modules are named for their releases; they do not depend on the version of the programs.
fn directory() -> PathBuf {
    cache().with_file_name("upstream")
}

/// Downloads missing releases. A release gets its name when it is complete.
pub fn bring_upstream() -> Result<()> {
    let directory = directory();
    fs::create_dir_all(&directory).map_err(at("make", &directory))?;
    for release in &RELEASES {
        if directory.join(release.name).is_dir() {
            continue;
        }
        let work = tempfile::Builder::new()
            .prefix(".bring-")
            .tempdir_in(&directory);
        let work = work.map_err(at("make a directory in", &directory))?;
        let put = |name: &str, text: &str| {
            let path = work.path().join(name);
            fs::write(&path, text).map_err(at("write", &path))
        };
        put("go.mod", release.module)?;
        put("go.sum", release.sum)?;
        go(work.path(), &["mod", "download", MODULE])?;
        let module = go(work.path(), &["list", "-m", "-f", "{{.Dir}}", MODULE])?;
        let (made, at_last) = (work.path().join("made"), directory.join(release.name));
        for channel in CHANNELS {
            let from = Path::new(module.trim()).join("config/crd").join(channel);
            copy(&from, &made.join(channel))?;
        }
        fs::rename(&made, &at_last).map_err(at("write", &at_last))?;
    }
    Ok(())
}

/// Copies files that are read-only in Go's cache; the copies can be removed.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(at("make", to))?;
    for entry in fs::read_dir(from).map_err(at("read", from))? {
        let path = entry.map_err(at("read", from))?.path();
        let Some(name) = path.file_name() else {
            continue;
        };
        let bytes = fs::read(&path).map_err(at("read", &path))?;
        let to = to.join(name);
        fs::write(&to, bytes).map_err(at("write", &to))?;
    }
    Ok(())
}

fn go(directory: &Path, words: &[&str]) -> Result<String> {
    let output = Command::new("go")
        .args(words)
        .current_dir(directory)
        .env("GOFLAGS", "-mod=readonly")
        .env("GOWORK", "off")
        .env("GOTOOLCHAIN", "local")
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|source| Error::Run {
        program: "go".to_owned(),
        source,
    })?;
    if !output.status.success() {
        return Err(Error::Failed {
            program: format!("go {}", words.join(" ")),
            output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
