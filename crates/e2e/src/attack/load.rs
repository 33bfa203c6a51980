//! The time until packets follow a policy of the victim, while the tenant writes large policies all
//! the time.

use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::agents::{Programmed, programmed};
use super::ground::{Ground, POLICIES, VICTIM, closed};
use super::objects::{BLOCKS, LARGE, Large, Limit, Shape, Subject};
use super::traffic::percentile;
use super::{AttackArgs, Findings};
use crate::cluster::pods::{Pod, enter};
use crate::writer::Writer;

/// The port of the packets that show it.
const PORT: u16 = 6_900;
/// Between two of them.
const BETWEEN: Duration = Duration::from_millis(1);
/// Consecutive missing packets that count as dropped.
const DROPPED: u64 = 150;
/// So long a change may take at most.
const PATIENCE: Duration = Duration::from_secs(60);
/// The tenant's policies at a time.
const NAMES: usize = 20;
/// The tenant's concurrent requests: more delay the API server and not the agent.
const AT_ONCE: usize = 2;
/// What must hold: the 99th percentile of the time, and an agent's memory.
const BAR: Duration = Duration::from_secs(1);
const RESIDENT: u64 = 300 << 20;

/// The time of a change, by packets.
#[derive(Debug)]
struct Clock {
    began: Instant,
    sent: AtomicU64,
    /// The number of the packet that arrived last, and the microsecond in which it did.
    number: AtomicU64,
    arrived: AtomicU64,
    is_over: AtomicBool,
}

impl Clock {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn send(&self, from: &Pod, to: &Pod) -> Result<()> {
        from.enter()?;
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect(SocketAddr::new(to.address, PORT))?;
        while !self.is_over.load(Ordering::Acquire) {
            let number = self.sent.fetch_add(1, Ordering::AcqRel) + 1;
            // No program but this one listens there, and that one may be late.
            let _ = socket.send(&number.to_be_bytes());
            thread::sleep(BETWEEN);
        }
        Ok(())
    }

    fn receive(&self, at: &Pod) -> Result<()> {
        at.enter()?;
        let socket = UdpSocket::bind(("0.0.0.0", PORT))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        let mut number = [0; 8];
        while !self.is_over.load(Ordering::Acquire) {
            if socket.recv(&mut number).is_ok() {
                self.arrived.store(self.now(), Ordering::Release);
                let number = u64::from_be_bytes(number);
                self.number.store(number, Ordering::Release);
            }
        }
        Ok(())
    }

    /// When the last packet arrived before all are dropped.
    fn closed(&self) -> Result<u64> {
        self.until("packets are dropped", || {
            let sent = self.sent.load(Ordering::Acquire);
            sent.saturating_sub(self.number.load(Ordering::Acquire)) > DROPPED
        })?;
        Ok(self.arrived.load(Ordering::Acquire))
    }

    /// When the first packet arrived after a moment.
    fn opened(&self, after: u64) -> Result<u64> {
        self.until("packets arrive", || {
            self.arrived.load(Ordering::Acquire) > after
        })?;
        Ok(self.arrived.load(Ordering::Acquire))
    }

    fn until(&self, what: &str, is_so: impl Fn() -> bool) -> Result<()> {
        let began = Instant::now();
        while !is_so() {
            ensure!(
                began.elapsed() < PATIENCE,
                "not within {PATIENCE:.0?}: {what}"
            );
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// What the tenant got written.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    policies: u64,
    refused: u64,
    seconds: f64,
    /// The size of each.
    bytes: usize,
}

/// The times of the victim's changes.
#[derive(Clone, Debug, Default)]
struct Times {
    answered: Vec<Duration>,
    closed: Vec<Duration>,
    opened: Vec<Duration>,
}

/// The sender, the receiver, and the API server.
#[derive(Clone, Copy, Debug)]
struct Scene<'a> {
    /// A pod of the victim that sends.
    from: &'a Pod,
    /// The pod `client` of the victim, which is closed and opened.
    to: &'a Pod,
    /// The network namespace in which the API server is reached.
    network: &'a Path,
    /// The credentials of the victim.
    victim: &'a Path,
    /// The credentials of the tenant.
    tenant: &'a Path,
}

/// The size of the load.
#[derive(Clone, Copy, Debug)]
struct Rates {
    /// The number of changes of the victim.
    writes: usize,
    /// The tenant's policies per second, if the server accepts them.
    rate: u32,
    /// The seconds before changes are timed.
    warm: u64,
}

/// What the tenant's policies are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// There are none.
    Nothing,
    /// They select no pod.
    Idle,
    /// They select a pod of the tenant, and none fits into the budget of its namespace (D148).
    Own(Shape),
    /// They select a pod of the tenant, and each uses the budget up.
    Fitting,
}

