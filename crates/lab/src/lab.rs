//! A cluster that runs: built, enforced by the real code, and asked with packets.

use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use palisade_core::answer::Transport;
use palisade_core::net::Protocol;
use palisade_core::plan::plan;
use palisade_core::program::Program;
use palisade_core::text::ticked;
use palisade_nft::node::{Generation, NodeOptions, Senders, Settings, ruleset};
use palisade_nft::ruleset::{Interface, Ruleset};
use palisade_nft::{Conntrack, Kernel};

use crate::complete::CompletedCluster;
use crate::network::{LabNetwork, UPLINK, WorldError};
use crate::packet;
use crate::probe_plan::{NodeEntries, ProbeKind, ProbePlan};
use crate::services::translations;
use crate::topology::Location;
use crate::wire::{Probe, Wire, WireError};

/// Why a lab cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// It could not be built.
    #[error(transparent)]
    World(#[from] WorldError),
    /// Packets could not be sent or received.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A node's kernel refused.
    #[error("on the node {}", ticked(node))]
    Kernel {
        /// The node.
        node: String,
        /// Why.
        source: palisade_nft::Error,
    },
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeOutcome {
    /// It arrived, and what had to be answered was.
    Arrived,
    /// It arrived, but its answer did not come back.
    Unanswered,
    /// It did not arrive, and what was sent after it did.
    Absent,
}

/// A cluster that runs.
#[derive(Debug)]
pub struct Lab {
    world: LabNetwork,
    wire: Wire,
    nodes: Vec<Node>,
    /// The pods that were seen to reach themselves.
    reach_themselves: HashMap<usize, bool>,
}

/// What is open in a node's network.
#[derive(Debug)]
struct Node {
    name: String,
    kernel: Kernel,
    conntrack: Conntrack,
}

/// A probe that did not arrive is sent so many times more: a packet may be lost, a denial is not
/// a matter of luck.
const MORE_TRIES: usize = 2;

/// An answer that does not come back is waited for longer. The kernel sends errors and echoes of all
/// namespaces through one socket a processor, and sends none while somebody's are stuck in it.
const ANSWER_TRIES: usize = 4;
const ANSWER_PAUSE: Duration = Duration::from_secs(1);

impl Lab {
    /// Builds a cluster without any policy. `progress` gets the number of namespaces that exist.
    pub fn build(
        furnished: &CompletedCluster<'_>,
        entries: &NodeEntries,
        progress: &dyn Fn(usize),
    ) -> Result<Lab, LabError> {
        let world = LabNetwork::build(&furnished.topology, progress)?;
        let mut nodes = Vec::new();
        for (index, node) in furnished.cluster.nodes.iter().enumerate() {
            let opened = world.in_node(index, || Ok((Kernel::open()?, Conntrack::open()?)))?;
            let failed = |source| failed(node.name, source);
            let (mut kernel, conntrack) = opened.map_err(failed)?;
            let entries = entries.of_node(index);
            if !entries.is_empty() {
                kernel
                    .install_plain(&translations(&entries))
                    .map_err(failed)?;
            }
            nodes.push(Node {
                name: node.name.to_owned(),
                kernel,
                conntrack,
            });
        }
        let wire = Wire::open(&world)?;
        Ok(Lab {
            world,
            wire,
            nodes,
            reach_themselves: HashMap::new(),
        })
    }

    /// The namespaces.
    pub fn world(&self) -> &LabNetwork {
        &self.world
    }

    /// The sockets.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// The open kernel of a node, for tests.
    pub fn kernel(&mut self, node: usize) -> Option<&mut Kernel> {
        self.nodes.get_mut(node).map(|node| &mut node.kernel)
    }

    /// Puts the policies into the kernel of every node.
    pub fn enforce(
        &mut self,
        furnished: &CompletedCluster<'_>,
        program: &Program,
        generation: Generation,
    ) -> Result<(), LabError> {
        let settings = node_settings(generation);
        for index in 0..self.nodes.len() {
            let ruleset = node_ruleset(furnished, program, &settings, index);
            self.install(index, &ruleset)?;
        }
        Ok(())
    }

    /// Puts a ruleset into the kernel of one node.
    pub fn install(&mut self, node: usize, ruleset: &Ruleset) -> Result<(), LabError> {
        let known = self.nodes.get_mut(node);
        let node = known.ok_or(WorldError::NoSuchPlace(Location::Node(node)))?;
        let installed = node.kernel.install(ruleset);
        installed
            .map(drop)
            .map_err(|source| failed(&node.name, source))
    }

    /// Forgets all connections of all nodes.
    pub fn clear_connections(&mut self) -> Result<(), LabError> {
        for node in &mut self.nodes {
            let flushed = node.conntrack.flush();
            flushed.map_err(|source| failed(&node.name, source))?;
        }
        Ok(())
    }

    /// Shows flows, each by its means. `progress` gets the number of flows that are done.
    pub fn measure(
        &mut self,
        means: &[ProbeKind],
        progress: &dyn Fn(usize),
    ) -> Result<Vec<ProbeOutcome>, LabError> {
        let mut seen = vec![ProbeOutcome::Absent; means.len()];
        let mut rest = Vec::new();
        for (index, means) in means.iter().enumerate() {
            match means {
                ProbeKind::Packet(attempt) => rest.push((index, *attempt)),
                ProbeKind::Inside(pod) => {
                    if self.reaches_itself(*pod)?
                        && let Some(seen) = seen.get_mut(index)
                    {
                        *seen = ProbeOutcome::Arrived;
                    }
                }
            }
        }
        let mut done = means.len() - rest.len();
        for round in rounds(rest) {
            for part in round.attempts.chunks(PART) {
                self.measure_part(part, &mut seen)?;
                done += part.len();
                progress(done);
                if round.needs_memory_cleared {
                    self.clear_connections()?;
                }
            }
        }
        Ok(seen)
    }

    fn measure_part(
        &mut self,
        part: &[(usize, ProbePlan)],
        seen: &mut [ProbeOutcome],
    ) -> Result<(), LabError> {
        let mut left: Vec<(usize, ProbePlan)> = part.to_vec();
        for _ in 0..=MORE_TRIES {
            self.try_once(&mut left, seen)?;
        }
        let is_unanswered = |(index, _): &(usize, ProbePlan)| {
            let seen: Option<&ProbeOutcome> = seen.get(*index);
            seen == Some(&ProbeOutcome::Unanswered)
        };
        let mut unanswered: Vec<(usize, ProbePlan)> =
            left.into_iter().filter(is_unanswered).collect();
        for _ in 0..ANSWER_TRIES {
            if unanswered.is_empty() {
                break;
            }
            std::thread::sleep(ANSWER_PAUSE);
            self.try_once(&mut unanswered, seen)?;
        }
        Ok(())
    }

    /// Sends packets once, notes the best that was seen of each, and leaves those for which there is
    /// something better to see.
    fn try_once(
        &mut self,
        left: &mut Vec<(usize, ProbePlan)>,
        seen: &mut [ProbeOutcome],
    ) -> Result<(), LabError> {
        let probes: Vec<Probe> = left.iter().map(|(_, attempt)| probe(attempt)).collect();
        let measured = self.wire.probe(&probes, &|_| {})?;
        let mut rest = Vec::new();
        for ((index, attempt), measured) in std::mem::take(left).into_iter().zip(measured) {
            let arrived = measured.arrived == Some(attempt.to);
            let now = match (arrived, measured.answered || !self.must_answer(&attempt)) {
                (true, true) => ProbeOutcome::Arrived,
                (true, false) => ProbeOutcome::Unanswered,
                (false, _) => ProbeOutcome::Absent,
            };
            if let Some(seen) = seen.get_mut(index) {
                *seen = now.min(*seen);
            }
            if now != ProbeOutcome::Arrived {
                rest.push((index, attempt));
            }
        }
        *left = rest;
        Ok(())
    }

    /// Whether the other end's kernel must answer, and the sender can hear it: it refuses a connection,
    /// says that nobody listens, or echoes.
    fn must_answer(&self, attempt: &ProbePlan) -> bool {
        let is_answered = match attempt.carried {
            Transport::Port(Protocol::Tcp | Protocol::Udp, _)
            | Transport::Icmp
            | Transport::Icmp6(None) => true,
            Transport::Port(Protocol::Sctp, _) | Transport::Icmp6(Some(_)) | Transport::Ip(_) => {
                false
            }
        };
        // Whoever sends with the address of another does not get the answer.
        is_answered && self.world.owner(attempt.source) == Some(attempt.from)
    }

    /// Whether a pod reaches itself: its own packets never leave it.
    fn reaches_itself(&mut self, pod: usize) -> Result<bool, LabError> {
        if let Some(known) = self.reach_themselves.get(&pod) {
            return Ok(*known);
        }
        let addresses = self.world.topology().pods.get(pod);
        let addresses = addresses.map_or(Vec::new(), |pod| pod.addresses.clone());
        let reaches = self
            .world
            .in_pod(pod, || addresses.iter().all(|it| talks_to_itself(*it)))?;
        self.reach_themselves.insert(pod, reaches);
        Ok(reaches)
    }
}

/// What the ruleset of every node depends on beside its plan: what an agent would set whose
/// administrator chose nothing, on nodes without blocks of addresses for their pods.
pub fn node_settings(generation: Generation) -> Settings {
    Settings::of_node(generation, &node_options())
}

/// What an agent finds out about a node of the lab: one interface leads elsewhere.
pub fn node_options() -> NodeOptions {
    let elsewhere = Interface::new(UPLINK).into_iter().collect();
    NodeOptions {
        senders: Senders::Checked {
            elsewhere,
            every: false,
        },
        ..NodeOptions::default()
    }
}

/// The ruleset of one node of a cluster.
pub fn node_ruleset(
    furnished: &CompletedCluster<'_>,
    program: &Program,
    settings: &Settings,
    index: usize,
) -> Ruleset {
    let cluster = &furnished.cluster;
    let name = cluster.nodes.get(index).map_or("", |node| node.name);
    ruleset(&plan(cluster, program, name), settings)
}

fn failed(node: &str, source: palisade_nft::Error) -> LabError {
    LabError::Kernel {
        node: node.to_owned(),
        source,
    }
}

/// So many probes are sent before the absent ones are sent again.
const PART: usize = 8_192;

fn talks_to_itself(address: IpAddr) -> bool {
    let talk = || -> std::io::Result<bool> {
        let socket = UdpSocket::bind((address, 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        socket.send_to(b"to myself", socket.local_addr()?)?;
        let mut received = [0; 16];
        Ok(socket.recv(&mut received)? == 9)
    };
    talk().unwrap_or(false)
}

/// Attempts that can be made side by side.
struct ProbeBatch {
    attempts: Vec<(usize, ProbePlan)>,
    needs_memory_cleared: bool,
}

/// Connection tracking knows a protocol without ports by its addresses alone, so that a packet the
/// other way would count as an answer: such attempts are made in different rounds. So are those of
/// different protocols: it looks behind some of them, and may see the same in both.
fn rounds(attempts: Vec<(usize, ProbePlan)>) -> Vec<ProbeBatch> {
    let mut with_ports = Vec::new();
    let mut without: Vec<ProbeBatch> = Vec::new();
    let mut used: HashMap<(IpAddr, IpAddr), usize> = HashMap::new();
    for (index, attempt) in attempts {
        if !matches!(attempt.carried, Transport::Ip(_)) {
            with_ports.push((index, attempt));
            continue;
        }
        let (one, other) = (attempt.source, attempt.destination);
        let key = (one.min(other), one.max(other));
        let rounds_before = used.entry(key).or_default();
        if without.len() == *rounds_before {
            without.push(ProbeBatch {
                attempts: Vec::new(),
                needs_memory_cleared: true,
            });
        }
        if let Some(round) = without.get_mut(*rounds_before) {
            round.attempts.push((index, attempt));
        }
        *rounds_before += 1;
    }
    let mut rounds = vec![ProbeBatch {
        needs_memory_cleared: !without.is_empty() || with_ports.len() > PART,
        attempts: with_ports,
    }];
    rounds.extend(without);
    rounds
}

fn probe(attempt: &ProbePlan) -> Probe {
    Probe {
        from: attempt.from,
        source: attempt.source,
        destination: attempt.destination,
        carried: sent(attempt.carried),
        source_port: attempt.source_port,
    }
}

/// What is sent for something that was asked about.
fn sent(carried: Transport) -> packet::ProbePayload {
    match carried {
        Transport::Port(Protocol::Tcp, port) => packet::ProbePayload::Tcp { port: port.get() },
        Transport::Port(Protocol::Udp, port) => packet::ProbePayload::Udp { port: port.get() },
        Transport::Port(Protocol::Sctp, port) => packet::ProbePayload::Sctp { port: port.get() },
        Transport::Icmp | Transport::Icmp6(None) => packet::ProbePayload::Echo,
        Transport::Icmp6(Some(kind)) => packet::ProbePayload::Icmpv6 { kind },
        Transport::Ip(protocol) => packet::ProbePayload::Other { protocol },
    }
}
