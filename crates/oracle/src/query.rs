//! Flow queries: their endpoints and ports.

use crate::cidr;
use crate::eval::Oracle;
use crate::flow::{fold, loopback};
use crate::rule::{L4, Protocol};
use crate::service::{Backend, Service};
use crate::world::Pod;
use crate::{Answer, Detail, Family};
use std::net::IpAddr;

pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// PORT of a flow query.
#[derive(Clone, Debug)]
pub(crate) enum QueryPort<'a> {
    Number(Protocol, u16),
    Name(Protocol, &'a str),
    /// Without ports: ICMP of one family, or another protocol.
    Bare(Option<Family>),
}

/// An endpoint of a flow.
#[derive(Clone, Debug)]
pub(crate) struct End<'a> {
    pub(crate) label: String,
    pub(crate) who: Who<'a>,
    /// Its address in each family; a pod without any could have every address.
    pub(crate) addresses: [Option<IpAddr>; 2],
}

/// The party of an endpoint.
#[derive(Clone, Debug)]
pub(crate) enum Who<'a> {
    Pod(&'a Pod),
    Node {
        detail: Detail,
        /// The node of the host network namespace, if known by name (D74, D130).
        host_of: Option<&'a str>,
        /// Node objects whose labels count if none has the address (D108).
        named: Vec<usize>,
    },
    External,
    /// D139.
    Loopback(Family),
}

impl End<'_> {
    pub(crate) fn unknown(&self) -> bool {
        let may_have_one = match &self.who {
            Who::Pod(_) => true,
            // A host-network pod is on some node, even if its node is unknown.
            Who::Node { detail, .. } => *detail == Detail::HostNetwork,
            Who::External | Who::Loopback(_) => false,
        };
        may_have_one && self.addresses == [None, None]
    }

    pub(crate) fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses[family as usize]
    }
}

/// The destination of a flow.
#[derive(Clone, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) end: End<'a>,
    pub(crate) l4: Vec<L4>,
    /// Families that the Service has.
    pub(crate) families: [bool; 2],
    /// Through the translation of a Service (D77).
    pub(crate) translated: bool,
    /// The node it is on.
    pub(crate) node: Option<String>,
}

/// The `via` of a flow query.
pub(crate) enum Via<'a> {
    Nothing,
    Node(&'a str),
    Service,
}

fn per_family(addresses: &[IpAddr]) -> [Option<IpAddr>; 2] {
    FAMILIES.map(|f| addresses.iter().copied().find(|a| cidr::family(*a) == f))
}

fn read_port(word: &str) -> Option<QueryPort<'_>> {
    match word.split_once('/') {
        None => match word {
            // D131: echo requests.
            "icmp" => Some(QueryPort::Bare(Some(Family::V4))),
            "icmpv6" => Some(QueryPort::Bare(Some(Family::V6))),
            _ => None,
        },
        Some(("ip", n)) => match n.parse::<u8>().ok()? {
            1 => Some(QueryPort::Bare(Some(Family::V4))),
            58 => Some(QueryPort::Bare(Some(Family::V6))),
            6 | 17 | 132 => None,
            _ => Some(QueryPort::Bare(None)),
        },
        Some((protocol, rest)) => {
            let protocol = match protocol {
                "tcp" => Protocol::Tcp,
                "udp" => Protocol::Udp,
                "sctp" => Protocol::Sctp,
                _ => return None,
            };
            if rest.is_empty() {
                return None;
            }
            if rest.bytes().all(|b| b.is_ascii_digit()) {
                // D29.
                let n: u16 = rest.parse().ok()?;
                return (n > 0).then_some(QueryPort::Number(protocol, n));
            }
            Some(QueryPort::Name(protocol, rest))
        }
    }
}

/// D33: the numbers of a port name on a pod.
pub(crate) fn named(pod: &Pod, protocol: Protocol, name: &str) -> Vec<L4> {
    let mut numbers: Vec<u16> = pod
        .ports
        .iter()
        .filter(|p| p.name == name && p.protocol == protocol)
        .map(|p| p.number)
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(|n| Some((protocol, n))).collect()
}

impl Oracle {
    /// Answers one line of a flows file.
    pub fn answer(&self, query: &str) -> Answer {
        self.evaluate(query).unwrap_or_else(Answer::error)
    }

