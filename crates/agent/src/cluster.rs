//! Objects that a server tells of, kind by kind: what is known of each, and what is gone.
//!
//! Nothing of the objects is kept here. When a server lists everything once more, only hashes of the names that
//! it mentions are, until it is known who was not among them.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant, SystemTime};

use palisade_api::{Body, Kind, Object, Options, Problem, Source, lower_one, read};
use palisade_core::live::ObjectKey;
use palisade_core::text::name;
use palisade_kube::answer::written;
use palisade_kube::{News, Resource, Trouble};

use crate::agent::Agent;
use crate::events::Unread;
use crate::files::{Faults, MOST_LINES};

/// What is known of a kind.
#[derive(Debug, Default)]
struct Followed {
    /// Whether everything was told once.
    is_complete: bool,
    /// The names that a list has mentioned so far.
    mentioned: Option<HashSet<u128>>,
    /// What is wrong with reading it.
    trouble: Option<Unread>,
    /// When the server last said something of it.
    heard: Option<Instant>,
    /// How often everything was listed, and how often something was wrong.
    lists: u64,
    troubles: u64,
    events: u64,
}

/// What is told of a kind to those who watch the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Following {
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
pub struct Taken {
    /// How many objects policies can see a difference in.
    pub different: usize,
    /// When the object that is different was written, as far as it says. Lists are not asked: what they say is rarely new.
    pub written: Option<SystemTime>,
    /// Objects whose faults are others than before.
    pub faults: Vec<(String, Faults)>,
    /// What is wrong since now, or right again (`None`), with reading a kind.
    pub trouble: Option<(String, Option<String>)>,
    /// A kind of which everything is known now, and how many objects there are.
    pub complete: Option<(String, usize)>,
}

/// What is known of all kinds.
#[derive(Debug)]
pub struct Kinds {
    followed: BTreeMap<Kind, (Resource, Followed)>,
    /// Objects that have errors, by what they are called; nearly always none.
    faulty: BTreeMap<String, Faults>,
    /// Names are hashed with keys that nobody knows.
    hashes: [RandomState; 2],
}

