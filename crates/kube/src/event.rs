//! Events: the only objects that are written to a server.

use std::time::SystemTime;

use k8s_openapi::jiff::{Timestamp, Zoned, tz::TimeZone};
use serde_json::json;

use crate::access::{RequestFailure, Server};

/// The API's limits for the note and for the other texts of an Event, in bytes.
const LONGEST_NOTE: usize = 1_024;
const LONGEST_WORD: usize = 128;

/// An Event of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The name of the node.
    pub node: String,
    /// The reason, one word.
    pub reason: &'static str,
    /// The action, one word.
    pub action: &'static str,
    /// The description.
    pub note: String,
    /// The time of the occurrence.
    pub at: SystemTime,
}

impl Event {
    /// Returns the object as JSON. Nodes have no namespace, and Events of such objects are in
    /// `default`.
    pub fn object(&self) -> String {
        let seconds = Timestamp::try_from(self.at).unwrap_or(Timestamp::UNIX_EPOCH);
        // `eventTime` has microseconds, unlike all other times of the API.
        let at = Zoned::new(seconds, TimeZone::UTC).strftime("%Y-%m-%dT%H:%M:%S%.6fZ");
        let event = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": "default", "generateName": "palisade-agent-"},
            "eventTime": at.to_string(),
            "reportingController": "palisade.dev/agent",
            "reportingInstance": cut(&self.node, LONGEST_WORD),
            "action": self.action,
            "reason": self.reason,
            // As kubelets do: `kubectl describe node` finds Events by the node's name in the place
            // of its UID.
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.node},
            "note": cut(&self.note, LONGEST_NOTE),
            // The agent writes no Events about normal operation.
            "type": "Warning",
        });
        event.to_string()
    }
}

/// Returns the beginning of a text: at most this many bytes, and whole characters.
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

impl Server {
    /// Creates an Event.
    pub async fn create(&self, event: &Event) -> Result<(), RequestFailure> {
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        self.post(path, event.object()).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use serde_json::Value;

    use super::Event;

    #[test]
    fn an_event_fits_into_the_limits_of_the_api() {
        let event = Event {
            node: "n".repeat(200),
            reason: "KernelRefused",
            action: "Programming",
            note: "é".repeat(1_000),
            at: SystemTime::UNIX_EPOCH + Duration::from_micros(1_767_225_600_000_042),
        };
        let object: Value = serde_json::from_str(&event.object()).unwrap_or_default();
        let text = |pointer: &str| {
            let found = object.pointer(pointer).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        assert_eq!(text("/eventTime"), "2026-01-01T00:00:00.000042Z");
        assert_eq!(text("/note").len(), 1_024);
        assert_eq!(text("/reportingInstance").len(), 128);
        // The node is named in full.
        assert_eq!(text("/regarding/name"), event.node);
        assert_eq!(text("/metadata/namespace"), "default");
    }
}
