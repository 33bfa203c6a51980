//! F04: whoever programs the kernel is killed, at any moment and at every call, and comes back to other
//! objects. Meanwhile nothing leaks and nothing is lost; afterwards the kernel has what the objects say.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser};
use palisade_agent::{Config, drive};
use palisade_nft::Kernel;

use super::churn::{ChurnFlows, ChurningCluster, KINDS, Kind};
use super::deltas::{Deltas, Running};
use super::errno::{narrower, states};
use super::ledger::Expected;
use super::matrix::Matrix;
use super::objects::NODE;
use super::outcome::Outcome;
use super::process::{self, Directory};
use super::programming::{Programming, Swap};
use super::script::{Happens, Script};
use super::test_node::TestNode;
use palisade_generate::Rng;

/// What the process that is to be killed does.
#[derive(Args, Clone, Debug)]
pub struct VictimArgs {
    /// Be the agent itself, with this directory as its source
    #[arg(long)]
    source: Option<PathBuf>,
    /// Change what is different only
    #[arg(long)]
    deltas: bool,
    /// The seed of the town
    #[arg(default_value_t = 0)]
    seed: u64,
    /// How many changes it has seen before
    #[arg(long, default_value_t = 0)]
    changes: u64,
    /// Make one change, of the kind with this number, and end at a call
    #[arg(long)]
    kind: Option<usize>,
    /// The call
    #[arg(long, default_value_t = 0)]
    call: u64,
    /// End after the call instead of before it
    #[arg(long)]
    after: bool,
}

/// The word that makes this program the one that is to be killed.
pub const VICTIM: &str = "faults-victim";
/// A victim that nobody kills ends by itself.
const LONGEST: Duration = Duration::from_secs(60);

/// For tests that are their own victims: whether this program was started as one, which has ended then.
pub fn was_victim() -> Result<bool> {
    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        args: VictimArgs,
    }
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    if words.next().as_deref() != Some(VICTIM) {
        return Ok(false);
    }
    let Words { args } = Words::parse_from(std::iter::once(program).chain(words));
    victim(&args)?;
    Ok(true)
}

/// Programs the kernel of the namespace it is in until it is killed.
pub fn victim(args: &VictimArgs) -> Result<()> {
    if let Some(source) = &args.source {
        return Ok(drive::run(Config::new(NODE), &agents_world(source))?);
    }
    let script = Script::default();
    let kernel = Kernel::open()?.with_faults(Box::new(script.clone()));
    let mut programming = open(kernel, args.deltas)?;
    if let Some(kind) = args.kind {
        let kind = *KINDS.get(kind).context("there is no such kind")?;
        let (old, new) = states(kind, args.seed);
        programming.apply(&old)?;
        let event = match args.after {
            true => Happens::EndAfter,
            false => Happens::EndBefore,
        };
        script.arm(Some((args.call, event)));
        return programming.apply(&new);
    }
    let mut town = ChurningCluster::new(args.seed);
    for _ in 0..args.changes {
        town.change();
    }
    let started = Instant::now();
    let mut stdout = std::io::stdout();
    while started.elapsed() < LONGEST {
        // A sign for each update that begins.
        stdout.write_all(b".")?;
        stdout.flush()?;
        programming.apply(&town.objects)?;
        town.change();
    }
    Ok(())
}

fn agents_world(source: &Path) -> drive::World {
    drive::World {
        source: drive::Source::Directory {
            path: source.to_owned(),
            recursive: false,
        },
        listen: None,
    }
}

/// The calling thread is on the node.
fn open(kernel: Kernel, deltas: bool) -> Result<Box<dyn Programming>> {
    Ok(match deltas {
        true => Box::new(Deltas::with(kernel, Running::Judged)?),
        false => Box::new(Swap::with(kernel)?),
    })
}

/// Starts a victim on the node.
pub fn start(stage: &TestNode, args: &[String]) -> Result<Child> {
    let program: PathBuf = std::env::current_exe()?;
    // It is in the namespace of the thread that starts it.
    stage.on_node(|| {
        let mut command = Command::new(&program);
        command.arg(VICTIM).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // Its last words would be lost among many.
        command.stderr(Stdio::null());
        command.spawn().context("cannot start a victim")
    })
}

/// How long a victim lives at most from its first update on, in microseconds: each takes a few thousand.
const LIFE: u64 = 20_000;

/// Kills so many victims at random moments while packets flow.
pub fn kills(name: &str, stage: &TestNode, deltas: bool, kills: u64, seed: u64) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    let mut rng = Rng::new(seed);
    let mut first = stage.on_node(|| open(Kernel::open()?, deltas))?;
    first.apply(&ChurningCluster::new(seed).objects)?;
    // What is owned by somebody alive belongs to nobody else.
    drop(first);
    let mut streets = ChurnFlows::open(stage)?;
    // Nobody knows when a victim opened or shut the door.
    streets.expect((0, 0), Expected::Either);
    let mut left = kills;
    while left > 0 {
        let part = left.min(20);
        left -= part;
        let ((), logs) = streets.traffic.during(&stage.world, stage.clock, || {
            for _ in 0..part {
                let changes = rng.below(12).to_string();
                let mut args = vec![seed.to_string(), "--changes".to_owned(), changes];
                args.extend(deltas.then(|| "--deltas".to_owned()));
                let mut victim = start(stage, &args)?;
                let mut signs = victim.stdout.take().context("a victim without a voice")?;
                signs.read_exact(&mut [0])?;
                thread::sleep(Duration::from_micros(rng.below(LIFE)));
                victim.kill()?;
                let mut updates = Vec::new();
                signs.read_to_end(&mut updates)?;
                outcome.count("updates", 1 + updates.len() as u64);
                let ended = victim.wait()?;
                ensure!(
                    ended.code().is_none(),
                    "a victim failed before it was killed"
                );
            }
            // Whoever comes next finds other objects.
            let mut town = ChurningCluster::new(seed);
            for _ in 0..rng.below(20) {
                town.change();
            }
            restart(stage, deltas, &town, &mut outcome)
        })?;
        outcome.count("kills", part);
        let (tally, broken) = streets.judge(&logs);
        outcome.add(tally, broken);
    }
    Ok(outcome)
}

