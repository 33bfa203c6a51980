//! The numbers of the table in `docs/reference/apis/crds.md` are right, and its codes and decisions
//! exist.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::path::Path;

fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

#[test]
fn what_check_adds_is_counted() {
    let page = text("docs/reference/apis/crds.md");
    let section = page
        .split("\n## ")
        .find(|it| it.starts_with("What `check` adds"));
    let section = section.unwrap();
    let rows: Vec<Vec<&str>> = section
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| code"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert!(
        section.contains(&format!("and the {} of this table", rows.len())),
        "{} rows",
        rows.len()
    );
    let problems = text("docs/reference/problems.md");
    let model = text("docs/reference/model.md");
    for row in rows {
        let [code, _, decision, channel] = row[..] else {
            panic!("{row:?}")
        };
        assert!(problems.contains(&format!("\n## {code}\n")), "{code}");
        assert!(model.contains(&format!("**{decision}**")), "{decision}");
        let answers = ["yes, schema", "yes, CEL", "no", "with strict"];
        assert!(answers.iter().any(|it| channel.starts_with(it)), "{row:?}");
    }
    let explained = text("crates/crds/tests/apiserver.rs");
    let count = explained
        .split("const EXPLAINED: [(Side, &str, &[Channel], &str); ")
        .nth(1);
    let count = count.unwrap().split(']').next().unwrap();
    assert!(
        page.contains(&format!("table of {count} kinds of difference")),
        "{count}"
    );
}
