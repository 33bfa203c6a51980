//! Objects of an API server, kind by kind: from watch events to changes of objects.
//!
//! No object is stored here. During a list only hashes of the names are, to find out at its end
//! which objects are gone. Every object is read by itself: an unreadable one affects no other
//! (D149).

mod ending;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant, SystemTime};

use palisade_api::{Kind, Manifests, Object, ObjectSpec, Problem, Source, lower_one, read_served};
use palisade_core::incremental::{ObjectKey, ObjectKind};
use palisade_core::policy::PolicyApi;
use palisade_core::text::name;
use palisade_kube::item::written;
use palisade_kube::{Item, NamedObject, Resource, WatchEvent, WatchProblem};

use self::ending::{TerminatingNamespaces, is_waiting};
use crate::events::UnreadableKind;
use crate::files::{MOST_LINES, ObjectErrors};
use crate::objects::{ObjectChange, ObjectStore};

/// The kind of policies that servers have in namespaces.
const NETWORK_POLICY: ObjectKind = ObjectKind::Policy(PolicyApi::NetworkPolicy);

/// The state of one kind.
#[derive(Debug, Default)]
struct KindState {
    /// Whether a list has been complete once.
    is_complete: bool,
    /// The hashes of the names in the running list.
    mentioned: Option<HashSet<u128>>,
    /// Objects without a readable name, of the last list or of events since. While there are any, a
    /// list removes no object.
    unnamed: UnnamedObjects,
    /// Why the kind cannot be read now.
    trouble: Option<UnreadableKind>,
    /// The time of the last event from the server.
    last_event: Option<Instant>,
    /// Totals since the start.
    lists: u64,
    troubles: u64,
    events: u64,
}

impl KindState {
    /// Counts an event.
    fn count(&mut self, event: &WatchEvent) {
        // A problem is no sign of life of the server.
        if !matches!(event, WatchEvent::Problem(_)) {
            self.last_event = Some(Instant::now());
        }
        match event {
            WatchEvent::ListStarted => self.lists += 1,
            WatchEvent::Applied(_) | WatchEvent::Deleted(_) => self.events += 1,
            WatchEvent::Problem(_) => self.troubles += 1,
            WatchEvent::Early(_)
            | WatchEvent::Listed(_)
            | WatchEvent::Heartbeat
            | WatchEvent::ListComplete
            | WatchEvent::Absent
            | WatchEvent::Recovered => {}
        }
    }

    fn begin_list(&mut self) {
        self.mentioned = Some(HashSet::new());
        self.unnamed = UnnamedObjects::default();
    }

    /// Records that the server does not have the kind: the list of its objects is complete, and
    /// empty.
    fn be_absent(&mut self) {
        self.is_complete = true;
        self.mentioned = None;
        self.unnamed = UnnamedObjects::default();
    }

    /// Records a problem. Returns its cause, as text that is safe to print.
    fn fail(&mut self, now: Duration, resource: Resource, problem: &WatchProblem) -> String {
        let cause = name(problem.words());
        // The kind has not been readable since the first failure, whatever the cause is now.
        let since = self.trouble.as_ref().map_or(now, |it| it.since);
        self.trouble = Some(UnreadableKind {
            kind: resource.name(),
            words: cause.clone(),
            is_forbidden: matches!(problem, WatchProblem::Forbidden(_)),
            since,
        });
        cause
    }
}

/// Objects without a readable name: their number, and the cause for the first.
#[derive(Debug, Default)]
struct UnnamedObjects {
    count: usize,
    first: String,
}

impl UnnamedObjects {
    fn add(&mut self, cause: &str) {
        if self.count == 0 {
            self.first = name(cause);
        }
        self.count += 1;
    }
}

/// The status of a watch, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindStatus {
    /// The kind.
    pub kind: &'static str,
    /// The time since the last event from the server.
    pub age: Option<Duration>,
    /// The number of lists.
    pub lists: u64,
    /// The number of watch events.
    pub events: u64,
    /// The number of failures.
    pub troubles: u64,
}

