//! The changes that an agent makes of the events of a server: every object once, then its changes.
//! An object that a failed response lacks is not removed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::time::Duration;

use palisade_agent::cluster::{Kinds, WatchDelta};
use palisade_agent::{Agent, Config, Nft};
use palisade_api::Kind;
use palisade_kube::split::SplitObject;
use palisade_kube::{Item, Resource, WatchEvent, WatchProblem};

/// A server, and an agent that receives its events.
struct Server {
    kinds: Kinds,
    agent: Agent,
}

impl Server {
    fn new() -> Server {
        Server {
            kinds: Kinds::new(&Resource::of_agents(false)),
            agent: Agent::new(Nft::default(), Config::new("n1"), None),
        }
    }

    fn sends(&mut self, kind: Kind, event: &WatchEvent) -> WatchDelta {
        let now = Duration::ZERO;
        let mut store = self.agent.objects(now);
        self.kinds.take(now, kind, event.clone(), &mut store)
    }

    /// Lists all pods.
    fn lists_pods(&mut self, names: &[&str]) -> WatchDelta {
        let pods: Vec<Vec<u8>> = names.iter().map(|name| pod(name).into_bytes()).collect();
        self.lists(Kind::Pod, &pods)
    }

    fn lists(&mut self, kind: Kind, objects: &[Vec<u8>]) -> WatchDelta {
        self.sends(kind, &WatchEvent::ListStarted);
        for object in objects {
            self.sends(kind, &WatchEvent::Listed(item(object)));
        }
        self.sends(kind, &WatchEvent::ListComplete)
    }

    fn pods(&self) -> usize {
        self.count(Kind::Pod)
    }

    fn count(&self, kind: Kind) -> usize {
        let mut count = 0;
        let kind = kind.enforced().expect("a kind that is enforced");
        self.agent.planner().each(kind, &mut |_| count += 1);
        count
    }

    /// Returns the names of all enforced policies.
    fn policies(&self) -> Vec<String> {
        let mut names = Vec::new();
        let live = self.agent.planner();
        let kind = Kind::NetworkPolicy.enforced().expect("a policy");
        live.each(kind, &mut |key| {
            names.push(key.name.to_owned());
        });
        names.sort();
        names
    }
}

fn item(object: &[u8]) -> Item {
    Item::of(SplitObject::Whole(object.to_vec()))
}

/// A policy that isolates all pods of its namespace; `fields` is what a field manager recorded of
/// its fields.
fn policy(name: &str, fields: &[u8]) -> Vec<u8> {
    let head = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"x","managedFields":[{{"manager":"m","fieldsV1":"#
    );
    let tail = r#"}]},"spec":{"podSelector":{},"policyTypes":["Ingress"]}}"#;
    [head.as_bytes(), fields, tail.as_bytes()].concat()
}

fn namespace(is_ending: bool) -> Vec<u8> {
    let ending = match is_ending {
        true => r#","deletionTimestamp":"2026-01-01T00:00:00Z""#,
        false => "",
    };
    format!(r#"{{"metadata":{{"name":"x"{ending}}}}}"#).into_bytes()
}

fn pod(name: &str) -> String {
    let last = name.len();
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"x","resourceVersion":"5"}},"spec":{{"nodeName":"n1","containers":[{{"name":"c","image":"i"}}]}},"status":{{"phase":"Running","podIPs":[{{"ip":"10.0.0.{last}"}}]}}}}"#
    )
}

