//! Objects that a server tells of, kind by kind: what is known of each, and what is gone.
//!
//! Nothing of the objects is kept here. When a server lists everything once more, only hashes of the names that
//! it mentions are, until it is known who was not among them. Every object is read by itself, so that one that cannot be
//! read concerns no other (D149).

mod ending;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant, SystemTime};

use palisade_api::{Kind, Manifests, Object, ObjectSpec, Problem, Source, lower_one, read_served};
use palisade_core::incremental::ObjectKey;
use palisade_core::text::name;
use palisade_kube::item::written;
use palisade_kube::{Item, NamedObject, Resource, WatchEvent, WatchProblem};

use self::ending::{TerminatingNamespaces, is_waiting};
use crate::agent::Agent;
use crate::events::UnreadableKind;
use crate::files::{MOST_LINES, ObjectErrors};

/// What is known of a kind.
#[derive(Debug, Default)]
struct KindState {
    /// Whether everything was told once.
    is_complete: bool,
    /// The names that a list has mentioned so far.
    mentioned: Option<HashSet<u128>>,
    /// Objects of the last list, or events since, that do not say who they are: nothing is taken for gone while there are
    /// any.
    unnamed: UnnamedObjects,
    /// What is wrong with reading it.
    trouble: Option<UnreadableKind>,
    /// When the server last said something of it.
    last_event: Option<Instant>,
    /// How often everything was listed, and how often something was wrong.
    lists: u64,
    troubles: u64,
    events: u64,
}

/// Objects that do not say who they are: how many, and what is wrong with the first.
#[derive(Debug, Default)]
struct UnnamedObjects {
    count: usize,
    first: String,
}

impl UnnamedObjects {
    fn add(&mut self, words: &str) {
        if self.count == 0 {
            self.first = name(words);
        }
        self.count += 1;
    }
}

/// What is told of a kind to those who watch the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindStatus {
    /// The kind.
    pub kind: &'static str,
    /// How long ago the server last said something of it.
    pub age: Option<Duration>,
    /// How often everything was listed.
    pub lists: u64,
    /// How many events there were.
    pub events: u64,
    /// How often something went wrong.
    pub troubles: u64,
}

/// What came of some news.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchDelta {
    /// How many objects policies can see a difference in.
    pub different: usize,
    /// When the object that is different was written, as far as it says. Lists are not asked: what they say is rarely new.
    pub written: Option<SystemTime>,
    /// Objects whose faults are others than before.
    pub faults: Vec<(String, ObjectErrors)>,
    /// What is wrong since now, or right again (`None`), with reading a kind.
    pub trouble: Option<(String, Option<String>)>,
    /// A kind of which everything is known now, and how many objects there are.
    pub complete: Option<(String, usize)>,
}

/// What is known of all kinds.
#[derive(Debug)]
pub struct Kinds {
    followed: BTreeMap<Kind, (Resource, KindState)>,
    /// Objects that have errors, by what they are called; nearly always none.
    faulty: BTreeMap<String, ObjectErrors>,
    /// Objects that cannot be read at all, by what they are called, and why not. What they said before counts.
    unreadable: BTreeMap<String, String>,
    /// What kind those are, and the hashes of their names: a list tells which of them are gone.
    wrong: BTreeMap<String, (Kind, u128)>,
    ending: TerminatingNamespaces,
    /// Names are hashed with keys that nobody knows.
    hashes: [RandomState; 2],
}

impl Kinds {
    /// Nothing is known of these yet.
    pub fn new(resources: &[Resource]) -> Kinds {
        let followed = resources.iter();
        let followed = followed.map(|it| (it.kind, (*it, KindState::default())));
        Kinds {
            followed: followed.collect(),
            faulty: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            wrong: BTreeMap::new(),
            ending: TerminatingNamespaces::default(),
            hashes: [RandomState::new(), RandomState::new()],
        }
    }