/// The effect of a watch event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchDelta {
    /// The number of objects with a difference that policies can see.
    pub different: usize,
    /// When the changed object was written, according to itself. Not for listed objects, which are
    /// rarely new.
    pub written: Option<SystemTime>,
    /// Objects whose errors have changed.
    pub faults: Vec<(String, ObjectErrors)>,
    /// A kind that cannot be read from now on, with the cause, or that can be read again (`None`).
    pub trouble: Option<(String, Option<String>)>,
    /// A kind whose list is complete now, and the number of its objects.
    pub complete: Option<(String, usize)>,
}

/// The state of all kinds.
#[derive(Debug)]
pub struct Kinds {
    followed: BTreeMap<Kind, (Resource, KindState)>,
    /// Objects with errors, by name; nearly always none.
    faulty: BTreeMap<String, ObjectErrors>,
    /// Unreadable objects, by name, with the causes. Their previous content stays in force.
    unreadable: BTreeMap<String, String>,
    /// The kinds of those two, and the hashes of their names: a list shows which of them are gone.
    wrong: BTreeMap<String, (Kind, u128)>,
    ending: TerminatingNamespaces,
    /// Secret keys: authors of objects must not be able to choose names that collide.
    hashes: [RandomState; 2],
}

impl Kinds {
    /// Creates the state of kinds of which nothing is known yet.
    pub fn new(resources: &[Resource]) -> Kinds {
        let followed = resources.iter().filter(|it| it.kind.enforced().is_some());
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

    /// Returns whether a list of every kind has been complete.
    pub fn are_complete(&self) -> bool {
        self.followed.values().all(|(_, it)| it.is_complete)
    }

    /// Returns what prevents a complete state of the cluster; nothing: it is complete.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (resource, it) in self.followed.values() {
            let resource = resource.name();
            match (&it.trouble, it.is_complete) {
                (Some(trouble), true) => missing.push(format!(
                    "cannot read {resource}; the last known state stays enforced: {}",
                    trouble.words
                )),
                (Some(trouble), false) => {
                    missing.push(format!("cannot read {resource}: {}", trouble.words));
                }
                (None, false) => missing.push(format!("{resource} not synced yet")),
                (None, true) => {}
            }
        }
        missing.extend(self.unreadable().into_iter().take(MOST_LINES));
        missing
    }

    /// Returns the unreadable objects, as text.
    pub fn unreadable(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (resource, it) in self.followed.values() {
            if it.unnamed.count > 0 {
                let UnnamedObjects { count, first } = &it.unnamed;
                let resource = resource.name();
                all.push(format!(
                    "{resource}: {count} without a readable name; missing objects are not removed: {first}"
                ));
            }
        }
        for (object, why) in &self.unreadable {
            let object = name(object);
            all.push(format!(
                "cannot read {object}; its previous content stays enforced: {why}"
            ));
        }
        all
    }

    /// Returns the number of objects that are unreadable or have no readable name.
    pub fn unread_objects(&self) -> usize {
        let unnamed = self.followed.values().map(|(_, it)| it.unnamed.count);
        self.unreadable.len() + unnamed.sum::<usize>()
    }

    /// Returns the number of deleted NetworkPolicies that are still enforced, because pods of their
    /// namespaces remain.
    pub fn outliving(&self) -> usize {
        self.ending.kept()
    }

    /// Returns the kinds that cannot be read now.
    pub fn unread(&self) -> impl Iterator<Item = &UnreadableKind> {
        let all = self.followed.values();
        all.filter_map(|(_, it)| it.trouble.as_ref())
    }

    /// Returns the status of each watch.
    pub fn following(&self) -> impl Iterator<Item = KindStatus> + '_ {
        self.followed.values().map(|(resource, it)| KindStatus {
            kind: resource.kind.short(),
            age: it.last_event.map(|at| at.elapsed()),
            lists: it.lists,
            events: it.events,
            troubles: it.troubles,
        })
    }

    /// Returns the number of errors in all objects.
    pub fn errors(&self) -> usize {
        self.faulty.values().map(|it| it.errors).sum()
    }

    /// Applies a watch event. The changes of objects that follow go to the store.
    pub fn take(
        &mut self,
        now: Duration,
        kind: Kind,
        event: WatchEvent,
        store: &mut dyn ObjectStore,
    ) -> WatchDelta {
        let mut delta = WatchDelta::default();
        let Some((resource, state)) = self.followed.get_mut(&kind) else {
            return delta;
        };
        let resource = *resource;
        state.count(&event);
        match event {
            WatchEvent::ListStarted => state.begin_list(),
            // A list or a watch that came first is newer.
            WatchEvent::Early(item) => {
                if !self.is_followed(kind, &item) {
                    self.set(resource, item, store, &mut delta);
                }
            }
            WatchEvent::Listed(item) => {
                self.set(resource, item, store, &mut delta);
            }
            WatchEvent::Applied(item) => {
                let text = self.set(resource, item, store, &mut delta);
                if delta.different > 0 {
                    delta.written = text.and_then(|it| written(it.text().as_bytes()));
                }
            }
            WatchEvent::Deleted(item) => {
                match identity(kind, &item).and_then(|it| of_kind(kind, it)) {
                    Ok(key) => self.gone(key, store, &mut delta),
                    Err(cause) => state.unnamed.add(cause),
                }
            }
            // It only shows that the server is alive.
            WatchEvent::Heartbeat => {}
            WatchEvent::ListComplete => {
                let mentioned = state.mentioned.take().unwrap_or_default();
                state.is_complete = true;
                delta.complete = Some((resource.name(), mentioned.len()));
                // An object without a name may be any of those that the list does not mention.
                if state.unnamed.count == 0 {
                    self.sweep(kind, &mentioned, store, &mut delta);
                }
            }
            WatchEvent::Absent => {
                state.be_absent();
                delta.complete = Some((resource.name(), 0));
                self.sweep(kind, &HashSet::new(), store, &mut delta);
            }
            WatchEvent::Problem(problem) => {
                let cause = state.fail(now, resource, &problem);
                delta.trouble = Some((resource.name(), Some(cause)));
            }
            WatchEvent::Recovered => {
                state.trouble = None;
                delta.trouble = Some((resource.name(), None));
            }
        }
        // Only a complete list of pods shows that a namespace has none left.
        if delta.complete.is_some() {
            self.release_all(store, &mut delta);
        }
        delta
    }

    fn digest(&self, key: ObjectKey<'_>) -> u128 {
        // 128 bits: two names with one hash would keep a deleted object in force.
        let [first, second] = &self.hashes;
        let hash = |it: &RandomState| u128::from(it.hash_one((key.namespace, key.name)));
        hash(first) << 64 | hash(second)
    }

    /// Returns whether a list has already covered an object.
    fn is_followed(&self, kind: Kind, item: &Item) -> bool {
        let (Some((_, state)), Ok((key, _))) = (self.followed.get(&kind), identity(kind, item))
        else {
            return true;
        };
        let digest = self.digest(key);
        let mentioned = state.mentioned.as_ref();
        state.is_complete || mentioned.is_some_and(|it| it.contains(&digest))
    }

    /// Applies the current state of an object. Returns its text, if it has a readable name.
    fn set(
        &mut self,
        resource: Resource,
        mut item: Item,
        store: &mut dyn ObjectStore,
        delta: &mut WatchDelta,
    ) -> Option<Source> {
        let kind = resource.kind;
        let (_, state) = self.followed.get_mut(&kind)?;
        // Moved, not copied: nothing else reads the text of an event.
        let text = item.take_bytes();
        // Before the contents are read: an unreadable object with a name is not missing from the
        // list.
        let (key, named) = match identity(kind, &item) {
            Ok(identity) => identity,
            Err(cause) => {
                state.unnamed.add(cause);
                return None;
            }
        };
        let digest = self.digest(key);
        let state = self.followed.get_mut(&kind);
        if let Some(mentioned) = state.and_then(|(_, it)| it.mentioned.as_mut()) {
            mentioned.insert(digest);
        }
        if kind == Kind::Namespace {
            let over = self.ending.note(&named.name, named.is_ending);
            drop_policies(&named.name, over, store, delta);
        }
        if kind == Kind::NetworkPolicy {
            self.ending.is_back(key.namespace, key.name);
        }
        let source = Source::served(kind, resource.group_version(), text);
        let manifests = read_served(&source);
        let id = key.id();
        // An unreadable pod may have an address.
        let mut may_get_address = true;
        match readable(&manifests, kind, key) {
            Ok(object) => {
                let lowered = &lower_one(object);
                may_get_address = is_waiting(lowered);
                let change = ObjectChange::Set { key, lowered };
                delta.different += usize::from(store.apply(change));
                self.unreadable.remove(&id);
                self.wrong.remove(&id);
            }
            // An unreadable object is no change: its previous content stays in force.
            Err(why) => {
                self.unreadable.insert(id.clone(), why);
                self.wrong.insert(id.clone(), (kind, digest));
            }
        }
        // The pod may have terminated, and may have been the last of its namespace.
        if kind == Kind::Pod {
            self.ending.note_pod(key.namespace, digest, may_get_address);
            self.release(key.namespace, store, delta);
        }
        let mut found: BTreeMap<String, ObjectErrors> = BTreeMap::new();
        if manifests.problems.iter().any(Problem::is_error) {
            found = faults_by_object(&manifests.problems);
        }
        if found.is_empty() && self.faulty.is_empty() {
            return Some(source);
        }
        let faults = found.remove(&id);
        if faults.is_some() {
            self.wrong.insert(id.clone(), (kind, digest));
        }
        self.note_faults(id, faults, delta);
        Some(source)
    }

    fn note_faults(
        &mut self,
        object: String,
        faults: Option<ObjectErrors>,
        delta: &mut WatchDelta,
    ) {
        let before = self.faulty.remove(&object);
        let now = faults.unwrap_or_default();
        if before.unwrap_or_default() != now {
            delta.faults.push((object.clone(), now.clone()));
        }
        if now.errors > 0 {
            self.faulty.insert(object, now);
        }
    }

    /// Removes an object. Only its name is read.
    fn gone(&mut self, key: ObjectKey<'_>, store: &mut dyn ObjectStore, delta: &mut WatchDelta) {
        // Whatever was unreadable about the object is gone with it.
        self.clear_errors(&key.id());
        if key.kind == ObjectKind::Namespace {
            self.ending.gone(key.name);
        }
        // A NetworkPolicy of a namespace that is being deleted stays in force for its pods (D145).
        let is_policy = key.kind == NETWORK_POLICY;
        if is_policy && self.ending.keep(key.namespace, key.name) {
            return;
        }
        delta.different += usize::from(store.apply(ObjectChange::Remove { key }));
        if key.kind == ObjectKind::Pod {
            let digest = self.digest(key);
            self.ending.note_pod(key.namespace, digest, false);
            self.release(key.namespace, store, delta);
        }
        if key.kind == ObjectKind::Namespace {
            self.release(key.name, store, delta);
        }
    }

    /// Clears the errors of an object.
    fn clear_errors(&mut self, object: &str) {
        self.unreadable.remove(object);
        self.faulty.remove(object);
        self.wrong.remove(object);
    }

    /// Removes the NetworkPolicies of a namespace that is being deleted, if it has no pods left.
    fn release(&mut self, namespace: &str, store: &mut dyn ObjectStore, delta: &mut WatchDelta) {
        // During a list of pods, or if one has no readable name, there may be unknown pods.
        let pods = self.followed.get(&Kind::Pod).map(|(_, it)| it);
        let are_known = pods
            .is_some_and(|it| it.is_complete && it.mentioned.is_none() && it.unnamed.count == 0);
        if are_known {
            let policies = self.ending.over(namespace, store);
            drop_policies(namespace, policies, store, delta);
        }
    }

    /// Does the same for all namespaces.
    fn release_all(&mut self, store: &mut dyn ObjectStore, delta: &mut WatchDelta) {
        for namespace in self.ending.namespaces() {
            self.release(&namespace, store, delta);
        }
    }

    /// Removes the objects that a complete list does not mention.
    fn sweep(
        &mut self,
        kind: Kind,
        mentioned: &HashSet<u128>,
        store: &mut dyn ObjectStore,
        delta: &mut WatchDelta,
    ) {
        // Objects that were never readable are not in the store, but may be gone, too.
        let faulty = self
            .wrong
            .iter()
            .filter(|(_, (its_kind, digest))| *its_kind == kind && !mentioned.contains(digest));
        let faulty: Vec<String> = faulty.map(|(object, _)| object.clone()).collect();
        faulty.iter().for_each(|object| self.clear_errors(object));
        let mut gone: Vec<(String, String)> = Vec::new();
        let Some(enforced) = kind.enforced() else {
            return;
        };
        store.each(enforced, &mut |key| {
            if !mentioned.contains(&self.digest(key)) {
                gone.push((key.namespace.to_owned(), key.name.to_owned()));
            }
        });
        if kind == Kind::Pod {
            self.ending.retain_pods(mentioned);
        }
        for (namespace, name) in &gone {
            let key = ObjectKey {
                kind: enforced,
                namespace,
                name,
            };
            self.gone(key, store, delta);
        }
    }
}

