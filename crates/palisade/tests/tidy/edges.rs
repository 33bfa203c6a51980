//! The invariants of the crates at the edges: API servers, files, terminals, namespaces and the
//! testbed.

use std::path::Path;

use serde_json::Value;

use super::{is_test, packages, root, rust_files};

/// What is shipped of a crate: its sources, without the tests in them.
fn shipped(directory: &str) -> Vec<(String, String)> {
    let files = rust_files().into_iter();
    let files = files.filter(|(path, _)| path.starts_with(directory) && !is_test(path));
    let files: Vec<(String, String)> = files
        .map(|(path, text)| {
            let code = text.split("#[cfg(test)]").next().unwrap();
            (path.display().to_string(), code.to_owned())
        })
        .collect();
    assert!(!files.is_empty(), "there is nothing in {directory}");
    files
}

/// What is shipped of all crates.
fn all_shipped() -> Vec<(String, String)> {
    let mut files = Vec::new();
    for (name, (package, _)) in packages() {
        let is_private = package["publish"].as_array().is_some_and(Vec::is_empty);
        if !is_private {
            let manifest = Path::new(package["manifest_path"].as_str().unwrap());
            let directory = manifest.parent().unwrap().strip_prefix(root()).unwrap();
            files.extend(shipped(directory.join("src").to_str().unwrap()));
        } else {
            assert!(name != "palisade", "the program is shipped");
        }
    }
    files
}

/// Fails if a file has one of some words.
#[track_caller]
fn has_none(files: &[(String, String)], words: &[&str]) {
    for (path, text) in files {
        for word in words {
            assert!(!text.contains(word), "{path} has {word}");
        }
    }
}

/// The names that follow a path in a file: `Kind` of `palisade_api::Kind`.
fn used(text: &str, path: &str) -> Vec<String> {
    let found = text.match_indices(path);
    let found = found.filter(|(at, _)| {
        let before = text[..*at].chars().next_back().unwrap_or(' ');
        !before.is_alphanumeric() && !matches!(before, '_' | ':')
    });
    let names = found.map(|(at, _)| {
        let rest = text[at + path.len()..].chars();
        rest.take_while(|it| it.is_alphanumeric() || matches!(it, '_' | ':' | '{' | '*'))
            .collect()
    });
    names.collect()
}

/// The text of an item, from its first word to the brace that closes it.
fn item<'t>(text: &'t str, start: &str) -> &'t str {
    let at = text.find(start);
    let at = at.unwrap_or_else(|| panic!("there is no {start}"));
    let length = text[at..].find("\n}").unwrap();
    &text[at..at + length]
}

#[test]
fn kube_knows_the_protocol_and_no_policy() {
    let allowed = [
        "palisade-api",
        "futures-util",
        "http",
        "k8s-openapi",
        "kube",
        "memchr",
        "serde",
        "serde_json",
        "thiserror",
        "tokio",
    ];
    let packages = packages();
    let (_, dependencies) = &packages["palisade-kube"];
    for name in dependencies {
        assert!(allowed.contains(&name.as_str()), "it depends on {name}");
    }
    // Of our types it knows the names of kinds, of Kubernetes' no object.
    let times = ["jiff::", "apimachinery::pkg::apis::meta::v1::Time"];
    for (path, text) in shipped("crates/kube/src") {
        for name in used(&text, "palisade_api::") {
            assert_eq!(name, "Kind", "{path}");
        }
        for name in used(&text, "k8s_openapi::") {
            let is_time = times.iter().any(|it| name.starts_with(it));
            assert!(is_time, "{path} uses k8s_openapi::{name}");
        }
        for name in used(&text, "kube::") {
            let first = name.split("::").next().unwrap();
            let is_client = matches!(first, "Client" | "config" | "Error");
            assert!(is_client, "{path} uses kube::{name}");
        }
    }
}

