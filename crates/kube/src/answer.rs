//! What servers answer, as far as it is not about objects.

use std::time::SystemTime;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::SignedDuration;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The head of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Of which moment it is.
    pub version: String,
    /// How the next page is asked for, if there is one.
    pub more: Option<String>,
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(default)]
    #[allow(dead_code, reason = "it has to be there, whatever is in it")]
    items: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    more: Option<String>,
}

/// The head of a list; `Err`: it is none, in words.
pub fn page(text: &str) -> Result<Page, String> {
    let list: List = serde_json::from_str(text).map_err(|it| format!("not a list: {it}"))?;
    let version = list.metadata.resource_version.unwrap_or_default();
    if version.is_empty() {
        return Err("a list without a resourceVersion".to_owned());
    }
    Ok(Page {
        version,
        more: list.metadata.more.filter(|it| !it.is_empty()),
    })
}

/// One line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'t> {
    /// An object is new or different: its text, and the moment.
    Set(&'t str, String),
    /// An object is gone.
    Gone(&'t str, String),
    /// Nothing happened until this moment.
    Until(String),
    /// The server ends the watch.
    Refused(Refusal),
}

#[derive(Deserialize)]
struct Event<'t> {
    r#type: &'t str,
    #[serde(borrow)]
    object: &'t RawValue,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: String,
}

/// What a line of a watch says; `Err`: nothing, in words.
pub fn line(text: &str) -> Result<Line<'_>, String> {
    let event: Event<'_> =
        serde_json::from_str(text).map_err(|it| format!("not an event of a watch: {it}"))?;
    let object = event.object.get();
    if event.r#type == "ERROR" {
        return Ok(Line::Refused(Refusal::of(500, object)));
    }
    let versioned: Versioned = serde_json::from_str(object)
        .map_err(|it| format!("an event without a resourceVersion: {it}"))?;
    let version = versioned.metadata.resource_version;
    match event.r#type {
        "ADDED" | "MODIFIED" => Ok(Line::Set(object, version)),
        "DELETED" => Ok(Line::Gone(object, version)),
        "BOOKMARK" => Ok(Line::Until(version)),
        _ => Err("an event of a type that nobody knows".to_owned()),
    }
}

/// When an object was last written, as far as it says. Servers note whole seconds, and they note who wrote it, when it
/// was made, and when it was to be deleted, but not that it is gone.
pub fn written(object: &str) -> Option<SystemTime> {
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
    let Dated { metadata } = serde_json::from_str(object).ok()?;
    // What is to be deleted says when it will be, at the latest.
    let grace = SignedDuration::from_secs(metadata.deletion_grace_period_seconds);
    let deleted = metadata.deletion_timestamp;
    let deleted = deleted.and_then(|Time(it)| it.checked_sub(grace).ok());
    let managed = metadata.managed_fields.into_iter().map(|it| it.time);
    let noted = managed.chain([metadata.creation_timestamp]).flatten();
    let all = noted.map(|Time(it)| it).chain(deleted);
    all.max().map(SystemTime::from)
}

/// Why a server did not do what it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The code of HTTP.
    pub code: u16,
    /// The reason, as one word.
    pub reason: String,
    /// What the server says about it.
    pub message: String,
    /// When it wants to be asked again, in seconds.
    pub retry_after: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    code: Option<u16>,
    reason: Option<String>,
    message: Option<String>,
    details: Option<Details>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Details {
    retry_after_seconds: Option<u64>,
}

/// So much of what a server says is told on.
const MESSAGE: usize = 300;

impl Refusal {
    /// Of the code of a response, and its body, whatever that is.
    pub fn of(code: u16, body: &str) -> Refusal {
        let status: Status = serde_json::from_str(body).unwrap_or_else(|_| Status {
            message: Some(body.to_owned()),
            ..Status::default()
        });
        let message = status.message.unwrap_or_default();
        Refusal {
            code: status.code.unwrap_or(code),
            reason: status.reason.unwrap_or_default(),
            message: message.chars().take(MESSAGE).collect(),
            retry_after: status.details.and_then(|it| it.retry_after_seconds),
        }
    }

    /// Whether what was asked for is too old to be had.
    pub fn is_too_old(&self) -> bool {
        self.code == 410 || matches!(self.reason.as_str(), "Expired" | "Gone")
    }

    /// Whether whoever asks may not.
    pub fn is_forbidden(&self) -> bool {
        matches!(self.code, 401 | 403)
    }

    /// Whether there is nothing of that name.
    pub fn is_missing(&self) -> bool {
        self.code == 404
    }
}