/// Removes NetworkPolicies that need not be enforced any longer.
fn drop_policies(
    namespace: &str,
    names: BTreeSet<String>,
    store: &mut dyn ObjectStore,
    delta: &mut WatchDelta,
) {
    for name in names {
        let key = ObjectKey {
            kind: NETWORK_POLICY,
            namespace,
            name: &name,
        };
        delta.different += usize::from(store.apply(ObjectChange::Remove { key }));
    }
}

/// Returns the key of an object; `Err`: it has none, and why. A namespaced object without a
/// namespace could be any of its name; a namespace of a cluster-scoped object is ignored.
fn identity(kind: Kind, item: &Item) -> Result<(ObjectKey<'_>, &NamedObject), &str> {
    let named = match item {
        Item::Named(named) => named,
        Item::Unnamed(cause) => return Err(cause),
    };
    let namespace = match (kind.is_namespaced(), named.namespace.as_str()) {
        (true, "") => return Err("an object without a namespace"),
        (true, namespace) => namespace,
        (false, _) => "",
    };
    let Some(kind) = kind.enforced() else {
        return Err("an object of a kind that is not enforced");
    };
    let key = ObjectKey {
        kind,
        namespace,
        name: &named.name,
    };
    Ok((key, named))
}

/// Returns the key of an object, if it has the expected kind: the deletion of an object of another
/// kind concerns no object of this kind and name.
fn of_kind<'i>(
    kind: Kind,
    (key, named): (ObjectKey<'i>, &NamedObject),
) -> Result<ObjectKey<'i>, &'i str> {
    match palisade_kube::item::kind(&named.bytes) {
        Some(other) if other != kind.name() => Err("an object of another kind"),
        _ => Ok(key),
    }
}

/// Returns the one object that was read; `Err`: why it is unreadable.
fn readable<'m, 'a>(
    manifests: &'m Manifests<'a>,
    kind: Kind,
    key: ObjectKey<'_>,
) -> Result<&'m Object<'a>, String> {
    let is_it = |it: &Object<'_>| it.kind == kind && palisade_api::key(it) == Some(key);
    match manifests.objects.as_slice() {
        [object] if is_it(object) && !matches!(object.spec, ObjectSpec::Unreadable) => Ok(object),
        _ => {
            let why = manifests.problems.iter().find(|it| it.is_error());
            Err(why.map_or_else(
                || "the server sent another object than requested".to_owned(),
                |it| name(&it.message),
            ))
        }
    }
}

/// Returns the errors of each object, as lines of text.
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
