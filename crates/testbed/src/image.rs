//! Container images, made by hand: one layer, a config and a manifest, in one archive.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ring::digest::{SHA256, digest};

use crate::archive::Archive;
use crate::binaries::{Missing, from_debian};
use crate::error::{Error, Result, at};
use crate::kubeconfig::quoted;
use crate::process::{command, run};

/// The image of the container that holds a pod's namespaces.
pub(crate) const PAUSE: &str = "registry.k8s.io/pause:3.10";

/// The image names of agnhost in tests, ours and others'.
const AGNHOST: &[&str] = &[
    "registry.k8s.io/e2e-test-images/agnhost:2.45",
    "registry.k8s.io/e2e-test-images/agnhost:2.55",
    "registry.k8s.io/e2e-test-images/agnhost:2.59",
];

/// Statically linked programs of Debian, with their places and packages.
const BUSYBOX: (&str, &str) = ("/bin/busybox", "busybox-static");
const BASH: (&str, &str) = ("/bin/bash-static", "bash-static");

/// Makes one of the images from the programs in a directory.
pub(crate) fn image(name: &str, programs: &Path) -> Result<Vec<u8>> {
    match name {
        "pause.tar" => {
            let mut layer = Archive::default();
            layer.file("pause", 0o755, &read(&programs.join("pause"))?);
            Ok(archive(&[PAUSE], &["/pause"], &[], &layer.finish()))
        }
        _ => agnhost(programs),
    }
}

/// Agnhost, with a shell and the usual small programs.
fn agnhost(programs: &Path) -> Result<Vec<u8>> {
    let mut layer = Archive::default();
    for directory in ["bin", "etc", "root", "usr", "usr/bin"] {
        layer.directory(directory, 0o755);
    }
    layer.directory("tmp", 0o1777);
    layer.file("agnhost", 0o755, &read(&programs.join("agnhost"))?);
    layer.file("bin/busybox", 0o755, &from_system(BUSYBOX)?);
    layer.file("bin/bash", 0o755, &from_system(BASH)?);
    let applets = run(
        command(BUSYBOX.0, ["--list"]),
        std::time::Duration::from_secs(10),
    )?;
    for applet in applets
        .lines()
        .filter(|it| !["busybox", "bash"].contains(it))
    {
        layer.link(&format!("bin/{applet}"), "busybox");
    }
    layer.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n");
    layer.file("etc/group", 0o644, b"root:x:0:\n");
    Ok(archive(AGNHOST, &["/agnhost"], &["pause"], &layer.finish()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(at("read", path))
}

fn from_system((path, package): (&str, &str)) -> Result<Vec<u8>> {
    fs::read(path).map_err(|_| -> Error { Missing::into(from_debian(path, package)) })
}

/// Combines a layer with its config and manifest.
fn archive(names: &[&str], entrypoint: &[&str], arguments: &[&str], layer: &[u8]) -> Vec<u8> {
    let list = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|it| quoted(it)).collect();
        format!("[{}]", words.join(","))
    };
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        "x86_64" => "amd64",
        other => other,
    };
    let config = format!(
        r#"{{"architecture":"{architecture}","os":"linux","config":{{"Entrypoint":{},"Cmd":{},"Env":["PATH=/bin:/usr/bin"],"WorkingDir":"/"}},"rootfs":{{"type":"layers","diff_ids":["sha256:{}"]}}}}"#,
        list(entrypoint),
        list(arguments),
        hash(layer)
    );
    let name = format!("{}.json", hash(config.as_bytes()));
    let manifest = format!(
        r#"[{{"Config":"{name}","RepoTags":{},"Layers":["layer.tar"]}}]"#,
        list(names)
    );
    let mut archive = Archive::default();
    archive.file(&name, 0o644, config.as_bytes());
    archive.file("layer.tar", 0o644, layer);
    archive.file("manifest.json", 0o644, manifest.as_bytes());
    archive.finish()
}

fn hash(bytes: &[u8]) -> String {
    let mut letters = String::new();
    for byte in digest(&SHA256, bytes).as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(letters, "{byte:02x}");
    }
    letters
}

/// An image of one program with its shared libraries, under a name: it behaves like an image of a
/// static program, and needs no second build.
pub fn program_image(program: &Path, name: &str) -> Result<Vec<u8>> {
    let mut layer = Archive::default();
    let bytes = stripped(program)?;
    let file = program.file_name().and_then(|it| it.to_str());
    let file = file.unwrap_or("program").to_owned();
    let linked = run(
        command("ldd", [program.as_os_str()]),
        std::time::Duration::from_secs(10),
    );
    let mut made = std::collections::BTreeSet::new();
    // For a static program ldd fails.
    for line in linked.unwrap_or_default().lines() {
        let path = line.split_whitespace().find(|it| it.starts_with('/'));
        let Some(path) = path.map(Path::new) else {
            continue;
        };
        let ancestors: Vec<&Path> = path.ancestors().skip(1).collect();
        for directory in ancestors.into_iter().rev() {
            let inside = directory.strip_prefix("/").unwrap_or(directory);
            let inside = inside.to_string_lossy().into_owned();
            if !inside.is_empty() && made.insert(inside.clone()) {
                layer.directory(&inside, 0o755);
            }
        }
        let inside = path.strip_prefix("/").unwrap_or(path);
        layer.file(&inside.to_string_lossy(), 0o755, &read(path)?);
    }
    layer.file(&file, 0o755, &bytes);
    let entrypoint = format!("/{file}");
    Ok(archive(&[name], &[&entrypoint], &[], &layer.finish()))
}

/// A program without debug symbols, if `strip` is installed.
fn stripped(program: &Path) -> Result<Vec<u8>> {
    let scratch = tempfile::tempdir().map_err(at("make a directory for", program))?;
    let copy = scratch.path().join("program");
    let mut strip = command("strip", ["-o".as_ref(), copy.as_os_str()]);
    strip.arg(program);
    match run(strip, std::time::Duration::from_secs(60)) {
        Ok(_) => read(&copy),
        Err(_) => read(program),
    }
}
