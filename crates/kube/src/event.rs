//! Events: the only objects that are ever written to a server.

use std::time::SystemTime;

use k8s_openapi::jiff::{Timestamp, Zoned, tz::TimeZone};
use serde_json::json;

use crate::access::{RequestFailure, Server};

/// The longest words that a server takes for what happened, and for single words of an event.
const LONGEST_NOTE: usize = 1_024;
const LONGEST_WORD: usize = 128;

/// Something that people who look at a node should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The node that it is about.
    pub node: String,
    /// Why it is told, as one word.
    pub reason: &'static str,
    /// What was being done, as one word.
    pub action: &'static str,
    /// What happened, in words.
    pub note: String,
    /// When.
    pub at: SystemTime,
}

impl Event {
    /// The object, in JSON. Nodes live in no namespace, and what is about them is kept in `default`.
    pub fn object(&self) -> String {
        let seconds = Timestamp::try_from(self.at).unwrap_or(Timestamp::UNIX_EPOCH);
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
            // As kubelets do: `kubectl describe node` finds events by the node's name in the place of its uid.
            "regarding": {"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": self.node},
            "note": cut(&self.note, LONGEST_NOTE),
            "type": "Warning",
        });
        event.to_string()
    }
}

/// At most so many bytes of a text, and whole signs.
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default()
}

impl Server {
    /// Writes an event.
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
    fn an_event_fits_into_what_servers_take() {
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
        // What it is about is named in full.
        assert_eq!(text("/regarding/name"), event.node);
        assert_eq!(text("/metadata/namespace"), "default");
    }
}
