//! The invariants of ARCHITECTURE.md, checked over `cargo metadata` and the sources.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "tidy/edges.rs"]
mod edges;
#[path = "tidy/invariants.rs"]
mod invariants;
#[path = "tidy/shape.rs"]
mod shape;
#[path = "tidy/words.rs"]
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// The packages of the workspace with the names of their dependencies, without those of tests.
fn packages() -> BTreeMap<String, (Value, BTreeSet<String>)> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version=1",
            "--no-deps",
            "--offline",
            "--locked",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let normal = dependencies.filter(|it| it["kind"].is_null());
            let names = normal
                .map(|it| it["name"].as_str().unwrap().to_owned())
                .collect();
            (
                package["name"].as_str().unwrap().to_owned(),
                (package.clone(), names),
            )
        });
    packages.collect()
}

fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
}

fn rust_files() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    sources(&root().join("fuzz/fuzz_targets"), &mut files);
    files.sort();
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.strip_prefix(root()).unwrap().to_owned(), text)
    };
    files.into_iter().map(read).collect()
}

fn is_test(path: &Path) -> bool {
    let path = path.to_string_lossy();
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

#[test]
fn core_knows_nothing() {
    let packages = packages();
    let allowed = ["ipnet", "rayon", "rustc-hash", "thiserror"].map(str::to_owned);
    let allowed = BTreeSet::from(allowed);
    let (_, dependencies) = &packages["palisade-core"];
    assert!(dependencies.is_subset(&allowed), "{dependencies:?}");
}

#[test]
fn api_knows_types_and_text_only() {
    let packages = packages();
    let allowed = [
        "palisade-core",
        "flate2",
        "memchr",
        "rayon",
        "saphyr-parser",
    ]
    .map(str::to_owned);
    let (_, dependencies) = &packages["palisade-api"];
    assert!(
        dependencies.is_subset(&BTreeSet::from(allowed)),
        "{dependencies:?}"
    );
    for (path, text) in rust_files() {
        if path.starts_with("crates/api/src") || path.starts_with("crates/core/src") {
            let code = text.split("#[cfg(test)]").next().unwrap();
            for world in [
                "std::fs",
                "std::net::Tcp",
                "std::process",
                "std::env",
                "SystemTime",
                "Instant",
            ] {
                assert!(!code.contains(world), "{} uses {world}", path.display());
            }
        }
    }
}

fn is_shipped(path: &Path) -> bool {
    let unshipped = [
        "crates/bench",
        "crates/campaigns",
        "crates/e2e",
        "crates/generate",
        "crates/need",
        "crates/skipped",
    ];
    !unshipped.iter().any(|it| path.starts_with(it)) && !is_test(path)
}

/// Fails if a shipped file outside a directory has a word that only that directory may have.
#[track_caller]
fn only_in(directory: &str, word: &str) {
    only_in_these(&[directory], word);
}

fn only_in_these(directories: &[&str], word: &str) {
    for (path, text) in rust_files() {
        let shipped = is_shipped(&path);
        if shipped && !directories.iter().any(|it| path.starts_with(it)) {
            assert!(!text.contains(word), "{} has {word}", path.display());
        }
    }
}

#[test]
fn only_nft_speaks_with_nftables() {
    let packages = packages();
    let allowed = ["palisade-core", "netlink-sys", "nix", "rustix", "thiserror"].map(str::to_owned);
    let (_, dependencies) = &packages["palisade-nft"];
    assert!(
        dependencies.is_subset(&BTreeSet::from(allowed)),
        "{dependencies:?}"
    );
    only_in("crates/nft/src", "NETLINK_NETFILTER");
    for (path, text) in rust_files() {
        if path.starts_with("crates/nft/src") {
            for world in ["std::fs", "std::process", "std::env", "SystemTime"] {
                assert!(!text.contains(world), "{} uses {world}", path.display());
            }
        }
    }
}

#[test]
fn names_in_the_kernel_cannot_hold_text_of_users() {
    let text = std::fs::read_to_string(root().join("crates/nft/src/ruleset.rs")).unwrap();
    assert!(text.contains("pub struct Name(String);"), "Name is open");
    let start = text.find("impl Name {").unwrap();
    let made = text[start..].split("\n}\n").next().unwrap();
    let signatures = made.split("pub fn ").skip(1);
    let makers: Vec<&str> = signatures
        .map(|it| it.split('{').next().unwrap())
        .filter(|it| it.contains("-> Name"))
        .collect();
    assert!(makers.len() >= 4, "{makers:?}");
    for maker in makers {
        let others = maker.replace("&'static str", "");
        assert!(
            !others.contains("str") && !others.contains("String"),
            "{maker}"
        );
    }
    // The text is private to that file, where nothing else makes a name.
    let rest = text
        .replace(made, "")
        .replace("pub struct Name(String);", "");
    let is_made = |(at, _): (usize, &str)| !rest[..at].ends_with(char::is_alphanumeric);
    assert!(!rest.match_indices("Name(").any(is_made), "a name is made");
}

#[test]
fn only_the_lab_makes_namespaces_and_sends_packets() {
    let packages = packages();
    let allowed = [
        "palisade-core",
        "palisade-nft",
        "crc32c",
        "etherparse",
        "netlink-packet-core",
        "netlink-packet-route",
        "netlink-sys",
        "nix",
        "rustc-hash",
        "rustix",
        "socket2",
        "thiserror",
    ];
    let (_, dependencies) = &packages["palisade-lab"];
    assert!(
        dependencies.is_subset(&BTreeSet::from(allowed.map(str::to_owned))),
        "{dependencies:?}"
    );
    for word in ["CLONE_NEW", "setns(", "socket2", "UdpSocket"] {
        only_in("crates/lab/src", word);
    }
}

#[test]
fn the_lab_makes_links_and_routes_and_only_one_other_asks_for_them() {
    let packages = packages();
    let allowed = [
        "netlink-packet-core",
        "netlink-packet-route",
        "netlink-sys",
        "nix",
        "thiserror",
    ];
    let (_, dependencies) = &packages["palisade-route"];
    assert_eq!(
        dependencies,
        &BTreeSet::from(allowed.map(str::to_owned)),
        "{dependencies:?}"
    );
    only_in_these(&["crates/lab/src", "crates/route/src"], "NETLINK_ROUTE");
    // It only reads.
    for (path, text) in rust_files() {
        if path.starts_with("crates/route/src") {
            for word in [
                "NLM_F_CREATE",
                "SetLink",
                "DelRoute",
                "DelLink",
                "fs::write",
            ] {
                assert!(!text.contains(word), "{} has {word}", path.display());
            }
        }
    }
}

#[test]
fn only_the_watch_waits_for_files() {
    let packages = packages();
    let (_, dependencies) = &packages["palisade-watch"];
    let allowed = BTreeSet::from(["nix".to_owned()]);
    assert!(dependencies.is_subset(&allowed), "{dependencies:?}");
    only_in("crates/watch/src", "nix::sys::inotify");
}

#[test]
fn the_crds_are_data() {
    let packages = packages();
    let (_, dependencies) = &packages["palisade-crds"];
    assert_eq!(dependencies, &BTreeSet::from(["serde_json".to_owned()]));
    for (path, text) in rust_files() {
        if path.starts_with("crates/crds/src") {
            for world in ["std::fs", "std::process", "std::env", "SystemTime"] {
                assert!(!text.contains(world), "{} uses {world}", path.display());
            }
        }
    }
}

#[test]
fn the_loop_knows_no_world() {
    // Time, kernel and source are parameters of what decides. These files carry it out, listen or
    // answer; any other one decides, also one that is new.
    let edges = [
        "backend/nft/enforce.rs",
        // A model for unit tests.
        "backend/memory.rs",
        "cluster.rs",
        "drive.rs",
        "drive/",
        "files.rs",
        "lib.rs",
        "metrics.rs",
        "process.rs",
        "http.rs",
    ];
    let mut deciding = BTreeSet::new();
    for (path, text) in rust_files() {
        let Ok(path) = path.strip_prefix("crates/agent/src") else {
            continue;
        };
        let path = path.to_str().unwrap();
        if edges.iter().any(|it| path.starts_with(it)) {
            continue;
        }
        deciding.insert(path.to_owned());
        for world in [
            "std::fs",
            "std::net::Tcp",
            "Instant",
            "SystemTime",
            "thread",
            "Kernel::",
            "Kernel,",
            "Kernel}",
            "Conntrack",
            "tokio",
            "std::env",
            "std::process",
        ] {
            assert!(!text.contains(world), "{path}: {world}");
        }
    }
    for path in [
        "agent.rs",
        "events.rs",
        "generations.rs",
        "throttle.rs",
        "latency.rs",
    ] {
        assert!(deciding.contains(path), "{path} does not decide any more");
    }
}

#[test]
fn only_one_backend_of_the_agent_uses_palisade_nft() {
    let mut naming = 0;
    for (path, text) in rust_files() {
        let Ok(path) = path.strip_prefix("crates/agent/src") else {
            continue;
        };
        let path = path.to_str().unwrap();
        if path == "backend/nft.rs" || path.starts_with("backend/nft/") {
            naming += usize::from(text.contains("palisade_nft"));
        } else {
            assert!(!text.contains("palisade_nft"), "{path} uses palisade-nft");
        }
    }
    assert!(naming > 0, "no backend uses palisade-nft");
}

/// What of a text sets up a node's kernel in a way that the agent cannot.
fn beyond_the_agent(text: &str) -> Option<&'static str> {
    let untracked = ".untracked";
    if text.contains(untracked) {
        return Some(untracked);
    }
    // A value that is written out, not the type that a function returns or a block is for.
    let is_value = |(at, _): (usize, &str)| {
        let before = text[..at].trim_end();
        let is_other = before.ends_with(|it: char| it.is_alphanumeric() || it == '_');
        !(before.ends_with("->") || is_other && before.len() == at)
    };
    let mut settings = text.match_indices("Settings {");
    settings.any(is_value).then_some("Settings { .. }")
}

