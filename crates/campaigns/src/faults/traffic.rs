//! Packets at full rate during other work: one thread sends numbered packets of all flows in turn,
//! and one thread for each receiving socket records which arrived and when.
//!
//! Every loss must be caused by policy, not by a full queue: the sender never has more packets of a
//! paced flow in flight than the smallest queue of the path holds.

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

/// A monotonic clock, in nanoseconds since its start.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// The time.
    pub fn now(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Runs the work, and returns its start and end.
    pub fn time<T>(self, work: impl FnOnce() -> T) -> (T, (u64, u64)) {
        let started = self.now();
        let result = work();
        (result, (started, self.now()))
    }
}

/// Packets from some sockets to one address.
#[derive(Debug)]
pub struct Flow {
    /// The sending sockets, in turn.
    pub from: Vec<UdpSocket>,
    /// The destination.
    pub to: SocketAddr,
    /// The length of the payload.
    pub length: usize,
    /// Whether its packets always arrive: then the sender waits for them.
    pub is_paced: bool,
}

/// The length of the smallest payload: the numbers of the flow and of the packet.
pub const MIN_PAYLOAD: usize = 8;

/// Flows and receiving sockets.
#[derive(Debug, Default)]
pub struct Traffic {
    flows: Vec<Flow>,
    receivers: Vec<UdpSocket>,
    /// The locations whose sockets may overflow.
    locations: Vec<Location>,
}

/// The maximum number of packets in flight, of all flows together. The kernel's queue holds a
/// thousand, a socket's default buffer some hundreds.
const MAX_IN_FLIGHT: usize = 400;
/// The sender pauses regularly: a commit waits for an RCU grace period, which can take seconds on a
/// processor that only ever sends.
const PAUSE_INTERVAL: Duration = Duration::from_millis(4);
const PAUSE: Duration = Duration::from_micros(50);
/// The largest payload without fragmentation.
const LINK_PAYLOAD: usize = 1_400;
/// The time after which the sender counts missing packets as lost, and continues.
const STALL_TIMEOUT: Duration = Duration::from_millis(5);
/// The maximum wait for packets in flight at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval at which a receiver checks whether to stop.
const READ_TIMEOUT: Duration = Duration::from_millis(10);
/// The receive buffer of a socket.
const RECEIVE_BUFFER: usize = 4 << 20;

/// The state shared by the threads.
#[derive(Debug, Default)]
struct Shared {
    is_done: AtomicBool,
    is_drained: AtomicBool,
    /// The numbers of packets sent and arrived, by flow.
    sent: Vec<AtomicU64>,
    arrived: Vec<AtomicU64>,
}

impl Traffic {
    /// Adds a flow, and returns its index.
    pub fn add(&mut self, flow: Flow) -> usize {
        self.flows.push(flow);
        self.flows.len() - 1
    }

    /// Adds a receiving socket.
    pub fn add_receiver(&mut self, index: Location, receiver: &UdpSocket) -> Result<()> {
        let receiver = receiver.try_clone()?;
        receiver.set_read_timeout(Some(READ_TIMEOUT))?;
        socket2::SockRef::from(&receiver).set_recv_buffer_size(RECEIVE_BUFFER)?;
        self.receivers.push(receiver);
        if !self.locations.contains(&index) {
            self.locations.push(index);
        }
        Ok(())
    }

