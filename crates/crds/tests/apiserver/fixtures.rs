//! The documents of this repository that have policies, and the problems that `check` reports of
//! each.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use palisade_api::{Options, Severity, Source, read};
use palisade_crds::Channel;

/// A document.
#[derive(Debug)]
pub(crate) struct Fixture {
    /// The file it is from.
    pub(crate) file: String,
    pub(crate) text: String,
    pub(crate) namespace: Option<String>,
    /// Whether it has an object of a kind that an API server can store.
    pub(crate) is_object: bool,
    /// Whether it is of the draft of 2021.
    pub(crate) is_legacy: bool,
    problems: Vec<(Severity, &'static str, String)>,
}

impl Fixture {
    fn read(file: String, text: String) -> Fixture {
        let sources = [Source::new("document.yaml", text.clone().into_bytes())];
        let manifests = read(&sources, Options::default(), &|_| {});
        let object = manifests.objects.first();
        let problems = manifests.problems.iter();
        Fixture {
            file,
            is_legacy: apis(&text) == Some("networking.k8s.io/v1alpha1"),
            namespace: object.and_then(|it| it.metadata.namespace.as_deref().map(str::to_owned)),
            is_object: object.is_some(),
            problems: problems
                .map(|it| (it.severity(), it.code.name(), it.message.clone()))
                .collect(),
            text,
        }
    }

    /// The codes of its errors.
    pub(crate) fn errors(&self) -> BTreeSet<&'static str> {
        let errors = self.problems.iter().filter(|it| it.0 == Severity::Error);
        errors.map(|it| it.1).collect()
    }

    /// Whether `check` reports that a cluster with the CRDs of a channel rejects it.
    pub(crate) fn is_refused(&self, channel: Channel) -> bool {
        let is_ours = channel == Channel::Palisade;
        self.problems
            .iter()
            .any(|(severity, code, message)| match *code {
                "CHANNEL" => {
                    (message.starts_with("the standard channel has no")
                        && channel == Channel::Standard)
                        || (message.starts_with("only the palisade channel") && !is_ours)
                        || (message.contains("is rejected by the experimental channel")
                            && channel == Channel::Experimental)
                }
                "ANP-PRUNED-WIDE" => !is_ours,
                _ => *severity == Severity::Error,
            })
    }
}

/// The apiVersion of a document.
fn apis(text: &str) -> Option<&str> {
    let line = text.lines().find_map(|it| it.strip_prefix("apiVersion:"))?;
    Some(line.trim().trim_matches('"'))
}

/// Every policy in the files of the repository, each text once.
pub(crate) fn fixtures() -> Vec<Fixture> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for directory in ["crates/api/tests", "cases", "examples", "docs"] {
        yaml_files(&root.join(directory), &mut files);
    }
    files.sort();
    let mut seen = BTreeSet::new();
    let mut fixtures = Vec::new();
    for path in files {
        let Ok(text) = std::fs::read_to_string(&path) else {
            continue;
        };
        let file = path.strip_prefix(&root).unwrap().display().to_string();
        for document in documents(&text) {
            if is_policy(&document) && seen.insert(document.clone()) {
                fixtures.push(Fixture::read(file.clone(), document));
            }
        }
    }
    fixtures
}

fn yaml_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in directory.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            yaml_files(&path, files);
        } else if path.extension().is_some_and(|it| it == "yaml") {
            files.push(path);
        }
    }
}

fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        if line.trim_end() == "---" {
            documents.push(String::new());
        } else {
            let document = documents.last_mut().unwrap();
            document.push_str(line);
            document.push('\n');
        }
    }
    documents
}

/// Policies that an API server can store; 2016 policies exist in files only.
fn is_policy(document: &str) -> bool {
    let kinds = [
        "NetworkPolicy",
        "AdminNetworkPolicy",
        "BaselineAdminNetworkPolicy",
        "ClusterNetworkPolicy",
        "DefaultNetworkPolicy",
    ];
    let kind = document.lines().find_map(|it| it.strip_prefix("kind:"));
    let is_kind = kind.is_some_and(|it| kinds.contains(&it.trim()));
    let group = apis(document).unwrap_or_default();
    is_kind && group.contains("networking.k8s.io/")
}
