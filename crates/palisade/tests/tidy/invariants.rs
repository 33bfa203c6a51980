//! Every invariant of ARCHITECTURE.md, clause by clause, with the tests that check it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{packages, root};

/// A clause of an invariant, and where it is checked: a test of this file's program, or `FILE: NAME` for a test of
/// another one that runs the crate. An empty list: the clause only gives the reason of the one before.
struct Clause {
    package: &'static str,
    words: &'static str,
    tests: &'static [&'static str],
}

const fn clause(
    package: &'static str,
    words: &'static str,
    tests: &'static [&'static str],
) -> Clause {
    Clause {
        package,
        words,
        tests,
    }
}

/// The clauses of a package, one after the other, are its bold sentence.
const CLAUSES: &[Clause] = &[
    clause(
        "palisade-core",
        "It depends on `ipnet`, `rayon`, `rustc-hash` and `thiserror` only:",
        &["core_knows_nothing"],
    ),
    clause(
        "palisade-core",
        "no I/O, no clock, no randomness, no serde, no Kubernetes;",
        &["core_knows_nothing", "api_knows_types_and_text_only"],
    ),
    clause(
        "palisade-core",
        "`compile` and `decide` cannot fail.",
        &["lowering_compiling_deciding_and_planning_cannot_fail"],
    ),
    clause(
        "palisade-api",
        "It does no I/O",
        &["api_knows_types_and_text_only"],
    ),
    clause(
        "palisade-api",
        "and cannot fail: `read` returns objects and problems, never a `Result`.",
        &[
            "reading_cannot_fail",
            "lowering_compiling_deciding_and_planning_cannot_fail",
        ],
    ),
    clause(
        "palisade-nft",
        "Only this crate writes messages of nftables and conntrack,",
        &["only_nft_speaks_with_nftables"],
    ),
    clause(
        "palisade-nft",
        "and they contain no text of users: a name is made of our own words, numbers and addresses.",
        &["names_in_the_kernel_cannot_hold_text_of_users"],
    ),
    clause(
        "palisade-lab",
        "Only this crate makes namespaces and sends packets,",
        &["only_the_lab_makes_namespaces_and_sends_packets"],
    ),
    clause(
        "palisade-lab",
        "and no packet leaves the namespaces made for it.",
        &["the_lab_opens_its_sockets_inside_its_namespaces"],
    ),
    clause(
        "palisade-agent",
        "The parts that decide know no clock, no kernel and no file,",
        &["the_loop_knows_no_world"],
    ),
    clause(
        "palisade-agent",
        "and only `backend/nft` uses `palisade-nft`.",
        &["only_one_backend_of_the_agent_uses_palisade_nft"],
    ),
    clause(
        "palisade-kube",
        "It knows the protocol and no policy:",
        &["kube_knows_the_protocol_and_no_policy"],
    ),
    clause(
        "palisade-kube",
        "it returns objects as the bytes that the server sent, keeps none of them,",
        &["kube_hands_objects_on_as_bytes_and_keeps_none"],
    ),
    clause(
        "palisade-kube",
        "and writes nothing but Events to a server.",
        &["nothing_but_events_is_written_to_a_server"],
    ),
    clause(
        "palisade-route",
        "It only reads.",
        &["the_lab_makes_links_and_routes_and_only_one_other_asks_for_them"],
    ),
    clause(
        "palisade-crds",
        "It depends on `serde_json` only, and its documents are a pure function of the channel.",
        &["the_crds_are_data"],
    ),
    clause(
        "palisade-watch",
        "It knows paths and bytes only:",
        &["only_the_watch_waits_for_files"],
    ),
    clause(
        "palisade-watch",
        "an unreadable file is a value beside its last good content,",
        &["crates/watch/tests/files.rs: fn an_unreadable_file_keeps_its_last_content"],
    ),
    clause(
        "palisade-watch",
        "and it writes nothing.",
        &["the_watch_writes_nothing"],
    ),
    clause(
        "palisade",
        "Only this crate prints text,",
        &["only_the_program_prints"],
    ),
    clause(
        "palisade",
        "and only `view.rs` and `view/` derive `Serialize`.",
        &["only_the_view_is_serialized"],
    ),
    clause(
        "palisade-oracle",
        "It shares no code with the engine,",
        &["the_oracle_shares_no_code_with_the_engine"],
    ),
    clause(
        "palisade-oracle",
        "and no shipped crate depends on it.",
        &["arrows_point_inwards_and_measuring_crates_are_not_shipped"],
    ),
    clause(
        "palisade-generate",
        "It is not shipped,",
        &["arrows_point_inwards_and_measuring_crates_are_not_shipped"],
    ),
    clause(
        "palisade-campaigns",
        "It is not shipped,",
        &["arrows_point_inwards_and_measuring_crates_are_not_shipped"],
    ),
    clause(
        "palisade-e2e",
        "It is not shipped,",
        &["arrows_point_inwards_and_measuring_crates_are_not_shipped"],
    ),
    clause(
        "palisade-e2e",
        "and no other crate depends on it.",
        &["arrows_point_inwards_and_measuring_crates_are_not_shipped"],
    ),
    clause(
        "palisade-bench",
        "It is not shipped,",
        &["arrows_point_inwards_and_measuring_crates_are_not_shipped"],
    ),
    clause(
        "palisade-bench",
        "and no other crate depends on it.",
        &["arrows_point_inwards_and_measuring_crates_are_not_shipped"],
    ),
    clause(
        "palisade-generate",
        "and the same seed gives the same bytes.",
        &["crates/generate/src/tests.rs: fn the_same_seed_gives_the_same_bytes"],
    ),
    clause(
        "palisade-campaigns",
        "and it needs no cluster and no API server.",
        &["the_testbed_is_for_tests_and_depends_on_none_of_ours"],
    ),
    clause(
        "palisade-need",
        "It depends on none of ours:",
        &["what_tests_need_is_found_without_the_programs_under_test"],
    ),
    clause(
        "palisade-need",
        "no program under test decides whether it is tested.",
        &["what_tests_need_is_found_without_the_programs_under_test"],
    ),
    clause(
        "palisade-z-skipped",
        "It fails if a required test was skipped.",
        &["the_last_test_fails_if_something_was_skipped"],
    ),
    clause(
        "palisade-testbed",
        "It makes everything in one directory, in namespaces, or with its mark;",
        &["what_the_testbed_starts_carries_its_mark"],
    ),
    clause(
        "palisade-testbed",
        "`down` removes all of it however the starter ended;",
        &["crates/testbed/tests/cluster.rs: down leaves nothing after a killed start"],
    ),
    clause(
        "palisade-testbed",
        "no test builds its programs,",
        &["no_test_builds_the_programs_of_the_testbed"],
    ),
    clause(
        "palisade-testbed",
        "and no shipped crate depends on it.",
        &[
            "arrows_point_inwards_and_measuring_crates_are_not_shipped",
            "the_testbed_is_for_tests_and_depends_on_none_of_ours",
        ],
    ),
];

