//! Answers of an API server: lists and watches, whole and cut anywhere.

use palisade_kube::response::{Page, WatchLine, WatchLines, page};
use palisade_kube::split::{ObjectLocation, SplitObject, Splitter};
use palisade_kube::{Item, item};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// What came of the lines of a watch, without the words for what is wrong: they may depend on what
/// was seen first.
type Watched = Vec<Result<WatchLine, ()>>;

/// What came of a list: its objects, and its head or why it is not believed.
type Listed = (Vec<SplitObject>, Result<Page, String>);

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

/// The bytes are a list. However it is cut, it says the same; it has the objects that `serde_json`
/// finds in it, or it is not believed.
pub fn list(bytes: &[u8]) {
    let whole = listed(bytes, &mut |_| usize::MAX);
    for cut in cuts(bytes) {
        let (pieces, head) = listed(bytes, &mut { cut });
        assert_eq!(head, whole.1, "another answer in pieces");
        match head {
            Ok(_) => assert_eq!(pieces, whole.0, "other objects in pieces"),
            // Objects before a mistake may have been handed out or not.
            Err(_) => assert!(pieces.starts_with(&whole.0), "other objects in pieces"),
        }
    }
    let (pieces, head) = whole;
    for piece in &pieces {
        named(piece);
    }
    let text = readable(bytes);
    let is_same = text == bytes;
    let reference = serde_json::from_slice::<List<'_>>(&text).ok();
    let reference = reference.filter(|it| !version(&it.metadata).is_empty());
    match (&reference, &head) {
        (Some(expected), Ok(head)) => {
            let items: Vec<&str> = expected.items.iter().flatten().map(|it| it.get()).collect();
            assert_eq!(items.len(), pieces.len(), "another number of objects");
            for (item, piece) in items.iter().zip(&pieces) {
                let SplitObject::Whole(found) = piece else {
                    continue;
                };
                assert_eq!(*item, text_of(found), "another object");
            }
            if is_same {
                assert_eq!(head.version, version(&expected.metadata));
                let more = expected.metadata.more.clone();
                assert_eq!(head.more, more.filter(|it| !it.is_empty()));
            }
        }
        // Servers write their own keys without escapes; where they would not, nothing is believed.
        // Strings that are read have to be UTF-8.
        (Some(expected), Err(words)) => {
            let outside = around(&text, expected.items.iter().flatten().map(|it| it.get()));
            assert!(!is_same || outside.contains(&b'\\'), "refused: {words}");
        }
        (None, Ok(_)) => assert!(
            pieces.iter().any(|it| !is_json(it)),
            "a list for us alone, of objects that can be read"
        ),
        (None, Err(_)) => {}
    }
}

/// The bytes are what a watch says, line by line. However it is cut, it says the same, and what
/// `serde_json` reads.
pub fn watch(bytes: &[u8]) {
    let whole = lines(bytes, &mut |_| usize::MAX);
    for cut in cuts(bytes) {
        assert_eq!(
            lines(bytes, &mut { cut }),
            whole,
            "another answer in pieces"
        );
    }
    // What comes behind a line that is none is not read.
    let mut ours = whole.into_iter();
    let mut texts: Vec<&[u8]> = bytes.split(|it| *it == b'\n').collect();
    let rest = texts.pop().unwrap_or_default();
    for line in texts {
        let said = ours.next();
        let is_wrong = matches!(said, Some(Err(_)));
        assert!(said.is_some(), "a line is missing");
        said.into_iter().for_each(|said| same_line(line, &said));
        if is_wrong {
            return;
        }
    }
    // A line that has not ended says nothing, but that it is none may be seen before its end.
    assert!(!matches!(ours.next(), Some(Ok(_))), "more than is there");
    let is_event = serde_json::from_slice::<Event<'_>>(rest).is_ok();
    assert!(!is_event || ours.next().is_none(), "a line is refused");
}