impl Beside {
    /// One after the other.
    const ALL: [Beside; 5] = [
        Beside::Nothing,
        Beside::Idle,
        Beside::Own(Shape::Ranges),
        Beside::Own(Shape::Blocks),
        Beside::Fitting,
    ];

    /// Two policies that differ, to be written in turn.
    fn policies(self) -> Option<[Large; 2]> {
        let own = Subject::App("db");
        let bytes = Limit::Bytes(LARGE);
        let (shape, subject, limit) = match self {
            Beside::Nothing => return None,
            Beside::Idle => (Shape::Ranges, Subject::None, bytes),
            Beside::Own(shape) => (shape, own, bytes),
            Beside::Fitting => (Shape::Blocks, own, Limit::Entries(BLOCKS)),
        };
        Some([0, 7].map(|first| Large::new(shape, subject, limit, first)))
    }
}

impl fmt::Display for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Beside::Nothing => write!(f, "alone"),
            Beside::Idle => write!(f, "beside policies that select no pod"),
            Beside::Own(shape) => write!(
                f,
                "beside policies that select the tenant's pod ({})",
                shape.name()
            ),
            Beside::Fitting => write!(
                f,
                "beside policies of {BLOCKS} blocks that select the tenant's pod"
            ),
        }
    }
}

/// The measurements under a load.
#[derive(Clone, Debug)]
struct Phase {
    beside: Beside,
    times: Times,
    written: Written,
    /// What the agents programmed.
    programmed: Programmed,
}

impl Phase {
    /// Whether the victim waited longer for packets or an agent than it may.
    fn is_late(&self) -> bool {
        let Programmed { changes, late } = self.programmed;
        percentile(&self.times.closed, 99) > BAR || late * 100 > changes
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.written.policies as f64 / self.written.seconds.max(0.001);
        write!(
            f,
            "{}: {} policies of the victim in force after {} (answered after {}), taken back after {}; of {} changes {} waited longer than a second for an agent",
            self.beside,
            self.times.closed.len(),
            shown(&self.times.closed),
            shown(&self.times.answered),
            shown(&self.times.opened),
            self.programmed.changes,
            self.programmed.late,
        )?;
        if self.beside == Beside::Nothing {
            return Ok(());
        }
        write!(
            f,
            "; {} policies of {:.1} MB written by the tenant, {rate:.1} a second, {:.0} MB/s, {} refused",
            self.written.policies,
            self.written.bytes as f64 / 1e6,
            rate * self.written.bytes as f64 / 1e6,
            self.written.refused
        )
    }
}

/// Changes of the victim, first alone and then beside large policies that select none and that
/// select a pod of the tenant.
pub fn load(ground: &Ground, args: &AttackArgs, findings: &mut Findings) -> Result<()> {
    let (network, admin) = (ground.network(0), ground.whole.cluster.api().kubeconfig());
    let scene = Scene {
        from: ground.pod(VICTIM, "db")?,
        to: ground.pod(VICTIM, "client")?,
        network: &network,
        victim: &admin,
        tenant: &ground.tenant,
    };
    let rates = Rates {
        writes: args.writes,
        rate: args.rate,
        warm: args.warm,
    };
    let nodes = ground.networks();
    let mut late = Vec::new();
    for beside in Beside::ALL {
        let before = programmed(&nodes)?;
        let mut phase = measured(scene, rates, beside)?;
        phase.programmed = programmed(&nodes)?.since(before);
        ground.look_at_agents(findings)?;
        findings.note(format!(
            "{phase}; agents took at most {} MiB so far (with the table {})",
            findings.peak.resident >> 20,
            findings.peak.counted >> 20,
        ));
        if phase.is_late() {
            late.push(beside.to_string());
        }
        if beside != Beside::Nothing {
            ground.delete_policies()?;
            ground.holds("after the tenant's policies are deleted", findings)?;
        }
    }
    ensure!(late.is_empty(), "policies of the victim wait: {late:?}");
    ensure!(
        findings.peak.resident < RESIDENT,
        "an agent took {} MiB",
        findings.peak.resident >> 20
    );
    Ok(())
}

fn shown(times: &[Duration]) -> String {
    let [p50, p99, most] = [50, 99, 100].map(|it| percentile(times, it));
    format!("p50 {p50:.0?}, p99 {p99:.0?}, at most {most:.0?}")
}