#[test]
fn no_test_configures_the_kernel_as_the_agent_cannot() {
    // The tests of rulesets themselves try everything that a ruleset can have.
    let own = Path::new("crates/palisade/tests/tidy.rs");
    for (path, text) in rust_files() {
        if !path.starts_with("crates/nft") && path != own {
            let beyond = beyond_the_agent(&text);
            assert!(
                beyond.is_none(),
                "{} has {}: settings of nodes are made by Settings::of_node alone",
                path.display(),
                beyond.unwrap_or_default()
            );
        }
    }
    for wrong in [
        "settings.untracked.push(it);",
        "settings\n    .untracked\n    .push(it);",
        "let settings = Settings {\n    generation,\n    ..before\n};",
        "f(&node::Settings { generation, ..before })",
    ] {
        assert!(beyond_the_agent(wrong).is_some(), "{wrong}");
    }
    for right in [
        "fn settings(generation: Generation) -> Settings {",
        "let setting = LintSettings { level };",
        "Settings::of_node(generation, &options)",
    ] {
        assert!(beyond_the_agent(right).is_none(), "{right}");
    }
}

#[test]
fn the_oracle_shares_no_code_with_the_engine() {
    let packages = packages();
    let allowed = ["ipnet", "serde_json"].map(str::to_owned);
    let (_, dependencies) = &packages["palisade-oracle"];
    assert!(
        dependencies.is_subset(&BTreeSet::from(allowed)),
        "{dependencies:?}"
    );
}

