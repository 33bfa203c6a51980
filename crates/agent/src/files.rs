//! Objects in files: from changes of files to changes of objects.
//!
//! A file that becomes partly unreadable keeps its last fully readable content. It is probably
//! being edited, and a policy must not vanish because of a missing bracket.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use palisade_api::{
    Lines, Manifests, Object, ObjectSpec, Options, Problem, Source, lower_one, read,
};
use palisade_core::incremental::{ObjectKey, ObjectKind};
use palisade_core::text::name;
use palisade_watch::{File, FileChanges};

use crate::objects::{ObjectChange, ObjectStore};

/// The identity of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    kind: ObjectKind,
    namespace: String,
    name: String,
}

impl Key {
    /// Returns the identity of an object; `None`: it has no name, or nodes do not need its kind.
    fn of(object: &Object<'_>) -> Option<Key> {
        let key = palisade_api::key(object).filter(|it| !it.name.is_empty())?;
        Some(Key {
            kind: key.kind,
            namespace: key.namespace.to_owned(),
            name: key.name.to_owned(),
        })
    }

    fn borrowed(&self) -> ObjectKey<'_> {
        ObjectKey {
            kind: self.kind,
            namespace: &self.namespace,
            name: &self.name,
        }
    }
}

/// A file whose objects are in use.
#[derive(Debug)]
struct LoadedFile {
    bytes: Arc<Vec<u8>>,
    keys: BTreeSet<Key>,
    /// The errors of the file on disk, which may be newer than `bytes`.
    faults: ObjectErrors,
}

/// The errors of a file or an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectErrors {
    /// The errors, as lines of text.
    pub lines: Vec<String>,
    /// The number of errors.
    pub errors: usize,
    /// Whether a part is not even an object: what it was meant to be is unknown.
    pub is_unreadable: bool,
    /// Whether the previous content stays in use.
    pub is_kept: bool,
}

/// The result of applying changes of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileDelta {
    /// The number of objects with a difference that policies can see.
    pub different: usize,
    /// Files whose errors have changed.
    pub faults: Vec<(PathBuf, ObjectErrors)>,
}

/// The objects of some files.
#[derive(Debug, Default)]
pub struct Objects {
    files: BTreeMap<PathBuf, LoadedFile>,
    /// The files that contain each object; nearly always one.
    holders: HashMap<Key, Vec<PathBuf>>,
}

impl Objects {
    /// Applies changes of files. The changes of objects that follow go to the store.
    pub fn take(
        &mut self,
        files: &[File],
        difference: &FileChanges,
        store: &mut dyn ObjectStore,
    ) -> FileDelta {
        let mut delta = FileDelta::default();
        let mut touched: BTreeSet<Key> = BTreeSet::new();
        for path in &difference.gone {
            // The objects are not removed yet: another file may contain them, too.
            if let Some(loaded) = self.files.remove(path) {
                self.remove_holder(path, &loaded.keys);
                touched.extend(loaded.keys);
            }
        }
        let changed: HashSet<&Path> = difference.changed.iter().map(PathBuf::as_path).collect();
        for file in files {
            if changed.contains(file.path.as_path()) {
                self.take_file(file, &mut touched, &mut delta);
            }
        }
        // Only after all files are read is it known which file wins each object.
        let order: HashMap<&Path, usize> = files
            .iter()
            .enumerate()
            .map(|(index, file)| (file.path.as_path(), index))
            .collect();
        let mut by_file: BTreeMap<&Path, BTreeSet<&Key>> = BTreeMap::new();
        for key in &touched {
            // If several files contain an object, the last one wins.
            let holders = self.holders.get(key).into_iter().flatten();
            let holder = holders.max_by_key(|path| order.get(path.as_path()));
            match holder {
                Some(path) => {
                    by_file.entry(path).or_default().insert(key);
                }
                None => {
                    let key = key.borrowed();
                    delta.different += usize::from(store.apply(ObjectChange::Remove { key }));
                }
            }
        }
        for (path, keys) in by_file {
            if let Some(loaded) = self.files.get(path) {
                delta.different += set_objects(path, loaded, &keys, store);
            }
        }
        delta
    }

    /// Removes a file from the holders of some objects.
    fn remove_holder(&mut self, path: &Path, keys: &BTreeSet<Key>) {
        for key in keys {
            if let Some(holders) = self.holders.get_mut(key) {
                holders.retain(|it| it != path);
                if holders.is_empty() {
                    self.holders.remove(key);
                }
            }
        }
    }

