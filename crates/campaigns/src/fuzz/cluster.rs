//! A server whose answers are made of decisions, and an agent that follows it.
//!
//! Lists and events are written as text, some of their objects broken, cut as the decisions say,
//! and read as the agent reads them: taken apart, followed, and taken in. Beside it stands a model
//! of what has to be in force: for each object its last version that could be read, until the
//! server says that it is gone (D145, D149, D150).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use palisade_agent::cluster::Kinds;
use palisade_agent::{Agent, Config};
use palisade_api::{Kind, ObjectSpec, Source, lower_one, read_served};
use palisade_core::incremental::ObjectKey;
use palisade_core::model::PodPhase;
use palisade_kube::reflector::{NextAction, Reflector, Response};
use palisade_kube::response::{StatusError, WatchLine, WatchLines, page};
use palisade_kube::split::{ObjectLocation, Splitter};
use palisade_kube::{Item, Resource, WatchEvent};

use super::mutate::Decisions;
use super::objects;

/// So many answers are given at most.
const MOST_ANSWERS: usize = 48;

/// The bytes are decisions on what a server answers.
pub fn cluster(bytes: &[u8]) {
    let mut decisions = Decisions::new(bytes);
    let mut world = World::new();
    for _ in 0..MOST_ANSWERS {
        if decisions.are_used_up() {
            break;
        }
        world.answer(&mut decisions);
        world.check();
    }
    // Whatever happened, a server that answers as it should is followed again.
    world.recover();
    world.check();
    assert_eq!(world.kinds.unread_objects(), 0);
    assert!(world.kinds.are_complete());
    for (kind, model) in &world.model {
        let left: Vec<_> = model.good.keys().collect();
        assert!(left.is_empty(), "{kind:?} that are gone: {left:?}");
    }
}

/// Everything about a kind that the model knows.
#[derive(Default)]
struct Expected {
    /// The last version of each object that could be read.
    good: BTreeMap<(String, String), Vec<u8>>,
    /// Objects that a list has mentioned so far; `None`: no list is being read.
    mentioned: Option<BTreeSet<(String, String)>>,
    /// Objects that cannot be read now.
    unreadable: BTreeSet<(String, String)>,
    /// Whether there was one that did not say who it is.
    has_unnamed: bool,
    is_complete: bool,
}

/// A namespace that is being deleted.
#[derive(Default)]
struct Ending {
    /// Its policies that are gone and stay in force.
    kept: BTreeSet<String>,
    is_gone: bool,
}

struct World {
    kinds: Kinds,
    agent: Agent,
    follows: Vec<(Resource, Reflector)>,
    model: BTreeMap<Kind, Expected>,
    ending: BTreeMap<String, Ending>,
    /// Whether the server has said all of a list that it began.
    was_read: bool,
}

const NOW: Duration = Duration::ZERO;

impl World {
    fn new() -> World {
        let resources = Resource::of_agents(true);
        World {
            kinds: Kinds::new(&resources),
            agent: Agent::new(Config::new("n1"), None),
            model: resources
                .iter()
                .map(|it| (it.kind, Expected::default()))
                .collect(),
            follows: resources
                .iter()
                .map(|it| (*it, Reflector::new(it.is_built_in)))
                .collect(),
            ending: BTreeMap::new(),
            was_read: false,
        }
    }

    /// One question of one kind, and its answer.
    fn answer(&mut self, decisions: &mut Decisions<'_>) {
        let place = decisions.byte() % self.follows.len();
        let Some((resource, follow)) = self.follows.get(place) else {
            return;
        };
        let resource = *resource;
        match follow.next() {
            NextAction::Rest(_) => {
                self.hear(place, Response::Rested);
                self.answer_now(place, resource, decisions);
            }
            NextAction::Discover | NextAction::List(_) | NextAction::Watch(_) => {
                self.answer_now(place, resource, decisions);
            }
        }
    }

