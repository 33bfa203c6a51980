//! Memory is bounded by the size of the input.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use palisade_campaigns::fuzz::{json, within_memory, yaml};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const POLICY: &str =
    "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec:\n";

/// Repeats a text up to a size.
fn fill(size: usize, unit: &str) -> String {
    unit.repeat(size / unit.len())
}

/// Writes texts with a number in each up to a size.
fn numbered(size: usize, unit: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    let mut index = 0;
    while text.len() < size {
        text.push_str(&unit(index));
        index += 1;
    }
    text
}

/// YAML that is expensive to read, of about `size` bytes.
fn yaml_inputs(size: usize) -> Vec<(&'static str, String)> {
    let fill = |unit: &str| fill(size, unit);
    vec![
        ("a list of letters", format!("[{}]", fill("a,"))),
        (
            "a map of letters",
            format!("{{{}}}", numbered(size, |i| format!("k{i}: v,"))),
        ),
        ("a block list", fill("- a\n")),
        ("tiny documents", fill("a\n---\n")),
        ("empty documents", fill("---\n")),
        ("brackets", fill("[")),
        ("open braces", fill("{")),
        ("one long word", fill("a")),
        ("one long escaped word", format!("\"{}\"", fill("\\n"))),
        ("a literal", format!("a: |\n{}", fill("  text\n"))),
        ("comments", fill("# c\n")),
        ("not ASCII", format!("a: [{}]", fill("é,"))),
        ("duplicate keys", fill("a: 1\n")),
        ("anchors", numbered(size, |i| format!("k{i}: &a{i} v\n"))),
        (
            "aliases",
            format!("a: &a [1, 2, 3]\nb:\n{}", fill("- *a\n")),
        ),
        (
            "merge keys",
            format!("a: &a {{x: 1, y: 2}}\nb:\n{}", fill("- <<: *a\n")),
        ),
        (
            "wrong rules",
            format!("{POLICY}  ingress:\n{}", fill("  - 1\n")),
        ),
        ("labels", {
            let labels = numbered(size, |i| format!("      k{i}: v\n"));
            format!("{POLICY}  podSelector:\n    matchLabels:\n{labels}")
        }),
        (
            "unknown fields",
            format!("{POLICY}{}", numbered(size, |i| format!("  k{i}: v\n"))),
        ),
        ("bad blocks", {
            format!(
                "{POLICY}  ingress:\n  - from:\n{}",
                fill("    - ipBlock: {cidr: x}\n")
            )
        }),
        ("namespaces", {
            numbered(size, |i| {
                format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: n{i}}}\n---\n")
            })
        }),
        (
            "one namespace",
            fill("apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n---\n"),
        ),
        ("templates", fill("{{ x }}\n---\n")),
        (
            "late flaws",
            format!("{}{}", fill("- a\n"), "- .inf\n".repeat(size / 50)),
        ),
    ]
}

fn json_inputs(size: usize) -> Vec<(&'static str, String)> {
    let fill = |unit: &str| fill(size, unit);
    vec![
        ("JSON numbers", format!("[{}1]", fill("1,"))),
        ("JSON objects", format!("[{}{{}}]", fill("{},"))),
        ("JSON brackets", fill("[")),
        ("JSON documents", fill("{}\n")),
        ("broken JSON documents", fill("{\n")),
        ("JSON items", format!("{{\"items\":[{}{{}}]}}", fill("{},"))),
        (
            "JSON pods",
            format!(
                "[{}{{}}]",
                fill("{\"apiVersion\":\"v1\",\"kind\":\"Pod\"},")
            ),
        ),
    ]
}

/// One test, because the allocator counts for the whole process.
#[test]
fn memory_is_bounded_by_a_multiple_of_the_input() {
    let report = |name: &str, used: usize, text: &str| {
        println!(
            "{:6.1} bytes of memory a byte: {name}",
            used as f64 / text.len() as f64
        );
    };
    for size in [50_000, 1_000_000] {
        println!("inputs of {size} bytes");
        for (name, text) in yaml_inputs(size) {
            report(
                name,
                within_memory(&ALLOCATOR, text.as_bytes(), yaml),
                &text,
            );
        }
        for (name, text) in json_inputs(size) {
            report(
                name,
                within_memory(&ALLOCATOR, text.as_bytes(), json),
                &text,
            );
        }
    }
}