fn same_line(line: &[u8], said: &Result<WatchLine, ()>) {
    let text = readable(line);
    let reference = serde_json::from_slice::<Event<'_>>(&text).ok();
    let Some(event) = reference else {
        let is_garbage = match said {
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
        assert!(is_garbage, "a line for us alone: {said:?}");
        return;
    };
    let object = || {
        // Its bytes, where they are not UTF-8 those that came.
        let start = event.object.get().as_ptr() as usize - text.as_ptr() as usize;
        let end = start + event.object.get().len();
        let bytes = line.get(start..end).unwrap_or_default();
        without_spaces(Item::of(SplitObject::Whole(bytes.to_vec())))
    };
    match (event.r#type.as_str(), said) {
        ("ADDED" | "MODIFIED", Ok(WatchLine::Set(item)))
        | ("DELETED", Ok(WatchLine::Deleted(item))) => {
            assert_eq!(without_spaces(item.clone()), object(), "another object");
        }
        ("BOOKMARK", Ok(WatchLine::Bookmark(_))) | ("ERROR", Ok(WatchLine::Refused(_))) => {}
        ("BOOKMARK", Err(_)) => {}
        ("ADDED" | "MODIFIED" | "DELETED" | "ERROR", Err(())) => {
            let outside = around(&text, std::iter::once(event.object.get()));
            let is_escaped = outside.contains(&b'\\') || text != line;
            assert!(is_escaped, "an event is refused");
        }
        (_, Err(_)) => {}
        (kind, Ok(line)) => unexpected(kind, line),
    }
}

#[track_caller]
fn unexpected(kind: &str, line: &WatchLine) {
    assert_eq!(kind, "", "taken for another event: {line:?}");
}

/// Everything that is read of an object before it is known to be one that matters.
fn named(piece: &SplitObject) {
    let SplitObject::Whole(bytes) = piece else {
        return;
    };
    item::written(bytes);
    match Item::of(piece.clone()) {
        Item::Named(named) => {
            assert!(!named.name.is_empty() && named.bytes == *bytes);
            assert!(is_json(piece), "a name of what is no JSON");
        }
        Item::Unnamed(words) => assert!(words.len() < 2_000, "{} bytes of words", words.len()),
    }
}

fn listed(bytes: &[u8], next: &mut impl FnMut(usize) -> usize) -> Listed {
    let mut splitter = Splitter::new(ObjectLocation::Items);
    let mut pieces = Vec::new();
    for part in parts(bytes, next) {
        match splitter.push(part) {
            Ok(found) => pieces.extend(found),
            Err(words) => return (pieces, Err(words.to_owned())),
        }
    }
    let head = splitter.finish().map_err(str::to_owned);
    (pieces, head.and_then(|(rest, taken)| page(&rest, taken)))
}

fn lines(bytes: &[u8], next: &mut impl FnMut(usize) -> usize) -> Watched {
    let mut lines = WatchLines::default();
    let mut all = Vec::new();
    for part in parts(bytes, next) {
        let mut part = part;
        while !part.is_empty() {
            let (taken, line) = lines.push(part);
            let is_wrong = matches!(line, Some(Err(_)));
            all.extend(line.map(|it| it.map_err(|words| assert!(words.len() < 2_000))));
            if is_wrong {
                return all;
            }
            assert!(taken > 0 && taken <= part.len(), "no progress");
            part = part.get(taken..).unwrap_or_default();
        }
    }
    all
}

/// Ways to cut bytes: each says how long the next part is.
fn cuts(bytes: &[u8]) -> [Box<dyn FnMut(usize) -> usize>; 3] {
    // Different for different bytes, and the same for the same.
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
        let (part, behind) = rest.split_at(length);
        rest = behind;
        (!part.is_empty()).then_some(part)
    })
}

/// The bytes with `?` for each that is not UTF-8.
fn readable(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.extend_from_slice(chunk.valid().as_bytes());
        text.resize(text.len() + chunk.invalid().len(), b'?');
    }
    text
}

/// An object, without the spaces behind a number or a word.
fn text_of(bytes: &[u8]) -> String {
    let text = readable(bytes.trim_ascii_end());
    String::from_utf8_lossy(&text).into_owned()
}

fn without_spaces(item: Item) -> Item {
    match item {
        Item::Named(mut named) => {
            named.bytes = named.bytes.trim_ascii_end().to_vec();
            Item::Named(named)
        }
        // Words may tell where it ended.
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
fn around<'a>(text: &[u8], objects: impl Iterator<Item = &'a str>) -> Vec<u8> {
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
