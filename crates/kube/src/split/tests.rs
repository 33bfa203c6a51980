//! Documents cut at every byte, and hostile ones.

use super::{LARGEST, ObjectLocation, SplitObject, Splitter};

/// Returns the objects, the rest and the number of objects; the bytes arrive in parts of this
/// length.
fn split(
    which: ObjectLocation,
    document: &[u8],
    length: usize,
) -> Result<(Vec<SplitObject>, String, usize), &'static str> {
    let mut splitter = Splitter::new(which);
    let mut objects = Vec::new();
    for part in document.chunks(length) {
        objects.extend(splitter.push(part)?);
    }
    let (rest, taken) = splitter.finish()?;
    let rest = String::from_utf8(rest).map_err(|_| "not a text")?;
    Ok((objects, rest, taken))
}

fn whole(texts: &[&[u8]]) -> Vec<SplitObject> {
    texts
        .iter()
        .map(|it| SplitObject::Whole(it.to_vec()))
        .collect()
}

#[test]
fn items_are_split_however_they_arrive() {
    let list = br#"{"kind":"PodList","metadata":{"resourceVersion":"7","x":"items"},"items":[ {"a":["}\"]"]} ,{"items":[1,2]},[],"s\\",12, null],"after":{"items":[3]}}"#;
    let expected: &[&[u8]] = &[
        br#"{"a":["}\"]"]}"#,
        br#"{"items":[1,2]}"#,
        b"[]",
        br#""s\\""#,
        b"12",
        b" null".trim_ascii(),
    ];
    for length in 1..=list.len() {
        let (objects, rest, taken) = split(ObjectLocation::Items, list, length).expect("a list");
        assert_eq!(objects, whole(expected), "in parts of {length}");
        assert_eq!(
            rest,
            r#"{"kind":"PodList","metadata":{"resourceVersion":"7","x":"items"},"items":[ 0 ,0,0,0,0, 0],"after":{"items":[3]}}"#
        );
        assert_eq!(taken, 6);
    }
}

#[test]
fn an_event_has_one_object() {
    let event = br#"{"type":"ADDED","object":{"object":{"deep":[[]]}}}"#;
    let (objects, rest, taken) = split(ObjectLocation::Object, event, 3).expect("an event");
    assert_eq!(objects, whole(&[br#"{"object":{"deep":[[]]}}"#]));
    assert_eq!(rest, r#"{"type":"ADDED","object":0}"#);
    assert_eq!(taken, 1);
    let behind = br#"{"object" : {"a":1} , "type":"DELETED"}"#;
    let (objects, rest, _) = split(ObjectLocation::Object, behind, 1).expect("an event");
    assert_eq!(objects, whole(&[br#"{"a":1}"#]));
    assert_eq!(rest, r#"{"object" : 0 , "type":"DELETED"}"#);
}

#[test]
fn neither_depth_nor_bytes_break_the_splitter() {
    let deep = [
        "[".repeat(1_000_000).as_bytes(),
        b"\"\xff]\"",
        "]".repeat(1_000_000).as_bytes(),
    ]
    .concat();
    let list = [
        br#"{"items":[{"a":"#,
        &deep[..],
        br#"},{"name":"b"}],"metadata":{}}"#,
    ]
    .concat();
    let (objects, rest, _) = split(ObjectLocation::Items, &list, 4_096).expect("a list");
    let first = [br#"{"a":"#, &deep[..], b"}"].concat();
    assert_eq!(objects, whole(&[&first, br#"{"name":"b"}"#]));
    assert_eq!(rest, r#"{"items":[0,0],"metadata":{}}"#);
}

#[test]
fn only_the_object_that_is_too_large_is_left_out() {
    let large = "x".repeat(LARGEST);
    let list = format!(r#"{{"items":[{{"a":"{large}"}},{{"name":"b"}}]}}"#);
    let (objects, rest, taken) =
        split(ObjectLocation::Items, list.as_bytes(), 65_536).expect("a list");
    assert_eq!(
        objects,
        [
            SplitObject::TooLarge,
            SplitObject::Whole(br#"{"name":"b"}"#.to_vec())
        ]
    );
    assert_eq!((rest.as_str(), taken), (r#"{"items":[0,0]}"#, 2));
    let beside = format!(r#"{{"x":"{large}","items":[]}}"#);
    assert!(split(ObjectLocation::Items, beside.as_bytes(), 65_536).is_err());
}

#[test]
fn a_truncated_response_is_rejected() {
    let list = br#"{"metadata":{},"items":[{"a":"b"},{"c":[1]}]}"#;
    for length in 1..list.len() {
        let part = list.get(..length).unwrap_or_default();
        assert!(split(ObjectLocation::Items, part, 7).is_err(), "{length}");
    }
    for wrong in [&b"}"[..], b"]]", b"{}}", b"{\"items\":[]]}"] {
        let split = split(ObjectLocation::Items, wrong, 7);
        assert!(split.is_err(), "{}", String::from_utf8_lossy(wrong));
    }
}

#[test]
fn a_list_may_have_no_items() {
    for text in [
        r#"{"metadata":{},"items":null}"#,
        r#"{"metadata":{}}"#,
        r#"{"items":[]}"#,
        r#"{"items":{"a":1}}"#,
    ] {
        let (objects, rest, taken) =
            split(ObjectLocation::Items, text.as_bytes(), 5).expect("a list");
        assert_eq!((objects, taken), (Vec::new(), 0), "{text}");
        assert_eq!(rest, text);
    }
}

#[test]
fn a_brace_in_the_place_of_an_object_is_rejected() {
    for wrong in [r#"{"items":[}"#, r#"{"items":[1}"#, r#"{"items":[{},}]}"#] {
        assert!(
            split(ObjectLocation::Items, wrong.as_bytes(), 7).is_err(),
            "{wrong}"
        );
    }
}
