//! Files: what `-f` names, read into memory.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::bail;
use palisade_api::{MAX_SOURCE_BYTES, Source};

use crate::args::InputArgs;

/// Everything that `-f` named.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// What could be opened.
    pub(crate) sources: Vec<Source>,
    /// What could not, and why.
    pub(crate) unreadable: Vec<(String, std::io::Error)>,
}

impl Inputs {
    /// How much there is to read.
    pub(crate) fn bytes(&self) -> usize {
        self.sources.iter().map(|source| source.text().len()).sum()
    }
}

/// Opens and reads the files. A file that cannot be opened does not keep the others from it.
pub(crate) fn collect(args: &InputArgs) -> anyhow::Result<Inputs> {
    if args.filename.is_empty() {
        bail!(
            "nothing to read: name manifests with -f FILE, -f DIR or -f - \
             (this version does not read from a cluster; use `kubectl get ... -o yaml | palisade ... -f -`)"
        );
    }
    let mut inputs = Inputs::default();
    for path in &args.filename {
        if path.as_os_str() == "-" {
            inputs.add("-", read_bounded(std::io::stdin().lock()));
            continue;
        }
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {
                let mut seen = BTreeSet::new();
                let mut files = Vec::new();
                directory(path, args.recursive, &mut seen, &mut files, &mut inputs);
                if files.is_empty() && inputs.unreadable.is_empty() {
                    let advice = if args.recursive {
                        ""
                    } else {
                        "; use -R to look into the directories below it"
                    };
                    bail!(
                        "no .yaml, .yml or .json files in {}{advice}",
                        path.display()
                    );
                }
                for file in files {
                    inputs.open(&file);
                }
            }
            Ok(_) => inputs.open(path),
            Err(error) => inputs.unreadable.push((path.display().to_string(), error)),
        }
    }
    Ok(inputs)
}

impl Inputs {
    fn open(&mut self, path: &Path) {
        let bytes = std::fs::File::open(path).and_then(read_bounded);
        self.add(&path.display().to_string(), bytes);
    }

    fn add(&mut self, name: &str, bytes: std::io::Result<Vec<u8>>) {
        match bytes {
            Ok(bytes) => self.sources.push(Source::new(name, bytes)),
            Err(error) => self.unreadable.push((name.to_owned(), error)),
        }
    }
}

/// Reads to the end, or just past the limit: a device may have no end.
fn read_bounded(file: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(MAX_SOURCE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The manifests of a directory, sorted by name. Links to directories are followed once; pipes and
/// devices are left alone.
fn directory(
    path: &Path,
    recursive: bool,
    seen: &mut BTreeSet<PathBuf>,
    files: &mut Vec<PathBuf>,
    inputs: &mut Inputs,
) {
    let entries = std::fs::canonicalize(path).and_then(|real| {
        if seen.insert(real) {
            std::fs::read_dir(path).map(Some)
        } else {
            Ok(None)
        }
    });
    let entries = match entries {
        Ok(Some(entries)) => entries,
        Ok(None) => return,
        Err(error) => return inputs.unreadable.push((path.display().to_string(), error)),
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|it| it.ok().map(|entry| entry.path()))
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if recursive {
                directory(&path, recursive, seen, files, inputs);
            }
        } else if path.is_file() && is_manifest(&path) {
            files.push(path);
        }
    }
}

fn is_manifest(path: &Path) -> bool {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    [".yaml", ".yml", ".json"]
        .iter()
        .any(|ending| name.ends_with(ending))
}
