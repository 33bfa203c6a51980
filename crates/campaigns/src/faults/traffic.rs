//! Packets at full rate while something else happens: one thread sends numbered packets of all flows
//! in turn, one thread at each receiving socket notes which arrived and when.
//!
//! What is lost must be lost by policy, so that nothing may overflow: the sender never has more
//! packets of a paced flow under way than the smallest queue on their way holds.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;
use palisade_lab::network::LabNetwork;
use palisade_lab::topology::Location;

use super::ledger::Log;

/// Nanoseconds since the beginning, by the clock that never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that begins now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// The time.
    pub fn now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Runs the work; says when it began and ended.
    pub fn time<T>(self, work: impl FnOnce() -> T) -> (T, (u64, u64)) {
        let began = self.now();
        let result = work();
        (result, (began, self.now()))
    }
}

/// Packets from some sockets to one address.
#[derive(Debug)]
pub struct Flow {
    /// The sockets, which take turns.
    pub from: Vec<UdpSocket>,
    /// Where the packets go.
    pub to: SocketAddr,
    /// How many bytes each carries.
    pub length: usize,
    /// Whether its packets always arrive, so that the sender can wait for them.
    pub is_paced: bool,
}

/// The shortest payload: the number of the flow and of the packet.
pub const SHORTEST: usize = 8;

/// Flows, and the sockets at which they arrive.
#[derive(Debug, Default)]
pub struct Traffic {
    flows: Vec<Flow>,
    ears: Vec<UdpSocket>,
    /// Where packets may be dropped for want of room.
    places: Vec<Location>,
}

/// So many packets of all flows together may be under way: the kernel's queue holds a thousand, and
/// a socket's buffer of the usual size some hundreds.
const WINDOW: usize = 400;
/// The sender rests now and then: what the kernel does behind a change waits until every processor has
/// done something else for once, which can take seconds on one that only ever sends.
const SHIFT: Duration = Duration::from_millis(4);
const REST: Duration = Duration::from_micros(50);
/// What a link carries at once; what is longer goes in pieces.
const PIECE: usize = 1_400;
/// If none arrives for so long, the sender goes on: they were lost, which is what is to be seen.
const STALLED: Duration = Duration::from_millis(5);
/// How long packets may be under way at the end.
const LAST: Duration = Duration::from_secs(3);
/// How long a receiver waits before it looks whether it is to stop.
const GLANCE: Duration = Duration::from_millis(10);
/// How much a receiver may hold that is not read yet.
const BUFFER: usize = 4 << 20;

/// What the threads share.
#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    is_quiet: AtomicBool,
    /// For each flow, how many packets were sent and how many arrived.
    sent: Vec<AtomicU64>,
    arrived: Vec<AtomicU64>,
}

impl Traffic {
    /// Adds a flow; says which it is.
    pub fn add(&mut self, flow: Flow) -> usize {
        self.flows.push(flow);
        self.flows.len() - 1
    }

    /// Adds a socket at which packets arrive.
    pub fn hear(&mut self, place: Location, ear: &UdpSocket) -> Result<()> {
        let ear = ear.try_clone()?;
        ear.set_read_timeout(Some(GLANCE))?;
        socket2::SockRef::from(&ear).set_recv_buffer_size(BUFFER)?;
        self.ears.push(ear);
        if !self.places.contains(&place) {
            self.places.push(place);
        }
        Ok(())
    }

