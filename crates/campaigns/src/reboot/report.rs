//! The results of restarts.

use std::fmt;

use super::server::{OUTAGES, Outage};
use super::tally::Tally;

/// The setup that closes a restarting node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Setup {
    /// `--close-only` before any pod sends, and then the agent with the DaemonSet's flags.
    Unit,
    /// The agent alone, with `--pod-cidr`, on a kernel that tracks connections already.
    Blocks,
    /// The same, on a kernel that tracks no connection before the agent's first table.
    Untracked,
    /// The same, with `--boot-policy open`: the control, in which packets pass.
    Open,
    /// The agent with the DaemonSet's flags alone: the documented limit.
    Bare,
}

/// All setups, in the order of the report.
const SETUPS: [Setup; 5] = [
    Setup::Unit,
    Setup::Blocks,
    Setup::Untracked,
    Setup::Open,
    Setup::Bare,
];

impl Setup {
    /// The setup as text.
    fn label(self) -> &'static str {
        match self {
            Setup::Unit => "--close-only before the pods, then the DaemonSet's flags",
            Setup::Blocks => "the DaemonSet's flags and --pod-cidr",
            Setup::Untracked => "the same, where the kernel tracked no connection before",
            Setup::Open => "control, --boot-policy open",
            Setup::Bare => "limit, the DaemonSet's flags alone",
        }
    }

    /// Whether no denied packet may pass from the first table on.
    pub(super) fn is_closed(self) -> bool {
        matches!(self, Setup::Unit | Setup::Blocks | Setup::Untracked)
    }

    /// Whether probes of the node are always answered. A reply to a packet from before connection
    /// tracking looks like the first packet of a connection.
    pub(super) fn answers_all(self) -> bool {
        matches!(self, Setup::Unit | Setup::Blocks)
    }
}

/// One restart.
#[derive(Debug)]
pub(super) struct Restart {
    pub(super) setup: Setup,
    pub(super) outage: Outage,
    pub(super) tally: Tally,
    /// The time from the agent's start to the first table, in nanoseconds.
    pub(super) gap: u64,
    /// The time from the server's return until the agent was ready, in nanoseconds.
    pub(super) ready: u64,
    /// The mistakes.
    pub(super) mistakes: Vec<String>,
}

/// All restarts.
#[derive(Debug, Default)]
pub struct Report {
    pub(super) restarts: Vec<Restart>,
    /// Restarts that failed.
    pub(super) failures: Vec<String>,
    pub(super) seconds: f64,
}

impl Report {
    /// The mistakes.
    pub fn mistakes(&self) -> Vec<String> {
        let restarts = self.restarts.iter().flat_map(|it| &it.mistakes);
        restarts.chain(&self.failures).cloned().collect()
    }

    fn of(&self, setup: Setup) -> (Vec<&Restart>, Tally) {
        let restarts: Vec<&Restart> = self
            .restarts
            .iter()
            .filter(|it| it.setup == setup)
            .collect();
        let mut tally = Tally::default();
        for restart in &restarts {
            tally.add(restart.tally);
        }
        (restarts, tally)
    }
}

/// The median and the maximum of times, in milliseconds.
fn times(times: impl Iterator<Item = u64>) -> String {
    let mut all: Vec<u64> = times.collect();
    all.sort_unstable();
    let at = |percent: usize| {
        let place = all.len().saturating_sub(1) * percent / 100;
        all.get(place).copied().unwrap_or(0) as f64 / 1e6
    };
    format!("p50 {:.1} ms, max {:.1} ms", at(50), at(100))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut closed = Tally::default();
        let mut count = 0;
        for setup in SETUPS {
            let (restarts, tally) = self.of(setup);
            if restarts.is_empty() {
                continue;
            }
            if setup.is_closed() {
                closed.add(match setup.answers_all() {
                    true => tally,
                    false => Tally {
                        probes: 0,
                        unanswered: 0,
                        ..tally
                    },
                });
                count += restarts.len();
            }
            let from = if setup.is_closed() {
                "from the first table on"
            } else {
                "from the agent's start on"
            };
            writeln!(f, "{}: {} restarts", setup.label(), restarts.len())?;
            writeln!(
                f,
                "  {from}: {} denied packets sent, {} passed",
                tally.denied, tally.leaked
            )?;
            if matches!(setup, Setup::Blocks | Setup::Untracked) {
                writeln!(
                    f,
                    "  from the agent's start to its first table: {}; {} denied packets passed",
                    times(restarts.iter().map(|it| it.gap)),
                    tally.in_gap
                )?;
            }
            writeln!(
                f,
                "  {} probes of the node to its pods, {} unanswered; ready after the server's return: {}; \
                 {} allowed packets sent since, {} lost; {} passed before",
                tally.probes,
                tally.unanswered,
                times(restarts.iter().map(|it| it.ready)),
                tally.allowed,
                tally.lost,
                tally.early
            )?;
        }
        for outage in OUTAGES {
            let restarts = self.restarts.iter().filter(|it| it.outage == outage);
            let ready = times(restarts.map(|it| it.ready));
            writeln!(
                f,
                "ready after the return of a server that {outage}: {ready}"
            )?;
        }
        let mistakes = self.mistakes();
        for mistake in mistakes.iter().take(20) {
            writeln!(f, "MISTAKE: {mistake}")?;
        }
        write!(
            f,
            "{count} restarts, {} denied packets after the first table, {} passed; {} probes, {} lost; \
             {} mistakes; {:.1} s",
            closed.denied,
            closed.leaked,
            closed.probes,
            closed.unanswered,
            mistakes.len(),
            self.seconds
        )
    }
}