    fn take_file(&mut self, file: &File, touched: &mut BTreeSet<Key>, delta: &mut FileDelta) {
        let source = source(&file.path, &file.bytes);
        let sources = [source];
        let manifests = read(&sources, Options::default(), &|_| {});
        let mut faults = faults(&sources, &manifests);
        // The lines alone decide what is logged again: a file that is saved with the same errors is
        // quiet.
        let before = self.files.get_mut(&file.path);
        let reported = before.as_ref().map(|it| it.faults.lines.clone());
        let is_reported = reported.unwrap_or_default() == faults.lines;
        match before {
            // Only the errors are replaced: bytes and keys stay those of the last readable content.
            Some(before) if faults.is_unreadable => {
                faults.is_kept = true;
                before.faults = faults.clone();
            }
            before => {
                let keys: BTreeSet<Key> = manifests.objects.iter().filter_map(Key::of).collect();
                let old = before.map(|it| std::mem::take(&mut it.keys));
                if let Some(old) = old {
                    self.remove_holder(&file.path, &old);
                    touched.extend(old);
                }
                for key in &keys {
                    let holders = self.holders.entry(key.clone()).or_default();
                    holders.push(file.path.clone());
                }
                touched.extend(keys.iter().cloned());
                let loaded = LoadedFile {
                    bytes: Arc::clone(&file.bytes),
                    keys,
                    faults: faults.clone(),
                };
                self.files.insert(file.path.clone(), loaded);
            }
        }
        if !is_reported {
            delta.faults.push((file.path.clone(), faults));
        }
    }

    /// Returns the files with unreadable parts.
    pub fn unreadable(&self) -> impl Iterator<Item = &Path> {
        let files = self.files.iter();
        let files = files.filter(|(_, file)| file.faults.is_unreadable);
        files.map(|(path, _)| path.as_path())
    }

    /// Returns the number of errors in all files.
    pub fn errors(&self) -> usize {
        self.files.values().map(|file| file.faults.errors).sum()
    }
}

fn source(path: &Path, bytes: &[u8]) -> Source {
    Source::new(shown(path), bytes.to_vec())
}

/// Returns a path as text that is safe to print.
pub(crate) fn shown(path: &Path) -> String {
    name(&path.to_string_lossy())
}

/// Sets some objects of a file. Returns how many differ for policies.
fn set_objects(
    path: &Path,
    loaded: &LoadedFile,
    keys: &BTreeSet<&Key>,
    store: &mut dyn ObjectStore,
) -> usize {
    // Parsed again from the bytes: objects borrow from their source, and storing them would double
    // the memory of every file.
    let sources = [source(path, &loaded.bytes)];
    let manifests = read(&sources, Options::default(), &|_| {});
    // If a file contains an object twice, the last one wins.
    let mut last: BTreeMap<Key, &Object<'_>> = BTreeMap::new();
    for object in &manifests.objects {
        if let Some(key) = Key::of(object).filter(|key| keys.contains(key)) {
            last.insert(key, object);
        }
    }
    let mut different = 0;
    for (key, object) in last {
        let (key, lowered) = (key.borrowed(), &lower_one(object));
        different += usize::from(store.apply(ObjectChange::Set { key, lowered }));
    }
    different
}

/// The number of problems that are logged for a file or an object.
pub(crate) const MOST_LINES: usize = 20;

fn faults(sources: &[Source], manifests: &Manifests<'_>) -> ObjectErrors {
    let errors: Vec<&Problem> = manifests
        .problems
        .iter()
        .filter(|it| it.is_error())
        .collect();
    let has_unreadable = manifests
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
    // An error without an object, such as a syntax error, may hide any number of objects.
    ObjectErrors {
        lines,
        errors: errors.len(),
        is_unreadable: has_unreadable || errors.iter().any(|it| it.object.is_none()),
        is_kept: false,
    }
}

fn line(sources: &[Source], problem: &Problem) -> String {
    let source = sources.first();
    let position = source.map_or_else(String::new, |source| {
        let (line, column) = Lines::new(source.text()).position(problem.span.start as usize);
        format!("{}:{line}:{column}: ", source.name())
    });
    let help = problem
        .help
        .as_ref()
        .map_or(String::new(), |it| format!(" ({it})"));
    let code = problem.code.name();
    format!("{position}{code}: {}{help}", problem.message)
}
