//! Responses of an API server: lists and watches, whole and split anywhere.

use palisade_kube::response::{Page, WatchLine, WatchLines, page};
use palisade_kube::split::{ObjectLocation, SplitObject, Splitter};
use palisade_kube::{Item, item};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The lines of a watch, without error messages, which may depend on the split.
type WatchResult = Vec<Result<WatchLine, ()>>;

/// A list: its objects, and its head or an error.
type ListResult = (Vec<SplitObject>, Result<Page, String>);

/// A list as `serde_json` alone reads it.
#[derive(Deserialize)]
struct List<'a> {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    more: Option<String>,
}

/// An event as `serde_json` alone reads it.
#[derive(Deserialize)]
struct Event<'a> {
    r#type: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The bytes are a list. Every split gives the same result: the objects that `serde_json` reads, or
/// an error.
pub fn list(bytes: &[u8]) {
    let whole = read_list(bytes, &mut |_| usize::MAX);
    for split in splits(bytes) {
        let (pieces, head) = read_list(bytes, &mut { split });
        assert_eq!(head, whole.1, "the result in pieces differs");
        match head {
            Ok(_) => assert_eq!(pieces, whole.0, "the objects in pieces differ"),
            // Objects before the error may have been returned or not.
            Err(_) => assert!(pieces.starts_with(&whole.0), "the objects in pieces differ"),
        }
    }
    let (pieces, head) = whole;
    for piece in &pieces {
        check_item(piece);
    }
    let text = with_placeholders(bytes);
    let is_same = text == bytes;
    let reference = serde_json::from_slice::<List<'_>>(&text).ok();
    let reference = reference.filter(|it| !version(&it.metadata).is_empty());
    match (&reference, &head) {
        (Some(expected), Ok(head)) => {
            let items: Vec<&str> = expected.items.iter().flatten().map(|it| it.get()).collect();
            assert_eq!(items.len(), pieces.len(), "the number of objects differs");
            for (item, piece) in items.iter().zip(&pieces) {
                let SplitObject::Whole(found) = piece else {
                    continue;
                };
                assert_eq!(*item, object_text(found), "an object differs");
            }
            if is_same {
                assert_eq!(head.version, version(&expected.metadata));
                let more = expected.metadata.more.clone();
                assert_eq!(head.more, more.filter(|it| !it.is_empty()));
            }
        }
        // The reader refuses escapes in keys outside objects, which servers do not write. Strings
        // that it reads must be UTF-8.
        (Some(expected), Err(message)) => {
            let outside = outside_of(&text, expected.items.iter().flatten().map(|it| it.get()));
            assert!(!is_same || outside.contains(&b'\\'), "refused: {message}");
        }
        (None, Ok(_)) => assert!(
            pieces.iter().any(|it| !is_json(it)),
            "only our reader accepts a list of readable objects"
        ),
        (None, Err(_)) => {}
    }
}

/// The bytes are the lines of a watch. Every split gives the same result, which is that of
/// `serde_json`.
pub fn watch(bytes: &[u8]) {
    let whole = lines(bytes, &mut |_| usize::MAX);
    for split in splits(bytes) {
        assert_eq!(
            lines(bytes, &mut { split }),
            whole,
            "the result in pieces differs"
        );
    }
    // The reader stops at an invalid line.
    let mut ours = whole.into_iter();
    let mut texts: Vec<&[u8]> = bytes.split(|it| *it == b'\n').collect();
    let rest = texts.pop().unwrap_or_default();
    for line in texts {
        let result = ours.next();
        let is_wrong = matches!(result, Some(Err(_)));
        assert!(result.is_some(), "a line is missing");
        result
            .into_iter()
            .for_each(|result| same_line(line, &result));
        if is_wrong {
            return;
        }
    }
    // An incomplete line gives no event, but may already be invalid.
    assert!(
        !matches!(ours.next(), Some(Ok(_))),
        "an event without a line"
    );
    let is_event = serde_json::from_slice::<Event<'_>>(rest).is_ok();
    assert!(!is_event || ours.next().is_none(), "a line is refused");
}

fn same_line(line: &[u8], result: &Result<WatchLine, ()>) {
    let text = with_placeholders(line);
    let reference = serde_json::from_slice::<Event<'_>>(&text).ok();
    let Some(event) = reference else {
        let is_garbage = match result {
            Ok(
                WatchLine::Set(Item::Unnamed(_))
                | WatchLine::Deleted(Item::Unnamed(_))
                | WatchLine::Refused(_),
            )
            | Err(_) => true,
            Ok(
                WatchLine::Set(Item::Named(_))
                | WatchLine::Deleted(Item::Named(_))
                | WatchLine::Bookmark(_),
            ) => false,
        };
        assert!(is_garbage, "only our reader accepts a line: {result:?}");
        return;
    };
    let object = || {
        // The original bytes, which need not be UTF-8.
        let start = event.object.get().as_ptr() as usize - text.as_ptr() as usize;
        let end = start + event.object.get().len();
        let bytes = line.get(start..end).unwrap_or_default();
        without_spaces(Item::of(SplitObject::Whole(bytes.to_vec())))
    };
    match (event.r#type.as_str(), result) {
        ("ADDED" | "MODIFIED", Ok(WatchLine::Set(item)))
        | ("DELETED", Ok(WatchLine::Deleted(item))) => {
            assert_eq!(without_spaces(item.clone()), object(), "an object differs");
        }
        ("BOOKMARK", Ok(WatchLine::Bookmark(_))) | ("ERROR", Ok(WatchLine::Refused(_))) => {}
        ("BOOKMARK", Err(_)) => {}
        ("ADDED" | "MODIFIED" | "DELETED" | "ERROR", Err(())) => {
            let outside = outside_of(&text, std::iter::once(event.object.get()));
            let is_escaped = outside.contains(&b'\\') || text != line;
            assert!(is_escaped, "an event is refused");
        }
        (_, Err(_)) => {}
        (kind, Ok(line)) => expect_no_event_of(kind, line),
    }
}

