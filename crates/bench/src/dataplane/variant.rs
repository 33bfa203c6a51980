//! A variant: a node with two pods, and the sockets of the traffic.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use palisade_core::net::Family;
use palisade_lab::network::LabNetwork;
use palisade_lab::topology::{NodeSpec, PodSpec, Topology};
use palisade_nft::ruleset::{Chain, Match, Name, Rule, Ruleset, Statement, Verdict, state};
use palisade_nft::{Conntrack, Kernel};
use serde::{Serialize, Serializer};
use socket2::{Domain, Protocol, Socket, Type};

use super::cluster::{CLIENT, PORT, SERVER, pod_address};
use super::parts::Part;
use super::path::{Begun, Path};
use super::traffic::FRESH;

/// Everything arrives at once or never.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time after which a packet counts as dropped.
const SILENCE: Duration = Duration::from_millis(100);

/// The ruleset of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It forwards them.
    Forwarding,
    /// It tracks connections too, as it does wherever there are Services.
    Conntrack,
    /// A number of policies.
    Policies(usize),
    /// It would, if a part were not missing.
    Without(Part),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Forwarding => f.write_str("forwarding"),
            Kind::Conntrack => f.write_str("conntrack"),
            Kind::Policies(count) => write!(f, "palisade {count}"),
            Kind::Without(part) => write!(f, "- {part}"),
        }
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A node with a client and a server.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) kind: Kind,
    pub(super) ends: [Ends; 2],
    conntrack: Conntrack,
    // The table is its socket's.
    kernel: Kernel,
    world: LabNetwork,
    /// The rule chains of the traffic, for each family; empty for rules of another benchmark.
    paths: Option<[Path; 2]>,
    begun: [Begun; 2],
}

/// The sockets of one family.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) server: SocketAddr,
    /// Where the server takes packets.
    pub(super) receiver: UdpSocket,
    /// The lasting flow.
    pub(super) sender: UdpSocket,
    /// Flows of one packet each, whose entries are deleted after each slice.
    pub(super) fresh: Vec<UdpSocket>,
    /// Where the server takes connections.
    pub(super) listener: Socket,
}

impl Variant {
    /// Builds the namespaces, installs what the node does, and opens the sockets.
    pub(super) fn build(kind: Kind, ruleset: Option<&Ruleset>) -> Result<Variant> {
        let world = LabNetwork::build(&topology(), &|_| {})?;
        let (conntrack, kernel) = world.in_node(0, || -> Result<_> {
            let mut kernel = Kernel::open()?;
            match (kind, ruleset) {
                (Kind::Forwarding, _) => {}
                (Kind::Conntrack, _) => kernel.install_plain(&tracking())?,
                (Kind::Policies(_) | Kind::Without(_), ruleset) => {
                    kernel.install(ruleset.context("a ruleset is missing")?)?;
                }
            }
            Ok((Conntrack::open()?, kernel))
        })??;
        let [ipv4, ipv6] = Family::BOTH.map(|family| Ends::open(&world, family));
        let mut variant = Variant {
            kind,
            ends: [ipv4?, ipv6?],
            conntrack,
            kernel,
            world,
            paths: None,
            begun: <[Begun; 2]>::default(),
        };
        variant.check_enforcement()?;
        Ok(variant)
    }

    /// Sets the rule chains of the traffic of each family. From then on their counters are checked.
    pub(super) fn checked_by(mut self, paths: [Path; 2]) -> Result<Variant> {
        self.paths = Some(paths);
        self.check_counters()?;
        Ok(self)
    }

    /// Notes that flows of a family have begun.
    pub(super) fn note(&mut self, family: Family, note: impl FnOnce(&mut Begun)) {
        let [ipv4, ipv6] = &mut self.begun;
        note(match family {
            Family::V4 => ipv4,
            Family::V6 => ipv6,
        });
    }

    /// Ensures that policies are enforced, by packets to a closed port and by the rules' counters
    /// of all traffic so far. Returns the number of flows.
    pub(super) fn check(&mut self) -> Result<u64> {
        self.check_enforcement()?;
        self.check_counters()
    }

    /// Every flow was allowed by the last rule of each direction, and none by the others; later
    /// packets of a flow pass without evaluation.
    fn check_counters(&mut self) -> Result<u64> {
        let Some(paths) = &self.paths else {
            return Ok(0);
        };
        let counts = self.kernel.counters()?;
        for (path, begun) in paths.iter().zip(self.begun) {
            path.check(&counts, begun)
                .with_context(|| self.kind.to_string())?;
        }
        Ok(self.begun.iter().map(|it| it.tcp + it.udp).sum())
    }

    /// A port that no policy allows is closed where policies are enforced, and nowhere else.
    fn check_enforcement(&mut self) -> Result<()> {
        for family in Family::BOTH {
            self.check_closed(family)?;
        }
        Ok(())
    }

