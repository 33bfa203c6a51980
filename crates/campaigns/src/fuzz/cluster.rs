//! A server whose responses are generated from decisions, and an agent that watches it.
//!
//! Lists and events are written as text, with some malformed objects, split as the decisions
//! choose, and read with the agent's own code. A model has the expected objects: for each object
//! its last readable version, until the server deletes it (D145, D149, D150).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use palisade_agent::cluster::Kinds;
use palisade_agent::{Agent, Config, Nft};
use palisade_api::{Kind, ObjectSpec, Source, lower_one, read_served};
use palisade_core::incremental::ObjectKey;
use palisade_core::model::PodPhase;
use palisade_kube::reflector::{NextAction, Reflector, Response};
use palisade_kube::response::{StatusError, WatchLine, WatchLines, page};
use palisade_kube::split::{ObjectLocation, Splitter};
use palisade_kube::{Item, Resource, WatchEvent};

use super::mutate::Decisions;
use super::objects;

/// The maximum number of responses.
const MAX_RESPONSES: usize = 48;

/// The bytes are decisions about the responses of a server.
pub fn cluster(bytes: &[u8]) {
    let mut decisions = Decisions::new(bytes);
    let mut server = TestServer::new();
    for _ in 0..MAX_RESPONSES {
        if decisions.is_exhausted() {
            break;
        }
        server.respond(&mut decisions);
        server.check();
    }
    // The agent recovers once the server responds correctly.
    server.recover();
    server.check();
    assert_eq!(server.kinds.unread_objects(), 0);
    assert!(server.kinds.are_complete());
    for (kind, model) in &server.model {
        let remaining: Vec<_> = model.good.keys().collect();
        assert!(
            remaining.is_empty(),
            "deleted objects of {kind:?}: {remaining:?}"
        );
    }
}

/// The expected objects of a kind.
#[derive(Default)]
struct Expected {
    /// The last readable version of each object.
    good: BTreeMap<(String, String), Vec<u8>>,
    /// The objects of the current list, if one is being read.
    listed: Option<BTreeSet<(String, String)>>,
    /// The unreadable objects.
    unreadable: BTreeSet<(String, String)>,
    /// Whether there was an object without an identity.
    has_unnamed: bool,
    is_complete: bool,
}

/// A terminating namespace.
#[derive(Default)]
struct TerminatingNamespace {
    /// Its deleted policies, which stay in force.
    kept: BTreeSet<String>,
    is_deleted: bool,
}

struct TestServer {
    kinds: Kinds,
    agent: Agent,
    reflectors: Vec<(Resource, Reflector)>,
    model: BTreeMap<Kind, Expected>,
    terminating: BTreeMap<String, TerminatingNamespace>,
    /// Whether the server has sent a complete list.
    is_list_complete: bool,
}

const NOW: Duration = Duration::ZERO;

impl TestServer {
    fn new() -> TestServer {
        let resources = Resource::of_agents(true);
        TestServer {
            kinds: Kinds::new(&resources),
            agent: Agent::new(Nft::default(), Config::new("n1"), None),
            model: resources
                .iter()
                .map(|it| (it.kind, Expected::default()))
                .collect(),
            reflectors: resources
                .iter()
                .map(|it| (*it, Reflector::new(it.is_built_in)))
                .collect(),
            terminating: BTreeMap::new(),
            is_list_complete: false,
        }
    }

    /// One request of one kind, and its response.
    fn respond(&mut self, decisions: &mut Decisions<'_>) {
        let place = decisions.byte() % self.reflectors.len();
        let Some((resource, reflector)) = self.reflectors.get(place) else {
            return;
        };
        let resource = *resource;
        match reflector.next() {
            NextAction::Rest(_) => {
                self.handle(place, Response::Rested);
                self.respond_to_request(place, resource, decisions);
            }
            NextAction::Discover | NextAction::List(_) | NextAction::Watch(_) => {
                self.respond_to_request(place, resource, decisions);
            }
        }
    }