#[test]
fn objects_that_a_new_list_lacks_are_removed() {
    let mut server = Server::new();
    server.lists_pods(&["a", "bb", "ccc"]);
    assert_eq!(server.pods(), 3);
    let taken = server.lists_pods(&["a", "ccc"]);
    assert_eq!((server.pods(), taken.different), (2, 1));
    assert_eq!(taken.complete, Some(("pods".to_owned(), 2)));
    // Objects that a list lacks are not removed before the list is complete.
    server.sends(Kind::Pod, &WatchEvent::ListStarted);
    assert_eq!(server.pods(), 2);
    server.sends(Kind::Pod, &WatchEvent::Deleted(item(pod("a").as_bytes())));
    assert_eq!(server.pods(), 1);
    server.sends(Kind::Pod, &WatchEvent::Absent);
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
        server.sends(*kind, &WatchEvent::Absent);
    }
    assert!(!server.kinds.are_complete());
    let forbidden = WatchProblem::Forbidden("networkpolicies is forbidden".to_owned());
    server.sends(Kind::NetworkPolicy, &WatchEvent::Problem(forbidden));
    assert!(!server.kinds.are_complete());
    let missing = server.kinds.missing();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].starts_with("cannot read networkpolicies.networking.k8s.io: "));
    assert!(server.kinds.unread().all(|it| it.is_forbidden));
    server.sends(Kind::NetworkPolicy, &WatchEvent::Recovered);
    server.sends(Kind::NetworkPolicy, &WatchEvent::ListStarted);
    server.sends(Kind::NetworkPolicy, &WatchEvent::ListComplete);
    assert!(server.kinds.are_complete());
    assert_eq!(server.kinds.missing(), [""; 0]);
}

#[test]
fn failed_lists_remove_no_objects() {
    let mut server = Server::new();
    server.lists_pods(&["a", "bb"]);
    let failing = || WatchProblem::Failing("connection refused".to_owned());
    server.sends(Kind::Pod, &WatchEvent::Problem(failing()));
    // A list that ends after its first page does not remove the objects of the following ones.
    server.sends(Kind::Pod, &WatchEvent::ListStarted);
    server.sends(Kind::Pod, &WatchEvent::Listed(item(pod("a").as_bytes())));
    server.sends(Kind::Pod, &WatchEvent::Problem(failing()));
    assert_eq!(server.pods(), 2);
    let missing = server.kinds.missing().join("\n");
    assert!(
        missing.contains("the last known state stays enforced"),
        "{missing}"
    );
}

/// An object that is nested as deep as a server stores it, or has bytes that are not UTF-8, affects
/// its own tenant only.
#[test]
fn an_object_of_one_tenant_removes_nothing_of_others() {
    let deep = ["[".repeat(50_000), "]".repeat(50_000)].concat();
    let odd = b"{\"f:\xff\":{\"\xfe\xfd\":\"\xc3\"}}";
    for fields in [deep.as_bytes(), odd] {
        let mut server = Server::new();
        let list = [
            policy("a", b"{}"),
            policy("hostile", fields),
            policy("z", b"{}"),
        ];
        server.lists(Kind::NetworkPolicy, &list);
        assert_eq!(server.policies(), ["a", "hostile", "z"]);
        assert_eq!(server.kinds.unread_objects(), 0);
        // It can be changed and deleted like any other.
        let changed = policy("hostile", b"{}");
        server.sends(Kind::NetworkPolicy, &WatchEvent::Applied(item(&changed)));
        let gone = policy("hostile", fields);
        server.sends(Kind::NetworkPolicy, &WatchEvent::Deleted(item(&gone)));
        assert_eq!(server.policies(), ["a", "z"]);
    }
}

