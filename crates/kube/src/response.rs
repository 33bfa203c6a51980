//! The parts of responses beside objects: lists, watch events, errors and discovery.

use std::fmt::Display;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::item::Item;
use crate::split::{ObjectLocation, SplitObject, Splitter};

/// The metadata of a page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The resource version of the list.
    pub version: String,
    /// The continue token of the next page, if there is one.
    pub more: Option<String>,
    /// The number of objects on later pages, if the server counts them.
    pub remaining: Option<usize>,
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMetadata,
    /// Each object was split out before; a `0` is in its place.
    #[serde(default)]
    items: Option<Vec<u8>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    more: Option<String>,
    // Of any type: a list is no worse for a strange count.
    remaining_item_count: Option<serde_json::Value>,
}

/// Parses the rest of a page from which this many objects were split out. `Err`: it is no list, or
/// has another number of objects.
pub fn page(rest: &[u8], taken: usize) -> Result<Page, String> {
    let list: List = serde_json::from_slice(rest).map_err(|it| shortened("not a list: ", &it))?;
    let version = list.metadata.resource_version.unwrap_or_default();
    // A watch without a version starts at any moment: changes in between would be lost.
    if version.is_empty() {
        return Err("a list without a resourceVersion".to_owned());
    }
    let remaining = list.metadata.remaining_item_count;
    let counted = list.items.map_or(0, |it| it.len());
    if counted != taken {
        return Err(format!(
            "a list of {counted} objects, of which {taken} were found"
        ));
    }
    Ok(Page {
        version,
        more: list.metadata.more.filter(|it| !it.is_empty()),
        remaining: remaining.and_then(|it| usize::try_from(it.as_u64()?).ok()),
    })
}

/// Parses a page as [`page`] does, and checks its kind. A response of a proxy or another server
/// must not pass for an empty list, which would end policies (D150).
pub fn page_of(kind: &str, rest: &[u8], taken: usize) -> Result<Page, String> {
    #[derive(Deserialize)]
    struct Head {
        kind: String,
        #[serde(rename = "items")]
        _items: IgnoredAny,
    }
    let head: Head = serde_json::from_slice(rest).map_err(|it| shortened("not a list: ", &it))?;
    match head.kind.strip_suffix("List") {
        Some(listed) if listed == kind => page(rest, taken),
        _ => Err(shortened(&format!("not a {kind}List, but a "), &head.kind)),
    }
}

/// An event of a watch.
#[derive(Debug, PartialEq, Eq)]
pub enum WatchLine {
    /// An object was created or changed.
    Set(Item),
    /// An object was deleted.
    Deleted(Item),
    /// A bookmark: nothing else happened up to this resource version.
    Bookmark(String),
    /// The server ends the watch with an error.
    Refused(StatusError),
}

/// A watch event without its object.
#[derive(Deserialize)]
struct Event {
    r#type: String,
    object: u8,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMetadata {
    resource_version: String,
}

const NOT_ONE_OBJECT: &str = "a watch event without exactly one object";

/// Splits a watch into lines while its bytes arrive.
#[derive(Debug)]
pub struct WatchLines {
    splitter: Splitter,
    objects: Vec<SplitObject>,
    has_begun: bool,
}

impl Default for WatchLines {
    fn default() -> WatchLines {
        WatchLines {
            splitter: Splitter::new(ObjectLocation::Object),
            objects: Vec::new(),
            has_begun: false,
        }
    }
}

impl WatchLines {
    /// Processes bytes up to the end of a line. Returns their number, and the event if the line is
    /// complete; `Err`: the line is none.
    pub fn push(&mut self, bytes: &[u8]) -> (usize, Option<Result<WatchLine, String>>) {
        let end = memchr::memchr(b'\n', bytes);
        let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        self.has_begun = true;
        match self.splitter.push(part) {
            Ok(found) => self.objects.extend(found),
            Err(cause) => return (part.len(), Some(Err(cause.to_owned()))),
        }
        // Checked before the end of the line: each object may be as large as an object can be.
        if self.objects.len() > 1 {
            return (part.len(), Some(Err(NOT_ONE_OBJECT.to_owned())));
        }
        // No newline yet: the rest of the line is in the next bytes.
        let Some(end) = end else {
            return (part.len(), None);
        };
        let whole = std::mem::take(self);
        (end + 1, Some(whole.line()))
    }

