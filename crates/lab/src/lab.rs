//! A running cluster: built, enforced by the shipped code, and measured with packets.

use std::collections::HashMap;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use palisade_core::answer::Transport;
use palisade_core::net::Protocol;
use palisade_core::plan::plan;
use palisade_core::program::Program;
use palisade_core::text::ticked;
use palisade_nft::node::{Generation, NodeOptions, SenderChecks, Settings, ruleset};
use palisade_nft::ruleset::{Interface, Ruleset};
use palisade_nft::{Conntrack, Kernel};

use crate::complete::CompletedCluster;
use crate::network::{LabNetwork, NetworkError, UPLINK};
use crate::packet;
use crate::probe_plan::{NodeEntries, ProbeKind, ProbePlan};
use crate::services::translations;
use crate::topology::Location;
use crate::wire::{Probe, Wire, WireError};

/// Why a lab cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The network could not be built.
    #[error(transparent)]
    World(#[from] NetworkError),
    /// Packets could not be sent or received.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A node's kernel refused.
    #[error("on the node {}", ticked(node))]
    Kernel {
        /// The node.
        node: String,
        /// The error.
        source: palisade_nft::Error,
    },
}

/// The outcome of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeOutcome {
    /// It arrived, and so did the answer, if one is required.
    Arrived,
    /// It arrived, but its answer did not come back.
    Unanswered,
    /// It did not arrive, although a later packet did.
    Absent,
}

/// A running cluster.
#[derive(Debug)]
pub struct Lab {
    world: LabNetwork,
    wire: Wire,
    nodes: Vec<Node>,
    /// Whether each measured pod reaches itself.
    reach_themselves: HashMap<usize, bool>,
}

/// The open sockets in a node's network.
#[derive(Debug)]
struct Node {
    name: String,
    kernel: Kernel,
    conntrack: Conntrack,
}

/// The number of times that a probe is sent again if it did not arrive.
// A packet may be lost on a busy machine. A denial is the same each time.
const MORE_TRIES: usize = 2;

/// The number of times that a probe is sent again if its answer did not come back.
// The kernel sends ICMP errors and echo replies of all namespaces through one socket for each
// processor. It sends none while a packet of any namespace is stuck there, hence the pauses.
const ANSWER_TRIES: usize = 4;
const ANSWER_PAUSE: Duration = Duration::from_secs(1);