/// The section of ARCHITECTURE.md about a package.
fn section(text: &str, package: &str) -> String {
    let ending = format!(": `{package}`");
    let section = text.split("\n## ").find(|section| {
        let heading = section.lines().next().unwrap_or_default();
        heading.starts_with("crates/") && heading.ends_with(&ending)
    });
    let section = section.unwrap_or_else(|| panic!("ARCHITECTURE.md has no section on {package}"));
    section.to_owned()
}

#[test]
fn every_invariant_of_the_architecture_has_a_test() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut clauses: BTreeMap<&str, Vec<&Clause>> = BTreeMap::new();
    for clause in CLAUSES {
        clauses.entry(clause.package).or_default().push(clause);
    }
    for package in packages().keys() {
        let section = section(&text, package);
        let bold: Vec<&str> = section.split("**").collect();
        assert_eq!(bold.len(), 3, "one bold invariant for {package}");
        let sentence: Vec<&str> = bold[1].split_whitespace().collect();
        let of_package = clauses.remove(package.as_str());
        let of_package = of_package.unwrap_or_else(|| panic!("no clause of {package} is checked"));
        let checked: Vec<&str> = of_package.iter().map(|it| it.words).collect();
        assert_eq!(
            checked.join(" "),
            sentence.join(" "),
            "the invariant of {package} is another one now: check every clause of it"
        );
        assert!(
            of_package.iter().any(|it| !it.tests.is_empty()),
            "the invariant of {package} has no test"
        );
    }
    assert!(clauses.is_empty(), "{:?}", clauses.keys());
}

