//! Files: what `-f` names, read into memory.

use std::io::Read;
use std::path::Path;

use anyhow::{anyhow, bail};
use palisade_api::{MAX_SOURCE_BYTES, Source};
use palisade_watch::list::{list, read_bounded};
use palisade_watch::{Listing, Root};

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
    something_named(args)?;
    let mut inputs = Inputs::default();
    for path in &args.filename {
        if path.as_os_str() == "-" {
            inputs.add("-", read(std::io::stdin().lock()));
            continue;
        }
        let Listing {
            files,
            troubles,
            is_directory,
        } = list(&Root {
            path: path.clone(),
            recursive: args.recursive,
        });
        let is_open = troubles.is_empty();
        let unreadable = troubles.into_iter();
        let unreadable = unreadable.map(|it| (it.path.display().to_string(), it.error));
        inputs.unreadable.extend(unreadable);
        if files.is_empty() && is_directory && is_open {
            return Err(no_manifests(path, args.recursive));
        }
        for file in files {
            inputs.open(&file);
        }
    }
    Ok(inputs)
}

/// Fails if there is nothing to read.
pub(crate) fn something_named(args: &InputArgs) -> anyhow::Result<()> {
    if args.filename.is_empty() {
        bail!(
            "nothing to read: name manifests with -f FILE, -f DIR or -f - \
             (this version does not read from a cluster; use `kubectl get ... -o yaml | palisade ... -f -`)"
        );
    }
    Ok(())
}

/// That a directory has no manifests.
pub(crate) fn no_manifests(path: &Path, recursive: bool) -> anyhow::Error {
    let advice = if recursive {
        ""
    } else {
        "; use -R to look into the directories below it"
    };
    anyhow!(
        "no .yaml, .yml or .json files in {}{advice}",
        path.display()
    )
}

impl Inputs {
    fn open(&mut self, path: &Path) {
        let bytes = std::fs::File::open(path).and_then(read);
        self.add(&path.display().to_string(), bytes);
    }

    fn add(&mut self, name: &str, bytes: std::io::Result<Vec<u8>>) {
        match bytes {
            Ok(bytes) => self.sources.push(Source::new(name, bytes)),
            Err(error) => self.unreadable.push((name.to_owned(), error)),
        }
    }
}

fn read(file: impl Read) -> std::io::Result<Vec<u8>> {
    read_bounded(file, MAX_SOURCE_BYTES)
}
