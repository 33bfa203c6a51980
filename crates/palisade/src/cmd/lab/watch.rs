//! `palisade lab --watch`: a lab that follows its files.

mod screen;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::SystemTime;

use anyhow::{Context, bail};
use palisade_api::{MAX_SOURCE_BYTES, Source};
use palisade_lab::visit::{AnnouncedLab, announce};
use palisade_watch::list::read_bounded;
use palisade_watch::{File, FileChanges, Files, Options, Root, WaitResult};

use self::screen::Screen;
use super::change::{ChangedFiles, RoundChange};
use super::round::{self, Round, RoundInput, StandingLab};
use crate::Outcome;
use crate::args::{Cli, LabArgs};
use crate::draw::clean;
use crate::flows;
use crate::signals::Signals;
use crate::source::{self, Inputs};

/// Measures whenever a file changes, until somebody interrupts it.
pub(super) fn run(args: &LabArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    let mut watched = WatchedInputs::open(args)?;
    let signals = Signals::hold()?;
    let mut following = WatchRounds {
        args,
        cli,
        screen: Screen::new(args, cli),
        standing: None,
        _announced: None,
        last: None,
        outcome: Arc::new(AtomicU8::new(Outcome::Unanswered.code())),
    };
    signals.end_by(watched.files.stopper(), Arc::clone(&following.outcome))?;
    let mut files = ChangedFiles::default();
    let mut is_next = true;
    loop {
        if is_next && following.round(&watched, &files)? {
            files = ChangedFiles::default();
        }
        match watched.files.wait(None)? {
            WaitResult::Nothing => is_next = false,
            WaitResult::Stopped => return Ok(following.outcome()),
            WaitResult::Changed(difference) => {
                is_next = !(difference.changed.is_empty() && difference.gone.is_empty());
                // A round tells them itself.
                if difference.troubles && !is_next {
                    following.screen.print(&watched.describe_change())?;
                }
                files.add(watched.names(&difference));
            }
        }
    }
}

/// The rounds so far.
struct WatchRounds<'a> {
    args: &'a LabArgs,
    cli: &'a Cli,
    screen: Screen,
    standing: Option<StandingLab>,
    /// So that visitors find the lab.
    _announced: Option<AnnouncedLab>,
    /// The last round that came to an end.
    last: Option<Round>,
    /// What it means for the exit code.
    outcome: Arc<AtomicU8>,
}

impl WatchRounds<'_> {
    /// Does a round and shows it. Says whether it came to an end; otherwise why not has been told, and what
    /// was in force stays in force.
    fn round(&mut self, watched: &WatchedInputs, files: &ChangedFiles) -> anyhow::Result<bool> {
        let (args, cli) = (self.args, self.cli);
        let at = SystemTime::now();
        let mut told = watched.troubles().into_bytes();
        let done = watched
            .round_input(args)
            .and_then(|given| round::go(args, cli, given, &mut self.standing, &mut told));
        let mut round = match done {
            Ok(Some(round)) => round,
            Ok(None) => {
                self.screen.keep(&told, self.last.is_some())?;
                return Ok(false);
            }
            Err(error) => {
                told.extend(format!("palisade: {error:#}\n").into_bytes());
                self.screen.keep(&told, self.last.is_some())?;
                return Ok(false);
            }
        };
        if let Some(standing) = &self.standing {
            self._announced = Some(announce(standing.lab.world(), &round.places)?);
        }
        let last = self.last.take();
        let change =
            last.map(|last| RoundChange::between(&last.probes, &mut round, files.clone(), at));
        if round.probes.iter().all(|probe| probe.measured.is_none()) {
            told.extend(b"palisade: no flow could be measured with packets\n");
        }
        let outcome = super::compared(args, &round);
        self.outcome.store(outcome.code(), Ordering::Relaxed);
        self.screen.show(&round, change.as_ref(), &told)?;
        self.last = Some(round);
        Ok(true)
    }

    fn outcome(&self) -> Outcome {
        match &self.last {
            Some(round) => super::compared(self.args, round),
            None => Outcome::Unanswered,
        }
    }
}

/// Everything that is read: manifests, flows and names that have resolved.
struct WatchedInputs {
    files: Files,
    /// What each root is for.
    uses: Vec<(PathBuf, Use)>,
    /// What came by standard input, which is read once.
    input: Option<Arc<Vec<u8>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Manifests,
    Flows,
    Names,
}