    fn check_closed(&mut self, family: Family) -> Result<()> {
        let to = SocketAddr::new(pod_address(SERVER, family), PORT + 1);
        let server = self.world.in_pod(SERVER, || UdpSocket::bind(to))??;
        server.set_read_timeout(Some(SILENCE))?;
        let from = SocketAddr::new(pod_address(CLIENT, family), 0);
        let client = self.world.in_pod(CLIENT, || UdpSocket::bind(from))??;
        client.send_to(b"closed", to)?;
        self.note(family, |begun| begun.closed += 1);
        let arrived = server.recv(&mut [0; 16]).is_ok();
        let expected = match self.kind {
            Kind::Forwarding | Kind::Conntrack => true,
            Kind::Policies(_) => false,
            Kind::Without(_) => return Ok(()),
        };
        ensure!(
            arrived == expected,
            "{}: a packet to {to} arrived: {arrived}",
            self.kind
        );
        Ok(())
    }

    pub(super) fn ends(&self, family: Family) -> &Ends {
        let [ipv4, ipv6] = &self.ends;
        match family {
            Family::V4 => ipv4,
            Family::V6 => ipv6,
        }
    }

    /// Deletes all entries of connection tracking.
    pub(super) fn delete_connections(&mut self) -> Result<()> {
        Ok(self.conntrack.flush()?)
    }

    /// That connections are tracked where they should be, and nowhere else.
    pub(super) fn check_tracking(&mut self) -> Result<()> {
        let count = self.conntrack.count()?;
        ensure!(
            (count > 0) == (self.kind != Kind::Forwarding),
            "{}: {count} connections are tracked",
            self.kind
        );
        Ok(())
    }

    /// Sockets of the client that are not connected yet.
    pub(super) fn clients(&self, family: Family, count: usize) -> Result<Vec<Socket>> {
        self.world.in_pod(CLIENT, || {
            let sockets = (0..count).map(|_| -> Result<Socket> {
                let socket = stream(family)?;
                // This bounds the time to connect as well.
                socket.set_write_timeout(Some(PATIENCE))?;
                socket.set_read_timeout(Some(PATIENCE))?;
                Ok(socket)
            });
            sockets.collect()
        })?
    }
}

impl Ends {
    fn open(world: &LabNetwork, family: Family) -> Result<Ends> {
        let server = SocketAddr::new(pod_address(SERVER, family), PORT);
        let client = SocketAddr::new(pod_address(CLIENT, family), 0);
        let (receiver, listener) = world.in_pod(SERVER, || -> Result<_> {
            let receiver = UdpSocket::bind(server)?;
            receiver.set_read_timeout(Some(PATIENCE))?;
            let listener = stream(family)?;
            // Its connections inherit these. They are reset when both sides have finished: a socket
            // in TIME_WAIT would delay later ones.
            listener.set_linger(Some(Duration::ZERO))?;
            listener.set_read_timeout(Some(PATIENCE))?;
            listener.bind(&server.into())?;
            listener.listen(16)?;
            Ok((receiver, listener))
        })??;
        let (sender, fresh) = world.in_pod(CLIENT, || -> Result<_> {
            let open = || -> Result<UdpSocket> {
                let socket = UdpSocket::bind(client)?;
                socket.connect(server)?;
                socket.set_read_timeout(Some(PATIENCE))?;
                Ok(socket)
            };
            let fresh: Result<Vec<UdpSocket>> = match family {
                Family::V4 => (0..FRESH).map(|_| open()).collect(),
                Family::V6 => Ok(Vec::new()),
            };
            Ok((open()?, fresh?))
        })??;
        Ok(Ends {
            server,
            receiver,
            sender,
            fresh,
            listener,
        })
    }
}

fn stream(family: Family) -> Result<Socket> {
    let domain = match family {
        Family::V4 => Domain::IPV4,
        Family::V6 => Domain::IPV6,
    };
    Ok(Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?)
}

fn topology() -> Topology {
    let addresses = |index| {
        Family::BOTH
            .map(|family| pod_address(index, family))
            .to_vec()
    };
    Topology {
        nodes: vec![node_spec()],
        pods: [CLIENT, SERVER]
            .map(|index| PodSpec {
                node: 0,
                addresses: addresses(index),
            })
            .to_vec(),
        outside: Vec::new(),
    }
}

/// A node without tables.
pub(super) fn empty_node() -> Result<LabNetwork> {
    let topology = Topology {
        nodes: vec![node_spec()],
        ..Topology::default()
    };
    Ok(LabNetwork::build(&topology, &|_| {})?)
}

/// A node without pods, and its kernel, probed for its features.
pub(super) fn empty_kernel() -> Result<(LabNetwork, Kernel)> {
    let world = empty_node()?;
    let kernel = world.in_node(0, || -> Result<Kernel> {
        let mut kernel = Kernel::open()?;
        kernel.probe()?;
        Ok(kernel)
    })??;
    Ok((world, kernel))
}

pub(super) fn node_spec() -> NodeSpec {
    let address = IpAddr::V4(Ipv4Addr::new(192, 168, 0, 1));
    NodeSpec {
        addresses: vec![address],
    }
}

/// The least that makes the kernel track connections: a rule that matches their state, in a chain
/// that no packet enters.
fn tracking() -> Ruleset {
    let rule = Rule {
        matches: vec![Match::CtState(state::NEW)],
        statements: vec![Statement::Verdict(Verdict::Accept)],
        origin: None,
    };
    Ruleset {
        table: Name::word("tracking"),
        sets: Vec::new(),
        chains: vec![Chain {
            name: Name::word("nowhere"),
            hook: None,
            rules: vec![rule],
        }],
    }
}
