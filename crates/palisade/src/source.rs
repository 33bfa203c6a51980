//! Reads the inputs into memory: the files of `-f`, the live cluster, or both.

use std::io::Read;
use std::path::Path;

use anyhow::{anyhow, bail, ensure};
use palisade_api::{MAX_SOURCE_BYTES, OtherPolicies, Source};
use palisade_watch::list::{list, read_bounded, read_file};
use palisade_watch::{Listing, Root};

use crate::args::{Cli, InputArgs};
use crate::live::{LiveInput, Needs, UnreadKind};
use crate::progress::Progress;

/// The inputs of a command.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
    /// The readable sources: files, then those of the cluster.
    pub(crate) sources: Vec<Source>,
    /// Whether the live cluster was read.
    pub(crate) is_live: bool,
    /// The number of sources of the cluster.
    pub(crate) n_live: usize,
    /// The unreadable files, and why.
    pub(crate) unreadable: Vec<(String, std::io::Error)>,
    /// The kinds that the cluster refused to list.
    pub(crate) missing: Vec<UnreadKind>,
    /// The policies of other vendors in the cluster.
    pub(crate) other_policies: OtherPolicies,
}

impl Inputs {
    /// Returns the size of the inputs.
    pub(crate) fn bytes(&self) -> usize {
        self.sources.iter().map(|source| source.text().len()).sum()
    }
}

/// Reads the files and the live cluster. An unreadable file does not stop the others.
pub(crate) fn collect(args: &InputArgs, cli: &Cli, needs: &Needs<'_>) -> anyhow::Result<Inputs> {
    collected(args, || read_live(args, cli, needs))
}

/// Like [`collect`], with another way to read the live cluster.
pub(crate) fn collected(
    args: &InputArgs,
    live: impl FnOnce() -> anyhow::Result<LiveInput>,
) -> anyhow::Result<Inputs> {
    let mut inputs = of_files(args)?;
    if args.is_live() {
        let LiveInput {
            sources,
            missing,
            other_policies,
        } = live()?;
        inputs.is_live = true;
        inputs.n_live = sources.len();
        inputs.sources.extend(sources);
        inputs.missing = missing;
        inputs.other_policies = other_policies;
    } else if let Some(option) = args.live.typed() {
        bail!("{option} needs the live cluster; add --with-cluster");
    }
    Ok(inputs)
}

/// Reads the live cluster.
pub(crate) fn read_live(
    args: &InputArgs,
    cli: &Cli,
    needs: &Needs<'_>,
) -> anyhow::Result<LiveInput> {
    let access = args.live.access();
    Progress::during("reading the cluster", !cli.quiet, || {
        crate::live::read(&access, needs)
    })
}

/// Reads the files only.
pub(crate) fn of_files(args: &InputArgs) -> anyhow::Result<Inputs> {
    let mut inputs = Inputs::default();
    for path in &args.filename {
        if path.as_os_str() == "-" {
            let bytes = read(std::io::stdin().lock());
            if let Ok(bytes) = &bytes {
                require_content(bytes)?;
            }
            inputs.add("-", bytes);
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

/// Fails if standard input has no content: a program before the pipe has probably failed.
pub(crate) fn require_content(bytes: &[u8]) -> anyhow::Result<()> {
    ensure!(
        !bytes.trim_ascii().is_empty(),
        "standard input is empty; pipe manifests in, or name files with -f"
    );
    Ok(())
}

/// Fails if the input is not files only.
pub(crate) fn files_named(args: &InputArgs) -> anyhow::Result<()> {
    ensure!(
        !args.is_live(),
        "--watch follows files, not a cluster; name manifests with -f FILE or -f DIR, without --with-cluster"
    );
    Ok(())
}

/// Returns the error for a directory without manifests.
pub(crate) fn no_manifests(path: &Path, recursive: bool) -> anyhow::Error {
    let advice = if recursive {
        ""
    } else {
        "; add -R to read the directories below it"
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
