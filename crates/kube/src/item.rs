//! Objects as a server sent them: their bytes and names.

use std::time::SystemTime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::response::shortened;
use crate::split::SplitObject;

/// An object of a list or of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// It has a readable name. Nothing else of it was read.
    Named(NamedObject),
    /// It has no readable name, for this reason. Nevertheless it exists.
    Unnamed(String),
}

/// An object with a readable name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedObject {
    /// Its namespace; empty if it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its resource version; empty if it has none.
    pub version: String,
    /// Whether it has a deletion timestamp.
    pub is_ending: bool,
    /// The whole object, as received: JSON whose strings need not be UTF-8.
    pub bytes: Vec<u8>,
}

#[derive(Deserialize)]
struct Head {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    #[serde(default)]
    namespace: Option<String>,
    /// Of any type: a version that is no text must not cost the object its name.
    #[serde(default)]
    resource_version: Option<LooseText>,
    #[serde(default)]
    deletion_timestamp: Option<IgnoredAny>,
}

/// A text, or any other value.
#[derive(Deserialize)]
#[serde(untagged)]
enum LooseText {
    Text(String),
    Other(IgnoredAny),
}

impl LooseText {
    fn text(self) -> String {
        match self {
            LooseText::Text(text) => text,
            LooseText::Other(_) => String::new(),
        }
    }
}

impl Item {
    /// Reads the name, and checks that the object is one JSON value.
    pub fn of(piece: SplitObject) -> Item {
        let SplitObject::Whole(bytes) = piece else {
            return Item::Unnamed("an object that is too large".to_owned());
        };
        // Parsing ends at the last byte: an object with anything after it is not one JSON value.
        match head(&bytes) {
            Ok(Head { metadata }) if !metadata.name.is_empty() => Item::Named(NamedObject {
                namespace: metadata.namespace.unwrap_or_default(),
                name: metadata.name,
                version: metadata
                    .resource_version
                    .map_or_else(String::new, LooseText::text),
                is_ending: metadata.deletion_timestamp.is_some(),
                bytes,
            }),
            Ok(_) => Item::Unnamed("an object without a name".to_owned()),
            Err(error) => Item::Unnamed(shortened("an object without a readable name: ", &error)),
        }
    }

    /// Takes the bytes of the object; empty if it has no readable name.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        match self {
            Item::Named(named) => std::mem::take(&mut named.bytes),
            Item::Unnamed(_) => Vec::new(),
        }
    }

    /// Returns the number of stored bytes.
    pub fn size(&self) -> usize {
        match self {
            Item::Named(named) => named.bytes.len(),
            Item::Unnamed(_) => 0,
        }
    }
}

/// Reads the name of an object. Bytes that are not UTF-8 are allowed outside of the name: they are
/// replaced for this function only.
fn head(bytes: &[u8]) -> Result<Head, String> {
    let read = |error: serde_json::Error| error.to_string();
    if std::str::from_utf8(bytes).is_ok() {
        return serde_json::from_slice(bytes).map_err(read);
    }
    // Replaced bytes could make two names equal, so a name must not contain any.
    let head: Head = serde_json::from_str(&String::from_utf8_lossy(bytes)).map_err(read)?;
    let metadata = &head.metadata;
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    match [metadata.name.as_str(), namespace]
        .concat()
        .contains(char::REPLACEMENT_CHARACTER)
    {
        true => Err("a name that is not UTF-8".to_owned()),
        false => Ok(head),
    }
}

/// Returns the `kind` of an object; `None`: it has none, as in most lists, or it is no string.
pub fn kind(object: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Typed {
        kind: String,
    }
    let Typed { kind } = serde_json::from_slice(object).ok()?;
    Some(kind)
}