/// Measures changes of the victim while the tenant writes.
fn measured(scene: Scene<'_>, rates: Rates, beside: Beside) -> Result<Phase> {
    let clock = Clock {
        began: Instant::now(),
        sent: AtomicU64::new(0),
        number: AtomicU64::new(0),
        arrived: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        let receiver = scope.spawn(|| clock.receive(scene.to));
        let sender = scope.spawn(|| clock.send(scene.from, scene.to));
        let tenant = scope.spawn(|| match beside.policies() {
            Some(policies) => inside(scene.network, scene.tenant, |runtime, writer| {
                runtime.block_on(write(writer, &policies, rates.rate, &clock.is_over))
            }),
            None => Ok(Written::default()),
        });
        let victim = scope.spawn(|| {
            inside(scene.network, scene.victim, |runtime, writer| {
                // The tenant's policies exist before the measurement.
                let is_alone = beside == Beside::Nothing;
                thread::sleep(Duration::from_secs(if is_alone { 1 } else { rates.warm }));
                change(runtime, writer, &clock, rates.writes)
            })
        });
        let panicked = |_| anyhow!("a thread panicked");
        let times = victim.join().map_err(panicked)?;
        clock.is_over.store(true, Ordering::Release);
        let written = tenant.join().map_err(panicked)?;
        sender.join().map_err(panicked)??;
        receiver.join().map_err(panicked)??;
        Ok(Phase {
            beside,
            times: times?,
            written: written?,
            programmed: Programmed::default(),
        })
    })
}

/// Runs some work where the API server is, with the credentials of a file.
fn inside<T>(
    network: &Path,
    kubeconfig: &Path,
    work: impl FnOnce(&Runtime, &Writer) -> Result<T>,
) -> Result<T> {
    enter(network)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let writer = runtime.block_on(Writer::new(kubeconfig))?;
    work(&runtime, &writer)
}

/// Closes and opens a pod of the victim, again and again.
fn change(runtime: &Runtime, writer: &Writer, clock: &Clock, writes: usize) -> Result<Times> {
    let policy = closed(VICTIM, "client");
    let path = format!("/apis/networking.k8s.io/v1/namespaces/{VICTIM}/networkpolicies");
    let own = format!("{path}/closed-client");
    let mut times = Times::default();
    for _ in 0..writes {
        let began = clock.now();
        runtime.block_on(writer.request("POST", &path, &policy))?;
        let answered = clock.now();
        let at = clock.closed()?;
        times.answered.push(between(began, answered));
        times.closed.push(between(began, at));
        let began = clock.now();
        let deletion = serde_json::json!({});
        runtime.block_on(writer.request("DELETE", &own, &deletion))?;
        times.opened.push(between(began, clock.opened(began)?));
        // Changes that deny follow each other at a rate that the agent limits.
        thread::sleep(Duration::from_millis(120));
    }
    Ok(times)
}

fn between(from: u64, to: u64) -> Duration {
    Duration::from_micros(to.saturating_sub(from))
}

/// Writes policies repeatedly, at a rate or as fast as the server accepts them.
async fn write(
    writer: &Writer,
    policies: &[Large; 2],
    rate: u32,
    is_over: &AtomicBool,
) -> Result<Written> {
    let began = Instant::now();
    let [first, _] = policies;
    let mut written = Written {
        bytes: first.named("load").len(),
        ..Written::default()
    };
    let mut running: JoinSet<Result<Value>> = JoinSet::new();
    let mut number = 0_usize;
    while !is_over.load(Ordering::Acquire) {
        let due = Duration::from_secs(1) * u32::try_from(number)? / rate;
        tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
        while running.len() >= AT_ONCE {
            let Some(done) = running.join_next().await else {
                bail!("requests are lost");
            };
            count(&mut written, &done.context("a task was lost")?);
        }
        let name = format!("load-{}", number % NAMES);
        let turn = number / NAMES;
        let [even, odd] = policies;
        let policy = if turn.is_multiple_of(2) { even } else { odd }.named(&name);
        let writer = writer.clone();
        running.spawn(async move {
            // Updating such an object takes the API server tens of seconds, replacing it less than
            // one.
            if turn > 0 {
                writer.delete(&format!("{POLICIES}/{name}")).await?;
            }
            writer.send("POST", POLICIES, policy).await
        });
        number += 1;
    }
    written.seconds = began.elapsed().as_secs_f64();
    while let Some(done) = running.join_next().await {
        let _ = done.context("a task was lost")?;
    }
    Ok(written)
}

fn count(written: &mut Written, done: &Result<Value>) {
    match done {
        Ok(_) => written.policies += 1,
        Err(_) => written.refused += 1,
    }
}