#[test]
fn an_unreadable_object_keeps_its_last_good_state_and_is_reported() {
    let mut server = Server::new();
    server.lists(
        Kind::NetworkPolicy,
        &[policy("a", b"{}"), policy("b", b"{}")],
    );
    let broken = br#"{"metadata":{"name":"a","namespace":"x"},"spec":5}"#;
    let never_read = br#"{"metadata":{"name":"c","namespace":"x"},"spec":[]}"#;
    let other_kind = br#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b","namespace":"x"}}"#;
    let list = [broken.to_vec(), other_kind.to_vec(), never_read.to_vec()];
    server.lists(Kind::NetworkPolicy, &list);
    assert_eq!(server.policies(), ["a", "b"]);
    assert_eq!(server.kinds.unread_objects(), 3);
    let missing = server.kinds.missing().join("\n");
    for object in ["netpol/x/a", "netpol/x/b", "netpol/x/c"] {
        assert!(
            missing.contains(&format!("cannot read {object};")),
            "{missing}"
        );
    }
    // Once it can be read again, or is gone, there is no error any more.
    server.sends(
        Kind::NetworkPolicy,
        &WatchEvent::Applied(item(&policy("a", b"{}"))),
    );
    server.sends(Kind::NetworkPolicy, &WatchEvent::Deleted(item(never_read)));
    assert_eq!(server.kinds.unread_objects(), 1);
    server.lists(Kind::NetworkPolicy, &[policy("b", b"{}")]);
    assert_eq!(server.policies(), ["b"]);
    assert_eq!(server.kinds.unread_objects(), 0);
}

#[test]
fn nothing_is_swept_while_an_object_has_no_name() {
    let mut server = Server::new();
    let both = [policy("a", b"{}"), policy("b", b"{}")];
    server.lists(Kind::NetworkPolicy, &both);
    for nameless in [
        &b"{}"[..],
        b"17",
        b"{\"metadata\":{\"name\":\"\xff\"}}",
        b"{]",
    ] {
        server.lists(Kind::NetworkPolicy, &[nameless.to_vec()]);
        assert_eq!(server.policies(), ["a", "b"]);
        let missing = server.kinds.missing().join("\n");
        assert!(missing.contains("without a readable name"), "{missing}");
    }
    server.lists(Kind::NetworkPolicy, &[policy("b", b"{}")]);
    assert_eq!(server.policies(), ["b"]);
    assert_eq!(server.kinds.unread_objects(), 0);
}

/// D145: policies may be deleted before pods when their namespace is.
#[test]
fn policies_of_a_namespace_that_is_deleted_outlive_its_pods() {
    for by_list in [false, true] {
        let mut server = Server::new();
        server.lists(Kind::Namespace, &[namespace(false)]);
        server.lists_pods(&["a", "bb"]);
        server.lists(Kind::NetworkPolicy, &[policy("deny", b"{}")]);
        server.sends(
            Kind::Namespace,
            &WatchEvent::Applied(item(&namespace(true))),
        );
        match by_list {
            true => drop(server.lists(Kind::NetworkPolicy, &[])),
            false => {
                let gone = WatchEvent::Deleted(item(&policy("deny", b"{}")));
                server.sends(Kind::NetworkPolicy, &gone);
            }
        }
        assert_eq!(server.policies(), ["deny"]);
        assert_eq!(server.kinds.outliving(), 1);
        let gone = |name: &str| WatchEvent::Deleted(item(pod(name).as_bytes()));
        server.sends(Kind::Pod, &gone("a"));
        assert_eq!(server.policies(), ["deny"]);
        // The event of the namespace may arrive before that of its last pod.
        server.sends(
            Kind::Namespace,
            &WatchEvent::Deleted(item(&namespace(true))),
        );
        assert_eq!(server.policies(), ["deny"]);
        match by_list {
            true => drop(server.lists_pods(&[])),
            false => drop(server.sends(Kind::Pod, &gone("bb"))),
        }
        assert!(server.policies().is_empty());
        assert_eq!(server.kinds.outliving(), 0);
    }
}

#[test]
fn a_policy_that_is_deleted_alone_is_removed_at_once() {
    let mut server = Server::new();
    server.lists(Kind::Namespace, &[namespace(false)]);
    server.lists_pods(&["a"]);
    server.lists(Kind::NetworkPolicy, &[policy("deny", b"{}")]);
    let gone = WatchEvent::Deleted(item(&policy("deny", b"{}")));
    server.sends(Kind::NetworkPolicy, &gone);
    assert!(server.policies().is_empty());
}