#[test]
fn kube_hands_objects_on_as_bytes_and_keeps_none() {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).unwrap();
    let follow = read("crates/kube/src/reflector.rs");
    // What it tells of objects is their bytes, and who they are.
    let news = item(&follow, "pub enum WatchEvent {");
    let mut payloads = 0;
    for line in news.lines().map(str::trim) {
        if let Some((_, payload)) = line.split_once('(')
            && !line.starts_with("//")
        {
            let payload = payload.trim_end_matches([')', ',']);
            let is_as_sent = matches!(payload, "Item" | "WatchProblem");
            assert!(is_as_sent, "{line}");
            payloads += 1;
        }
    }
    assert!(payloads >= 3, "{news}");
    let objects = read("crates/kube/src/item.rs");
    let named = item(&objects, "pub struct NamedObject {");
    let fields = named.lines().map(str::trim);
    let fields: Vec<&str> = fields.filter(|it| it.starts_with("pub ")).skip(1).collect();
    assert_eq!(
        fields,
        [
            "pub namespace: String,",
            "pub name: String,",
            "pub version: String,",
            "pub is_ending: bool,",
            "pub bytes: Vec<u8>,",
        ]
    );
    let get = read("crates/kube/src/get.rs");
    assert!(get.contains(") -> Result<Vec<String>, ListError> {"));
    // What lives longer than an answer has no room for objects.
    let access = read("crates/kube/src/access.rs");
    let gather = read("crates/kube/src/list_many.rs");
    let stream = read("crates/kube/src/watch.rs");
    for kept in [
        item(&follow, "pub struct Reflector {"),
        item(&follow, "enum ReflectorState {"),
        item(&access, "pub struct Server {"),
        item(&gather, "pub struct SyncClient {"),
        item(&stream, "pub struct WatchGate {"),
    ] {
        for word in ["Vec<", "Map", "Set<", "Page", "WatchEvent", "Line", "Value"] {
            assert!(!kept.contains(word), "{kept}\nhas {word}");
        }
    }
    let words = [
        "HashMap",
        "BTreeMap",
        "HashSet",
        "BTreeSet",
        "VecDeque",
        "static mut",
        "OnceLock",
        "LazyLock",
        "thread_local",
        "Mutex",
        "RwLock",
        "RefCell",
        "std::fs",
    ];
    has_none(&shipped("crates/kube/src"), &words);
}