    fn respond_to_request(
        &mut self,
        place: usize,
        resource: Resource,
        decisions: &mut Decisions<'_>,
    ) {
        let Some((_, reflector)) = self.reflectors.get(place) else {
            return;
        };
        let request = reflector.next();
        // One response in eight is an error.
        match (request, decisions.byte() % 16) {
            (_, 0) => self.handle(place, Response::Failed("the connection failed".to_owned())),
            (_, 1) => {
                let codes = [404, 410, 403, 500, 429];
                let code = codes.get(decisions.byte() % codes.len());
                let refusal = StatusError::of(code.copied().unwrap_or(500), "");
                self.handle(place, Response::Refused(refusal));
            }
            (NextAction::Discover, it) => self.handle(place, Response::Discovered(it % 2 == 0)),
            (NextAction::List(_), _) => {
                let text = objects::list(resource, decisions);
                self.page(place, &text, decisions);
            }
            (NextAction::Watch(_), it) => {
                let text = objects::watch(resource, decisions);
                let end = match it % 3 {
                    0 => Response::Ended,
                    1 => Response::Silent,
                    _ => Response::Failed("the watch failed".to_owned()),
                };
                self.lines(place, &text, decisions, end);
            }
            (NextAction::Rest(_), _) => self.handle(place, Response::Rested),
        }
    }

    /// A page of a list, as `OpenResponse::page` of the crate reads it.
    fn page(&mut self, place: usize, text: &[u8], decisions: &mut Decisions<'_>) {
        self.handle(place, Response::Opened);
        let mut splitter = Splitter::new(ObjectLocation::Items);
        for part in text.chunks(decisions.byte() + 1) {
            match splitter.push(part) {
                Ok(pieces) => {
                    for piece in pieces {
                        self.handle(place, Response::Item(Item::of(piece)));
                    }
                }
                Err(message) => return self.handle(place, Response::Failed(message.to_owned())),
            }
        }
        let head = splitter.finish().map_err(str::to_owned);
        let response = match head.and_then(|(rest, taken)| page(&rest, taken)) {
            Ok(page) => {
                self.is_list_complete = page.more.is_none();
                Response::Page(page)
            }
            Err(message) => Response::Failed(message),
        };
        self.handle(place, response);
        self.is_list_complete = false;
    }

    /// The lines of a watch, as `OpenResponse::lines` of the crate reads them.
    fn lines(&mut self, place: usize, text: &[u8], decisions: &mut Decisions<'_>, end: Response) {
        self.handle(place, Response::Opened);
        let mut lines = WatchLines::default();
        for part in text.chunks(decisions.byte() + 1) {
            let mut part = part;
            while !part.is_empty() {
                let (taken, line) = lines.push(part);
                part = part.get(taken..).unwrap_or_default();
                match line {
                    None => {}
                    Some(Ok(WatchLine::Refused(refusal))) => {
                        return self.handle(place, Response::Refused(refusal));
                    }
                    Some(Err(message)) => return self.handle(place, Response::Garbled(message)),
                    Some(Ok(line)) => self.handle(place, Response::Line(line)),
                }
                let reflector = self.reflectors.get(place).map(|(_, it)| it.next());
                if !matches!(reflector, Some(NextAction::Watch(_))) {
                    return;
                }
            }
        }
        self.handle(place, end);
    }

    fn handle(&mut self, place: usize, response: Response) {
        let Some((resource, reflector)) = self.reflectors.get_mut(place) else {
            return;
        };
        let resource = *resource;
        for event in reflector.handle(response, 0) {
            self.expect(resource, &event);
            let mut store = self.agent.objects(NOW);
            self.kinds
                .take(NOW, resource.kind, event.clone(), &mut store);
            self.release(resource.kind, &event);
        }
    }

    /// Updates the model by an event.
    fn expect(&mut self, resource: Resource, event: &WatchEvent) {
        let kind = resource.kind;
        match event {
            WatchEvent::ListStarted => {
                let model = self.model.entry(kind).or_default();
                model.listed = Some(BTreeSet::new());
                model.has_unnamed = false;
            }
            WatchEvent::Early(item) | WatchEvent::Listed(item) | WatchEvent::Applied(item) => {
                self.set(resource, item)
            }
            WatchEvent::Deleted(Item::Named(named)) => {
                if let Some(key) = identity(kind, &named.namespace, &named.name) {
                    self.delete(kind, &key);
                } else {
                    self.model.entry(kind).or_default().has_unnamed = true;
                }
            }
            WatchEvent::Deleted(Item::Unnamed(_)) => {
                self.model.entry(kind).or_default().has_unnamed = true;
            }
            WatchEvent::ListComplete => {
                assert!(self.is_list_complete, "an incomplete list is complete");
                let model = self.model.entry(kind).or_default();
                let listed = model.listed.take().unwrap_or_default();
                model.is_complete = true;
                if !model.has_unnamed {
                    self.sweep(kind, &listed);
                }
            }
            WatchEvent::Absent => {
                assert!(!resource.is_built_in, "a built-in kind is absent");
                let model = self.model.entry(kind).or_default();
                model.listed = None;
                model.has_unnamed = false;
                model.is_complete = true;
                self.sweep(kind, &BTreeSet::new());
            }
            WatchEvent::Heartbeat | WatchEvent::Problem(_) | WatchEvent::Recovered => {}
        }
    }