    /// Whether everything was told once, of every kind.
    pub fn are_complete(&self) -> bool {
        self.followed.values().all(|(_, it)| it.is_complete)
    }

    /// What is missing until everything that the server says is known.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (resource, it) in self.followed.values() {
            let resource = resource.name();
            match (&it.trouble, it.is_complete) {
                (Some(trouble), true) => missing.push(format!(
                    "{resource} cannot be read any more, and what was known is enforced: {}",
                    trouble.words
                )),
                (Some(trouble), false) => {
                    missing.push(format!("{resource} cannot be read: {}", trouble.words));
                }
                (None, false) => missing.push(format!("{resource} have not been read yet")),
                (None, true) => {}
            }
        }
        missing.extend(self.unreadable().into_iter().take(MOST_LINES));
        missing
    }

    /// The objects that cannot be read, in words.
    pub fn unreadable(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (resource, it) in self.followed.values() {
            if it.unnamed.count > 0 {
                let UnnamedObjects { count, first } = &it.unnamed;
                let resource = resource.name();
                all.push(format!(
                    "{count} of the {resource} do not say who they are, so that none is taken for gone: {first}"
                ));
            }
        }
        for (called, why) in &self.unreadable {
            let called = name(called);
            all.push(format!(
                "{called} cannot be read, and what it said before is enforced: {why}"
            ));
        }
        all
    }

    /// How many objects cannot be read, or do not say who they are.
    pub fn unread_objects(&self) -> usize {
        let unnamed = self.followed.values().map(|(_, it)| it.unnamed.count);
        self.unreadable.len() + unnamed.sum::<usize>()
    }

    /// How many NetworkPolicies are gone and still enforced, since their namespaces are being deleted and have pods.
    pub fn outliving(&self) -> usize {
        self.ending.kept()
    }

    /// The kinds that cannot be read now.
    pub fn unread(&self) -> impl Iterator<Item = &UnreadableKind> {
        let all = self.followed.values();
        all.filter_map(|(_, it)| it.trouble.as_ref())
    }

    /// How the reading of each kind goes.
    pub fn following(&self) -> impl Iterator<Item = KindStatus> + '_ {
        self.followed.values().map(|(resource, it)| KindStatus {
            kind: resource.kind.short(),
            age: it.last_event.map(|heard| heard.elapsed()),
            lists: it.lists,
            events: it.events,
            troubles: it.troubles,
        })
    }

    /// How many errors there are in all objects.
    pub fn errors(&self) -> usize {
        self.faulty.values().map(|it| it.errors).sum()
    }

    /// Takes news in, and tells the agent.
    pub fn take(
        &mut self,
        now: Duration,
        kind: Kind,
        news: &WatchEvent,
        agent: &mut Agent,
    ) -> WatchDelta {
        let mut taken = WatchDelta::default();
        let Some((resource, followed)) = self.followed.get_mut(&kind) else {
            return taken;
        };
        let resource = *resource;
        if !matches!(news, WatchEvent::Problem(_)) {
            followed.last_event = Some(Instant::now());
        }
        match news {
            WatchEvent::ListStarted => {
                followed.lists += 1;
                followed.mentioned = Some(HashSet::new());
                followed.unnamed = UnnamedObjects::default();
            }
            WatchEvent::Early(item) => {
                if !self.is_followed(kind, item) {
                    self.set(now, resource, item, agent, &mut taken);
                }
            }
            WatchEvent::Listed(item) => self.set(now, resource, item, agent, &mut taken),
            WatchEvent::Applied(item) => {
                followed.events += 1;
                self.set(now, resource, item, agent, &mut taken);
                if taken.different > 0
                    && let Item::Named(named) = item
                {
                    taken.written = written(&named.bytes);
                }
            }
            WatchEvent::Deleted(item) => {
                followed.events += 1;
                match identity(kind, item).and_then(|it| of_kind(kind, it)) {
                    Ok(key) => self.gone(now, key, agent, &mut taken),
                    Err(words) => followed.unnamed.add(words),
                }
            }
            // That the server speaks is all that there is to it.
            WatchEvent::Heartbeat => {}
            WatchEvent::ListComplete => {
                let mentioned = followed.mentioned.take().unwrap_or_default();
                followed.is_complete = true;
                taken.complete = Some((resource.name(), mentioned.len()));
                // Whoever does not say who it is may be any of those that were not mentioned.
                if followed.unnamed.count == 0 {
                    self.sweep(now, kind, &mentioned, agent, &mut taken);
                }
            }
            WatchEvent::Absent => {
                followed.is_complete = true;
                followed.mentioned = None;
                followed.unnamed = UnnamedObjects::default();
                taken.complete = Some((resource.name(), 0));
                self.sweep(now, kind, &HashSet::new(), agent, &mut taken);
            }
            WatchEvent::Problem(trouble) => {
                let words = name(trouble.words());
                followed.troubles += 1;
                // Whatever is wrong now, it has not been right since then.
                let since = followed.trouble.as_ref().map_or(now, |it| it.since);
                followed.trouble = Some(UnreadableKind {
                    kind: resource.name(),
                    words: words.clone(),
                    is_forbidden: matches!(trouble, WatchProblem::Forbidden(_)),
                    since,
                });
                taken.trouble = Some((resource.name(), Some(words)));
            }
            WatchEvent::Recovered => {
                followed.trouble = None;
                taken.trouble = Some((resource.name(), None));
            }
        }
        if taken.complete.is_some() {
            self.release_all(now, agent, &mut taken);
        }
        taken
    }

    fn digest(&self, key: ObjectKey<'_>) -> u128 {
        let [first, second] = &self.hashes;
        let hash = |it: &RandomState| u128::from(it.hash_one((key.namespace, key.name)));
        hash(first) << 64 | hash(second)
    }

    /// Whether a list has said what an object is, or that it is not there.
    fn is_followed(&self, kind: Kind, item: &Item) -> bool {
        let (Some((_, followed)), Ok((key, _))) = (self.followed.get(&kind), identity(kind, item))
        else {
            return true;
        };
        let digest = self.digest(key);
        let mentioned = followed.mentioned.as_ref();
        followed.is_complete || mentioned.is_some_and(|it| it.contains(&digest))
    }

    /// An object as it is now.
    fn set(
        &mut self,
        now: Duration,
        resource: Resource,
        item: &Item,
        agent: &mut Agent,
        taken: &mut WatchDelta,
    ) {
        let kind = resource.kind;
        let Some((_, followed)) = self.followed.get_mut(&kind) else {
            return;
        };
        let (key, named) = match identity(kind, item) {
            Ok(known) => known,
            Err(words) => {
                followed.unnamed.add(words);
                return;
            }
        };
        let digest = self.digest(key);
        let followed = self.followed.get_mut(&kind);
        if let Some(mentioned) = followed.and_then(|(_, it)| it.mentioned.as_mut()) {
            mentioned.insert(digest);
        }
        if kind == Kind::Namespace {
            let over = self.ending.note(&named.name, named.is_ending);
            drop_policies(now, &named.name, over, agent, taken);
        }
        if kind == Kind::NetworkPolicy {
            self.ending.is_back(key.namespace, key.name);
        }
        let source = Source::served(kind, &resource.group_version(), &named.bytes);
        let manifests = read_served(&source);
        let called = words(key);
        // A pod that cannot be read may have an address.
        let mut may_get_address = true;
        match readable(&manifests, kind, key) {
            Ok(object) => {
                let meaning = lower_one(object);
                may_get_address = is_waiting(&meaning);
                taken.different += usize::from(agent.set(now, key, &meaning));
                self.unreadable.remove(&called);
                self.wrong.remove(&called);
            }
            // What cannot be read at all says nothing; what it said before still counts.
            Err(why) => {
                self.unreadable.insert(called.clone(), why);
                self.wrong.insert(called.clone(), (kind, digest));
            }
        }
        // A pod may have ended.
        if kind == Kind::Pod {
            self.ending.note_pod(key.namespace, digest, may_get_address);
            self.release(now, key.namespace, agent, taken);
        }
        let mut found: BTreeMap<String, ObjectErrors> = BTreeMap::new();
        if manifests.problems.iter().any(Problem::is_error) {
            found = faults_by_object(&manifests.problems);
        }
        if found.is_empty() && self.faulty.is_empty() {
            return;
        }
        let faults = found.remove(&called);
        if faults.is_some() {
            self.wrong.insert(called.clone(), (kind, digest));
        }
        self.note_faults(called, faults, taken);
    }

    fn note_faults(
        &mut self,
        called: String,
        faults: Option<ObjectErrors>,
        taken: &mut WatchDelta,
    ) {
        let before = self.faulty.remove(&called);
        let now = faults.unwrap_or_default();
        if before.unwrap_or_default() != now {
            taken.faults.push((called.clone(), now.clone()));
        }
        if now.errors > 0 {
            self.faulty.insert(called, now);
        }
    }

    /// That an object is gone. Nothing of it has to be read for that but its name.
    fn gone(
        &mut self,
        now: Duration,
        key: ObjectKey<'_>,
        agent: &mut Agent,
        taken: &mut WatchDelta,
    ) {
        self.right(&words(key));
        if key.kind == Kind::Namespace.short() {
            self.ending.gone(key.name);
        }
        let is_policy = key.kind == Kind::NetworkPolicy.short();
        if is_policy && self.ending.keep(key.namespace, key.name) {
            return;
        }
        taken.different += usize::from(agent.remove(now, key));
        if key.kind == Kind::Pod.short() {
            let digest = self.digest(key);
            self.ending.note_pod(key.namespace, digest, false);
            self.release(now, key.namespace, agent, taken);
        }
        if key.kind == Kind::Namespace.short() {
            self.release(now, key.name, agent, taken);
        }
    }

    /// Nothing is wrong any more with what is called so.
    fn right(&mut self, called: &str) {
        self.unreadable.remove(called);
        self.faulty.remove(called);
        self.wrong.remove(called);
    }

    /// Lets the NetworkPolicies of a namespace go that is being deleted, if it has no pods any more.
    fn release(
        &mut self,
        now: Duration,
        namespace: &str,
        agent: &mut Agent,
        taken: &mut WatchDelta,
    ) {
        // While pods are listed, or if one does not say who it is, there may be more of them than are known.
        let pods = self.followed.get(&Kind::Pod).map(|(_, it)| it);
        let are_known = pods
            .is_some_and(|it| it.is_complete && it.mentioned.is_none() && it.unnamed.count == 0);
        if are_known {
            let over = self.ending.over(namespace, agent.live());
            drop_policies(now, namespace, over, agent, taken);
        }
    }

    /// The same for all namespaces.
    fn release_all(&mut self, now: Duration, agent: &mut Agent, taken: &mut WatchDelta) {
        for namespace in self.ending.namespaces() {
            self.release(now, &namespace, agent, taken);
        }
    }

    /// Whoever was not mentioned is gone.
    fn sweep(
        &mut self,
        now: Duration,
        kind: Kind,
        mentioned: &HashSet<u128>,
        agent: &mut Agent,
        taken: &mut WatchDelta,
    ) {
        // What was never read may be gone, too.
        let wrong = self
            .wrong
            .iter()
            .filter(|(_, (its_kind, digest))| *its_kind == kind && !mentioned.contains(digest));
        let wrong: Vec<String> = wrong.map(|(called, _)| called.clone()).collect();
        wrong.iter().for_each(|called| self.right(called));
        let mut gone: Vec<(String, String)> = Vec::new();
        agent.live().each(kind.short(), &mut |key| {
            if !mentioned.contains(&self.digest(key)) {
                gone.push((key.namespace.to_owned(), key.name.to_owned()));
            }
        });
        if kind == Kind::Pod {
            self.ending.retain_pods(mentioned);
        }
        for (namespace, name) in &gone {
            let key = ObjectKey {
                kind: kind.short(),
                namespace,
                name,
            };
            self.gone(now, key, agent, taken);
        }
    }
}