    fn answer_now(&mut self, place: usize, resource: Resource, decisions: &mut Decisions<'_>) {
        let Some((_, follow)) = self.follows.get(place) else {
            return;
        };
        let ask = follow.next();
        // One answer in eight is none.
        match (ask, decisions.byte() % 16) {
            (_, 0) => self.hear(place, Response::Failed("it broke".to_owned())),
            (_, 1) => {
                let codes = [404, 410, 403, 500, 429];
                let code = codes.get(decisions.byte() % codes.len());
                let refusal = StatusError::of(code.copied().unwrap_or(500), "");
                self.hear(place, Response::Refused(refusal));
            }
            (NextAction::Discover, it) => self.hear(place, Response::Discovered(it % 2 == 0)),
            (NextAction::List(_), _) => {
                let text = objects::list(resource, decisions);
                self.page(place, &text, decisions);
            }
            (NextAction::Watch(_), it) => {
                let text = objects::watch(resource, decisions);
                let end = match it % 3 {
                    0 => Response::Ended,
                    1 => Response::Silent,
                    _ => Response::Failed("the watch broke off".to_owned()),
                };
                self.lines(place, &text, decisions, end);
            }
            (NextAction::Rest(_), _) => self.hear(place, Response::Rested),
        }
    }

    /// A page of a list, as `OpenResponse::page` of the crate reads it.
    fn page(&mut self, place: usize, text: &[u8], decisions: &mut Decisions<'_>) {
        self.hear(place, Response::Opened);
        let mut splitter = Splitter::new(ObjectLocation::Items);
        for part in text.chunks(decisions.byte() + 1) {
            match splitter.push(part) {
                Ok(pieces) => {
                    for piece in pieces {
                        self.hear(place, Response::Item(Item::of(piece)));
                    }
                }
                Err(words) => return self.hear(place, Response::Failed(words.to_owned())),
            }
        }
        let head = splitter.finish().map_err(str::to_owned);
        let answer = match head.and_then(|(rest, taken)| page(&rest, taken)) {
            Ok(page) => {
                self.was_read = page.more.is_none();
                Response::Page(page)
            }
            Err(words) => Response::Failed(words),
        };
        self.hear(place, answer);
        self.was_read = false;
    }

    /// The lines of a watch, as `OpenResponse::lines` of the crate reads them.
    fn lines(&mut self, place: usize, text: &[u8], decisions: &mut Decisions<'_>, end: Response) {
        self.hear(place, Response::Opened);
        let mut lines = WatchLines::default();
        for part in text.chunks(decisions.byte() + 1) {
            let mut part = part;
            while !part.is_empty() {
                let (taken, line) = lines.push(part);
                part = part.get(taken..).unwrap_or_default();
                match line {
                    None => {}
                    Some(Ok(WatchLine::Refused(refusal))) => {
                        return self.hear(place, Response::Refused(refusal));
                    }
                    Some(Err(words)) => return self.hear(place, Response::Garbled(words)),
                    Some(Ok(line)) => self.hear(place, Response::Line(line)),
                }
                let follow = self.follows.get(place).map(|(_, it)| it.next());
                if !matches!(follow, Some(NextAction::Watch(_))) {
                    return;
                }
            }
        }
        self.hear(place, end);
    }

    fn hear(&mut self, place: usize, answer: Response) {
        let Some((resource, follow)) = self.follows.get_mut(place) else {
            return;
        };
        let resource = *resource;
        for news in follow.handle(answer, 0) {
            self.expect(resource, &news);
            let mut store = self.agent.objects(NOW);
            self.kinds.take(NOW, resource.kind, &news, &mut store);
            self.release(resource.kind, &news);
        }
    }