#[track_caller]
fn expect_no_event_of(kind: &str, line: &WatchLine) {
    assert_eq!(kind, "", "an event of another type: {line:?}");
}

/// Checks the identity that is read of every object.
fn check_item(piece: &SplitObject) {
    let SplitObject::Whole(bytes) = piece else {
        return;
    };
    item::written(bytes);
    match Item::of(piece.clone()) {
        Item::Named(check_item) => {
            assert!(!check_item.name.is_empty() && check_item.bytes == *bytes);
            assert!(is_json(piece), "a name of invalid JSON");
        }
        Item::Unnamed(message) => assert!(
            message.len() < 2_000,
            "a message of {} bytes",
            message.len()
        ),
    }
}

fn read_list(bytes: &[u8], next: &mut impl FnMut(usize) -> usize) -> ListResult {
    let mut splitter = Splitter::new(ObjectLocation::Items);
    let mut pieces = Vec::new();
    for part in parts(bytes, next) {
        match splitter.push(part) {
            Ok(found) => pieces.extend(found),
            Err(message) => return (pieces, Err(message.to_owned())),
        }
    }
    let head = splitter.finish().map_err(str::to_owned);
    (pieces, head.and_then(|(rest, taken)| page(&rest, taken)))
}

fn lines(bytes: &[u8], next: &mut impl FnMut(usize) -> usize) -> WatchResult {
    let mut lines = WatchLines::default();
    let mut all = Vec::new();
    for part in parts(bytes, next) {
        let mut part = part;
        while !part.is_empty() {
            let (taken, line) = lines.push(part);
            let is_wrong = matches!(line, Some(Err(_)));
            all.extend(line.map(|it| it.map_err(|message| assert!(message.len() < 2_000))));
            if is_wrong {
                return all;
            }
            assert!(taken > 0 && taken <= part.len(), "no progress");
            part = part.get(taken..).unwrap_or_default();
        }
    }
    all
}

/// Splits of bytes: each returns the length of the next part.
fn splits(bytes: &[u8]) -> [Box<dyn FnMut(usize) -> usize>; 3] {
    // Seeded by the bytes.
    let mut state = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let random = move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % 23) as usize + 1
    };
    [
        Box::new(|_| 1),
        Box::new(random),
        Box::new(|length| length / 2 + 1),
    ]
}

fn parts<'b>(
    bytes: &'b [u8],
    next: &mut impl FnMut(usize) -> usize,
) -> impl Iterator<Item = &'b [u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = next(rest.len()).min(rest.len());
        let (part, after) = rest.split_at(length);
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}

/// The bytes, with `?` for each invalid one.
fn with_placeholders(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.extend_from_slice(chunk.valid().as_bytes());
        text.resize(text.len() + chunk.invalid().len(), b'?');
    }
    text
}

/// An object without trailing spaces.
fn object_text(bytes: &[u8]) -> String {
    let text = with_placeholders(bytes.trim_ascii_end());
    String::from_utf8_lossy(&text).into_owned()
}

fn without_spaces(item: Item) -> Item {
    match item {
        Item::Named(mut check_item) => {
            check_item.bytes = check_item.bytes.trim_ascii_end().to_vec();
            Item::Named(check_item)
        }
        // The message may depend on the end of the object.
        Item::Unnamed(_) => Item::Unnamed(String::new()),
    }
}

fn is_json(piece: &SplitObject) -> bool {
    match piece {
        SplitObject::Whole(bytes) => serde_json::from_slice::<IgnoredAny>(bytes).is_ok(),
        SplitObject::TooLarge => false,
    }
}

fn version(metadata: &ListMetadata) -> &str {
    metadata.resource_version.as_deref().unwrap_or_default()
}

/// A text without its objects.
fn outside_of<'a>(text: &[u8], objects: impl Iterator<Item = &'a str>) -> Vec<u8> {
    let mut outside = Vec::new();
    let mut at = 0;
    for object in objects {
        let start = (object.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
        outside.extend_from_slice(text.get(at..start).unwrap_or_default());
        at = start + object.len();
    }
    outside.extend_from_slice(text.get(at..).unwrap_or_default());
    outside
}