/// Kills so many agents, each a process with a directory as its source, while the objects in it change.
pub fn agents(name: &str, stage: &TestNode, kills: u64, seed: u64) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    let mut rng = Rng::new(seed);
    let mut town = ChurningCluster::new(seed);
    let mut directory = Directory::new(stage)?;
    directory.write(&town.objects)?;
    let mut agent = process::Running::start(stage, &directory)?;
    directory.wait()?;
    let mut streets = ChurnFlows::open(stage)?;
    let clock = stage.clock;
    let mut left = kills;
    while left > 0 {
        let part = left.min(10);
        left -= part;
        let mut commits = Vec::new();
        let ((), logs) = streets.traffic.during(&stage.world, clock, || {
            for number in 0..part {
                let began = clock.now();
                for _ in 0..3 {
                    town.change();
                    directory.write(&town.objects)?;
                    thread::sleep(Duration::from_micros(rng.below(40_000)));
                }
                // However it ends, it leaves everything as it is.
                match number % 3 {
                    2 => agent.terminate()?,
                    _ => agent.kill()?,
                }
                // Objects change also while nobody looks.
                town.change();
                directory.write(&town.objects)?;
                let died = clock.now();
                agent = process::Running::start(stage, &directory)?;
                directory.wait()?;
                outcome.took("from death to the next table", clock.now() - died);
                commits.push(((began, clock.now()), town.is_open));
            }
            Ok(())
        })?;
        for (commit, is_open) in commits {
            streets.expect((commit.0, commit.0), Expected::Either);
            streets.expect(
                (commit.1, commit.1),
                match is_open {
                    true => Expected::Allowed,
                    false => Expected::Denied,
                },
            );
        }
        outcome.count("kills", part);
        let (tally, broken) = streets.judge(&logs);
        outcome.add(tally, broken);
    }
    Ok(outcome)
}

/// Comes back with other objects; the kernel then has what they say, and nothing else of ours.
fn restart(
    stage: &TestNode,
    deltas: bool,
    town: &ChurningCluster,
    outcome: &mut Outcome,
) -> Result<()> {
    let mut programming = stage.on_node(|| open(Kernel::open()?, deltas))?;
    programming.apply(&town.objects)?;
    let differences = programming.differences(&town.objects)?;
    outcome.count("restarts", 1);
    outcome.check(differences.is_empty(), || {
        format!("after a restart: {differences:?}")
    });
    let tables = stage.on_node(|| Ok(Kernel::open()?.tables()?))?;
    let ours = tables.iter().filter(|it| it.starts_with("palisade"));
    outcome.check(ours.count() == 1, || {
        format!("tables were left: {tables:?}")
    });
    Ok(())
}

/// Ends victims at every call of every kind of update, or at every so-manieth.
pub fn at_every_call(
    name: &str,
    stage: &TestNode,
    deltas: bool,
    step: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    outcome.count("leaked", 0);
    outcome.count("lost", 0);
    let mut matrix = Matrix::open(stage)?;
    let mut offset = 0;
    for (number, kind) in KINDS.iter().enumerate() {
        let (old, new) = states(*kind, seed);
        let [before, after] = [matrix.predicted(&old)?, matrix.predicted(&new)?];
        let both = narrower(&before, &after);
        for is_after in [false, true] {
            offset += 1;
            let mut call = offset % step;
            while end_at(stage, deltas, seed, number, (call, is_after))? {
                outcome.count("ends", 1);
                let when = format!("at call {call} of {kind:?}");
                let states = [&before, &after, &both];
                matrix.compare_with(&mut outcome, &states, &when)?;
                let next = next(*kind, seed);
                restart(stage, deltas, &next, &mut outcome)?;
                matrix.compare(
                    &mut outcome,
                    &next.objects,
                    &format!("after a restart, {when}"),
                )?;
                call += step;
            }
        }
    }
    Ok(outcome)
}

/// Objects that are neither what was nor what was to be.
fn next(kind: Kind, seed: u64) -> ChurningCluster {
    let mut town = ChurningCluster::new(seed + 1);
    town.change_so(kind);
    town.change();
    town
}

/// Lets a victim end before or after a call. Says whether there was such a call.
fn end_at(
    stage: &TestNode,
    deltas: bool,
    seed: u64,
    kind: usize,
    (call, after): (u64, bool),
) -> Result<bool> {
    let (kind, call) = (kind.to_string(), call.to_string());
    let mut args = vec![seed.to_string(), "--kind".to_owned(), kind];
    args.extend(["--call".to_owned(), call]);
    args.extend(after.then(|| "--after".to_owned()));
    args.extend(deltas.then(|| "--deltas".to_owned()));
    let ended = start(stage, &args)?.wait()?;
    ensure!(
        ended.success() || ended.code().is_none(),
        "a victim failed by itself"
    );
    Ok(!ended.success())
}
