//! What an agent is told when a server speaks: everything once, then what changes, and nothing that a server only failed to say.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use palisade_agent::cluster::{Kinds, Taken};
use palisade_agent::{Agent, Config};
use palisade_api::Kind;
use palisade_kube::{News, Resource, Trouble};

/// A server, and an agent that is told of it.
struct Server {
    kinds: Kinds,
    agent: Agent,
}

impl Server {
    fn new() -> Server {
        Server {
            kinds: Kinds::new(&Resource::of_agents(false)),
            agent: Agent::new(Config::new("n1"), None),
        }
    }

    fn says(&mut self, kind: Kind, news: &News) -> Taken {
        let now = Duration::ZERO;
        self.kinds.take(now, kind, news, &mut self.agent)
    }

    /// All pods there are.
    fn lists_pods(&mut self, names: &[&str]) -> Taken {
        self.says(Kind::Pod, &News::Began);
        let pods: Vec<String> = names.iter().map(|name| pod(name)).collect();
        let list = format!(
            r#"{{"apiVersion":"v1","kind":"PodList","metadata":{{"resourceVersion":"7"}},"items":[{}]}}"#,
            pods.join(",")
        );
        self.says(Kind::Pod, &News::Page(list));
        self.says(Kind::Pod, &News::Complete)
    }

    fn pods(&self) -> usize {
        let mut pods = 0;
        self.agent
            .live()
            .each(Kind::Pod.short(), &mut |_| pods += 1);
        pods
    }
}

fn pod(name: &str) -> String {
    let last = name.len();
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"x","resourceVersion":"5"}},"spec":{{"nodeName":"n1","containers":[{{"name":"c","image":"i"}}]}},"status":{{"phase":"Running","podIPs":[{{"ip":"10.0.0.{last}"}}]}}}}"#
    )
}

#[test]
fn what_a_server_does_not_list_any_more_is_gone() {
    let mut server = Server::new();
    server.lists_pods(&["a", "bb", "ccc"]);
    assert_eq!(server.pods(), 3);
    let taken = server.lists_pods(&["a", "ccc"]);
    assert_eq!((server.pods(), taken.different), (2, 1));
    assert_eq!(taken.complete, Some(("pods".to_owned(), 2)));
    // What a list has left out is not gone before the list is complete.
    server.says(Kind::Pod, &News::Began);
    assert_eq!(server.pods(), 2);
    server.says(Kind::Pod, &News::Gone(pod("a")));
    assert_eq!(server.pods(), 1);
    server.says(Kind::Pod, &News::Absent);
    assert_eq!(server.pods(), 0);
}

#[test]
fn a_kind_that_may_not_be_read_is_not_known() {
    let mut server = Server::new();
    let all: Vec<Kind> = Resource::of_agents(false)
        .iter()
        .map(|it| it.kind)
        .collect();
    for kind in all.iter().filter(|it| **it != Kind::NetworkPolicy) {
        server.says(*kind, &News::Absent);
    }
    assert!(!server.kinds.are_complete());
    let forbidden = Trouble::Forbidden("networkpolicies is forbidden".to_owned());
    server.says(Kind::NetworkPolicy, &News::Trouble(forbidden));
    assert!(!server.kinds.are_complete());
    let missing = server.kinds.missing();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].starts_with("networkpolicies.networking.k8s.io cannot be read: "));
    assert!(server.kinds.unread().all(|it| it.is_forbidden));
    server.says(Kind::NetworkPolicy, &News::Fine);
    server.says(Kind::NetworkPolicy, &News::Began);
    server.says(Kind::NetworkPolicy, &News::Complete);
    assert!(server.kinds.are_complete());
    assert_eq!(server.kinds.missing(), [""; 0]);
}

#[test]
fn trouble_takes_nothing_away() {
    let mut server = Server::new();
    server.lists_pods(&["a", "bb"]);
    let failing = || Trouble::Failing("connection refused".to_owned());
    server.says(Kind::Pod, &News::Trouble(failing()));
    // A list that breaks off after its first page says nothing of those who were to follow.
    server.says(Kind::Pod, &News::Began);
    server.says(Kind::Pod, &News::Set(pod("a")));
    server.says(Kind::Pod, &News::Trouble(failing()));
    assert_eq!(server.pods(), 2);
    let missing = server.kinds.missing().join("\n");
    assert!(missing.contains("what was known is enforced"), "{missing}");
}