#[test]
fn lowering_compiling_deciding_and_planning_cannot_fail() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    for (path, function) in [
        ("crates/api/src/lower.rs", "pub fn lower<"),
        ("crates/core/src/compile.rs", "pub fn compile("),
        ("crates/core/src/decide.rs", "pub fn decide("),
        ("crates/core/src/explain.rs", "pub fn trail("),
        ("crates/core/src/plan/planner.rs", "pub fn plan("),
        ("crates/nft/src/node.rs", "pub fn ruleset("),
    ] {
        let text = read(path);
        let signature = text.split(function).nth(1).unwrap();
        let signature = signature.split('{').next().unwrap();
        assert!(
            !signature.contains("Result") && !signature.contains("Option<Decision"),
            "{path}: {signature}"
        );
    }
}

#[test]
fn lowering_does_not_compile() {
    // What an object means depends on no program: sources are lowered where nothing is compiled.
    for (path, text) in rust_files() {
        let is_lowering = path.starts_with("crates/api/src/lower")
            || path == Path::new("crates/api/src/lower.rs");
        if is_lowering && !is_test(&path) {
            assert!(!text.contains("compile::"), "{} compiles", path.display());
        }
    }
}

#[test]
fn every_decision_that_the_code_cites_is_in_the_model() {
    let model = std::fs::read_to_string(root().join("docs/reference/model.md")).unwrap();
    let mut cited = BTreeSet::new();
    for (path, text) in rust_files() {
        for (at, _) in text.match_indices('D') {
            let before = text[..at].chars().next_back().unwrap_or(' ');
            let digits: String = text[at + 1..]
                .chars()
                .take_while(char::is_ascii_digit)
                .collect();
            let after = text[at + 1 + digits.len()..].chars().next().unwrap_or(' ');
            let is_alone = !before.is_alphanumeric() && !after.is_alphanumeric() && after != '_';
            if !digits.is_empty() && digits.len() <= 3 && is_alone {
                cited.insert((digits.parse::<u32>().unwrap(), path.clone()));
            }
        }
    }
    assert!(cited.len() > 100, "{}", cited.len());
    for (number, path) in cited {
        assert!(
            model.contains(&format!("**D{number}**")),
            "{} cites D{number}, which docs/reference/model.md does not state",
            path.display()
        );
    }
}

