//! F04: the process that programs the kernel is killed, at random moments and at every call, and
//! restarts with other objects. Meanwhile nothing leaks and nothing is lost; then the kernel
//! enforces the objects.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser};
use palisade_agent::{Config, Established, Nft, drive};
use palisade_nft::Kernel;

use super::churn::{CHANGE_KINDS, ChangeKind, ChurnFlows, ChurningCluster};
use super::deltas::Deltas;
use super::errno::{before_and_after, both_allow};
use super::ledger::Expected;
use super::matrix::Matrix;
use super::objects::NODE;
use super::outcome::Outcome;
use super::process::{self, Directory};
use super::programmer::{Programmer, Swap};
use super::script::{Injection, Script};
use super::test_node::TestNode;
use palisade_generate::Rng;

/// Arguments of the process to be killed.
#[derive(Args, Clone, Debug)]
pub struct VictimArgs {
    /// Run the agent, with this directory as its source
    #[arg(long)]
    source: Option<PathBuf>,
    /// Update the table instead of replacing it
    #[arg(long)]
    deltas: bool,
    /// The seed of the cluster
    #[arg(default_value_t = 0)]
    seed: u64,
    /// Skip this number of changes
    #[arg(long, default_value_t = 0)]
    changes: u64,
    /// Make one change, of the kind with this number, and be killed at a call
    #[arg(long)]
    kind: Option<usize>,
    /// The call
    #[arg(long, default_value_t = 0)]
    call: u64,
    /// Be killed after the call instead of before it
    #[arg(long)]
    after: bool,
}

/// The command that makes this program the victim.
pub const VICTIM_COMMAND: &str = "faults-victim";
/// A victim ends after this time.
const MAX_RUNTIME: Duration = Duration::from_secs(60);

/// Runs the victim if this program was started as one. Returns whether it was.
pub fn was_victim() -> Result<bool> {
    #[derive(Parser)]
    struct VictimCli {
        #[command(flatten)]
        args: VictimArgs,
    }
    let mut args = std::env::args();
    let program = args.next().unwrap_or_default();
    if args.next().as_deref() != Some(VICTIM_COMMAND) {
        return Ok(false);
    }
    let VictimCli { args } = VictimCli::parse_from(std::iter::once(program).chain(args));
    victim(&args)?;
    Ok(true)
}

/// Programs the kernel of its namespace until it is killed.
pub fn victim(args: &VictimArgs) -> Result<()> {
    if let Some(source) = &args.source {
        return Ok(drive::run(
            &Nft::default(),
            Config::new(NODE),
            &agent_world(source),
        )?);
    }
    let script = Script::default();
    let kernel = Kernel::open()?.with_faults(Box::new(script.clone()));
    let mut programmer = open(kernel, args.deltas)?;
    if let Some(kind) = args.kind {
        let kind = *CHANGE_KINDS.get(kind).context("no such kind")?;
        let (old, new) = before_and_after(kind, args.seed);
        programmer.apply(&old)?;
        let event = match args.after {
            true => Injection::KillAfter,
            false => Injection::KillBefore,
        };
        script.arm(Some((args.call, event)));
        return programmer.apply(&new);
    }
    let mut cluster = ChurningCluster::new(args.seed);
    for _ in 0..args.changes {
        cluster.change();
    }
    let started = Instant::now();
    let mut stdout = std::io::stdout();
    while started.elapsed() < MAX_RUNTIME {
        // A byte for each update.
        stdout.write_all(b".")?;
        stdout.flush()?;
        programmer.apply(&cluster.objects)?;
        cluster.change();
    }
    Ok(())
}

fn agent_world(source: &Path) -> drive::World {
    drive::World {
        source: drive::Source::Directory {
            path: source.to_owned(),
            recursive: false,
        },
        listen: None,
    }
}

/// The calling thread is on the node.
fn open(kernel: Kernel, deltas: bool) -> Result<Box<dyn Programmer>> {
    Ok(match deltas {
        true => Box::new(Deltas::with(kernel, Established::Evaluate)?),
        false => Box::new(Swap::with(kernel)?),
    })
}

/// Starts a victim on the node.
pub fn start(node: &TestNode, args: &[String]) -> Result<Child> {
    let program: PathBuf = std::env::current_exe()?;
    // A child inherits the namespace of the calling thread.
    node.on_node(|| {
        let mut command = Command::new(&program);
        command.arg(VICTIM_COMMAND).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // The messages of killed victims are noise.
        command.stderr(Stdio::null());
        command.spawn().context("cannot start a victim")
    })
}

/// The maximum lifetime of a victim after its first update, in microseconds. An update takes a few
/// thousand.
const MAX_LIFETIME_US: u64 = 20_000;