impl WatchedInputs {
    fn open(args: &LabArgs) -> anyhow::Result<WatchedInputs> {
        let input = &args.cluster.input;
        let manifests = input.filename.iter().map(|path| (path, Use::Manifests));
        let flows = args.flows.iter().map(|path| (path, Use::Flows));
        let names = args.cluster.dns.iter().map(|path| (path, Use::Names));
        let uses: Vec<(PathBuf, Use)> = manifests
            .chain(flows)
            .chain(names)
            .map(|(path, what)| (path.clone(), what))
            .collect();
        let n_inputs = uses.iter().filter(|(path, what)| is_input(path, *what));
        let input_bytes = match n_inputs.count() {
            0 => None,
            1 => {
                let bytes = read_bounded(std::io::stdin().lock(), MAX_SOURCE_BYTES);
                Some(Arc::new(bytes.context("cannot read standard input")?))
            }
            _ => bail!("standard input can hold the objects or the flows, and only once"),
        };
        let roots = uses.iter().map(|(path, what)| Root {
            // What no path leads to has no files.
            path: if is_input(path, *what) {
                PathBuf::from("/dev/null")
            } else {
                path.clone()
            },
            recursive: input.recursive && *what == Use::Manifests,
        });
        let options = Options {
            most_bytes: MAX_SOURCE_BYTES,
            ..Options::default()
        };
        let files = Files::open(roots.collect(), options).context("cannot watch files")?;
        if let Some(trouble) = files.troubles().first() {
            bail!("cannot read {}: {}", trouble.path.display(), trouble.error);
        }
        for (number, (path, _)) in uses.iter().enumerate() {
            if files.iter().all(|file| file.root != number) {
                return Err(source::no_manifests(path, input.recursive));
            }
        }
        for trouble in files.unwatched() {
            anstream::eprintln!(
                "palisade: changes are found late: cannot watch {}: {}",
                clean(&trouble.path.display().to_string()),
                trouble.error
            );
        }
        Ok(WatchedInputs {
            files,
            uses,
            input: input_bytes,
        })
    }

    /// What the files say now.
    fn round_input(&self, args: &LabArgs) -> anyhow::Result<RoundInput> {
        let mut given = RoundInput {
            inputs: Inputs::default(),
            flows: args.flows.as_ref().map(|_| Vec::new()),
            learned: Vec::new(),
        };
        for File { path, root, bytes } in self.files.iter() {
            let Some((named, what)) = self.uses.get(*root) else {
                continue;
            };
            let input = self.input.as_ref().filter(|_| is_input(named, *what));
            let (path, bytes) = match input {
                Some(input) => (named.as_path(), input),
                None => (path.as_path(), bytes),
            };
            match what {
                Use::Manifests => {
                    let name = path.display().to_string();
                    let source = Source::new(name, bytes.as_ref().clone());
                    given.inputs.sources.push(source);
                }
                Use::Flows => given.flows = Some(flows::parse(&String::from_utf8_lossy(bytes))),
                Use::Names => {
                    let text = String::from_utf8_lossy(bytes);
                    given.learned = crate::cluster::learned_of(path, &text)?;
                }
            }
        }
        Ok(given)
    }

    /// What cannot be read, for people.
    fn troubles(&self) -> String {
        let line = |it: &palisade_watch::AccessError| {
            let path = clean(&it.path.display().to_string());
            let error = &it.error;
            format!("palisade: cannot read {path}: {error}; what it held stays in force\n")
        };
        self.files.troubles().iter().map(line).collect()
    }

    /// What to say of files that can or cannot be read any more, and hold what they held.
    fn describe_change(&self) -> String {
        match self.troubles() {
            none if none.is_empty() => "palisade: all files can be read again\n".to_owned(),
            some => some,
        }
    }

    fn names(&self, difference: &FileChanges) -> ChangedFiles {
        let name = |path: &PathBuf| {
            let below = self.uses.iter().find_map(|(root, _)| {
                let below = path.strip_prefix(root).ok()?;
                Some(below).filter(|it| !it.as_os_str().is_empty())
            });
            let name = below.or(path.file_name().map(Path::new)).unwrap_or(path);
            name.display().to_string()
        };
        ChangedFiles {
            changed: difference.changed.iter().map(name).collect(),
            gone: difference.gone.iter().map(name).collect(),
        }
    }
}

/// Whether it stands for standard input.
fn is_input(path: &Path, what: Use) -> bool {
    path.as_os_str() == "-" && what != Use::Names
}
