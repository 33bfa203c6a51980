//! The inputs of a comparison: files, a revision, the live cluster, or files laid over one of them.

use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::args::diff::DiffArgs;
use crate::args::{Cli, InputArgs};
use crate::draw::clean;
use crate::git;
use crate::live::{Needs, RelevantKinds, Scope, check_unread};
use crate::source::{Inputs, collect, of_files};

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DiffInput {
    Cluster,
    Git { revision: String, path: String },
    Path(PathBuf),
}

impl DiffInput {
    /// Parses the sides: two, or one that files are laid over.
    pub(super) fn both(args: &DiffArgs) -> anyhow::Result<Vec<DiffInput>> {
        if args.live.with_cluster {
            bail!(
                "--with-cluster is not needed here: `palisade diff cluster -f FILE` lays files over the cluster"
            );
        }
        match (args.sides.as_slice(), args.filename.is_empty()) {
            ([_, _], true) | ([_], false) => {}
            ([one], true) => bail!(
                "{} has no second side; name one, or lay files over it with -f",
                clean(one)
            ),
            (_, false) => bail!("-f lays files over one side; name one side only"),
            (_, true) => bail!("name two sides"),
        }
        let sides = args.sides.iter().map(|text| DiffInput::parse(text));
        let sides = sides.collect::<anyhow::Result<Vec<DiffInput>>>()?;
        let is_live = sides.contains(&DiffInput::Cluster);
        if let Some(option) = args.live.typed().filter(|_| !is_live) {
            bail!("{option} needs the live cluster, and neither side is `cluster`");
        }
        Ok(sides)
    }

    fn parse(text: &str) -> anyhow::Result<DiffInput> {
        if text == "cluster" {
            return Ok(DiffInput::Cluster);
        }
        let Some(rest) = text.strip_prefix("git:") else {
            return Ok(DiffInput::Path(PathBuf::from(text)));
        };
        // A path may contain colons; a revision may not.
        match rest.split_once(':') {
            Some((revision, path)) if !revision.is_empty() => Ok(DiffInput::Git {
                revision: revision.to_owned(),
                path: path.to_owned(),
            }),
            _ => bail!(
                "{} is not git:REV:PATH, as in git:main:deploy/",
                clean(text)
            ),
        }
    }

    fn read(&self, args: &DiffArgs, cli: &Cli) -> anyhow::Result<Inputs> {
        match self {
            DiffInput::Path(path) => files(std::slice::from_ref(path), args, cli),
            DiffInput::Git { revision, path } => Ok(Inputs {
                sources: git::read(revision, path, args.recursive)?,
                ..Inputs::default()
            }),
            DiffInput::Cluster => {
                let input = InputArgs {
                    live: args.live.clone(),
                    ..InputArgs::default()
                };
                let needs = Needs {
                    scope: Scope::Everything,
                    namespaces: &[],
                };
                let inputs = collect(&input, cli, &needs)?;
                let messages = &mut anstream::stderr();
                check_unread(
                    &inputs.missing,
                    &RelevantKinds::everything(),
                    args.lenient,
                    messages,
                )?;
                Ok(inputs)
            }
        }
    }
}

fn files(paths: &[PathBuf], args: &DiffArgs, _: &Cli) -> anyhow::Result<Inputs> {
    let input = InputArgs {
        filename: paths.to_vec(),
        recursive: args.recursive,
        ..InputArgs::default()
    };
    let inputs = of_files(&input)?;
    if let Some((path, error)) = inputs.unreadable.first() {
        bail!("cannot read {}: {error}", clean(path));
    }
    Ok(inputs)
}

/// Reads the inputs of both sides.
pub(super) fn both(sides: &[DiffInput], args: &DiffArgs, cli: &Cli) -> anyhow::Result<[Inputs; 2]> {
    let is_stdin = |it: &&Path| it.as_os_str() == "-";
    let paths = sides.iter().filter_map(|side| match side {
        DiffInput::Path(path) => Some(path.as_path()),
        DiffInput::Cluster | DiffInput::Git { .. } => None,
    });
    let paths = paths.chain(args.filename.iter().map(PathBuf::as_path));
    if paths.filter(is_stdin).count() > 1 {
        bail!("only one argument can be `-`");
    }
    if let [old, new] = sides {
        // Reading large files takes as long as comparing them: both sides are read in parallel.
        let (old, new) = rayon::join(|| old.read(args, cli), || new.read(args, cli));
        return Ok([old?, new?]);
    }
    let Some(base) = sides.first() else {
        bail!("name a side");
    };
    let old = base.read(args, cli)?;
    let mut new = files(&args.filename, args, cli)?;
    // `read_over` expects the upper files first. The base counts as the cluster, whatever it is.
    new.n_live = old.sources.len();
    new.is_live = old.is_live;
    new.sources.extend(old.sources.iter().cloned());
    new.missing.clone_from(&old.missing);
    new.other_policies.clone_from(&old.other_policies);
    Ok([old, new])
}