    fn set(&mut self, resource: Resource, item: &Item) {
        let kind = resource.kind;
        let model = self.model.entry(kind).or_default();
        let Item::Named(named) = item else {
            model.has_unnamed = true;
            return;
        };
        let Some(key) = identity(kind, &named.namespace, &named.name) else {
            model.has_unnamed = true;
            return;
        };
        if let Some(listed) = &mut model.listed {
            listed.insert(key.clone());
        }
        let is_readable = is_readable(resource, &key, &named.bytes);
        if objects::is_unmutated(resource, &named.bytes) {
            assert!(is_readable, "unreadable without a mutation: {named:?}");
        }
        if is_readable {
            model.good.insert(key.clone(), named.bytes.clone());
            model.unreadable.remove(&key);
        } else {
            model.unreadable.insert(key.clone());
        }
        // A deletion is final: a namespace that is not terminating is a new one with the same name.
        if kind == Kind::Namespace && named.is_ending {
            self.terminating
                .entry(key.1.clone())
                .or_default()
                .is_deleted = false;
        } else if kind == Kind::Namespace
            && let Some(former) = self.terminating.remove(&key.1)
        {
            self.delete_policies(&key.1, former.kept);
        }
        if kind == Kind::NetworkPolicy
            && let Some(terminating) = self.terminating.get_mut(&key.0)
        {
            terminating.kept.remove(&key.1);
        }
    }

    fn sweep(&mut self, kind: Kind, listed: &BTreeSet<(String, String)>) {
        let known = self.model.get(&kind).into_iter();
        let known = known.flat_map(|it| it.good.keys());
        let deleted: Vec<_> = known.filter(|it| !listed.contains(it)).cloned().collect();
        for key in &deleted {
            self.delete(kind, key);
        }
        if let Some(model) = self.model.get_mut(&kind) {
            model.unreadable.retain(|it| listed.contains(it));
        }
    }

    fn delete(&mut self, kind: Kind, key: &(String, String)) {
        let is_there = self
            .model
            .get(&kind)
            .is_some_and(|it| it.good.contains_key(key));
        // The policies of a terminating namespace stay until its pods are deleted.
        if kind == Kind::NetworkPolicy
            && is_there
            && let Some(terminating) = self.terminating.get_mut(&key.0)
        {
            terminating.kept.insert(key.1.clone());
            return;
        }
        if let Some(model) = self.model.get_mut(&kind) {
            model.good.remove(key);
            model.unreadable.remove(key);
        }
        // Kept policies stay for pods that are received later.
        if kind == Kind::Namespace
            && let Some(terminating) = self.terminating.get_mut(&key.1)
        {
            terminating.is_deleted = true;
            if terminating.kept.is_empty() {
                self.terminating.remove(&key.1);
            }
        }
    }

    /// Deletes the policies of a terminating namespace after its last pod.
    fn release(&mut self, kind: Kind, event: &WatchEvent) {
        let pods = self.model.get(&Kind::Pod);
        if !pods.is_some_and(|it| it.is_complete && it.listed.is_none() && !it.has_unnamed) {
            return;
        }
        let namespaces: Vec<String> = match (kind, event) {
            (_, WatchEvent::ListComplete | WatchEvent::Absent) => {
                self.terminating.keys().cloned().collect()
            }
            (
                Kind::Pod,
                WatchEvent::Early(Item::Named(it))
                | WatchEvent::Applied(Item::Named(it))
                | WatchEvent::Deleted(Item::Named(it)),
            ) => vec![it.namespace.clone()],
            (Kind::Namespace, WatchEvent::Deleted(Item::Named(it))) => vec![it.name.clone()],
            _ => return,
        };
        for namespace in namespaces {
            if self.has_subjects(&namespace) {
                continue;
            }
            let Some(terminating) = self.terminating.get_mut(&namespace) else {
                continue;
            };
            let kept = std::mem::take(&mut terminating.kept);
            if terminating.is_deleted {
                self.terminating.remove(&namespace);
            }
            self.delete_policies(&namespace, kept);
        }
    }