    fn evaluate(&self, query: &str) -> Option<Answer> {
        let line = query.split('#').next()?;
        let mut words = line.split_whitespace();
        let (src, dst, port) = (words.next()?, words.next()?, words.next()?);
        let via = match (words.next(), words.next(), words.next()) {
            (None, _, _) => Via::Nothing,
            (Some("via"), Some(w), None) => self.via(w)?,
            _ => return None,
        };
        let port = read_port(port)?;
        let sources = self.ends(src)?;
        if sources.iter().any(|s| matches!(s.who, Who::Loopback(_))) {
            return None;
        }
        if matches!(via, Via::Node(_)) && !sources.iter().all(|s| matches!(s.who, Who::External)) {
            return None;
        }
        let via = match (self.node_port_at(dst, &port), via) {
            (None, via) => via,
            // D141, D79: what the outside sends to an address of a node enters there.
            (Some((_, node)), Via::Nothing)
                if sources.iter().all(|s| matches!(s.who, Who::External)) =>
            {
                Via::Node(node)
            }
            (Some(_), Via::Nothing) => Via::Nothing,
            (Some((_, node)), Via::Node(named)) if node == named => Via::Node(named),
            (Some(_), _) => return None,
        };
        let targets = self.targets(dst, &port, &via)?;
        let icmp = match port {
            QueryPort::Bare(f) => f,
            QueryPort::Number(..) | QueryPort::Name(..) => None,
        };
        let mut singles = Vec::new();
        for s in &sources {
            for t in &targets {
                if let Who::Loopback(family) = t.end.who {
                    singles.extend(loopback(s, &t.end, family, &port, icmp)?);
                    continue;
                }
                for l4 in &t.l4 {
                    self.singles(s, t, *l4, icmp, &via, &mut singles);
                }
            }
        }
        fold(src, dst, singles)
    }

    fn via<'a>(&'a self, word: &'a str) -> Option<Via<'a>> {
        if let Some(name) = word.strip_prefix("node/") {
            return self.known_node(name).then_some(Via::Node(name));
        }
        match word.split('/').collect::<Vec<_>>().as_slice() {
            [ns, "svc", name] => self.service(ns, name).map(|_| Via::Service),
            _ => None,
        }
    }

    fn known_node(&self, name: &str) -> bool {
        self.world.node(name).is_some()
            || self
                .world
                .pods
                .iter()
                .any(|p| p.node.as_deref() == Some(name))
    }

    fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        self.world
            .services
            .iter()
            .find(|s| s.namespace == namespace && s.name == name)
    }

    /// D133: the first InternalIP of each family, else the first ExternalIP.
    pub(crate) fn node_addresses(&self, name: &str) -> [Option<IpAddr>; 2] {
        let Some(node) = self.world.node(name) else {
            return [None, None];
        };
        let of = |internal: bool| {
            let some: Vec<IpAddr> = self.world.nodes[node]
                .addresses
                .iter()
                .filter(|(_, i)| *i == internal)
                .map(|(a, _)| *a)
                .collect();
            per_family(&some)
        };
        let (inner, outer) = (of(true), of(false));
        [inner[0].or(outer[0]), inner[1].or(outer[1])]
    }

    fn on_some_node(&self, address: IpAddr) -> Option<&str> {
        self.world
            .nodes
            .iter()
            .find(|n| n.addresses.iter().any(|(a, _)| *a == address))
            .map(|n| n.name.as_str())
    }

    /// A pod as an endpoint; a host-network pod is its node (D73, D108, D138).
    fn pod_end<'a>(&'a self, pod: &'a Pod) -> End<'a> {
        if !pod.host {
            return End {
                label: pod.id.clone(),
                who: Who::Pod(pod),
                addresses: per_family(&pod.addresses),
            };
        }
        let host_of = pod
            .node
            .as_deref()
            .or_else(|| pod.addresses.iter().find_map(|a| self.on_some_node(*a)));
        let own = per_family(&pod.addresses).map(|a| a.filter(|a| self.on_some_node(*a).is_none()));
        let node = host_of.map_or([None, None], |n| self.node_addresses(n));
        End {
            label: pod.id.clone(),
            who: Who::Node {
                detail: Detail::HostNetwork,
                host_of,
                named: pod
                    .node
                    .as_deref()
                    .and_then(|n| self.world.node(n))
                    .into_iter()
                    .collect(),
            },
            addresses: [own[0].or(node[0]), own[1].or(node[1])],
        }
    }

    /// An address as an endpoint (D22).
    fn address_end(&self, address: IpAddr) -> End<'_> {
        let addresses = per_family(&[address]);
        if let Some(i) = self.world.pod_by_address.get(&address) {
            let pod = &self.world.pods[*i];
            return End {
                label: pod.id.clone(),
                who: Who::Pod(pod),
                addresses,
            };
        }
        // D108: a host-network pod's address is a node's too.
        let hosts: Vec<&Pod> = self
            .world
            .pods
            .iter()
            .filter(|p| p.live() && p.host && p.addresses.contains(&address))
            .collect();
        let is_node = !hosts.is_empty() || self.on_some_node(address).is_some();
        End {
            label: address.to_string(),
            who: if is_node {
                Who::Node {
                    detail: Detail::Node,
                    // D130: an address is never node-local.
                    host_of: None,
                    named: hosts
                        .iter()
                        .filter_map(|p| self.world.node(p.node.as_deref()?))
                        .collect(),
                }
            } else {
                Who::External
            },
            addresses,
        }
    }

    /// The endpoints of a word that is not a Service. `None`: an error.
    fn ends(&self, word: &str) -> Option<Vec<End<'_>>> {
        if let Some(address) = cidr::address(word) {
            if address.is_unspecified() {
                return None;
            }
            if address.is_loopback() {
                return Some(vec![End {
                    label: address.to_string(),
                    who: Who::Loopback(cidr::family(address)),
                    addresses: per_family(&[address]),
                }]);
            }
            if !self.world.pod_by_address.contains_key(&address)
                && self.service_at(address).is_some()
            {
                return None;
            }
            return Some(vec![self.address_end(address)]);
        }
        match word.split('/').collect::<Vec<_>>().as_slice() {
            ["node", name] => {
                let (node, name_) = (self.world.node(name), *name);
                if !self.known_node(name_) {
                    return None;
                }
                let host_of = match node {
                    Some(i) => Some(self.world.nodes[i].name.as_str()),
                    None => self
                        .world
                        .pods
                        .iter()
                        .filter_map(|p| p.node.as_deref())
                        .find(|n| *n == name_),
                };
                Some(vec![End {
                    label: word.to_owned(),
                    who: Who::Node {
                        detail: Detail::Node,
                        host_of,
                        named: node.into_iter().collect(),
                    },
                    addresses: self.node_addresses(name_),
                }])
            }
            [_, _] => self.pod_word(word),
            [ns, "pod", name] => self.pod_word(&format!("{ns}/{name}")),
            [ns, kind, name] => {
                let workload = self
                    .world
                    .workloads
                    .iter()
                    .find(|w| w.kind == *kind && w.namespace == *ns && w.name == *name)?;
                let pods = self.world.pods_of(workload);
                if pods.is_empty() {
                    return Some(vec![self.pod_end(&workload.template)]);
                }
                let pods = pods.into_iter();
                Some(pods.map(|i| self.pod_end(&self.world.pods[i])).collect())
            }
            _ => None,
        }
    }

    /// A terminated pod is an error.
    fn pod_word(&self, id: &str) -> Option<Vec<End<'_>>> {
        let pod = &self.world.pods[*self.world.pod_by_id.get(id)?];
        pod.live().then(|| vec![self.pod_end(pod)])
    }

    fn service_at(&self, address: IpAddr) -> Option<&Service> {
        self.world
            .services
            .iter()
            .find(|s| s.cluster.contains(&address) || s.outer.contains(&address))
    }

    /// D141: the Service of a nodePort, dialled at an address of the node.
    fn node_port_at(&self, word: &str, port: &QueryPort<'_>) -> Option<(&Service, &str)> {
        let address = cidr::address(word)?;
        let QueryPort::Number(protocol, number) = port else {
            return None;
        };
        if self.world.pod_by_address.contains_key(&address) || self.service_at(address).is_some() {
            return None;
        }
        let node = self.on_some_node(address)?;
        let leads = |s: &&Service| {
            let mut ports = s.ports.iter();
            ports.any(|p| p.protocol == *protocol && p.node_port == Some(*number))
        };
        Some((self.world.services.iter().find(leads)?, node))
    }

    fn targets(&self, word: &str, port: &QueryPort<'_>, via: &Via<'_>) -> Option<Vec<Target<'_>>> {
        if let Some((s, _)) = self.node_port_at(word, port) {
            let address = cidr::address(word)?;
            let families = FAMILIES.map(|f| f == cidr::family(address));
            return self.service_targets(s, families, port, (via, true));
        }
        if let Some(a) = cidr::address(word)
            && !self.world.pod_by_address.contains_key(&a)
            && let Some(s) = self.service_at(a)
        {
            let families = FAMILIES.map(|f| f == cidr::family(a));
            return self.service_targets(s, families, port, (via, false));
        }
        if let [ns, "svc", name] = word.split('/').collect::<Vec<_>>().as_slice() {
            let s = self.service(ns, name)?;
            let families = if s.cluster.is_empty() {
                [true, true]
            } else {
                FAMILIES.map(|f| s.cluster.iter().any(|a| cidr::family(*a) == f))
            };
            return self.service_targets(s, families, port, (via, false));
        }
        let ends = self.ends(word)?;
        let all_pods = ends.iter().all(|e| matches!(e.who, Who::Pod(_)));
        if !matches!(via, Via::Nothing) && !all_pods {
            return None;
        }
        let target = |end: End<'_>| {
            let pod = match end.who {
                Who::Pod(p) => Some(p),
                Who::Node { .. } | Who::External | Who::Loopback(_) => None,
            };
            let l4 = match port {
                QueryPort::Number(p, n) => vec![Some((*p, *n))],
                // D73: names of host-network pods do not resolve.
                QueryPort::Name(p, name) => pod.map_or(Vec::new(), |pod| named(pod, *p, name)),
                QueryPort::Bare(_) => vec![None],
            };
            (l4, pod.and_then(|p| p.node.clone()))
        };
        Some(
            ends.into_iter()
                .map(|end| {
                    let (l4, node) = target(end.clone());
                    Target {
                        end,
                        l4,
                        families: [true, true],
                        translated: matches!(via, Via::Service),
                        node,
                    }
                })
                .collect(),
        )
    }

    /// D78, D129: each ready backend of the dialled port.
    fn service_targets(
        &self,
        service: &Service,
        families: [bool; 2],
        port: &QueryPort<'_>,
        (via, at_node): (&Via<'_>, bool),
    ) -> Option<Vec<Target<'_>>> {
        if service.external_name || matches!(via, Via::Service) {
            return None;
        }
        let mut out = Vec::new();
        for p in &service.ports {
            let dialled = match port {
                QueryPort::Number(proto, n) => {
                    let outside = at_node || matches!(via, Via::Node(_));
                    let node_port = outside && p.node_port == Some(*n);
                    *proto == p.protocol && (!at_node && p.port == *n || node_port)
                }
                QueryPort::Name(proto, name) => *proto == p.protocol && p.name == *name,
                QueryPort::Bare(_) => false,
            };
            if !dialled {
                continue;
            }
            for (backend, number) in self.world.backends(service, p) {
                let (end, node) = match backend {
                    Backend::Pod(i) => {
                        let pod = &self.world.pods[i];
                        (self.pod_end(pod), pod.node.clone())
                    }
                    Backend::Template(i) => {
                        let pod = &self.world.workloads[i].template;
                        (self.pod_end(pod), pod.node.clone())
                    }
                    Backend::Address(a, node) => {
                        let end = self.address_end(a);
                        let node = match end.who {
                            Who::Pod(p) => p.node.clone(),
                            Who::Node { .. } | Who::External | Who::Loopback(_) => node,
                        };
                        (end, node)
                    }
                };
                // A host-network pod without a node is on the one that has its address.
                let node = match &end.who {
                    Who::Node {
                        host_of: Some(n), ..
                    } => Some((*n).to_owned()),
                    Who::Pod(_) | Who::Node { .. } | Who::External | Who::Loopback(_) => node,
                };
                // Local: only backends on the node that the flow enters through.
                if let Via::Node(n) = via
                    && service.local
                    && node.as_deref() != Some(*n)
                {
                    continue;
                }
                out.push(Target {
                    end,
                    l4: vec![Some((p.protocol, number))],
                    families,
                    translated: !service.headless,
                    node,
                });
            }
        }
        Some(out)
    }
}