/// NetworkPolicies that need not be enforced any more.
fn drop_policies(
    now: Duration,
    namespace: &str,
    names: BTreeSet<String>,
    agent: &mut Agent,
    taken: &mut WatchDelta,
) {
    for name in names {
        let key = ObjectKey {
            kind: Kind::NetworkPolicy.short(),
            namespace,
            name: &name,
        };
        taken.different += usize::from(agent.remove(now, key));
    }
}

/// Who an object is; `Err`: it does not say so, in words. One of a kind that lives in namespaces and names none may be any
/// of its name; what lives in none has none, whatever it says.
fn identity(kind: Kind, item: &Item) -> Result<(ObjectKey<'_>, &NamedObject), &str> {
    let named = match item {
        Item::Named(named) => named,
        Item::Unnamed(words) => return Err(words),
    };
    let namespace = match (kind.is_namespaced(), named.namespace.as_str()) {
        (true, "") => return Err("an object without a namespace"),
        (true, namespace) => namespace,
        (false, _) => "",
    };
    let key = ObjectKey {
        kind: kind.short(),
        namespace,
        name: &named.name,
    };
    Ok((key, named))
}

/// The key of an object of a kind. That another is gone says nothing of one that is called the same.
fn of_kind<'i>(
    kind: Kind,
    (key, named): (ObjectKey<'i>, &NamedObject),
) -> Result<ObjectKey<'i>, &'i str> {
    match palisade_kube::item::kind(&named.bytes) {
        Some(other) if other != kind.name() => Err("an object of another kind"),
        _ => Ok(key),
    }
}

