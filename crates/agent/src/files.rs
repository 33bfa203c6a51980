//! Objects that stand in files: what changes when a file does.
//!
//! A file that has become unreadable in part keeps what it said when it was last whole: whoever edits it
//! will go on editing, and a policy must not vanish for as long as a bracket is missing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use palisade_api::{
    Kind, Lines, Manifests, Object, ObjectSpec, Options, Problem, Source, lower_one, read,
};
use palisade_core::incremental::ObjectKey;
use palisade_core::text::name;
use palisade_watch::{File, FileChanges};

use crate::agent::Agent;

/// Who an object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    kind: Kind,
    namespace: String,
    name: String,
}

impl Key {
    /// Who an object is; `None`: nobody, or nobody that a node has to know.
    fn of(object: &Object<'_>) -> Option<Key> {
        let counts = is_enforced(object.kind) && !object.metadata.name.is_empty();
        counts.then(|| Key {
            kind: object.kind,
            namespace: object.namespace().unwrap_or_default().to_owned(),
            name: object.metadata.name.to_string(),
        })
    }

    fn borrowed(&self) -> ObjectKey<'_> {
        ObjectKey {
            kind: self.kind.short(),
            namespace: &self.namespace,
            name: &self.name,
        }
    }
}

/// Whether what a node enforces may depend on objects of a kind.
fn is_enforced(kind: Kind) -> bool {
    match kind {
        Kind::NetworkPolicy
        | Kind::NetworkPolicy2016
        | Kind::AdminNetworkPolicy
        | Kind::BaselineAdminNetworkPolicy
        | Kind::ClusterNetworkPolicy
        | Kind::EarlyClusterNetworkPolicy
        | Kind::DefaultNetworkPolicy
        | Kind::Namespace
        | Kind::Pod
        | Kind::Node => true,
        // Packets are judged behind Services, and pods are pods whoever made them.
        Kind::Service
        | Kind::EndpointSlice
        | Kind::Deployment
        | Kind::StatefulSet
        | Kind::DaemonSet
        | Kind::ReplicaSet
        | Kind::ReplicationController
        | Kind::Job
        | Kind::CronJob => false,
    }
}

/// A file that counts.
#[derive(Debug)]
struct LoadedFile {
    bytes: Arc<Vec<u8>>,
    keys: BTreeSet<Key>,
    /// What is wrong with it, or with the newer version that does not count.
    faults: ObjectErrors,
}

/// What is wrong with a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectErrors {
    /// Errors and warnings, as lines for people.
    pub lines: Vec<String>,
    /// How many are errors.
    pub errors: usize,
    /// Whether some of it is no object at all, so that nobody knows what it was to say.
    pub is_unreadable: bool,
    /// Whether what it said before counts instead.
    pub is_kept: bool,
}

/// What came of a look at the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileDelta {
    /// How many objects policies can see a difference in.
    pub different: usize,
    /// Files whose faults are others than before.
    pub faults: Vec<(PathBuf, ObjectErrors)>,
}

/// The objects of some files.
#[derive(Debug, Default)]
pub struct Objects {
    files: BTreeMap<PathBuf, LoadedFile>,
    /// The files that have each object; nearly always one.
    holders: HashMap<Key, Vec<PathBuf>>,
}

impl Objects {
    /// Takes in what is different, and tells the agent.
    pub fn take(
        &mut self,
        now: Duration,
        files: &[File],
        difference: &FileChanges,
        agent: &mut Agent,
    ) -> FileDelta {
        let mut taken = FileDelta::default();
        let mut touched: BTreeSet<Key> = BTreeSet::new();
        for path in &difference.gone {
            if let Some(held) = self.files.remove(path) {
                self.let_go(path, &held.keys);
                touched.extend(held.keys);
            }
        }
        let changed: HashSet<&Path> = difference.changed.iter().map(PathBuf::as_path).collect();
        for file in files {
            if changed.contains(file.path.as_path()) {
                self.take_file(file, &mut touched, &mut taken);
            }
        }
        let places: HashMap<&Path, usize> = files
            .iter()
            .enumerate()
            .map(|(place, file)| (file.path.as_path(), place))
            .collect();
        let mut by_file: BTreeMap<&Path, BTreeSet<&Key>> = BTreeMap::new();
        for key in &touched {
            // Of an object that two files have, the later counts.
            let holders = self.holders.get(key).into_iter().flatten();
            let holder = holders.max_by_key(|path| places.get(path.as_path()));
            match holder {
                Some(path) => {
                    by_file.entry(path).or_default().insert(key);
                }
                None => {
                    taken.different += usize::from(agent.remove(now, key.borrowed()));
                }
            }
        }
        for (path, keys) in by_file {
            if let Some(held) = self.files.get(path) {
                taken.different += report_errors(now, path, held, &keys, agent);
            }
        }
        taken
    }