/// Returns when an object was last written, according to its metadata. Servers record whole
/// seconds: of each writer, of the creation and of the request for a deletion, but not of its end.
pub fn written(object: &[u8]) -> Option<SystemTime> {
    #[derive(Deserialize)]
    struct Dated {
        metadata: Dates,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Dates {
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        #[serde(default)]
        deletion_grace_period_seconds: i64,
        #[serde(default)]
        managed_fields: Vec<Manager>,
    }
    #[derive(Deserialize)]
    struct Manager {
        time: Option<Time>,
    }
    let Dated { metadata } = serde_json::from_slice(object).ok()?;
    // The deletion timestamp is the latest time of the end, after the grace period.
    let grace = SignedDuration::from_secs(metadata.deletion_grace_period_seconds);
    let deleted = metadata.deletion_timestamp;
    let deleted = deleted.and_then(|Time(it)| it.checked_sub(grace).ok());
    let managed = metadata.managed_fields.into_iter().map(|it| it.time);
    let noted = managed.chain([metadata.creation_timestamp]).flatten();
    let all = noted.map(|Time(it)| it).chain(deleted);
    all.max().map(SystemTime::from)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{Item, written};
    use crate::split::SplitObject;

    fn item(bytes: &[u8]) -> Item {
        Item::of(SplitObject::Whole(bytes.to_vec()))
    }

    #[test]
    fn names_are_read_whatever_else_objects_contain() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let text = format!(
            r#"{{"spec":{deep},"metadata":{{"managedFields":[{{"fieldsV1":{deep}}}],"name":"a","namespace":"x","resourceVersion":"5"}}}}"#
        );
        let mut bytes = text.into_bytes();
        // A string whose bytes are not UTF-8, at the end.
        bytes.pop();
        bytes.extend(b",\"status\":{\"\xff\":\"\xfe\"}}");
        let Item::Named(named) = item(&bytes) else {
            panic!("it has a name");
        };
        assert_eq!((named.namespace.as_str(), named.name.as_str()), ("x", "a"));
        assert_eq!((named.version.as_str(), named.is_ending), ("5", false));
        assert_eq!(named.bytes, bytes);
        let ending = br#"{"metadata":{"name":"a","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        assert!(matches!(item(ending), Item::Named(it) if it.is_ending));
    }

    #[test]
    fn metadata_of_wrong_types_does_not_cost_the_name() {
        for (wrong, is_ending) in [
            (r#""labels":5"#, false),
            (r#""annotations":["a"]"#, false),
            (r#""generation":"x""#, false),
            (r#""creationTimestamp":{}"#, false),
            (r#""managedFields":"x""#, false),
            (r#""ownerReferences":true"#, false),
            (r#""resourceVersion":5"#, false),
            (r#""resourceVersion":{"a":[1]}"#, false),
            (r#""uid":[]"#, false),
            (r#""deletionTimestamp":5"#, true),
        ] {
            let text =
                format!(r#"{{"metadata":{{"name":"a","namespace":"x",{wrong}}},"spec":{{}}}}"#);
            let Item::Named(named) = item(text.as_bytes()) else {
                panic!("{wrong}");
            };
            assert_eq!((named.namespace.as_str(), named.name.as_str()), ("x", "a"));
            assert_eq!((named.version.as_str(), named.is_ending), ("", is_ending));
        }
    }

    #[test]
    fn objects_without_a_name_are_unnamed_items() {
        for text in [
            &b"{}"[..],
            b"12",
            br#"{"metadata":{"name":""}}"#,
            br#"{"metadata":{"name":5}}"#,
            br#"{"metadata":{"name":"a"}} {}"#,
            br#"{"metadata":{"name":"a"},"x":[}]}"#,
            b"{\"metadata\":{\"name\":\"\xff\"}}",
        ] {
            let unnamed = matches!(item(text), Item::Unnamed(_));
            assert!(unnamed, "{}", String::from_utf8_lossy(text));
        }
        assert!(matches!(Item::of(SplitObject::TooLarge), Item::Unnamed(_)));
    }

    #[test]
    fn invalid_utf_8_hides_no_object() {
        let beside = b"{\"\xff\":\"\xc0\",\"metadata\":{\"name\":\"a\",\"\xfe\":1}}";
        assert!(matches!(item(beside), Item::Named(named) if named.name == "a"));
        let inside = b"{\"metadata\":{\"name\":\"a\xff\"}}";
        assert!(matches!(item(inside), Item::Unnamed(_)));
    }

    #[test]
    fn the_cause_of_a_missing_name_is_short() {
        let long = format!(r#"{{"metadata":"{}"}}"#, "x".repeat(100_000));
        let Item::Unnamed(cause) = item(long.as_bytes()) else {
            panic!("it has no name");
        };
        assert!(cause.len() < 1_000, "{} bytes", cause.len());
    }

    #[test]
    fn the_latest_time_in_the_metadata_counts() {
        let at = |metadata: &str| {
            let object = format!(r#"{{"kind":"Pod","metadata":{metadata},"spec":{{}}}}"#);
            let since = |it: SystemTime| it.duration_since(SystemTime::UNIX_EPOCH).ok();
            written(object.as_bytes()).and_then(since)
        };
        let seconds = |it| Some(Duration::from_secs(it));
        // 2026-01-01T00:00:00Z is 1,767,225,600 seconds after 1970.
        let made = r#""creationTimestamp":"2026-01-01T00:00:00Z""#;
        assert_eq!(at(&format!("{{{made}}}")), seconds(1_767_225_600));
        let managed = r#""managedFields":[{"manager":"a","time":"2026-01-01T00:01:40Z"},{"manager":"b"},{"manager":"c","time":"2026-01-01T00:00:30Z"}]"#;
        let both = format!("{{{made},{managed}}}");
        assert_eq!(at(&both), seconds(1_767_225_700));
        // The request was half a minute before.
        let deleted =
            r#""deletionTimestamp":"2026-01-01T00:03:50Z","deletionGracePeriodSeconds":30"#;
        let all = format!("{{{made},{managed},{deleted}}}");
        assert_eq!(at(&all), seconds(1_767_225_800));
        assert_eq!(at("{}"), None);
        assert_eq!(at(r#"{"creationTimestamp":"yesterday"}"#), None);
        assert_eq!(written(b"[]"), None);
    }
}
