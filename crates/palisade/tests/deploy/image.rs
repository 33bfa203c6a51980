//! `deploy/image/build`: the same binary gives the same archive, and its parts name each other
//! rightly.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::{Test, root};

pub(crate) const TESTS: [Test; 4] = [
    ("image_is_the_same_for_the_same_binary", is_the_same),
    ("image_holds_together", holds_together),
    ("image_is_for_the_binarys_processor", is_for_the_processor),
    ("image_takes_no_broken_input", takes_no_broken_input),
];

const X86_64: u16 = 62;
const AARCH64: u16 = 183;
const PT_LOAD: u32 = 1;
const PT_INTERP: u32 = 3;

/// The least that is a binary for the script: an ELF header and one entry of its program table.
fn binary(machine: u16, segment: u32) -> Vec<u8> {
    let mut file = vec![0; 64 + 56];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    file[18..20].copy_from_slice(&machine.to_le_bytes());
    file[32..40].copy_from_slice(&64_u64.to_le_bytes());
    file[54..56].copy_from_slice(&56_u16.to_le_bytes());
    file[56..58].copy_from_slice(&1_u16.to_le_bytes());
    file[64..68].copy_from_slice(&segment.to_le_bytes());
    file.extend_from_slice(b"what it does");
    file
}

fn build(directory: &Path, binary: &[u8], out: &str, more: &[&str]) -> Output {
    let path = directory.join("palisade-binary");
    std::fs::write(&path, binary).unwrap();
    Command::new("bash")
        .arg(root().join("deploy/image/build"))
        .arg("--binary")
        .arg(path)
        .arg("--out")
        .arg(directory.join(out))
        .args(more)
        .output()
        .unwrap()
}

#[track_caller]
fn built(directory: &Path, binary: &[u8], out: &str, more: &[&str]) -> String {
    let output = build(directory, binary, out, more);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

/// The files of an archive.
fn unpack(archive: &Path, into: &Path) {
    std::fs::create_dir_all(into).unwrap();
    let status = Command::new("tar")
        .arg("-xf")
        .arg(archive)
        .arg("-C")
        .arg(into)
        .status();
    assert!(status.unwrap().success());
}

fn sha256(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(' ').next().unwrap().to_owned()
}

fn is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let output = built(directory, &binary(X86_64, PT_LOAD), "one.tar", &[]);
    // Another time, place and mode of the same bytes.
    let other = directory.join("elsewhere");
    std::fs::create_dir(&other).unwrap();
    let output_again = built(&other, &binary(X86_64, PT_LOAD), "one.tar", &[]);
    let read = |path: &Path| std::fs::read(path.join("one.tar")).unwrap();
    assert!(read(directory) == read(&other), "the archives differ");
    let without_path = |output: &str| output.lines().take(4).collect::<Vec<_>>().join("\n");
    assert_eq!(without_path(&output), without_path(&output_again));

    let mut changed = binary(X86_64, PT_LOAD);
    changed.push(1);
    let output = built(directory, &changed, "two.tar", &[]);
    assert_ne!(without_path(&output), without_path(&output_again));
}

fn holds_together() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let bytes = binary(X86_64, PT_LOAD);
    let output = built(
        directory,
        &bytes,
        "image.tar.gz",
        &["--tag", "registry.example/net/palisade:1.2"],
    );
    let image = directory.join("image");
    unpack(&directory.join("image.tar.gz"), &image);
    let json = |path: &str| -> Value {
        let text = std::fs::read_to_string(image.join(path)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let blob = |descriptor: &Value| -> String {
        let digest = descriptor["digest"].as_str().unwrap();
        let path = digest.replace("sha256:", "blobs/sha256/");
        assert_eq!(format!("sha256:{}", sha256(&image.join(&path))), digest);
        let length = std::fs::metadata(image.join(&path)).unwrap().len();
        assert_eq!(descriptor["size"], length, "{digest}");
        path
    };
    // The layout of OCI: index, manifest, config, layer.
    assert_eq!(json("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}));
    let first = &json("index.json")["manifests"][0];
    assert_eq!(
        first["annotations"]["io.containerd.image.name"],
        "registry.example/net/palisade:1.2"
    );
    assert_eq!(
        first["annotations"]["org.opencontainers.image.ref.name"],
        "1.2"
    );
    assert!(
        output.contains(first["digest"].as_str().unwrap()),
        "{output}"
    );
    let manifest = json(&blob(first));
    let config_path = blob(&manifest["config"]);
    assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
    let layer_path = blob(&manifest["layers"][0]);
    let config = json(&config_path);
    // The layer is not compressed: its digest is that of its contents.
    assert_eq!(
        config["rootfs"]["diff_ids"],
        json!([manifest["layers"][0]["digest"]])
    );
    assert_eq!(config["config"]["Entrypoint"], json!(["/palisade"]));
    assert_eq!(config["config"]["User"], "0:0");
    let labels = &config["config"]["Labels"];
    assert_eq!(
        labels["org.opencontainers.image.version"],
        env!("CARGO_PKG_VERSION")
    );

    // The same in docker's words.
    let docker = json!([{
        "Config": config_path,
        "RepoTags": ["registry.example/net/palisade:1.2"],
        "Layers": [layer_path],
    }]);
    assert_eq!(json("manifest.json"), docker);

    // One file, owned by root.
    let listing = Command::new("tar")
        .args(["--numeric-owner", "--full-time", "-tvf"])
        .arg(image.join(&layer_path))
        .env("TZ", "UTC0")
        .output()
        .unwrap();
    let listing = String::from_utf8(listing.stdout).unwrap();
    let words: Vec<&str> = listing.split_whitespace().collect();
    assert_eq!(words.len(), 6, "{listing}");
    assert_eq!((words[0], words[1]), ("-rwxr-xr-x", "0/0"));
    assert_eq!(words[2], bytes.len().to_string());
    assert_eq!(
        (words[3], words[4], words[5]),
        ("1970-01-01", "00:00:00", "palisade")
    );
    unpack(&image.join(&layer_path), &directory.join("root"));
    assert_eq!(
        std::fs::read(directory.join("root/palisade")).unwrap(),
        bytes
    );
}

fn is_for_the_processor() {
    let directory = tempfile::tempdir().unwrap();
    let names = BTreeMap::from([(X86_64, "linux/amd64"), (AARCH64, "linux/arm64")]);
    for (machine, name) in names {
        let output = built(
            directory.path(),
            &binary(machine, PT_LOAD),
            "image.tar",
            &[],
        );
        assert!(output.contains(name), "{output}");
    }
}

fn takes_no_broken_input() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let good = binary(X86_64, PT_LOAD);
    let cases: [(Vec<u8>, &[&str], &str); 6] = [
        (binary(X86_64, PT_INTERP), &[], "linked dynamically"),
        (binary(8, PT_LOAD), &[], "for an unsupported processor"),
        (
            b"#!/bin/sh\n".to_vec(),
            &[],
            "is not a 64-bit little-endian ELF file",
        ),
        (good.clone(), &["--tag", "palisade"], "write HOST/NAME:TAG"),
        (
            good.clone(),
            &["--tag", "x.example/p:1\",\"a\":\""],
            "write HOST/NAME:TAG",
        ),
        (good, &["--what", "x"], "unknown option --what"),
    ];
    for (bytes, more, expected) in cases {
        let output = build(directory, &bytes, "none.tar", more);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(expected), "{error}");
        assert!(!directory.join("none.tar").exists());
    }
}
