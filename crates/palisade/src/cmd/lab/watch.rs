//! `palisade lab --watch`: a lab that follows its files.

mod screen;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::SystemTime;

use anyhow::{Context, bail};
use palisade_api::{MAX_SOURCE_BYTES, Source};
use palisade_core::query::DEFAULT_NAMESPACE;
use palisade_lab::visit::{AnnouncedLab, announce};
use palisade_watch::list::read_bounded;
use palisade_watch::{File, FileChanges, Files, Options, Root, WaitResult};

use self::screen::Screen;
use super::round::{self, RoundInput, StandingLab};
use crate::Outcome;
use crate::args::{Cli, LabArgs};
use crate::draw::clean;
use crate::flows;
use crate::report::lab::{ChangedFiles, Round, RoundChange};
use crate::signals::Signals;
use crate::source::{self, Inputs};

/// Measures after each change of a file, until a signal ends it.
pub(super) fn run(args: &LabArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    let mut watched = WatchedInputs::open(args)?;
    let signals = Signals::hold()?;
    let mut rounds = WatchRounds {
        args,
        cli,
        screen: Screen::new(args, cli),
        standing: None,
        _announced: None,
        last: None,
        outcome: Arc::new(AtomicU8::new(Outcome::Unanswered.code())),
    };
    signals.end_by(watched.files.stopper(), Arc::clone(&rounds.outcome))?;
    let mut files = ChangedFiles::default();
    let mut is_due = true;
    loop {
        if is_due && rounds.round(&watched, &files)? {
            files = ChangedFiles::default();
        }
        match watched.files.wait(None)? {
            WaitResult::Nothing => is_due = false,
            WaitResult::Stopped => return Ok(rounds.outcome()),
            WaitResult::Changed(difference) => {
                is_due = !(difference.changed.is_empty() && difference.gone.is_empty());
                // A round prints the errors itself.
                if difference.troubles && !is_due {
                    rounds.screen.print(&watched.describe_change())?;
                }
                files.add(watched.names(&difference));
            }
        }
    }
}

/// The state that rounds share.
struct WatchRounds<'a> {
    args: &'a LabArgs,
    cli: &'a Cli,
    screen: Screen,
    standing: Option<StandingLab>,
    /// Announces the lab to `lab exec` and `lab shell` until it is dropped.
    _announced: Option<AnnouncedLab>,
    /// The last complete round.
    last: Option<Round>,
    /// The exit code of the last complete round, for the thread of signals.
    outcome: Arc<AtomicU8>,
}

impl WatchRounds<'_> {
    /// Runs a round and shows it. Returns false if it was not completed; the reason is printed, and
    /// the installed policies stay.
    fn round(&mut self, watched: &WatchedInputs, files: &ChangedFiles) -> anyhow::Result<bool> {
        let (args, cli) = (self.args, self.cli);
        let at = SystemTime::now();
        let mut messages = watched.troubles().into_bytes();
        let done = watched
            .round_input(args)
            .and_then(|input| round::go(args, cli, input, &mut self.standing, &mut messages));
        let mut round = match done {
            Ok(Some(round)) => round,
            Ok(None) => {
                self.screen.keep(&messages, self.last.is_some())?;
                return Ok(false);
            }
            Err(error) => {
                messages.extend(format!("palisade: {error:#}\n").into_bytes());
                self.screen.keep(&messages, self.last.is_some())?;
                return Ok(false);
            }
        };
        if let Some(standing) = &self.standing {
            self._announced = Some(announce(standing.lab.world(), &standing.places)?);
        }
        let last = self.last.take();
        let change =
            last.map(|last| RoundChange::between(&last.probes, &mut round, files.clone(), at));
        if !round.is_measured() {
            messages.extend(b"palisade: no flow could be measured with packets\n");
        }
        let outcome = super::compared(args, &round);
        self.outcome.store(outcome.code(), Ordering::Relaxed);
        self.screen.show(&round, change.as_ref(), &messages)?;
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

/// The watched inputs: manifests, flows, and learned names.
struct WatchedInputs {
    files: Files,
    /// Each path, and its use.
    uses: Vec<(PathBuf, Use)>,
    /// The content of standard input, which can be read only once.
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
                let bytes = bytes.context("cannot read standard input")?;
                if input.filename.iter().any(|it| it.as_os_str() == "-") {
                    source::require_content(&bytes)?;
                }
                Some(Arc::new(bytes))
            }
            _ => bail!("only one argument can be `-`"),
        };
        let roots = uses.iter().map(|(path, what)| Root {
            // Standard input has no path to watch. An empty file stands in for it.
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
                "palisade: cannot watch {}: {}; changes are found by polling",
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

    /// Parses the current content of the files.
    fn round_input(&self, args: &LabArgs) -> anyhow::Result<RoundInput> {
        let mut parsed = RoundInput {
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
                    parsed.inputs.sources.push(source);
                }
                Use::Flows => {
                    let (name, text) = (path.display().to_string(), String::from_utf8_lossy(bytes));
                    let lines = flows::parse(&clean(&name), &text, DEFAULT_NAMESPACE);
                    parsed.flows = Some(lines);
                }
                Use::Names => {
                    let text = String::from_utf8_lossy(bytes);
                    parsed.learned = crate::cluster::learned_of(path, &text)?;
                }
            }
        }
        Ok(parsed)
    }

    /// Returns the messages for unreadable files.
    fn troubles(&self) -> String {
        let line = |it: &palisade_watch::AccessError| {
            let path = clean(&it.path.display().to_string());
            let error = &it.error;
            format!("palisade: cannot read {path}: {error}; its previous content is used\n")
        };
        self.files.troubles().iter().map(line).collect()
    }

    /// Returns the messages after files became readable or unreadable without a change of content.
    fn describe_change(&self) -> String {
        match self.troubles() {
            none if none.is_empty() => "palisade: all files are readable again\n".to_owned(),
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
            removed: difference.gone.iter().map(name).collect(),
        }
    }
}

/// Reports whether a path is standard input. `--dns` takes files only.
fn is_input(path: &Path, what: Use) -> bool {
    path.as_os_str() == "-" && what != Use::Names
}