/// An agent requests its own node before everything else. The response may be late, and then it is
/// outdated.
#[test]
fn objects_of_list_many_are_not_changes_again_in_the_list() {
    let mut server = Server::new();
    let ahead = WatchEvent::Early(item(pod("a").as_bytes()));
    server.sends(Kind::Pod, &ahead);
    assert_eq!(server.pods(), 1);
    // It was deleted in the meantime.
    server.lists_pods(&["bb"]);
    assert_eq!(server.pods(), 1);
    assert_eq!(server.sends(Kind::Pod, &ahead).different, 0);
    assert_eq!(server.pods(), 1);
    // It has changed in an incomplete list.
    let mut server = Server::new();
    server.sends(Kind::Pod, &WatchEvent::ListStarted);
    let moved = pod("a").replace("10.0.0.1", "10.0.0.9");
    server.sends(Kind::Pod, &WatchEvent::Listed(item(moved.as_bytes())));
    assert_eq!(server.sends(Kind::Pod, &ahead).different, 0);
}

/// The metadata of an unreadable object may be wrong as well.
#[test]
fn a_namespace_on_a_cluster_wide_kind_removes_nothing() {
    let mut server = Server::new();
    server.lists(Kind::Namespace, &[namespace(false)]);
    let odd = br#"{"metadata":{"name":"x","namespace":"y"},"spec":5}"#;
    server.lists(Kind::Namespace, &[odd.to_vec()]);
    assert_eq!(server.count(Kind::Namespace), 1);
    // A policy without a namespace may be any policy of its name.
    let both = [policy("a", b"{}"), policy("b", b"{}")];
    server.lists(Kind::NetworkPolicy, &both);
    let nowhere = br#"{"metadata":{"name":"a"},"spec":{"podSelector":{}}}"#;
    server.lists(Kind::NetworkPolicy, &[nowhere.to_vec()]);
    assert_eq!(server.policies(), ["a", "b"]);
    server.sends(Kind::NetworkPolicy, &WatchEvent::Deleted(item(nowhere)));
    assert_eq!(server.policies(), ["a", "b"]);
    assert_eq!(server.kinds.unread_objects(), 2);
}

#[test]
fn a_deleted_object_that_was_never_read_is_no_longer_reported() {
    let mut server = Server::new();
    let never_read = br#"{"metadata":{"name":"c","namespace":"x"},"spec":[]}"#;
    let faulty = br#"{"metadata":{"name":"d","namespace":"x"},"spec":{"podSelector":{"a":1}}}"#;
    let list = [never_read.to_vec(), faulty.to_vec()];
    server.lists(Kind::NetworkPolicy, &list);
    assert_eq!(server.kinds.unread_objects(), 1);
    assert!(server.kinds.errors() > 0);
    server.lists(Kind::NetworkPolicy, &[policy("a", b"{}")]);
    assert_eq!(
        (server.kinds.unread_objects(), server.kinds.errors()),
        (0, 0)
    );
    server.lists(Kind::NetworkPolicy, &list);
    server.sends(Kind::NetworkPolicy, &WatchEvent::Absent);
    assert_eq!(
        (server.kinds.unread_objects(), server.kinds.errors()),
        (0, 0)
    );
}