#[test]
fn the_tests_of_invariants_exist() {
    let read = |path: &str| {
        let text = std::fs::read_to_string(root().join(path));
        text.unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let mut own = read("crates/palisade/tests/tidy.rs");
    for file in root()
        .join("crates/palisade/tests/tidy")
        .read_dir()
        .unwrap()
    {
        own += &std::fs::read_to_string(file.unwrap().path()).unwrap();
    }
    for test in CLAUSES.iter().flat_map(|it| it.tests) {
        match test.split_once(": ") {
            Some((file, name)) => assert!(read(file).contains(name), "{file} has no {name}"),
            None => assert!(
                own.contains(&format!("#[test]\nfn {test}() {{\n")),
                "there is no test {test}"
            ),
        }
    }
}

/// The arrows of the second drawing: who depends on whom, as it is drawn.
fn drawn_arrows(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let drawing = text.split("```").find(|it| it.contains('\u{25ba}'));
    let mut arrows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in drawing.unwrap().lines().filter(|it| !it.is_empty()) {
        let line = line.split("  (").next().unwrap();
        let line = line.replace('\u{2500}', "");
        let stops: Vec<BTreeSet<String>> = line
            .split('\u{25ba}')
            .map(|stop| stop.split(',').map(|it| it.trim().to_owned()).collect())
            .collect();
        for name in &stops[0] {
            arrows.entry(name.clone()).or_default();
        }
        for pair in stops.windows(2) {
            for from in &pair[0] {
                let to = pair[1].iter().cloned();
                arrows.entry(from.clone()).or_default().extend(to);
            }
        }
    }
    arrows
}

/// Everything that can be reached from a place by arrows.
fn reach(arrows: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(next) = open.pop() {
        for to in arrows.get(&next).into_iter().flatten() {
            if found.insert(to.clone()) {
                open.push(to.clone());
            }
        }
    }
    found
}

#[test]
fn the_drawing_has_the_arrows_that_there_are() {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let drawn = drawn_arrows(&text);
    let packages = packages();
    let arrows = packages.iter().map(|(name, (_, dependencies))| {
        let ours = dependencies.iter().filter(|it| packages.contains_key(*it));
        (name.clone(), ours.cloned().collect())
    });
    let arrows: BTreeMap<String, BTreeSet<String>> = arrows.collect();
    for name in packages.keys() {
        assert!(drawn.contains_key(name) || reach_anywhere(&drawn, name));
        assert_eq!(
            reach(&drawn, name),
            reach(&arrows, name),
            "what {name} depends on, as drawn and as it is"
        );
    }
}

fn reach_anywhere(arrows: &BTreeMap<String, BTreeSet<String>>, name: &str) -> bool {
    arrows.values().any(|it| it.contains(name))
}

#[test]
fn sections_are_those_of_the_packages() {
    // A section on a crate that is gone is as wrong as one that is missing.
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let packages = packages();
    let headings = text.lines().filter_map(|it| it.strip_prefix("## crates/"));
    let mut count = 0;
    for heading in headings {
        let (directory, name) = heading.split_once(": ").unwrap();
        let name = name.trim_matches('`');
        let (package, _) = &packages[name];
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let place = root().join("crates").join(directory).join("Cargo.toml");
        assert_eq!(manifest, place, "{heading}");
        count += 1;
    }
    assert_eq!(count, packages.len());
}