#[test]
fn nothing_but_events_is_written_to_a_server() {
    // Only one crate that is shipped can speak with a server.
    for (name, (package, dependencies)) in packages() {
        let is_private = package["publish"].as_array().is_some_and(Vec::is_empty);
        let is_own = name == "palisade-kube";
        for client in [
            "kube",
            "kube-client",
            "http",
            "hyper",
            "hyper-util",
            "reqwest",
        ] {
            assert!(
                is_private || is_own || !dependencies.contains(client),
                "{name} depends on {client}"
            );
        }
    }
    let files = all_shipped();
    let words = [
        "Request::put",
        "Request::patch",
        "Request::delete",
        "Request::builder",
        "Method::",
        "kube::Api",
        "kube::api",
        "PostParams",
        "PatchParams",
        "DeleteParams",
    ];
    has_none(&files, &words);
    // It can make something at one place, and one place calls it.
    let count = |word: &str| -> Vec<(String, usize)> {
        let found = files.iter().map(|it| (it.0.clone(), it.1.matches(word)));
        let found = found.map(|(path, it)| (path, it.count()));
        found.filter(|it| it.1 > 0).collect()
    };
    let once = |path: &str| vec![(path.to_owned(), 1)];
    assert_eq!(count("Request::post("), once("crates/kube/src/access.rs"));
    assert_eq!(count(".post("), once("crates/kube/src/event.rs"));
    let event = std::fs::read_to_string(root().join("crates/kube/src/event.rs")).unwrap();
    let tell = item(&event, "impl Server {");
    assert!(
        tell.contains(r#"let path = "/apis/events.k8s.io/v1/namespaces/default/events";"#),
        "{tell}"
    );
    assert!(tell.contains("self.post(path, event.object())"), "{tell}");
}

#[test]
fn the_watch_writes_nothing() {
    let words = [
        "fs::write",
        "File::create",
        "OpenOptions",
        "remove_file",
        "remove_dir",
        "create_dir",
        "fs::rename",
        "fs::copy",
        "hard_link",
        "fs::symlink(",
        "set_permissions",
        "set_len",
        "std::process",
        "std::net",
    ];
    has_none(&shipped("crates/watch/src"), &words);
}

#[test]
fn only_the_program_prints() {
    let words = [
        "println!",
        "print!",
        "eprintln!",
        "eprint!",
        "stdout()",
        "stderr()",
    ];
    let others = all_shipped().into_iter();
    let others: Vec<(String, String)> = others
        .filter(|it| !it.0.starts_with("crates/palisade/"))
        .collect();
    has_none(&others, &words);
}

#[test]
fn the_lab_opens_its_sockets_inside_its_namespaces() {
    for (path, text) in shipped("crates/lab/src") {
        let opens = text.matches("Socket::new(").count();
        let netlink = text.matches("Socket::new(NETLINK_").count();
        let is_own = path.ends_with("/wire/sockets.rs");
        assert!(opens == netlink || is_own, "{path} opens a socket");
        // Code that opens one for packets does so in a place, which is a namespace of the lab.
        for maker in [
            "RawSender::open(",
            "CaptureSocket::of_pod(",
            "CaptureSocket::of_host(",
        ] {
            for (at, _) in text.match_indices(maker) {
                assert!(
                    text[..at].ends_with("run_in(place, || ")
                        || text[..at].ends_with("self.add_capture(place, || "),
                    "{path}: {maker} outside of a place"
                );
            }
        }
    }
    let open = std::fs::read_to_string(root().join("crates/lab/src/wire/open.rs")).unwrap();
    let add = open.split("fn add_capture(").nth(1).unwrap();
    let add = add.split("\n    }").next().unwrap();
    assert!(add.contains(".run_in(place, open)?"), "{add}");
}

/// The names of all dependencies of a package that are ours, those of its tests included.
fn ours(package: &Value) -> Vec<String> {
    let all = package["dependencies"].as_array().unwrap().iter();
    let names = all.map(|it| it["name"].as_str().unwrap().to_owned());
    names
        .filter(|it| it == "palisade" || it.starts_with("palisade-"))
        .collect()
}

#[test]
fn what_tests_need_is_found_without_the_programs_under_test() {
    let packages = packages();
    let (need, _) = &packages["palisade-need"];
    assert_eq!(ours(need), Vec::<String>::new());
    // Nor does it run one of them.
    for (path, text) in rust_files() {
        if path.starts_with("crates/need") {
            for word in ["CARGO_BIN_EXE", "palisade_lab", "palisade-lab"] {
                assert!(!text.contains(word), "{} has {word}", path.display());
            }
        }
    }
    for (name, (package, _)) in &packages {
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_shipped = !package["publish"].as_array().is_some_and(Vec::is_empty);
            if dependency["name"] == "palisade-need" && is_shipped {
                assert_eq!(dependency["kind"], "dev", "{name} is shipped with it");
            }
        }
    }
}

#[test]
fn the_last_test_fails_if_something_was_skipped() {
    // Cargo runs packages by their names, and this one is the last.
    let packages = packages();
    assert_eq!(packages.keys().next_back().unwrap(), "palisade-z-skipped");
    let text = std::fs::read_to_string(root().join("crates/skipped/tests/skipped.rs")).unwrap();
    let fails = "Require::All if skipped.total() > 0 => {\n                Err(";
    assert!(text.contains(fails), "{text}");
}

#[test]
fn the_testbed_is_for_tests_and_depends_on_none_of_ours() {
    let packages = packages();
    let (testbed, _) = &packages["palisade-testbed"];
    for name in ours(testbed) {
        assert_eq!(name, "palisade-need", "it depends on {name}");
    }
    // Others have it for their tests; the crate of whole clusters, which is not shipped, has it as
    // such.
    for (name, (package, _)) in &packages {
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["name"] == "palisade-testbed" {
                let is_for_tests = dependency["kind"] == "dev";
                assert!(is_for_tests || name == "palisade-e2e", "{name}");
            }
        }
    }
}

