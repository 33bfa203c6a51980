//! Every way to read sources has the same result: the reader of block-style YAML or the full
//! parser, lists sequentially or in pieces.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "block_yaml/random.rs"]
#[allow(dead_code, reason = "only some of it is used here")]
mod random;

use palisade_api::reference::{read_in_pieces, read_plainly};
use palisade_api::{Options, Source};

use random::{Random, damaged};

/// Reads a text in all ways and compares the results; returns the number of objects.
fn same(name: &str, text: &str) -> usize {
    let sources = [Source::new(name, text.as_bytes().to_vec())];
    let plain = read_plainly(&sources, Options::default());
    let expected = format!("{plain:#?}");
    for bytes in [1, 100, 1_000, usize::MAX] {
        let read = read_in_pieces(&sources, Options::default(), bytes);
        let found = format!("{read:#?}");
        if found != expected {
            let mut lines = found.lines().zip(expected.lines());
            let first = lines.find(|(found, expected)| found != expected);
            panic!("{name} in pieces of {bytes} bytes: {first:?}\n{text}");
        }
    }
    plain.objects.len()
}

const PODS: usize = 12;

/// Items with lists of objects inside that start like items.
fn items(typed: bool) -> Vec<String> {
    let item = |at: usize| {
        let kind = if typed {
            r#""apiVersion":"v1","kind":"Pod","#
        } else {
            ""
        };
        format!(
            r#"{{{kind}"metadata":{{"name":"p{at}","namespace":"n{}","labels":{{"a":"}},{{"}},"ownerReferences":[{{"apiVersion":"v1","kind":"Pod","name":"x"}},{{"apiVersion":"v1","kind":"Pod","name":"y"}}]}},"spec":{{"containers":[{{"name":"a","ports":[{{"containerPort":{}}},{{"containerPort":81}}]}}]}},"status":{{"podIP":"10.0.0.{at}"}}}}"#,
            at % 3,
            at * 9_000
        )
    };
    (0..PODS).map(item).collect()
}

fn lists() -> Vec<String> {
    let compact = items(true).join(",");
    let spaced = items(true).join(", ");
    let lines = items(true).join(",\n    ");
    let untyped = items(false).join(",");
    let late = "\"x\":{\"a\":1,\"a\":2}";
    vec![
        format!(r#"{{"apiVersion":"v1","kind":"List","items":[{compact}]}}"#),
        format!(r#"{{"items":[{compact}],"kind":"List","apiVersion":"v1"}}"#),
        format!(r#"{{"items":[{compact}],"kind":"Lisp","apiVersion":"v1"}}"#),
        format!(r#"{{"apiVersion": "v1", "kind": "List", "items": [{spaced}]}}"#),
        format!("{{\n  \"items\": [\n    {lines}\n  ],\n  \"kind\": \"List\"\n}}\n"),
        format!(r#"{{"apiVersion":"v1","kind":"PodList","items":[{untyped}]}}"#),
        format!(r#"{{"items":[{untyped}],"kind":"PodList","apiVersion":"v1"}}"#),
        format!(r#"{{"kind":"List","items":[{compact}],"items":[{compact}]}}"#),
        format!(r#"{{"kind":"List","other":[{compact}],"items":[{compact}],"more":[{compact}]}}"#),
        format!(r#"{{"kind":"List",{late},"items":[{compact},{{{late}}},{compact}]}}"#),
        format!(r#"{{"kind":"List","items":[{{"kind":"List","items":[{compact}]}},{compact}]}}"#),
        format!(r#"{{"kind":"List","items":[{compact}"#),
        format!(r#"{{"kind":"List","items":[{compact}]"#),
        format!(r#"{{"kind":"List","items":[{compact},]}}"#),
        format!(r#"{{"kind":"List","items":[{compact},1,{compact}]}}"#),
        format!(r#"{{"kind":"List","items":[{compact}]}}{{"kind":"List","items":[{compact}]}}"#),
        format!("[{compact}]"),
        format!("---\n{{\"kind\":\"List\",\"items\":[{compact}]}}\n---\na: b\n"),
    ]
}

#[test]
fn json_lists_in_pieces_have_the_same_result() {
    let texts = lists();
    for text in &texts {
        same("a.json", text);
        same("a.yaml", text);
    }
    assert_eq!(same("a.json", &texts[0]), PODS);
    assert_eq!(same("a.json", &texts[5]), PODS);
    for (index, text) in texts.iter().enumerate() {
        let mut random = Random::new(index as u64 + 1);
        for _ in 0..8 {
            same("a.json", &damaged(text, &mut random));
        }
    }
}

/// A list as `kubectl get -o yaml` prints it.
fn yaml_list(kind_first: bool, extra: &str) -> String {
    let item = |at: usize| {
        format!(
            "- apiVersion: v1\n  kind: Pod\n  metadata:\n    labels:\n      a: b\n    name: p{at}\n  spec:\n    containers:\n    - name: c\n      args:\n      - |\n        - apiVersion: v1\n      - 'x\n        y'\n      ports:\n      - containerPort: {}\n",
            at * 9_000
        )
    };
    let items: String = (0..PODS).map(item).collect();
    if kind_first {
        format!("apiVersion: v1\nkind: List\nitems:\n{extra}{items}metadata: {{}}\n")
    } else {
        format!(
            "apiVersion: v1\nitems:\n{items}{extra}kind: List\nmetadata:\n  resourceVersion: \"\"\n"
        )
    }
}

#[test]
fn yaml_lists_in_pieces_have_the_same_result() {
    for extra in [
        "",
        "- a\n",
        "- a: b\n  a: c\n",
        "- *x\n",
        "# c\n\n",
        "  - x\n",
    ] {
        for kind_first in [true, false] {
            let text = yaml_list(kind_first, extra);
            let n_objects = same("a.yaml", &text);
            assert_eq!(
                n_objects == PODS,
                !extra.starts_with(['-', ' ']) || extra.starts_with("- a"),
                "{extra:?}"
            );
            let mut random = Random::new(extra.len() as u64 + 1);
            for _ in 0..8 {
                same("a.yaml", &damaged(&text, &mut random));
            }
        }
    }
}

#[test]
fn many_problems_in_a_list_are_cut_off_at_the_same_place() {
    let item = |at: usize| {
        format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"P{at}","namespace":"N"}}}}"#
        )
    };
    let items: Vec<String> = (0..6_000).map(item).collect();
    same(
        "a.json",
        &format!(r#"{{"kind":"List","items":[{}]}}"#, items.join(",")),
    );
}