impl Lab {
    /// Builds a cluster without any policy. `progress` is called with the number of namespaces that
    /// exist.
    pub fn build(
        completed: &CompletedCluster<'_>,
        entries: &NodeEntries,
        progress: &dyn Fn(usize),
    ) -> Result<Lab, LabError> {
        let world = LabNetwork::build(&completed.topology, progress)?;
        let mut nodes = Vec::new();
        for (index, node) in completed.cluster.nodes.iter().enumerate() {
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

    /// Returns the network namespaces.
    pub fn world(&self) -> &LabNetwork {
        &self.world
    }

    /// Returns the sockets.
    pub fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// Returns the nftables client of a node, for tests.
    pub fn kernel(&mut self, node: usize) -> Option<&mut Kernel> {
        self.nodes.get_mut(node).map(|node| &mut node.kernel)
    }

    /// Installs the policies in the kernel of every node.
    pub fn enforce(
        &mut self,
        completed: &CompletedCluster<'_>,
        program: &Program,
        generation: Generation,
    ) -> Result<(), LabError> {
        let settings = node_settings(generation);
        for index in 0..self.nodes.len() {
            let ruleset = node_ruleset(completed, program, &settings, index);
            self.install(index, &ruleset)?;
        }
        Ok(())
    }

    /// Installs a ruleset in the kernel of one node.
    pub fn install(&mut self, node: usize, ruleset: &Ruleset) -> Result<(), LabError> {
        let known = self.nodes.get_mut(node);
        let node = known.ok_or(NetworkError::NoSuchPlace(Location::Node(node)))?;
        let installed = node.kernel.install(ruleset);
        installed
            .map(drop)
            .map_err(|source| failed(&node.name, source))
    }

    /// Deletes all connections of all nodes.
    pub fn clear_connections(&mut self) -> Result<(), LabError> {
        for node in &mut self.nodes {
            let flushed = node.conntrack.flush();
            flushed.map_err(|source| failed(&node.name, source))?;
        }
        Ok(())
    }

    /// Measures flows, each by its probe. `progress` is called with the number of flows that are
    /// done.
    pub fn measure(
        &mut self,
        means: &[ProbeKind],
        progress: &dyn Fn(usize),
    ) -> Result<Vec<ProbeOutcome>, LabError> {
        let mut outcomes = vec![ProbeOutcome::Absent; means.len()];
        let mut rest = Vec::new();
        for (index, means) in means.iter().enumerate() {
            match means {
                ProbeKind::Packet(attempt) => rest.push((index, *attempt)),
                ProbeKind::Inside(pod) => {
                    if self.reaches_itself(*pod)?
                        && let Some(outcome) = outcomes.get_mut(index)
                    {
                        *outcome = ProbeOutcome::Arrived;
                    }
                }
            }
        }
        let mut done = means.len() - rest.len();
        for round in rounds(rest) {
            for part in round.attempts.chunks(PART) {
                self.measure_part(part, &mut outcomes)?;
                done += part.len();
                progress(done);
                if round.needs_memory_cleared {
                    self.clear_connections()?;
                }
            }
        }
        Ok(outcomes)
    }

    fn measure_part(
        &mut self,
        part: &[(usize, ProbePlan)],
        outcomes: &mut [ProbeOutcome],
    ) -> Result<(), LabError> {
        let mut left: Vec<(usize, ProbePlan)> = part.to_vec();
        for _ in 0..=MORE_TRIES {
            self.try_once(&mut left, outcomes)?;
        }
        let is_unanswered = |(index, _): &(usize, ProbePlan)| {
            let outcome: Option<&ProbeOutcome> = outcomes.get(*index);
            outcome == Some(&ProbeOutcome::Unanswered)
        };
        let mut unanswered: Vec<(usize, ProbePlan)> =
            left.into_iter().filter(is_unanswered).collect();
        for _ in 0..ANSWER_TRIES {
            if unanswered.is_empty() {
                break;
            }
            std::thread::sleep(ANSWER_PAUSE);
            self.try_once(&mut unanswered, outcomes)?;
        }
        Ok(())
    }

    /// Sends probes once, records the best outcome of each, and keeps those that can still get a
    /// better one.
    fn try_once(
        &mut self,
        left: &mut Vec<(usize, ProbePlan)>,
        outcomes: &mut [ProbeOutcome],
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
            if let Some(outcome) = outcomes.get_mut(index) {
                // Outcomes are ordered from best to worst.
                *outcome = now.min(*outcome);
            }
            if now != ProbeOutcome::Arrived {
                rest.push((index, attempt));
            }
        }
        *left = rest;
        Ok(())
    }

    /// Reports whether the destination's kernel must answer, and the answer reaches the sender. It
    /// refuses a connection, reports a closed port, or echoes.
    fn must_answer(&self, attempt: &ProbePlan) -> bool {
        let is_answered = match attempt.carried {
            Transport::Port(Protocol::Tcp | Protocol::Udp, _)
            | Transport::Icmp
            | Transport::Icmp6(None) => true,
            Transport::Port(Protocol::Sctp, _) | Transport::Icmp6(Some(_)) | Transport::Ip(_) => {
                false
            }
        };
        // The answer goes to the owner of the source address.
        is_answered && self.world.owner(attempt.source) == Some(attempt.from)
    }

    /// Reports whether a pod reaches itself. Such packets never leave the pod.
    fn reaches_itself(&mut self, pod: usize) -> Result<bool, LabError> {
        if let Some(known) = self.reach_themselves.get(&pod) {
            return Ok(*known);
        }
        let addresses = self.world.topology().pods.get(pod);
        let addresses = addresses.map_or(Vec::new(), |pod| pod.addresses.clone());
        let reaches = self
            .world
            .in_pod(pod, || addresses.iter().all(|it| is_loopback_flow(*it)))?;
        self.reach_themselves.insert(pod, reaches);
        Ok(reaches)
    }
}

/// Returns the settings of every node: those of an agent with default options, on nodes without
/// address blocks for pods.
pub fn node_settings(generation: Generation) -> Settings {
    Settings::of_node(generation, &node_options())
}

/// Returns the options of a node as an agent would determine them: one interface does not lead to
/// pods.
pub fn node_options() -> NodeOptions {
    let elsewhere = Interface::new(UPLINK).into_iter().collect();
    NodeOptions {
        senders: SenderChecks::Checked {
            elsewhere,
            every: false,
        },
        ..NodeOptions::default()
    }
}

/// Makes the ruleset of one node of a cluster.
pub fn node_ruleset(
    completed: &CompletedCluster<'_>,
    program: &Program,
    settings: &Settings,
    index: usize,
) -> Ruleset {
    let cluster = &completed.cluster;
    let name = cluster.nodes.get(index).map_or("", |node| node.name);
    ruleset(&plan(cluster, program, name), settings)
}

fn failed(node: &str, source: palisade_nft::Error) -> LabError {
    LabError::Kernel {
        node: node.to_owned(),
        source,
    }
}

/// The number of probes that are sent before the absent ones are sent again.
const PART: usize = 8_192;

fn is_loopback_flow(address: IpAddr) -> bool {
    let talk = || -> std::io::Result<bool> {
        let socket = UdpSocket::bind((address, 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(1)))?;
        socket.send_to(b"to myself", socket.local_addr()?)?;
        let mut received = [0; 16];
        Ok(socket.recv(&mut received)? == 9)
    };
    talk().unwrap_or(false)
}

/// Probes that can be sent side by side.
struct ProbeBatch {
    attempts: Vec<(usize, ProbePlan)>,
    needs_memory_cleared: bool,
}

/// Divides probes into rounds that do not disturb each other in connection tracking.
fn rounds(attempts: Vec<(usize, ProbePlan)>) -> Vec<ProbeBatch> {
    // Without ports a connection is known by its two addresses alone: a packet in the other
    // direction would count as a reply. Such probes are in different rounds. So are those of
    // different protocols: connection tracking looks behind some of them, and may find the same in
    // both.
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

/// Returns the payload of a probe for the transport of a flow.
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