    /// What has to follow from news, before the agent is told.
    fn expect(&mut self, resource: Resource, news: &WatchEvent) {
        let kind = resource.kind;
        match news {
            WatchEvent::ListStarted => {
                let model = self.model.entry(kind).or_default();
                model.mentioned = Some(BTreeSet::new());
                model.has_unnamed = false;
            }
            WatchEvent::Early(item) | WatchEvent::Listed(item) | WatchEvent::Applied(item) => {
                self.set(resource, item)
            }
            WatchEvent::Deleted(Item::Named(named)) => {
                if let Some(key) = identity(kind, &named.namespace, &named.name) {
                    self.gone(kind, &key);
                } else {
                    self.model.entry(kind).or_default().has_unnamed = true;
                }
            }
            WatchEvent::Deleted(Item::Unnamed(_)) => {
                self.model.entry(kind).or_default().has_unnamed = true;
            }
            WatchEvent::ListComplete => {
                assert!(self.was_read, "a list that was not read is complete");
                let model = self.model.entry(kind).or_default();
                let mentioned = model.mentioned.take().unwrap_or_default();
                model.is_complete = true;
                if !model.has_unnamed {
                    self.sweep(kind, &mentioned);
                }
            }
            WatchEvent::Absent => {
                assert!(!resource.is_built_in, "every server has it");
                let model = self.model.entry(kind).or_default();
                model.mentioned = None;
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
        if let Some(mentioned) = &mut model.mentioned {
            mentioned.insert(key.clone());
        }
        let is_readable = is_readable(resource, &key, &named.bytes);
        if objects::is_untouched(resource, &named.bytes) {
            assert!(
                is_readable,
                "cannot be read, and nobody broke it: {named:?}"
            );
        }
        if is_readable {
            model.good.insert(key.clone(), named.bytes.clone());
            model.unreadable.remove(&key);
        } else {
            model.unreadable.insert(key.clone());
        }
        // A deletion is never taken back: a namespace that is not being deleted is another one of
        // that name.
        if kind == Kind::Namespace && named.is_ending {
            self.ending.entry(key.1.clone()).or_default().is_gone = false;
        } else if kind == Kind::Namespace
            && let Some(former) = self.ending.remove(&key.1)
        {
            self.drop_policies(&key.1, former.kept);
        }
        if kind == Kind::NetworkPolicy
            && let Some(ending) = self.ending.get_mut(&key.0)
        {
            ending.kept.remove(&key.1);
        }
    }

    fn sweep(&mut self, kind: Kind, mentioned: &BTreeSet<(String, String)>) {
        let known = self.model.get(&kind).into_iter();
        let known = known.flat_map(|it| it.good.keys());
        let gone: Vec<_> = known
            .filter(|it| !mentioned.contains(it))
            .cloned()
            .collect();
        for key in &gone {
            self.gone(kind, key);
        }
        if let Some(model) = self.model.get_mut(&kind) {
            model.unreadable.retain(|it| mentioned.contains(it));
        }
    }

    fn gone(&mut self, kind: Kind, key: &(String, String)) {
        let is_there = self
            .model
            .get(&kind)
            .is_some_and(|it| it.good.contains_key(key));
        // The policies of a namespace outlive their deletion until its pods are known to be gone.
        if kind == Kind::NetworkPolicy
            && is_there
            && let Some(ending) = self.ending.get_mut(&key.0)
        {
            ending.kept.insert(key.1.clone());
            return;
        }
        if let Some(model) = self.model.get_mut(&kind) {
            model.good.remove(key);
            model.unreadable.remove(key);
        }
        // What is kept for pods that are heard of later is kept on.
        if kind == Kind::Namespace
            && let Some(ending) = self.ending.get_mut(&key.1)
        {
            ending.is_gone = true;
            if ending.kept.is_empty() {
                self.ending.remove(&key.1);
            }
        }
    }

    /// When the last pod of a namespace that is being deleted is gone, its policies are.
    fn release(&mut self, kind: Kind, news: &WatchEvent) {
        let pods = self.model.get(&Kind::Pod);
        if !pods.is_some_and(|it| it.is_complete && it.mentioned.is_none() && !it.has_unnamed) {
            return;
        }
        let namespaces: Vec<String> = match (kind, news) {
            (_, WatchEvent::ListComplete | WatchEvent::Absent) => {
                self.ending.keys().cloned().collect()
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
            let Some(ending) = self.ending.get_mut(&namespace) else {
                continue;
            };
            let kept = std::mem::take(&mut ending.kept);
            if ending.is_gone {
                self.ending.remove(&namespace);
            }
            self.drop_policies(&namespace, kept);
        }
    }

    fn drop_policies(&mut self, namespace: &str, names: BTreeSet<String>) {
        let policies = self.model.entry(Kind::NetworkPolicy).or_default();
        for name in names {
            policies.good.remove(&(namespace.to_owned(), name));
        }
    }

    /// Whether a pod of a namespace is there that policies select or may select later (D48, D81).
    fn has_subjects(&self, namespace: &str) -> bool {
        let Some(pods) = self.model.get(&Kind::Pod) else {
            return false;
        };
        let may_be_one = |bytes: &Vec<u8>| {
            let source = Source::served(Kind::Pod, "v1", bytes);
            let manifests = read_served(&source);
            let meaning = manifests.objects.first().map(lower_one);
            let mut pods = meaning.iter().flat_map(|it| &it.pods);
            pods.any(|it| !it.host_network && it.phase != PodPhase::Terminated)
        };
        pods.unreadable.iter().any(|it| it.0 == namespace)
            || pods
                .good
                .iter()
                .any(|(key, bytes)| key.0 == namespace && may_be_one(bytes))
    }

    /// The agent holds what the model has, and nothing else: told once more, nothing of it is
    /// different.
    fn check(&mut self) {
        for (resource, _) in &self.follows {
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
                let source = Source::served(kind, &resource.group_version(), bytes);
                let manifests = read_served(&source);
                let object = manifests.objects.first();
                let is_same = object.is_some_and(|it| !self.agent.set(NOW, key, &lower_one(it)));
                assert!(is_same, "not the last good state of {key:?}");
            }
            let mut more = Vec::new();
            self.agent.planner().each(enforced, &mut |key| {
                let key = (key.namespace.to_owned(), key.name.to_owned());
                if !model.good.contains_key(&key) {
                    more.push(key);
                }
            });
            assert!(more.is_empty(), "{kind:?} that are gone: {more:?}");
            let known = self.kinds.unreadable();
            assert!(known.iter().all(|it| it.len() < 4_000));
        }
    }

    /// A server that has nothing any more, and says so as it should.
    fn recover(&mut self) {
        for place in 0..self.follows.len() {
            let mut was_listed = false;
            for _ in 0..12 {
                let ask = self.follows.get(place).map(|(_, it)| it.next());
                match ask {
                    Some(NextAction::Rest(_)) => self.hear(place, Response::Rested),
                    Some(NextAction::Discover) => self.hear(place, Response::Discovered(true)),
                    Some(NextAction::List(after)) => {
                        self.page(place, objects::NOTHING, &mut Decisions::new(&[]));
                        // The end of a list that began with something is not all of one.
                        was_listed |= after.is_none();
                    }
                    Some(NextAction::Watch(_)) if !was_listed => {
                        let old = StatusError::of(410, "");
                        self.hear(place, Response::Refused(old));
                    }
                    Some(NextAction::Watch(_)) | None => break,
                }
            }
        }
    }
}

/// Who an object is. One of a kind that lives in namespaces and names none may be any of that name.
fn identity(kind: Kind, namespace: &str, name: &str) -> Option<(String, String)> {
    match (kind.is_namespaced(), namespace) {
        (false, _) => Some((String::new(), name.to_owned())),
        (true, "") => None,
        (true, namespace) => Some((namespace.to_owned(), name.to_owned())),
    }
}

/// Whether what an object says can be told at all.
fn is_readable(resource: Resource, key: &(String, String), bytes: &[u8]) -> bool {
    let source = Source::served(resource.kind, &resource.group_version(), bytes);
    let manifests = read_served(&source);
    let [object] = manifests.objects.as_slice() else {
        return false;
    };
    let its = palisade_api::key(object);
    let is_it = its.is_some_and(|it| (it.namespace, it.name) == (&*key.0, &*key.1));
    object.kind == resource.kind && is_it && !matches!(object.spec, ObjectSpec::Unreadable)
}