/// The one object that was to be read; `Err`: why it cannot be.
fn readable<'m, 'a>(
    manifests: &'m Manifests<'a>,
    kind: Kind,
    key: ObjectKey<'_>,
) -> Result<&'m Object<'a>, String> {
    let is_it = |it: &Object<'_>| {
        let its = palisade_api::key(it);
        it.kind == kind && (its.namespace, its.name) == (key.namespace, key.name)
    };
    match manifests.objects.as_slice() {
        [object] if is_it(object) && !matches!(object.spec, ObjectSpec::Unreadable) => Ok(object),
        _ => {
            let why = manifests.problems.iter().find(|it| it.is_error());
            Err(why.map_or_else(
                || "it is not what was asked for".to_owned(),
                |it| name(&it.message),
            ))
        }
    }
}

fn words(key: ObjectKey<'_>) -> String {
    match key.namespace {
        "" => format!("{}/{}", key.kind, key.name),
        namespace => format!("{}/{namespace}/{}", key.kind, key.name),
    }
}

/// The errors of each object, as lines for people.
fn faults_by_object(problems: &[Problem]) -> BTreeMap<String, ObjectErrors> {
    let mut by_object: BTreeMap<String, ObjectErrors> = BTreeMap::new();
    for problem in problems.iter().filter(|it| it.is_error()) {
        let Some(object) = &problem.object else {
            continue;
        };
        let path = problem.path.as_deref().unwrap_or_default();
        let code = problem.code.name();
        let help = problem.help.as_ref();
        let help = help.map_or(String::new(), |it| format!(" ({it})"));
        let faults = by_object.entry(object.clone()).or_default();
        faults.errors += 1;
        if faults.lines.len() < MOST_LINES {
            let object = name(object);
            let line = format!("{object}: {path}: {code}: {}{help}", problem.message);
            faults.lines.push(line);
        }
    }
    by_object
}