    fn delete_policies(&mut self, namespace: &str, names: BTreeSet<String>) {
        let policies = self.model.entry(Kind::NetworkPolicy).or_default();
        for name in names {
            policies.good.remove(&(namespace.to_owned(), name));
        }
    }

    /// Whether a namespace has a pod that policies select or may select later (D48, D81).
    fn has_subjects(&self, namespace: &str) -> bool {
        let Some(pods) = self.model.get(&Kind::Pod) else {
            return false;
        };
        let may_be_selected = |bytes: &Vec<u8>| {
            let source = Source::served(Kind::Pod, "v1".to_owned(), bytes.clone());
            let manifests = read_served(&source);
            let meaning = manifests.objects.first().map(lower_one);
            let mut pods = meaning.iter().flat_map(|it| &it.pods);
            pods.any(|it| !it.host_network && it.phase != PodPhase::Terminated)
        };
        pods.unreadable.iter().any(|it| it.0 == namespace)
            || pods
                .good
                .iter()
                .any(|(key, bytes)| key.0 == namespace && may_be_selected(bytes))
    }

    /// Checks that the agent's objects are those of the model: setting them again changes nothing.
    fn check(&mut self) {
        for (resource, _) in &self.reflectors {
            let kind = resource.kind;
            let (Some(model), Some(enforced)) = (self.model.get(&kind), kind.enforced()) else {
                continue;
            };
            for ((namespace, name), bytes) in &model.good {
                let key = ObjectKey {
                    kind: enforced,
                    namespace,
                    name,
                };
                let source = Source::served(kind, resource.group_version(), bytes.clone());
                let manifests = read_served(&source);
                let object = manifests.objects.first();
                let is_same = object.is_some_and(|it| !self.agent.set(NOW, key, &lower_one(it)));
                assert!(is_same, "not the last readable version of {key:?}");
            }
            let mut unexpected = Vec::new();
            self.agent.planner().each(enforced, &mut |key| {
                let key = (key.namespace.to_owned(), key.name.to_owned());
                if !model.good.contains_key(&key) {
                    unexpected.push(key);
                }
            });
            assert!(
                unexpected.is_empty(),
                "deleted objects of {kind:?}: {unexpected:?}"
            );
            let known = self.kinds.unreadable();
            assert!(known.iter().all(|it| it.len() < 4_000));
        }
    }

    /// Responds correctly with empty lists until all kinds are watched.
    fn recover(&mut self) {
        for place in 0..self.reflectors.len() {
            let mut has_listed = false;
            for _ in 0..12 {
                let request = self.reflectors.get(place).map(|(_, it)| it.next());
                match request {
                    Some(NextAction::Rest(_)) => self.handle(place, Response::Rested),
                    Some(NextAction::Discover) => self.handle(place, Response::Discovered(true)),
                    Some(NextAction::List(after)) => {
                        self.page(place, objects::EMPTY_LIST, &mut Decisions::new(&[]));
                        // The rest of a list that began before is not complete.
                        has_listed |= after.is_none();
                    }
                    Some(NextAction::Watch(_)) if !has_listed => {
                        let old = StatusError::of(410, "");
                        self.handle(place, Response::Refused(old));
                    }
                    Some(NextAction::Watch(_)) | None => break,
                }
            }
        }
    }
}

/// The identity of an object. A namespaced object without a namespace has none.
fn identity(kind: Kind, namespace: &str, name: &str) -> Option<(String, String)> {
    match (kind.is_namespaced(), namespace) {
        (false, _) => Some((String::new(), name.to_owned())),
        (true, "") => None,
        (true, namespace) => Some((namespace.to_owned(), name.to_owned())),
    }
}

/// Whether an object is readable.
fn is_readable(resource: Resource, key: &(String, String), bytes: &[u8]) -> bool {
    let source = Source::served(resource.kind, resource.group_version(), bytes.to_vec());
    let manifests = read_served(&source);
    let [object] = manifests.objects.as_slice() else {
        return false;
    };
    let own_key = palisade_api::key(object);
    let has_identity = own_key.is_some_and(|it| (it.namespace, it.name) == (&*key.0, &*key.1));
    object.kind == resource.kind && has_identity && !matches!(object.spec, ObjectSpec::Unreadable)
}
