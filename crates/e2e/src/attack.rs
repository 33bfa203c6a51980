//! A tenant with the rights of `edit` in one namespace attacks the agents of a real cluster of two
//! nodes; none may succeed.
//!
//! A victim has pods on both nodes and policies that deny. Before, during and after each attack,
//! packets of real pods show that denied packets are dropped and allowed ones arrive. Agents are
//! replaced meanwhile, and their memory, health and exits are checked.

pub mod agents;
pub mod deleted;
pub mod ground;
pub mod load;
pub mod objects;
pub mod sender;
pub mod sent;
pub mod traffic;
pub mod written;

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, ValueEnum};

use self::agents::{Health, Peak};
use self::ground::{Ground, VICTIM};
use self::objects::TENANT;
use crate::cluster::Installed;
use crate::cluster::traffic::{Stream, during};

/// What can be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Attack {
    /// Objects nested 250 and 5,000 deep in unused fields
    Nested,
    /// Bytes that are not UTF-8 in unused fields
    Bytes,
    /// Many policies of 2.9 MB
    Large,
    /// Policies of 20,000 ranges of ports
    Ranges,
    /// Packets in the name of others
    Senders,
    /// Router advertisements and redirects
    Routers,
    /// A namespace whose policies go before its pods
    Namespace,
    /// Policies of 2.9 MB all the time, while the victim's are timed
    Load,
}

/// An attack as a program.
type Work = fn(&Ground, &AttackArgs, &mut Findings) -> Result<()>;

impl Attack {
    fn work(self) -> Work {
        match self {
            Attack::Nested => written::nested,
            Attack::Bytes => written::bytes,
            Attack::Large => written::large,
            Attack::Ranges => written::many_ranges,
            Attack::Senders => sent::senders,
            Attack::Routers => sent::routers,
            Attack::Namespace => deleted::namespace,
            Attack::Load => load::load,
        }
    }

    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |it| it.get_name().to_owned())
    }
}

/// Arguments of `attack`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  palisade-e2e attack
  palisade-e2e attack senders routers --packets 1000

Needs root and the programs of the testbed (`palisade-testbed build`). The exit code is not 0 if an attack succeeded.")]
pub struct AttackArgs {
    /// The attacks [default: all]
    #[arg(value_name = "ATTACK")]
    pub attacks: Vec<Attack>,
    /// The program to install [default: the one beside this]
    #[arg(long, value_name = "PATH")]
    pub palisade: Option<PathBuf>,
    /// The directory of the manifests
    #[arg(long, value_name = "DIR", default_value = "deploy")]
    pub deploy: PathBuf,
    /// The number of large policies at once
    #[arg(long, default_value_t = 55)]
    pub policies: usize,
    /// The number of packets of each protocol with each false sender
    #[arg(long, default_value_t = 200)]
    pub packets: u32,
    /// The number of timed changes of the victim under each load
    #[arg(long, default_value_t = 60)]
    pub writes: usize,
    /// The number of large policies per second as a load, if the API server accepts them
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: u32,
    /// The seconds of load before changes are timed
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub warm: u64,
}

/// The findings during an attack.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    notes: Vec<String>,
    /// Flows that were tried.
    pub probes: usize,
    /// The longest that a new policy of the victim took to be enforced; rounds of packets are part
    /// of it.
    pub settled: Duration,
    /// The number of replacements of all agents, and the maximum times to end and to be ready.
    pub restarts: usize,
    /// The longest that they took to end.
    pub ended: Duration,
    /// The longest that they took to be ready.
    pub ready: Duration,
    /// The most memory that one took.
    pub peak: Peak,
}

impl Findings {
    /// A line of the report.
    pub fn note(&mut self, words: impl Into<String>) {
        let words = words.into();
        // Progress; it does not matter if standard error is closed.
        let _ = writeln!(std::io::stderr(), "  {words}");
        self.notes.push(words);
    }
}

/// What became of an attack.
#[derive(Clone, Debug)]
pub struct Outcome {
    name: String,
    findings: Findings,
    health: Health,
    allowed: Stream,
    denied: Stream,
    took: Duration,
    /// In which ways it succeeded.
    succeeded: Vec<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Findings { probes, peak, .. } = self.findings;
        let verdict = if self.succeeded.is_empty() {
            "held"
        } else {
            "SUCCEEDED"
        };
        writeln!(f, "{}: {verdict}, after {:.0?}", self.name, self.took)?;
        for note in self.succeeded.iter().chain(&self.findings.notes) {
            writeln!(f, "  {note}")?;
        }
        writeln!(
            f,
            "  {probes} flows tried; {} of {} denied packets leaked, {} of {} allowed packets lost ({} at a full socket of this program)",
            self.denied.arrived,
            self.denied.sent,
            self.allowed.lost(),
            self.allowed.sent,
            self.allowed.overrun
        )?;
        writeln!(
            f,
            "  {} restarts of all agents: ended within {:.1?}, ready within {:.1?}; a new policy was enforced within {:.1?}; agents took at most {} MiB (with the table {} of a limit of {})",
            self.findings.restarts,
            self.findings.ended,
            self.findings.ready,
            self.findings.settled,
            peak.resident >> 20,
            peak.counted >> 20,
            peak.limit >> 20
        )?;
        write!(
            f,
            "  of {} probes of health {} were not ready, {} not healthy, {} without an answer{}",
            self.health.requests,
            self.health.unready,
            self.health.unhealthy,
            self.health.silent,
            self.health
                .failures
                .first()
                .map_or_else(String::new, |it| format!(" ({it})"))
        )
    }
}