/// Kills victims at random moments while packets flow.
pub fn kills(name: &str, node: &TestNode, deltas: bool, kills: u64, seed: u64) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    let mut rng = Rng::new(seed);
    let mut first = node.on_node(|| open(Kernel::open()?, deltas))?;
    first.apply(&ChurningCluster::new(seed).objects)?;
    // A victim cannot change a table while another process owns it.
    drop(first);
    let mut flows = ChurnFlows::open(node)?;
    // The moments at which a victim opens or closes the port are unknown.
    flows.expect((0, 0), Expected::Either);
    let mut left = kills;
    while left > 0 {
        let batch = left.min(20);
        left -= batch;
        let ((), logs) = flows.traffic.during(&node.world, node.clock, || {
            for _ in 0..batch {
                let changes = rng.below(12).to_string();
                let mut args = vec![seed.to_string(), "--changes".to_owned(), changes];
                args.extend(deltas.then(|| "--deltas".to_owned()));
                let mut victim = start(node, &args)?;
                let mut progress = victim
                    .stdout
                    .take()
                    .context("a victim without standard output")?;
                progress.read_exact(&mut [0])?;
                thread::sleep(Duration::from_micros(rng.below(MAX_LIFETIME_US)));
                victim.kill()?;
                let mut updates = Vec::new();
                progress.read_to_end(&mut updates)?;
                outcome.count("updates", 1 + updates.len() as u64);
                let ended = victim.wait()?;
                ensure!(
                    ended.code().is_none(),
                    "a victim failed before it was killed"
                );
            }
            // The next process starts with other objects.
            let mut cluster = ChurningCluster::new(seed);
            for _ in 0..rng.below(20) {
                cluster.change();
            }
            restart(node, deltas, &cluster, &mut outcome)
        })?;
        outcome.count("kills", batch);
        let (tally, violations) = flows.tally(&logs);
        outcome.add(tally, violations);
    }
    Ok(outcome)
}

/// Kills agents, each a process with a directory as its source, while objects change.
pub fn agents(name: &str, node: &TestNode, kills: u64, seed: u64) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    let mut rng = Rng::new(seed);
    let mut cluster = ChurningCluster::new(seed);
    let mut directory = Directory::new(node)?;
    directory.write(&cluster.objects)?;
    let mut agent = process::AgentProcess::start(node, &directory)?;
    directory.wait()?;
    let mut flows = ChurnFlows::open(node)?;
    let clock = node.clock;
    let mut left = kills;
    while left > 0 {
        let batch = left.min(10);
        left -= batch;
        let mut commits = Vec::new();
        let ((), logs) = flows.traffic.during(&node.world, clock, || {
            for number in 0..batch {
                let started = clock.now();
                for _ in 0..3 {
                    cluster.change();
                    directory.write(&cluster.objects)?;
                    thread::sleep(Duration::from_micros(rng.below(40_000)));
                }
                // However an agent ends, its table stays.
                match number % 3 {
                    2 => agent.terminate()?,
                    _ => agent.kill()?,
                }
                // Objects also change while no agent runs.
                cluster.change();
                directory.write(&cluster.objects)?;
                let killed = clock.now();
                agent = process::AgentProcess::start(node, &directory)?;
                directory.wait()?;
                outcome.record_time("from the kill to the next table", clock.now() - killed);
                commits.push(((started, clock.now()), cluster.is_open));
            }
            Ok(())
        })?;
        for (commit, is_open) in commits {
            flows.expect((commit.0, commit.0), Expected::Either);
            flows.expect(
                (commit.1, commit.1),
                match is_open {
                    true => Expected::Allowed,
                    false => Expected::Denied,
                },
            );
        }
        outcome.count("kills", batch);
        let (tally, violations) = flows.tally(&logs);
        outcome.add(tally, violations);
    }
    Ok(outcome)
}

/// Restarts with other objects. Then the kernel enforces them, in a single table.
fn restart(
    node: &TestNode,
    deltas: bool,
    cluster: &ChurningCluster,
    outcome: &mut Outcome,
) -> Result<()> {
    let mut programmer = node.on_node(|| open(Kernel::open()?, deltas))?;
    programmer.apply(&cluster.objects)?;
    let differences = programmer.differences(&cluster.objects)?;
    outcome.count("restarts", 1);
    outcome.check(differences.is_empty(), || {
        format!("after a restart: {differences:?}")
    });
    let tables = node.on_node(|| Ok(Kernel::open()?.tables()?))?;
    let ours = tables.iter().filter(|it| it.starts_with("palisade"));
    outcome.check(ours.count() == 1, || {
        format!("stale tables are left: {tables:?}")
    });
    Ok(())
}

/// Kills victims at every `step`th call of every kind of update.
pub fn at_every_call(
    name: &str,
    node: &TestNode,
    deltas: bool,
    step: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::of_packets(name);
    let mut matrix = Matrix::open(node)?;
    let mut offset = 0;
    for (number, kind) in CHANGE_KINDS.iter().enumerate() {
        let (old, new) = before_and_after(*kind, seed);
        let [before, after] = [matrix.predicted(&old)?, matrix.predicted(&new)?];
        let both = both_allow(&before, &after);
        for is_after in [false, true] {
            offset += 1;
            let mut call = offset % step;
            while end_at(node, deltas, seed, number, (call, is_after))? {
                outcome.count("ends", 1);
                let when = format!("at call {call} of {kind:?}");
                let before_and_after = [&before, &after, &both];
                matrix.compare_with(&mut outcome, &before_and_after, &when)?;
                let other_objects = other_objects(*kind, seed);
                restart(node, deltas, &other_objects, &mut outcome)?;
                matrix.compare(
                    &mut outcome,
                    &other_objects.objects,
                    &format!("after a restart, {when}"),
                )?;
                call += step;
            }
        }
    }
    Ok(outcome)
}

/// Objects that differ from those before and after the change.
fn other_objects(kind: ChangeKind, seed: u64) -> ChurningCluster {
    let mut cluster = ChurningCluster::new(seed + 1);
    cluster.apply(kind);
    cluster.change();
    cluster
}

/// Kills a victim before or after a call. Returns whether the call happened.
fn end_at(
    node: &TestNode,
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
    let ended = start(node, &args)?.wait()?;
    ensure!(
        ended.success() || ended.code().is_none(),
        "a victim failed before it was killed"
    );
    Ok(!ended.success())
}
