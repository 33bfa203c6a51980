//! The reader against kubectl's own: a table of scalars measured from its YAML library.

use super::*;

/// How this reader reads a document `v: SCALAR` or `SCALAR: 1`, as the table writes it.
fn ours(column: &str, written: &str) -> String {
    let text = match column {
        "value" => format!("v: {written}\n"),
        _ => format!("{written}: 1\n"),
    };
    let (tree, flaws) = read(&text, 0..text.len());
    if !flaws.is_empty() {
        return "error".to_owned();
    }
    let mut cursor = tree.cursor();
    if cursor.shape() != ValueShape::Map {
        return "error".to_owned();
    }
    cursor.enter();
    let Some((key, _)) = cursor.next_key() else {
        return "error".to_owned();
    };
    if column == "key" {
        return format!("{key:?}");
    }
    described(&mut cursor)
}

fn described<'a>(input: &mut impl Input<'a>) -> String {
    if matches!(input.shape(), ValueShape::Map | ValueShape::Seq) {
        return input.shape().describe().to_owned();
    }
    match input.scalar().0 {
        Scalar::Null => "null".to_owned(),
        Scalar::Bool(value) => value.to_string(),
        Scalar::Int(value) => value.to_string(),
        Scalar::Number => "number".to_owned(),
        Scalar::Str(value) => format!("{value:?}"),
    }
}

/// The table's JSON in the same words.
fn theirs(json: &str) -> String {
    use crate::input::json::Json;
    if json == "error" {
        return "error".to_owned();
    }
    let mut input = Json::new(json, 0);
    described(&mut input)
}

/// Intended differences: binary numbers with a sign inside, two escapes and a comment without a
/// space that YAML 1.1 and 1.2 define differently, and two tags that are not in use.
const ODD: [&str; 8] = [
    "0b-1",
    "0b+1",
    "0b-11",
    "\"\\/\"",
    "\"\\'\"",
    "\"80\"#c",
    "!!float 18446744073709551615",
    "!<> 80",
];

#[test]
fn scalars_are_read_as_kubectl_reads_them() {
    let table = include_str!("../../../tests/data/scalars.tsv");
    let mut wrong = Vec::new();
    let mut rows = 0;
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [column, written, json] = columns[..] else {
            panic!("{line:?}")
        };
        let written = written
            .replace("\\\\", "\u{0}")
            .replace("\\t", "\t")
            .replace("\\n", "\n")
            .replace('\u{0}', "\\");
        rows += 1;
        let (ours, theirs) = (ours(column, &written), theirs(json));
        // Tags other than the few that a manifest can need are rejected, unlike in kubectl.
        let refused_tag = written.starts_with('!') && ours == "error";
        if ours != theirs && !refused_tag && !ODD.contains(&&*written) {
            wrong.push(format!(
                "{column} {written:?}: ours {ours}, kubectl {theirs}"
            ));
        }
    }
    assert!(rows > 1500);
    assert!(
        wrong.is_empty(),
        "{} of {rows} differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