impl Kinds {
    /// Nothing is known of these yet.
    pub fn new(resources: &[Resource]) -> Kinds {
        let followed = resources.iter();
        let followed = followed.map(|it| (it.kind, (*it, Followed::default())));
        Kinds {
            followed: followed.collect(),
            faulty: BTreeMap::new(),
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
        missing
    }

    /// The kinds that cannot be read now.
    pub fn unread(&self) -> impl Iterator<Item = &Unread> {
        let all = self.followed.values();
        all.filter_map(|(_, it)| it.trouble.as_ref())
    }

    /// How the reading of each kind goes.
    pub fn following(&self) -> impl Iterator<Item = Following> + '_ {
        self.followed.values().map(|(resource, it)| Following {
            kind: resource.kind.short(),
            age: it.heard.map(|heard| heard.elapsed()),
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
    pub fn take(&mut self, now: Duration, kind: Kind, news: &News, agent: &mut Agent) -> Taken {
        let mut taken = Taken::default();
        let Some((resource, followed)) = self.followed.get_mut(&kind) else {
            return taken;
        };
        let resource = *resource;
        if !matches!(news, News::Trouble(_)) {
            followed.heard = Some(Instant::now());
        }
        match news {
            News::Began => {
                followed.lists += 1;
                followed.mentioned = Some(HashSet::new());
            }
            News::Page(text) => self.set(now, kind, text, agent, &mut taken),
            News::Set(text) => {
                followed.events += 1;
                self.set(now, kind, text, agent, &mut taken);
                if taken.different > 0 {
                    taken.written = written(text);
                }
            }
            News::Gone(text) => {
                followed.events += 1;
                self.gone(now, kind, text, agent, &mut taken);
            }
            // That the server speaks is all that there is to it.
            News::Quiet => {}
            News::Complete => {
                let mentioned = followed.mentioned.take().unwrap_or_default();
                followed.is_complete = true;
                taken.complete = Some((resource.name(), mentioned.len()));
                self.sweep(now, kind, &mentioned, agent, &mut taken);
            }
            News::Absent => {
                followed.is_complete = true;
                followed.mentioned = None;
                taken.complete = Some((resource.name(), 0));
                self.sweep(now, kind, &HashSet::new(), agent, &mut taken);
            }
            News::Trouble(trouble) => {
                let words = name(trouble.words());
                followed.troubles += 1;
                // Whatever is wrong now, it has not been right since then.
                let since = followed.trouble.as_ref().map_or(now, |it| it.since);
                followed.trouble = Some(Unread {
                    kind: resource.name(),
                    words: words.clone(),
                    is_forbidden: matches!(trouble, Trouble::Forbidden(_)),
                    since,
                });
                taken.trouble = Some((resource.name(), Some(words)));
            }
            News::Fine => {
                followed.trouble = None;
                taken.trouble = Some((resource.name(), None));
            }
        }
        taken
    }

    fn digest(&self, key: ObjectKey<'_>) -> u128 {
        let [first, second] = &self.hashes;
        let hash = |it: &RandomState| u128::from(it.hash_one((key.namespace, key.name)));
        hash(first) << 64 | hash(second)
    }

    /// One object, or a list of them, as they are now.
    fn set(&mut self, now: Duration, kind: Kind, text: &str, agent: &mut Agent, taken: &mut Taken) {
        let sources = [Source::new(kind.short(), text.as_bytes().to_vec())];
        let manifests = read(&sources, Options::default(), &|_| {});
        for object in manifests.objects.iter().filter(|it| it.kind == kind) {
            let key = palisade_api::key(object);
            if key.name.is_empty() {
                continue;
            }
            let digest = self.digest(key);
            let followed = self.followed.get_mut(&kind);
            if let Some(mentioned) = followed.and_then(|(_, it)| it.mentioned.as_mut()) {
                mentioned.insert(digest);
            }
            // What cannot be read at all says nothing; what it said before still counts.
            if !matches!(object.body, Body::Unreadable) {
                let meaning = lower_one(object);
                taken.different += usize::from(agent.set(now, key, &meaning));
            }
        }
        let mut found: BTreeMap<String, Faults> = BTreeMap::new();
        if manifests.problems.iter().any(Problem::is_error) {
            found = faults_by_object(&manifests.problems);
        }
        if found.is_empty() && self.faulty.is_empty() {
            return;
        }
        for object in &manifests.objects {
            let called = called(object);
            self.note_faults(called.clone(), found.remove(&called), taken);
        }
    }

    fn note_faults(&mut self, called: String, faults: Option<Faults>, taken: &mut Taken) {
        let before = self.faulty.remove(&called);
        let now = faults.unwrap_or_default();
        if before.unwrap_or_default() != now {
            taken.faults.push((called.clone(), now.clone()));
        }
        if now.errors > 0 {
            self.faulty.insert(called, now);
        }
    }

    fn gone(
        &mut self,
        now: Duration,
        kind: Kind,
        text: &str,
        agent: &mut Agent,
        taken: &mut Taken,
    ) {
        let sources = [Source::new(kind.short(), text.as_bytes().to_vec())];
        let manifests = read(&sources, Options::default(), &|_| {});
        for object in manifests.objects.iter().filter(|it| it.kind == kind) {
            let key = palisade_api::key(object);
            taken.different += usize::from(agent.remove(now, key));
            self.faulty.remove(&called(object));
        }
    }

    /// Whoever was not mentioned is gone.
    fn sweep(
        &mut self,
        now: Duration,
        kind: Kind,
        mentioned: &HashSet<u128>,
        agent: &mut Agent,
        taken: &mut Taken,
    ) {
        let mut gone: Vec<(String, String)> = Vec::new();
        agent.live().each(kind.short(), &mut |key| {
            if !mentioned.contains(&self.digest(key)) {
                gone.push((key.namespace.to_owned(), key.name.to_owned()));
            }
        });
        for (namespace, name) in &gone {
            let key = ObjectKey {
                kind: kind.short(),
                namespace,
                name,
            };
            taken.different += usize::from(agent.remove(now, key));
            self.faulty.remove(&words(key));
        }
    }
}

/// What an object is called, in words.
fn called(object: &Object<'_>) -> String {
    words(palisade_api::key(object))
}

fn words(key: ObjectKey<'_>) -> String {
    match key.namespace {
        "" => format!("{}/{}", key.kind, key.name),
        namespace => format!("{}/{namespace}/{}", key.kind, key.name),
    }
}

/// The errors of each object, as lines for people.
fn faults_by_object(problems: &[Problem]) -> BTreeMap<String, Faults> {
    let mut by_object: BTreeMap<String, Faults> = BTreeMap::new();
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