/// D145: a pod without an address whose event arrives first is not the last of its namespace.
#[test]
fn a_terminating_namespace_stays_so_until_it_is_deleted() {
    let mut server = Server::new();
    server.lists(Kind::Namespace, &[namespace(true)]);
    server.lists(Kind::NetworkPolicy, &[policy("deny", b"{}")]);
    let waiting = pod("a").replace(r#""podIPs":[{"ip":"10.0.0.1"}]"#, r#""podIPs":[]"#);
    server.lists(Kind::Pod, &[waiting.into(), pod("bb").into()]);
    assert_eq!(server.pods(), 1);
    server.sends(
        Kind::NetworkPolicy,
        &WatchEvent::Deleted(item(&policy("deny", b"{}"))),
    );
    assert_eq!(server.policies(), ["deny"]);
    server.lists_pods(&[]);
    assert!(server.policies().is_empty());
    server.sends(
        Kind::Namespace,
        &WatchEvent::Deleted(item(&namespace(true))),
    );
    // This is a new namespace of that name.
    server.sends(
        Kind::Namespace,
        &WatchEvent::Applied(item(&namespace(false))),
    );
    server.lists_pods(&["a"]);
    server.lists(Kind::NetworkPolicy, &[policy("deny", b"{}")]);
    server.sends(
        Kind::NetworkPolicy,
        &WatchEvent::Deleted(item(&policy("deny", b"{}"))),
    );
    assert!(server.policies().is_empty());
}

/// A pod as the server sends it before it has an address.
fn waiting(name: &str) -> Vec<u8> {
    let last = name.len();
    let address = format!(r#""podIPs":[{{"ip":"10.0.0.{last}"}}]"#);
    let pod = pod(name).replace("Running", "Pending");
    pod.replace(&address, r#""podIPs":[]"#).into_bytes()
}

fn policy_is_gone() -> WatchEvent {
    WatchEvent::Deleted(item(&policy("deny", b"{}")))
}

/// A namespace that is being deleted. Its only policy existed when its pods were listed.
fn ending(pods: &[Vec<u8>]) -> Server {
    let mut server = Server::new();
    server.lists(Kind::Namespace, &[namespace(true)]);
    server.lists(Kind::NetworkPolicy, &[policy("deny", b"{}")]);
    server.lists(Kind::Pod, pods);
    server
}

/// D145: a pod that exists and has no address yet is a pod.
#[test]
fn policies_outlive_pods_that_have_no_address_yet() {
    let mut server = ending(&[waiting("a")]);
    server.sends(Kind::NetworkPolicy, &policy_is_gone());
    assert_eq!(server.policies(), ["deny"]);
    server.sends(Kind::Pod, &WatchEvent::Applied(item(pod("a").as_bytes())));
    assert_eq!((server.pods(), server.policies().len()), (1, 1));
    // It loses its address while it terminates.
    server.sends(Kind::Pod, &WatchEvent::Applied(item(&waiting("a"))));
    assert_eq!((server.pods(), server.policies().len()), (0, 1));
    server.sends(Kind::Pod, &WatchEvent::Deleted(item(&waiting("a"))));
    assert!(server.policies().is_empty());
    assert_eq!(server.kinds.outliving(), 0);
}

/// D145: the last pod that has an address need not be the last pod.
#[test]
fn policies_outlive_all_pods_but_those_that_no_policy_selects() {
    for by_list in [false, true] {
        let mut server = ending(&[pod("a").into(), waiting("bb")]);
        server.sends(Kind::NetworkPolicy, &policy_is_gone());
        match by_list {
            true => drop(server.lists(Kind::Pod, &[waiting("bb")])),
            false => drop(server.sends(Kind::Pod, &WatchEvent::Deleted(item(pod("a").as_bytes())))),
        }
        assert_eq!(server.policies(), ["deny"]);
        // A host-network pod is no subject (D48), and a terminated pod is none any more (D81).
        let hosted = pod("ccc").replace(r#""nodeName""#, r#""hostNetwork":true,"nodeName""#);
        server.sends(Kind::Pod, &WatchEvent::Applied(item(hosted.as_bytes())));
        assert_eq!(server.policies(), ["deny"]);
        let ended = pod("bb").replace("Running", "Succeeded");
        match by_list {
            true => drop(server.lists(Kind::Pod, &[hosted.into(), ended.into()])),
            false => drop(server.sends(Kind::Pod, &WatchEvent::Applied(item(ended.as_bytes())))),
        }
        assert!(server.policies().is_empty());
    }
}

/// D145 and D149: an unreadable pod may have an address.
#[test]
fn policies_outlive_pods_that_cannot_be_read() {
    let broken = br#"{"metadata":{"name":"a","namespace":"x"},"spec":[]}"#.to_vec();
    let mut server = ending(&[broken.clone(), pod("bb").into()]);
    server.sends(Kind::NetworkPolicy, &policy_is_gone());
    server.sends(Kind::Pod, &WatchEvent::Deleted(item(pod("bb").as_bytes())));
    assert_eq!(server.policies(), ["deny"]);
    server.sends(Kind::Pod, &WatchEvent::Deleted(item(&broken)));
    assert!(server.policies().is_empty());
}

/// D145: the pods of a namespace may be listed after its policies are gone.
#[test]
fn policies_are_not_released_before_all_pods_were_listed() {
    let mut server = Server::new();
    server.lists(Kind::Namespace, &[namespace(true)]);
    server.lists(Kind::NetworkPolicy, &[policy("deny", b"{}")]);
    server.sends(Kind::Pod, &WatchEvent::ListStarted);
    server.sends(Kind::NetworkPolicy, &policy_is_gone());
    let ended = pod("a").replace("Running", "Failed");
    server.sends(Kind::Pod, &WatchEvent::Listed(item(ended.as_bytes())));
    assert_eq!(server.policies(), ["deny"]);
    server.sends(Kind::Pod, &WatchEvent::Listed(item(pod("bb").as_bytes())));
    server.sends(Kind::Pod, &WatchEvent::ListComplete);
    assert_eq!(server.policies(), ["deny"]);
    // An incomplete list may have more pods, and so may one with pods that have no namespace.
    server.sends(Kind::Pod, &WatchEvent::ListStarted);
    server.sends(Kind::Pod, &WatchEvent::Deleted(item(pod("bb").as_bytes())));
    assert_eq!(server.policies(), ["deny"]);
    let nowhere = br#"{"metadata":{"name":"d"}}"#;
    server.sends(Kind::Pod, &WatchEvent::Listed(item(nowhere)));
    server.sends(Kind::Pod, &WatchEvent::ListComplete);
    assert_eq!(server.policies(), ["deny"]);
    server.lists_pods(&[]);
    assert!(server.policies().is_empty());
}

/// A namespace without pods needs no policies, and it is gone only when its pods are.
#[test]
fn policies_end_with_a_namespace_that_has_no_pods() {
    let mut server = ending(&[]);
    server.sends(Kind::NetworkPolicy, &policy_is_gone());
    server.sends(
        Kind::Namespace,
        &WatchEvent::Deleted(item(&namespace(true))),
    );
    assert!(server.policies().is_empty());
    assert_eq!(server.kinds.outliving(), 0);
}

/// The policies of a namespace do not apply to a new one of its name.
#[test]
fn policies_do_not_outlive_a_namespace_that_is_made_anew() {
    let mut server = ending(&[pod("a").into()]);
    server.sends(Kind::NetworkPolicy, &policy_is_gone());
    assert_eq!(server.policies(), ["deny"]);
    // The agent missed its deletion, and the new one has pods already.
    server.lists_pods(&["bb"]);
    server.lists(Kind::Namespace, &[namespace(false)]);
    assert!(server.policies().is_empty());
    assert_eq!(server.kinds.outliving(), 0);
}

/// An agent that starts when the policies are gone cannot know that there were any, as
/// `docs/operations/agent.md` states.
#[test]
fn objects_deleted_before_the_start_are_unknown() {
    let mut server = Server::new();
    server.lists(Kind::Namespace, &[namespace(true)]);
    server.lists(Kind::NetworkPolicy, &[]);
    server.lists_pods(&["a"]);
    assert_eq!((server.pods(), server.policies().len()), (1, 0));
    assert_eq!(server.kinds.outliving(), 0);
}