#[test]
fn reading_cannot_fail() {
    let text = std::fs::read_to_string(root().join("crates/api/src/manifest.rs")).unwrap();
    let signature = text
        .split("pub fn read<'a>(")
        .nth(1)
        .unwrap()
        .split('{')
        .next()
        .unwrap();
    assert!(signature.contains("-> Manifests<'a>"), "{signature}");
}

#[test]
fn arrows_point_inwards_and_measuring_crates_are_not_shipped() {
    // A crate, and those that may depend on it.
    let users: [(&str, &[&str]); 7] = [
        // Its library proves proposals, which a campaign tries.
        ("palisade", &["palisade-campaigns"]),
        ("palisade-bench", &[]),
        ("palisade-e2e", &[]),
        ("palisade-campaigns", &["palisade-e2e"]),
        (
            "palisade-generate",
            &["palisade-bench", "palisade-campaigns", "palisade-e2e"],
        ),
        ("palisade-oracle", &["palisade-campaigns", "palisade-e2e"]),
        ("palisade-testbed", &["palisade-e2e"]),
    ];
    let packages = packages();
    for (name, (package, dependencies)) in &packages {
        for (crate_, users) in users {
            assert!(
                !dependencies.contains(crate_) || users.contains(&name.as_str()),
                "{name} depends on {crate_}"
            );
        }
        let private = package["publish"].as_array().is_some_and(Vec::is_empty);
        let unshipped = [
            "palisade-bench",
            "palisade-campaigns",
            "palisade-e2e",
            "palisade-generate",
            "palisade-need",
            "palisade-oracle",
            "palisade-testbed",
            "palisade-z-skipped",
        ];
        let unshipped = unshipped.contains(&name.as_str());
        assert_eq!(private, unshipped, "{name}: publish");
    }
}

#[test]
fn only_the_view_is_serialized() {
    for (path, text) in rust_files() {
        let shipped = is_shipped(&path);
        let is_view = path == Path::new("crates/palisade/src/view.rs")
            || path.starts_with("crates/palisade/src/view");
        if shipped && !is_view {
            assert!(!text.contains("Serialize"), "{} serializes", path.display());
        }
    }
}

#[test]
fn every_file_says_what_it_is_for_and_stays_small() {
    for (path, text) in rust_files() {
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("//! ") && first.len() > 10,
            "{}: {first:?}",
            path.display()
        );
        let lines = text.lines().count();
        assert!(lines <= 650, "{} has {lines} lines", path.display());
        for word in [
            "todo!",
            "unimplemented!",
            "dbg!",
            concat!("TO", "DO"),
            concat!("FIX", "ME"),
        ] {
            let own = path == Path::new("crates/palisade/tests/tidy.rs");
            assert!(own || !text.contains(word), "{}: {word}", path.display());
        }
    }
}

#[test]
fn examples_hold_manifests_only() {
    for example in root().join("examples").read_dir().unwrap() {
        let example = example.unwrap().path();
        assert!(example.is_dir(), "{}", example.display());
        for file in example.read_dir().unwrap() {
            let file = file.unwrap().path();
            let manifest = file
                .extension()
                .is_some_and(|it| it == "yaml" || it == "json");
            assert!(manifest, "{}", file.display());
        }
    }
}