#[test]
fn words_of_the_program_never_decide_that_something_is_not_tested() {
    for (path, text) in rust_files() {
        let path = path.to_str().unwrap();
        if path.starts_with("crates/palisade/tests/tidy") || !path.contains("/tests/") {
            continue;
        }
        for words in [
            "cannot make network namespaces",
            "not tested",
            "not tried",
            "skipped: ",
            "with_ignored_flag",
            "#[ignore",
            "libtest_mimic::run",
        ] {
            let is_last = path == "crates/skipped/tests/skipped.rs";
            assert!(is_last || !text.contains(words), "{path} has {words:?}");
        }
    }
}

#[test]
fn only_four_files_have_unsafe_code() {
    let files = rust_files().into_iter();
    let files = files.filter(|(_, text)| {
        let words: Vec<&str> = text.split_whitespace().collect();
        words.join("").contains(concat!("allow(", "unsafe_code"))
    });
    let files: Vec<String> = files.map(|it| it.0.display().to_string()).collect();
    assert_eq!(
        files,
        [
            "crates/lab/src/privilege/start.rs",
            "crates/need/src/look.rs",
            "crates/route/src/bpf.rs",
            "crates/route/tests/root.rs",
        ]
    );
}

#[test]
fn no_test_builds_the_programs_of_the_testbed() {
    // The code that builds or downloads them, and the program that calls it.
    let builders = [
        "crates/testbed/src/build.rs",
        "crates/testbed/src/upstream.rs",
        "crates/testbed/src/main.rs",
        "crates/testbed/src/lib.rs",
    ];
    let mut built = 0;
    for (path, text) in rust_files() {
        let path = path.to_str().unwrap();
        if path.starts_with("crates/palisade/tests/tidy") {
            continue;
        }
        if builders.contains(&path) {
            built += text.matches("Extent::").count();
            built += text.matches("bring_upstream()").count();
            continue;
        }
        // Its program is the only one that can: no test runs that with `build`, nor Go.
        let knows_it = text.contains("palisade_testbed");
        assert!(
            !knows_it || !text.contains("Extent::") && !text.contains("bring_upstream"),
            "{path} builds programs"
        );
        assert!(!text.contains("Command::new(\"go\")"), "{path} runs Go");
        let runs_it = text.contains("CARGO_BIN_EXE_palisade-testbed");
        assert!(
            !runs_it || !text.contains("\"build\""),
            "{path} runs `palisade-testbed build`"
        );
    }
    assert!(built >= 4, "whether anything is built is not known");
}

#[test]
fn what_the_testbed_starts_carries_its_mark() {
    let files = shipped("crates/testbed/src");
    let spawns = files.iter().map(|it| (it.0.as_str(), &it.1));
    let spawns: Vec<(&str, usize)> = spawns
        .map(|(path, text)| (path, text.matches(".spawn()").count()))
        .filter(|it| it.1 > 0)
        .collect();
    // A process that stays has the mark; `run` waits for the end of its own, and the guard ends
    // with its owner.
    assert_eq!(
        spawns,
        [
            ("crates/testbed/src/guard.rs", 1),
            ("crates/testbed/src/process.rs", 2)
        ]
    );
    let process = std::fs::read_to_string(root().join("crates/testbed/src/process.rs")).unwrap();
    let start = process.split("pub(crate) fn start(").nth(1).unwrap();
    let start = start.split("\n    }").next().unwrap();
    let before = start.split(".spawn()").next().unwrap();
    assert!(before.contains(".env(MARK, mark)"), "{before}");
    let run = item(&process, "pub(crate) fn run(");
    assert!(run.contains("child.try_wait()") && run.contains("child.kill()"));
    // Files are made below the directory of a testbed, and by the build of its programs.
    for (path, text) in &files {
        let makers = ["/home.rs", "/build.rs", "/upstream.rs"];
        let is_home = makers.iter().any(|it| path.ends_with(it));
        for word in ["create_dir", "DirBuilder::new"] {
            assert!(is_home || !text.contains(word), "{path} has {word}");
        }
    }
}