    /// Returns whether a line has begun and not ended.
    pub fn is_within(&self) -> bool {
        self.has_begun
    }

    fn line(mut self) -> Result<WatchLine, String> {
        let (rest, _) = self.splitter.finish()?;
        let event: Event =
            serde_json::from_slice(&rest).map_err(|it| shortened("not a watch event: ", &it))?;
        let (Some(object), true, 0) = (self.objects.pop(), self.objects.is_empty(), event.object)
        else {
            return Err(NOT_ONE_OBJECT.to_owned());
        };
        match (event.r#type.as_str(), object) {
            ("ADDED" | "MODIFIED", object) => Ok(WatchLine::Set(Item::of(object))),
            ("DELETED", object) => Ok(WatchLine::Deleted(Item::of(object))),
            ("BOOKMARK", SplitObject::Whole(object)) => {
                let bookmark: Bookmark = serde_json::from_slice(&object)
                    .map_err(|it| shortened("a bookmark without a resourceVersion: ", &it))?;
                Ok(WatchLine::Bookmark(bookmark.metadata.resource_version))
            }
            // The response as a whole has the status 200; the code is in the object.
            ("ERROR", SplitObject::Whole(object)) => {
                let object = String::from_utf8_lossy(&object);
                Ok(WatchLine::Refused(StatusError::of(500, &object)))
            }
            _ => Err("a watch event of an unknown type".to_owned()),
        }
    }
}

/// An error response of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusError {
    /// The HTTP status code.
    pub code: u16,
    /// The reason, one word.
    pub reason: String,
    /// The message of the server.
    pub message: String,
    /// The time after which the server wants a retry, in seconds.
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

/// The number of characters of a server's message that is passed on.
const MESSAGE: usize = 300;

/// Joins what is wrong and why. A message of `serde_json` can repeat its whole input, so it is
/// shortened.
pub(crate) fn shortened(what: &str, why: &impl Display) -> String {
    let why: String = why.to_string().chars().take(MESSAGE).collect();
    format!("{what}{why}")
}

impl StatusError {
    /// Parses the body of an error response. A body that is no `Status` becomes the message.
    pub fn of(code: u16, body: &str) -> StatusError {
        let status: Status = serde_json::from_str(body).unwrap_or_else(|_| Status {
            message: Some(body.to_owned()),
            ..Status::default()
        });
        let message = status.message.unwrap_or_default();
        StatusError {
            code: status.code.unwrap_or(code),
            reason: status.reason.unwrap_or_default(),
            message: message.chars().take(MESSAGE).collect(),
            retry_after: status.details.and_then(|it| it.retry_after_seconds),
        }
    }

    /// Returns whether the requested resource version or continue token has expired.
    pub fn is_too_old(&self) -> bool {
        // An error inside of a watch may come without a code.
        self.code == 410 || matches!(self.reason.as_str(), "Expired" | "Gone")
    }

    /// Returns whether the client lacks credentials or permission.
    pub fn is_forbidden(&self) -> bool {
        // 401 is an expired token, mostly: for the reader of a kind it has the same consequence.
        matches!(self.code, 401 | 403)
    }

    /// Returns whether the path does not exist.
    pub fn is_missing(&self) -> bool {
        self.code == 404
    }
}

/// Returns whether the resources of a group and version have one of this name.
pub fn has_resource(text: &str, group_version: &str, plural: &str) -> Result<bool, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Resources {
        kind: String,
        group_version: String,
        resources: Vec<Named>,
    }
    let all: Resources =
        serde_json::from_str(text).map_err(|it| shortened("not a list of resources: ", &it))?;
    if all.kind != "APIResourceList" || all.group_version != group_version {
        // A page of a proxy must not end policies.
        return Err(format!("not the list of the resources of {group_version}"));
    }
    Ok(all.resources.iter().any(|it| it.name == plural))
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// A group that every server has. A list of groups without it is rejected as incomplete.
const EVERYWHERE: &str = "apps";

/// Returns the resources of a group and version that can be listed: the kind and the plural of
/// each.
pub fn listable(text: &str, group_version: &str) -> Result<Vec<(String, String)>, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Resources {
        group_version: String,
        resources: Vec<Resource>,
    }
    #[derive(Deserialize)]
    struct Resource {
        name: String,
        kind: String,
        #[serde(default)]
        verbs: Vec<String>,
    }
    let all: Resources =
        serde_json::from_str(text).map_err(|it| shortened("not a list of resources: ", &it))?;
    if all.group_version != group_version {
        return Err(format!("not the list of the resources of {group_version}"));
    }
    // A subresource, as `status`, has no list.
    let listable = all.resources.into_iter().filter(|it| {
        let can_list = it.verbs.iter().any(|verb| verb == "list");
        can_list && !it.name.contains('/')
    });
    Ok(listable.map(|it| (it.kind, it.name)).collect())
}