/// What became of all attacks.
#[derive(Clone, Debug, Default)]
pub struct Report {
    before: Vec<String>,
    outcomes: Vec<Outcome>,
}

impl Report {
    /// Whether no attack succeeded.
    pub fn holds(&self) -> bool {
        self.outcomes.iter().all(|it| it.succeeded.is_empty())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.before {
            writeln!(f, "{line}")?;
        }
        for outcome in &self.outcomes {
            writeln!(f, "{outcome}")?;
        }
        let succeeded = self.outcomes.iter().filter(|it| !it.succeeded.is_empty());
        write!(
            f,
            "{} attacks, {} succeeded",
            self.outcomes.len(),
            succeeded.count()
        )
    }
}

/// Starts a cluster and tries everything.
pub fn run(args: &AttackArgs) -> Result<Report> {
    let palisade = match &args.palisade {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("palisade"),
    };
    let installed = Installed {
        palisade,
        image: None,
        deploy: args.deploy.clone(),
    };
    let ground = Ground::start(&installed)?;
    let mut report = Report::default();
    let mut findings = Findings::default();
    sent::without_agents(&ground, &std::env::current_exe()?, &mut findings)?;
    report.before = findings.notes;
    ground.install()?;
    let all = Attack::value_variants();
    let attacks = match args.attacks.is_empty() {
        true => all,
        false => args.attacks.as_slice(),
    };
    for attack in attacks {
        // Progress.
        let _ = writeln!(std::io::stderr(), "{}", attack.name());
        let outcome = tried(&ground, *attack, args)?;
        let _ = writeln!(std::io::stderr(), "{outcome}");
        let is_over = !outcome.succeeded.is_empty();
        report.outcomes.push(outcome);
        // The next attack starts in a clean namespace, even after a successful attack.
        if is_over && recover(&ground).is_err() {
            break;
        }
    }
    Ok(report)
}

/// Runs one attack, and checks all flows and agents before, during and after it.
fn tried(ground: &Ground, attack: Attack, args: &AttackArgs) -> Result<Outcome> {
    let began = Instant::now();
    let mut findings = Findings::default();
    let (web, db) = (ground.pod(VICTIM, "web")?, ground.pod(VICTIM, "db")?);
    let (near, far) = (ground.pod(TENANT, "db")?, ground.pod(TENANT, "web")?);
    let streams = [(db, web), (near, web), (far, web)];
    let mut error = None;
    let (flowed, health) = agents::watched(&ground.networks(), &ground.is_replaced, || {
        during(&streams, || {
            let work = ground
                .holds("before", &mut findings)
                .and_then(|()| attack.work()(ground, args, &mut findings))
                .and_then(|()| ground.holds("after", &mut findings))
                .and_then(|()| ground.look_at_agents(&mut findings));
            error = work.err();
            Ok(())
        })
    });
    let ((), flowed) = flowed?;
    let mut outcome = Outcome {
        name: attack.name(),
        allowed: flowed.first().copied().unwrap_or_default(),
        denied: flowed
            .iter()
            .skip(1)
            .fold(Stream::default(), |all, it| Stream {
                sent: all.sent + it.sent,
                arrived: all.arrived + it.arrived,
                overrun: all.overrun + it.overrun,
            }),
        took: began.elapsed(),
        findings,
        health,
        succeeded: error.map(|it| format!("{it:#}")).into_iter().collect(),
    };
    let checks = [
        (outcome.denied.arrived > 0, "denied packets leaked"),
        (outcome.allowed.lost() > 0, "allowed packets were lost"),
        (outcome.allowed.sent < 100, "no packets flowed"),
        (outcome.health.unready > 0, "agents were not ready"),
        (outcome.health.unhealthy > 0, "agents were not healthy"),
        (outcome.health.silent > 0, "agents did not answer"),
    ];
    let wrong = checks.into_iter().filter(|it| it.0);
    outcome.succeeded.extend(wrong.map(|it| it.1.to_owned()));
    Ok(outcome)
}

/// Removes what an attack left.
fn recover(ground: &Ground) -> Result<()> {
    ground.delete_policies()?;
    ground
        .is_replaced
        .store(false, std::sync::atomic::Ordering::Release);
    ground.restart(&mut Findings::default())?;
    ground.holds("after the cleanup", &mut Findings::default())
}