    /// Sends packets of all flows during the work. Returns its result, and the log of each flow.
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
            let receivers: Vec<_> = self
                .receivers
                .iter()
                .map(|receiver| scope.spawn(|| receive(receiver, clock, &shared)))
                .collect();
            let sender = scope.spawn(|| send(&self.flows, clock, &shared));
            let result = self.warm_up(&shared).and_then(|()| work());
            shared.is_done.store(true, Ordering::Release);
            let sent = sender.join();
            self.drain(&shared);
            shared.is_drained.store(true, Ordering::Release);
            let arrived: Vec<_> = receivers.into_iter().map(|it| it.join()).collect();
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
            // A receiver got no processor time. Paced flows cannot overflow.
            for (log, flow) in logs.iter_mut().zip(&self.flows) {
                log.may_have_overflowed = !flow.is_paced;
            }
        }
        Ok((result, logs))
    }

    /// Waits until packets of all flows are sent, and packets of all paced flows arrive.
    fn warm_up(&self, shared: &Shared) -> Result<()> {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let is_warm = |(index, flow): (usize, &Flow)| {
            let reached = |counts: &[AtomicU64]| {
                let count = counts.get(index).map(|it| it.load(Ordering::Acquire));
                count.unwrap_or(0) >= 20
            };
            reached(&shared.sent) && (!flow.is_paced || reached(&shared.arrived))
        };
        while !self.flows.iter().enumerate().all(is_warm) {
            if Instant::now() > deadline {
                bail!("allowed packets do not arrive before the first change");
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Waits until all packets of paced flows have arrived, or are surely lost.
    fn drain(&self, shared: &Shared) {
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let is_complete = |(index, flow): (usize, &Flow)| {
            let load =
                |counts: &[AtomicU64]| counts.get(index).map(|it| it.load(Ordering::Acquire));
            !flow.is_paced || load(&shared.sent) == load(&shared.arrived)
        };
        while !self.flows.iter().enumerate().all(is_complete) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The number of datagrams dropped by full sockets, in all receiving locations.
    fn overflows(&self, world: &LabNetwork) -> Result<u64> {
        let mut sum = 0;
        for index in &self.locations {
            let counters = || -> io::Result<(String, String)> {
                let snmp = std::fs::read_to_string("/proc/thread-self/net/snmp")?;
                let snmp6 = std::fs::read_to_string("/proc/thread-self/net/snmp6")?;
                Ok((snmp, snmp6))
            };
            let (snmp, snmp6) = world.run_in(*index, counters)??;
            let ipv4 = counter(&snmp, "Udp:", "RcvbufErrors");
            let ipv6 = snmp6
                .lines()
                .find_map(|it| it.strip_prefix("Udp6RcvbufErrors"));
            sum += ipv4.context("the kernel does not count dropped datagrams")?;
            sum += ipv6
                .and_then(|it| it.trim().parse::<u64>().ok())
                .unwrap_or(0);
        }
        Ok(sum)
    }
}

/// A counter of `/proc/net/snmp`: the first line of a group has the names, the second the numbers.
pub fn counter(snmp: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter(|it| it.starts_with(group));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let index = names.split_whitespace().position(|it| it == name)?;
    numbers.split_whitespace().nth(index)?.parse().ok()
}

/// Pins the sender to its processor: packets keep their order only on one processor.
fn pin_to_processor() -> nix::Result<()> {
    let mut one = CpuSet::new();
    one.set(sched_getcpu()?)?;
    sched_setaffinity(Pid::from_raw(0), &one)
}

fn send(flows: &[Flow], clock: Clock, shared: &Shared) -> Result<Vec<Log>> {
    pin_to_processor().context("cannot keep the sender on one processor")?;
    let mut logs: Vec<Log> = vec![Log::default(); flows.len()];
    let mut written_off = vec![0; flows.len()];
    let longest = flows.iter().map(|it| it.length).max().unwrap_or(0);
    let mut payload = vec![0; longest.max(MIN_PAYLOAD)];
    let packets_per_round: usize = flows
        .iter()
        .map(|it| it.length.div_ceil(LINK_PAYLOAD))
        .sum();
    let window = (MAX_IN_FLIGHT / packets_per_round.max(1)).max(4) as u64;
    let mut last_pause = Instant::now();
    while !shared.is_done.load(Ordering::Acquire) {
        if last_pause.elapsed() > PAUSE_INTERVAL {
            thread::sleep(PAUSE);
            last_pause = Instant::now();
        }
        for (index, (flow, log)) in flows.iter().zip(&mut logs).enumerate() {
            let number = log.sent.len();
            let socket = flow.from.get(number % flow.from.len().max(1));
            let socket = socket.context("a flow without sockets")?;
            let head = (index as u64) << 32 | number as u64;
            if let Some(field) = payload.get_mut(..MIN_PAYLOAD) {
                field.copy_from_slice(&head.to_be_bytes());
            }
            let bytes = payload
                .get(..flow.length.max(MIN_PAYLOAD))
                .unwrap_or_default();
            log.sent.push(clock.now());
            send_packet(socket, bytes, flow.to)?;
            if let Some(sent) = shared.sent.get(index) {
                sent.store(log.sent.len() as u64, Ordering::Release);
            }
        }
        for (index, _) in flows.iter().enumerate().filter(|(_, it)| it.is_paced) {
            let (Some(sent), Some(arrived)) = (shared.sent.get(index), shared.arrived.get(index))
            else {
                continue;
            };
            let sent = sent.load(Ordering::Acquire);
            let in_flight = |written_off: u64| {
                sent.saturating_sub(arrived.load(Ordering::Acquire) + written_off)
            };
            let Some(written_off) = written_off.get_mut(index) else {
                continue;
            };
            let started = Instant::now();
            while in_flight(*written_off) > window {
                if started.elapsed() > STALL_TIMEOUT {
                    *written_off = sent.saturating_sub(arrived.load(Ordering::Acquire));
                }
                thread::yield_now();
            }
        }
    }
    Ok(logs)
}

/// Sends a packet, and waits while the kernel's queues are full.
fn send_packet(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    loop {
        match socket.send_to(bytes, to) {
            Ok(_) => return Ok(()),
            Err(error) => {
                let is_full = error.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32);
                // An ICMP error of an earlier packet does not concern this one.
                let is_earlier_error = error.kind() == io::ErrorKind::ConnectionRefused;
                if !(is_full || is_earlier_error) || Instant::now() > deadline {
                    return Err(error).with_context(|| format!("cannot send to {to}"));
                }
            }
        }
    }
}

/// The flow, the number and the time of every packet that arrives.
fn receive(receiver: &UdpSocket, clock: Clock, shared: &Shared) -> Result<Vec<(u32, u32, u64)>> {
    let mut all = Vec::new();
    let mut buffer = [0; 65_536];
    loop {
        let was_drained = shared.is_drained.load(Ordering::Acquire);
        match receiver.recv(&mut buffer) {
            Ok(length) => {
                let at = clock.now();
                let head = buffer
                    .get(..length)
                    .and_then(|it| it.first_chunk::<MIN_PAYLOAD>());
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
                if was_drained {
                    return Ok(all);
                }
            }
            // An ICMP error of an earlier packet of this socket.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error).context("cannot receive"),
        }
    }
}