/// Returns the groups of a server, each with its versions in order of preference, as `apps/v1`.
pub fn group_versions(text: &str) -> Result<Vec<(String, Vec<String>)>, String> {
    let groups = groups(text)?.into_iter();
    let versions = |group: Group| {
        let versions = group.versions.into_iter().map(|it| it.group_version);
        (group.name, versions.collect())
    };
    Ok(groups.map(versions).collect())
}

/// Returns whether the groups of a server have one with this version.
pub fn has_group(text: &str, group_version: &str) -> Result<bool, String> {
    let groups = groups(text)?;
    let mut versions = groups.iter().flat_map(|it| &it.versions);
    Ok(versions.any(|it| it.group_version == group_version))
}

#[derive(Deserialize)]
struct Group {
    name: String,
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
}

/// Parses the list of all groups.
fn groups(text: &str) -> Result<Vec<Group>, String> {
    #[derive(Deserialize)]
    struct Groups {
        kind: String,
        groups: Vec<Group>,
    }
    let all: Groups =
        serde_json::from_str(text).map_err(|it| shortened("not a list of groups: ", &it))?;
    let is_whole = all.groups.iter().any(|it| it.name == EVERYWHERE);
    if all.kind != "APIGroupList" || !is_whole {
        return Err("not the list of all groups".to_owned());
    }
    Ok(all.groups)
}

#[cfg(test)]
mod tests {
    use super::{Page, StatusError, WatchLine, WatchLines, has_group, has_resource, page, page_of};
    use crate::item::Item;
    use crate::split::SplitObject;

