//! What there is to read: the files that `-f` names, the live cluster, or both; read into memory.

use std::io::Read;
use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use palisade_api::{MAX_SOURCE_BYTES, Source};
use palisade_watch::list::{list, read_bounded, read_file};
use palisade_watch::{Listing, Root};

use crate::args::{Cli, InputArgs};
use crate::live::{Live, Needs, UnreadKind};
use crate::progress::Progress;

/// Everything that was named.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// What could be opened: files, then what the cluster has.
    pub(crate) sources: Vec<Source>,
    /// Whether the live cluster was read.
    pub(crate) is_live: bool,
    /// How many of the sources are the cluster's.
    pub(crate) n_live: usize,
    /// What could not be opened, and why.
    pub(crate) unreadable: Vec<(String, std::io::Error)>,
    /// What the cluster did not let be read.
    pub(crate) missing: Vec<UnreadKind>,
}

impl Inputs {
    /// How much there is to read.
    pub(crate) fn bytes(&self) -> usize {
        self.sources.iter().map(|source| source.text().len()).sum()
    }
}

/// Opens and reads the files, and what is needed of the live cluster. A file that cannot be opened does not keep the others
/// from it.
pub(crate) fn collect(args: &InputArgs, cli: &Cli, needs: &Needs<'_>) -> anyhow::Result<Inputs> {
    collected(args, || read_live(args, cli, needs))
}

/// [`collect`], with another way to what the live cluster has.
pub(crate) fn collected(
    args: &InputArgs,
    live: impl FnOnce() -> anyhow::Result<Live>,
) -> anyhow::Result<Inputs> {
    let mut inputs = of_files(args)?;
    if args.is_live() {
        let Live { sources, missing } = live()?;
        inputs.is_live = true;
        inputs.n_live = sources.len();
        inputs.sources.extend(sources);
        inputs.missing = missing;
    } else if let Some(option) = args.live.typed() {
        bail!(
            "{option} is about the live cluster, and -f reads files only; add --with-cluster to read both"
        );
    }
    Ok(inputs)
}

/// Reads what is needed of the live cluster.
pub(crate) fn read_live(args: &InputArgs, cli: &Cli, needs: &Needs<'_>) -> anyhow::Result<Live> {
    let access = args.live.access();
    Progress::during("reading the cluster", !cli.quiet, || {
        crate::live::read(&access, needs)
    })
}

/// Opens and reads the files alone.
pub(crate) fn of_files(args: &InputArgs) -> anyhow::Result<Inputs> {
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

/// Fails if there are no files.
pub(crate) fn files_named(args: &InputArgs) -> anyhow::Result<()> {
    ensure!(
        !args.is_live(),
        "--watch follows files, and not a cluster: name manifests with -f FILE or -f DIR, without --with-cluster"
    );
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
        let bytes = std::fs::File::open(path);
        let bytes = bytes.and_then(|file| read_file(&file, MAX_SOURCE_BYTES));
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