    /// Sends packets of all flows for as long as the work takes; returns what it returned, and what
    /// became of each flow.
    pub fn during<T>(
        &self,
        world: &LabNetwork,
        clock: Clock,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<(T, Vec<Log>)> {
        let before = self.overflows(world)?;
        let count = || self.flows.iter().map(|_| AtomicU64::new(0)).collect();
        let shared = Shared {
            sent: count(),
            arrived: count(),
            ..Shared::default()
        };
        let (result, logs) = thread::scope(|scope| {
            let ears: Vec<_> = self
                .ears
                .iter()
                .map(|ear| scope.spawn(|| receive(ear, clock, &shared)))
                .collect();
            let sender = scope.spawn(|| send(&self.flows, clock, &shared));
            let result = self.warm_up(&shared).and_then(|()| work());
            shared.is_over.store(true, Ordering::Release);
            let sent = sender.join();
            self.let_arrive(&shared);
            shared.is_quiet.store(true, Ordering::Release);
            let arrived: Vec<_> = ears.into_iter().map(|it| it.join()).collect();
            let logs = move || -> Result<Vec<Log>> {
                let Ok(sent) = sent else {
                    bail!("the sender panicked");
                };
                let mut logs: Vec<Log> = sent?;
                for arrived in arrived {
                    let Ok(arrived) = arrived else {
                        bail!("a receiver panicked");
                    };
                    for (flow, number, at) in arrived? {
                        if let Some(log) = logs.get_mut(flow as usize) {
                            log.arrived.push((number, at));
                        }
                    }
                }
                Ok(logs)
            };
            (result, logs())
        });
        let mut logs = logs?;
        let result = result?;
        if self.overflows(world)? > before {
            // A receiver that got no processor time; flows that the sender waits for cannot be concerned.
            for (log, flow) in logs.iter_mut().zip(&self.flows) {
                log.is_doubtful = !flow.is_paced;
            }
        }
        Ok((result, logs))
    }

    /// Waits until packets of all flows have been sent and those that arrive have arrived.
    fn warm_up(&self, shared: &Shared) -> Result<()> {
        let deadline = Instant::now() + LAST;
        let is_warm = |(place, flow): (usize, &Flow)| {
            let reached = |counts: &[AtomicU64]| {
                let count = counts.get(place).map(|it| it.load(Ordering::Acquire));
                count.unwrap_or(0) >= 20
            };
            reached(&shared.sent) && (!flow.is_paced || reached(&shared.arrived))
        };
        while !self.flows.iter().enumerate().all(is_warm) {
            if Instant::now() > deadline {
                bail!("what is allowed does not arrive even before anything changes");
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Waits until all that must arrive has arrived, or surely does not any more.
    fn let_arrive(&self, shared: &Shared) {
        let deadline = Instant::now() + LAST;
        let is_complete = |(place, flow): (usize, &Flow)| {
            let load =
                |counts: &[AtomicU64]| counts.get(place).map(|it| it.load(Ordering::Acquire));
            !flow.is_paced || load(&shared.sent) == load(&shared.arrived)
        };
        while !self.flows.iter().enumerate().all(is_complete) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// How many datagrams sockets had no room for, in all places where packets arrive.
    fn overflows(&self, world: &LabNetwork) -> Result<u64> {
        let mut sum = 0;
        for place in &self.places {
            let counters = || -> io::Result<(String, String)> {
                let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
                let snmp6 = std::fs::read_to_string("/proc/thread-self/net/snmp6")?;
                Ok((snmp, snmp6))
            };
            let (snmp, snmp6) = world.run_in(*place, counters)??;
            let ipv4 = counter(&snmp, "Udp:", "RcvbufErrors");
            let ipv6 = snmp6
                .lines()
                .find_map(|it| it.strip_prefix("Udp6RcvbufErrors"));
            sum += ipv4.context("the kernel does not count what it drops")?;
            sum += ipv6
                .and_then(|it| it.trim().parse::<u64>().ok())
                .unwrap_or(0);
        }
        Ok(sum)
    }
}

/// A counter of `/proc/net/snmp`: the first line with a word has the names, the second the numbers.
pub fn counter(snmp: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|it| it.starts_with(group));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names.split_whitespace().position(|it| it == name)?;
    numbers.split_whitespace().nth(place)?.parse().ok()
}

/// Packets keep their order only if one processor handles them all: the one that sends.
fn stay_here() -> nix::Result<()> {
    let mut one = CpuSet::new();
    one.set(sched_getcpu()?)?;
    sched_setaffinity(Pid::from_raw(0), &one)
}

fn send(flows: &[Flow], clock: Clock, shared: &Shared) -> Result<Vec<Log>> {
    stay_here().context("cannot keep the sender on one processor")?;
    let mut logs: Vec<Log> = vec![Log::default(); flows.len()];
    let mut forgiven = vec![0; flows.len()];
    let longest = flows.iter().map(|it| it.length).max().unwrap_or(0);
    let mut payload = vec![0; longest.max(SHORTEST)];
    let in_turn: usize = flows.iter().map(|it| it.length.div_ceil(PIECE)).sum();
    let window = (WINDOW / in_turn.max(1)).max(4) as u64;
    let mut rested = Instant::now();
    while !shared.is_over.load(Ordering::Acquire) {
        if rested.elapsed() > SHIFT {
            thread::sleep(REST);
            rested = Instant::now();
        }
        for (place, (flow, log)) in flows.iter().zip(&mut logs).enumerate() {
            let number = log.sent.len();
            let socket = flow.from.get(number % flow.from.len().max(1));
            let socket = socket.context("a flow without sockets")?;
            let head = (place as u64) << 32 | number as u64;
            if let Some(field) = payload.get_mut(..SHORTEST) {
                field.copy_from_slice(&head.to_be_bytes());
            }
            let bytes = payload.get(..flow.length.max(SHORTEST)).unwrap_or_default();
            log.sent.push(clock.now());
            put(socket, bytes, flow.to)?;
            if let Some(sent) = shared.sent.get(place) {
                sent.store(log.sent.len() as u64, Ordering::Release);
            }
        }
        for (place, _) in flows.iter().enumerate().filter(|(_, it)| it.is_paced) {
            let (Some(sent), Some(arrived)) = (shared.sent.get(place), shared.arrived.get(place))
            else {
                continue;
            };
            let sent = sent.load(Ordering::Acquire);
            let under_way =
                |forgiven: u64| sent.saturating_sub(arrived.load(Ordering::Acquire) + forgiven);
            let Some(forgiven) = forgiven.get_mut(place) else {
                continue;
            };
            let started = Instant::now();
            while under_way(*forgiven) > window {
                if started.elapsed() > STALLED {
                    *forgiven = sent.saturating_sub(arrived.load(Ordering::Acquire));
                }
                thread::yield_now();
            }
        }
    }
    Ok(logs)
}

/// Sends, and waits while the kernel's queues are full.
fn put(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + LAST;
    loop {
        match socket.send_to(bytes, to) {
            Ok(_) => return Ok(()),
            Err(error) => {
                let is_full = error.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32);
                // What came back about an earlier packet is not about this one.
                let is_of_another = error.kind() == io::ErrorKind::ConnectionRefused;
                if !(is_full || is_of_another) || Instant::now() > deadline {
                    return Err(error).with_context(|| format!("cannot send to {to}"));
                }
            }
        }
    }
}

/// The flow, the number and the time of every packet that arrives.
fn receive(ear: &UdpSocket, clock: Clock, shared: &Shared) -> Result<Vec<(u32, u32, u64)>> {
    let mut all = Vec::new();
    let mut buffer = [0; 65_536];
    loop {
        let was_quiet = shared.is_quiet.load(Ordering::Acquire);
        match ear.recv(&mut buffer) {
            Ok(length) => {
                let at = clock.now();
                let head = buffer
                    .get(..length)
                    .and_then(|it| it.first_chunk::<SHORTEST>());
                let Some(head) = head.map(|it| u64::from_be_bytes(*it)) else {
                    continue;
                };
                let (flow, number) = ((head >> 32) as u32, head as u32);
                all.push((flow, number, at));
                if let Some(arrived) = shared.arrived.get(flow as usize) {
                    arrived.fetch_add(1, Ordering::AcqRel);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if was_quiet {
                    return Ok(all);
                }
            }
            // An earlier answer of this socket met nobody.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
}