    /// That a file does not have some objects any more.
    fn let_go(&mut self, path: &Path, keys: &BTreeSet<Key>) {
        for key in keys {
            if let Some(holders) = self.holders.get_mut(key) {
                holders.retain(|it| it != path);
                if holders.is_empty() {
                    self.holders.remove(key);
                }
            }
        }
    }

    fn take_file(&mut self, file: &File, touched: &mut BTreeSet<Key>, taken: &mut FileDelta) {
        let source = source(&file.path, &file.bytes);
        let sources = [source];
        let manifests = read(&sources, Options::default(), &|_| {});
        let mut faults = faults(&sources, &manifests);
        let before = self.files.get_mut(&file.path);
        let told = before.as_ref().map(|it| it.faults.lines.clone());
        let is_told = told.unwrap_or_default() == faults.lines;
        match before {
            Some(before) if faults.is_unreadable => {
                faults.is_kept = true;
                before.faults = faults.clone();
            }
            before => {
                let keys: BTreeSet<Key> = manifests.objects.iter().filter_map(Key::of).collect();
                let old = before.map(|it| std::mem::take(&mut it.keys));
                if let Some(old) = old {
                    self.let_go(&file.path, &old);
                    touched.extend(old);
                }
                for key in &keys {
                    let holders = self.holders.entry(key.clone()).or_default();
                    holders.push(file.path.clone());
                }
                touched.extend(keys.iter().cloned());
                let held = LoadedFile {
                    bytes: Arc::clone(&file.bytes),
                    keys,
                    faults: faults.clone(),
                };
                self.files.insert(file.path.clone(), held);
            }
        }
        if !is_told {
            taken.faults.push((file.path.clone(), faults));
        }
    }

    /// The files of which something is not enforced because nobody can read it.
    pub fn unreadable(&self) -> impl Iterator<Item = &Path> {
        let files = self.files.iter();
        let files = files.filter(|(_, held)| held.faults.is_unreadable);
        files.map(|(path, _)| path.as_path())
    }

    /// How many errors there are in all files.
    pub fn errors(&self) -> usize {
        self.files.values().map(|held| held.faults.errors).sum()
    }
}

fn source(path: &Path, bytes: &[u8]) -> Source {
    Source::new(shown(path), bytes.to_vec())
}

/// A path as it may be written down, whatever is in it.
pub(crate) fn shown(path: &Path) -> String {
    name(&path.to_string_lossy())
}

/// Tells the agent what some objects of a file are.
fn report_errors(
    now: Duration,
    path: &Path,
    held: &LoadedFile,
    keys: &BTreeSet<&Key>,
    agent: &mut Agent,
) -> usize {
    let sources = [source(path, &held.bytes)];
    let manifests = read(&sources, Options::default(), &|_| {});
    // Of an object that a file has twice, the later counts.
    let mut last: BTreeMap<Key, &Object<'_>> = BTreeMap::new();
    for object in &manifests.objects {
        if let Some(key) = Key::of(object).filter(|key| keys.contains(key)) {
            last.insert(key, object);
        }
    }
    let mut different = 0;
    for (key, object) in last {
        let meaning = lower_one(object);
        different += usize::from(agent.set(now, key.borrowed(), &meaning));
    }
    different
}

/// So many problems of a file are written down.
pub(crate) const MOST_LINES: usize = 20;

fn faults(sources: &[Source], manifests: &Manifests<'_>) -> ObjectErrors {
    let errors: Vec<&Problem> = manifests
        .problems
        .iter()
        .filter(|it| it.is_error())
        .collect();
    let nobody = manifests
        .objects
        .iter()
        .any(|it| matches!(it.spec, ObjectSpec::Unreadable));
    let mut lines: Vec<String> = errors
        .iter()
        .take(MOST_LINES)
        .map(|problem| line(sources, problem))
        .collect();
    if errors.len() > MOST_LINES {
        lines.push(format!("and {} more errors", errors.len() - MOST_LINES));
    }
    ObjectErrors {
        lines,
        errors: errors.len(),
        is_unreadable: nobody || errors.iter().any(|it| it.object.is_none()),
        is_kept: false,
    }
}

fn line(sources: &[Source], problem: &Problem) -> String {
    let source = sources.first();
    let place = source.map_or_else(String::new, |source| {
        let (line, column) = Lines::new(source.text()).position(problem.span.start as usize);
        format!("{}:{line}:{column}: ", source.name())
    });
    let help = problem
        .help
        .as_ref()
        .map_or(String::new(), |it| format!(" ({it})"));
    let code = problem.code.name();
    format!("{place}{code}: {}{help}", problem.message)
}