    #[test]
    fn pages_have_the_continue_token_of_the_next() {
        let rest = br#"{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"abc","remainingItemCount":3},"items":[0,0]}"#;
        let expected = Page {
            version: "7".to_owned(),
            more: Some("abc".to_owned()),
            remaining: Some(3),
        };
        assert_eq!(page(rest, 2), Ok(expected));
        // An object too few or too many invalidates the list.
        assert!(page(rest, 1).is_err());
        assert!(page(rest, 3).is_err());
        let last = page(
            br#"{"metadata":{"resourceVersion":"7","continue":""},"items":null}"#,
            0,
        );
        assert_eq!(last.map(|it| it.more), Ok(None));
        // A strange count makes a list no worse.
        let strange =
            br#"{"metadata":{"resourceVersion":"7","remainingItemCount":"x"},"items":[]}"#;
        assert_eq!(page(strange, 0).map(|it| it.remaining), Ok(None));
        assert!(page(br#"{"metadata":{},"items":[]}"#, 0).is_err());
        assert!(page(br#"{"metadata":{"resourceVersion":"7"},"items":[{}]}"#, 1).is_err());
        assert!(
            page(
                br#"{"metadata":{"resourceVersion":"7"},"items":[0],"items":[0]}"#,
                2
            )
            .is_err()
        );
        assert!(page(b"<html>", 0).is_err());
    }

    #[test]
    fn lines_of_a_watch() {
        let object = r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"9"}}"#;
        let item = || Item::of(SplitObject::Whole(object.as_bytes().to_vec()));
        let event = |kind: &str| format!("{{\"type\":\"{kind}\",\"object\":{object}}}");
        let line = |text: &str| {
            // In small parts.
            let mut lines = WatchLines::default();
            let bytes = format!("{text}\n").into_bytes();
            let mut parts = bytes.chunks(7);
            let event = parts.find_map(|part| lines.push(part).1);
            assert!(!lines.is_within() || event.as_ref().is_some_and(Result::is_err));
            event.expect("a line")
        };
        assert_eq!(line(&event("ADDED")), Ok(WatchLine::Set(item())));
        assert_eq!(line(&event("MODIFIED")), Ok(WatchLine::Set(item())));
        assert_eq!(line(&event("DELETED")), Ok(WatchLine::Deleted(item())));
        assert_eq!(
            line(&event("BOOKMARK")),
            Ok(WatchLine::Bookmark("9".to_owned()))
        );
        assert!(line(&event("WHATEVER")).is_err());
        assert!(line("").is_err());
        assert!(line(r#"{"type":"ADDED"}"#).is_err());
        assert!(line(r#"{"type":"ADDED","object":{},"object":{}}"#).is_err());
        let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version: 1 (2)"}}"#;
        let Ok(WatchLine::Refused(error)) = line(gone) else {
            panic!("an error");
        };
        assert!(error.is_too_old());
    }

    #[test]
    fn a_response_that_is_no_list_of_the_kind_is_rejected() {
        let of = |kind: &str| {
            format!(r#"{{"kind":"{kind}","metadata":{{"resourceVersion":"7"}},"items":[]}}"#)
        };
        let page = |text: &str| page_of("NetworkPolicy", text.as_bytes(), 0);
        assert!(page(&of("NetworkPolicyList")).is_ok());
        for other in ["PodList", "List", "NetworkPolicy", "Status", "Table", ""] {
            assert!(page(&of(other)).is_err(), "{other}");
        }
        let without = r#"{"kind":"NetworkPolicyList","metadata":{"resourceVersion":"7"}}"#;
        assert!(page(without).is_err());
        assert!(page(r#"{"metadata":{"resourceVersion":"7"},"items":[]}"#).is_err());
    }

    #[test]
    fn an_event_of_many_objects_is_rejected_at_once() {
        let mut lines = WatchLines::default();
        let text = r#"{"type":"ADDED","object":{},"object":{},"object":{"#;
        let (_, event) = lines.push(text.as_bytes());
        assert!(matches!(event, Some(Err(_))), "{event:?}");
    }

    #[test]
    fn error_responses_of_any_form_are_read() {
        let status = r#"{"kind":"Status","status":"Failure","message":"pods is forbidden","reason":"Forbidden","code":403}"#;
        let error = StatusError::of(403, status);
        assert!(error.is_forbidden());
        assert_eq!(error.message, "pods is forbidden");
        assert_eq!(StatusError::of(502, "<html>bad gateway").code, 502);
        let busy = r#"{"code":429,"details":{"retryAfterSeconds":4}}"#;
        assert_eq!(StatusError::of(429, busy).retry_after, Some(4));
        assert!(StatusError::of(404, "404 page not found").is_missing());
    }

    #[test]
    fn resources_are_found_by_name() {
        let text = r#"{"kind":"APIResourceList","groupVersion":"p/v1","resources":[{"name":"adminnetworkpolicies"},{"name":"adminnetworkpolicies/status"}]}"#;
        let has = |text, plural| has_resource(text, "p/v1", plural);
        assert_eq!(has(text, "adminnetworkpolicies"), Ok(true));
        assert_eq!(has(text, "clusternetworkpolicies"), Ok(false));
        assert!(has_resource(text, "p/v2", "adminnetworkpolicies").is_err());
        for other in [
            "[]",
            "{}",
            r#"{"kind":"Status"}"#,
            "<html>",
            r#"{"kind":"APIResourceList","groupVersion":"p/v1"}"#,
        ] {
            assert!(has(other, "pods").is_err(), "{other}");
        }
    }

    #[test]
    fn groups_count_from_a_complete_list_only() {
        let group = |name: &str, version: &str| {
            let version = format!(r#"{{"groupVersion":"{name}/{version}","version":"{version}"}}"#);
            format!(r#"{{"name":"{name}","versions":[{version}]}}"#)
        };
        let list = |groups: &[String]| {
            let groups = groups.join(",");
            format!(r#"{{"kind":"APIGroupList","apiVersion":"v1","groups":[{groups}]}}"#)
        };
        let whole = list(&[group("apps", "v1"), group("p", "v1")]);
        assert_eq!(has_group(&whole, "p/v1"), Ok(true));
        assert_eq!(has_group(&whole, "p/v2"), Ok(false));
        assert_eq!(has_group(&list(&[group("apps", "v1")]), "p/v1"), Ok(false));
        for other in [
            &list(&[]),
            &list(&[group("p", "v1")]),
            r#"{"kind":"APIGroupList"}"#,
            r#"{"kind":"Status","code":404}"#,
            "404 page not found",
        ] {
            assert!(has_group(other, "p/v1").is_err(), "{other}");
        }
    }
}