/// Whether the resources of a group and version have one of this name.
pub fn has_resource(text: &str, plural: &str) -> Result<bool, String> {
    #[derive(Deserialize)]
    struct Resources {
        kind: String,
        #[serde(default)]
        resources: Vec<Named>,
    }
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let all: Resources =
        serde_json::from_str(text).map_err(|it| format!("not a list of resources: {it}"))?;
    if all.kind != "APIResourceList" {
        // Whatever this is, it must not mean that policies are gone.
        return Err("not a list of resources".to_owned());
    }
    Ok(all.resources.iter().any(|it| it.name == plural))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::{Line, Page, Refusal, has_resource, line, page, written};

    #[test]
    fn pages_say_how_to_go_on() {
        let text = r#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":3},"items":[{"metadata":{"resourceVersion":"5"}}]}"#;
        let expected = Page {
            version: "7".to_owned(),
            more: Some("abc".to_owned()),
        };
        assert_eq!(page(text), Ok(expected));
        let last = page(r#"{"metadata":{"resourceVersion":"7","continue":""},"items":null}"#);
        assert_eq!(last.map(|it| it.more), Ok(None));
        assert!(page(r#"{"metadata":{},"items":[]}"#).is_err());
        assert!(page("<html>").is_err());
    }

    #[test]
    fn lines_of_a_watch() {
        let object = r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"9"}}"#;
        let event = |kind: &str| format!(r#"{{"type":"{kind}","object":{object}}}"#);
        let nine = || "9".to_owned();
        assert_eq!(line(&event("ADDED")), Ok(Line::Set(object, nine())));
        assert_eq!(line(&event("MODIFIED")), Ok(Line::Set(object, nine())));
        assert_eq!(line(&event("DELETED")), Ok(Line::Gone(object, nine())));
        assert_eq!(line(&event("BOOKMARK")), Ok(Line::Until(nine())));
        assert!(line(&event("WHATEVER")).is_err());
        assert!(line("").is_err());
        let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version: 1 (2)"}}"#;
        let Ok(Line::Refused(refusal)) = line(gone) else {
            panic!("a refusal");
        };
        assert!(refusal.is_too_old());
    }

    #[test]
    fn objects_say_when_they_were_written() {
        let at = |metadata: &str| {
            let object = format!(r#"{{"kind":"Pod","metadata":{metadata},"spec":{{}}}}"#);
            let since = |it: SystemTime| it.duration_since(SystemTime::UNIX_EPOCH).ok();
            written(&object).and_then(since)
        };
        let seconds = |it| Some(Duration::from_secs(it));
        // 2026-01-01T00:00:00Z is 1,767,225,600 seconds after 1970.
        let made = r#""creationTimestamp":"2026-01-01T00:00:00Z""#;
        assert_eq!(at(&format!("{{{made}}}")), seconds(1_767_225_600));
        let managed = r#""managedFields":[{"manager":"a","time":"2026-01-01T00:01:40Z"},{"manager":"b"},{"manager":"c","time":"2026-01-01T00:00:30Z"}]"#;
        let both = format!("{{{made},{managed}}}");
        assert_eq!(at(&both), seconds(1_767_225_700));
        // It was asked for half a minute before.
        let deleted =
            r#""deletionTimestamp":"2026-01-01T00:03:50Z","deletionGracePeriodSeconds":30"#;
        let all = format!("{{{made},{managed},{deleted}}}");
        assert_eq!(at(&all), seconds(1_767_225_800));
        assert_eq!(at("{}"), None);
        assert_eq!(at(r#"{"creationTimestamp":"yesterday"}"#), None);
        assert_eq!(written("[]"), None);
    }

    #[test]
    fn refusals_are_read_whatever_they_look_like() {
        let status = r#"{"kind":"Status","status":"Failure","message":"pods is forbidden","reason":"Forbidden","code":403}"#;
        let refusal = Refusal::of(403, status);
        assert!(refusal.is_forbidden());
        assert_eq!(refusal.message, "pods is forbidden");
        assert_eq!(Refusal::of(502, "<html>bad gateway").code, 502);
        let busy = r#"{"code":429,"details":{"retryAfterSeconds":4}}"#;
        assert_eq!(Refusal::of(429, busy).retry_after, Some(4));
        assert!(Refusal::of(404, "404 page not found").is_missing());
    }

    #[test]
    fn resources_are_found_by_name() {
        let text = r#"{"kind":"APIResourceList","resources":[{"name":"adminnetworkpolicies"},{"name":"adminnetworkpolicies/status"}]}"#;
        assert_eq!(has_resource(text, "adminnetworkpolicies"), Ok(true));
        assert_eq!(has_resource(text, "clusternetworkpolicies"), Ok(false));
        for other in ["[]", "{}", r#"{"kind":"Status"}"#, "<html>"] {
            assert!(has_resource(other, "pods").is_err(), "{other}");
        }
    }
}
