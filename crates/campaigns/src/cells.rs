//! Compares `connectivity` with single answers: every pair of members of random clusters, over all
//! ports, must equal the engine's verdicts flow by flow, and the oracle's at the edges of port
//! sets.
//!
//! A *cell* is a pair and an edge of a port set.

pub mod campaign;

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::IpAddr;

use palisade_api::{Options, Source, lower, read};
use palisade_core::analysis::connect::{
    Connectivity, Member, MemberId, NetworkId, Reach, Selection, Summary,
};
use palisade_core::answer::{FlowEvaluator, FlowVerdict, PortSet, join};
use palisade_core::compile::compile;
use palisade_core::model::{BackendTarget, Cluster, PodId};
use palisade_core::net::Cidr;
use palisade_core::program::Program;
use palisade_core::query::{FlowQuery, PortQuery};
use palisade_oracle::generate::scenario;
use palisade_oracle::{Oracle, Verdict};
use serde_json::Value;

/// The comparison of a cluster.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Cells on which the fold and single decisions agree.
    pub cells: u64,
    /// Of those, cells compared with the oracle.
    pub oracle_cells: u64,
    /// The differences.
    pub differences: Vec<String>,
}

/// Compares the cluster of a seed. The oracle evaluates one cell of each edge.
pub fn compare(seed: u64) -> Compared {
    let scenario = scenario(seed, 0);
    let mut compared = compare_objects(&scenario.objects, &scenario.dns, true);
    if !compared.differences.is_empty() {
        compared.differences = vec![shrink(seed, scenario.objects, &scenario.dns)];
    }
    compared
}

/// Shrinks the cluster, and returns its first difference.
fn shrink(seed: u64, mut objects: Vec<Value>, dns: &[(String, IpAddr)]) -> String {
    let first = |objects: &[Value]| {
        let compared = compare_objects(objects, dns, true);
        compared.differences.into_iter().next()
    };
    let mut index = 0;
    while index < objects.len() {
        let mut fewer = objects.clone();
        fewer.remove(index);
        if first(&fewer).is_some() {
            objects = fewer;
        } else {
            index += 1;
        }
    }
    let mut text = format!("seed {seed}: {}", first(&objects).unwrap_or_default());
    for object in &objects {
        text.push_str("\n  ");
        text.push_str(&object.to_string());
    }
    text
}

/// Compares the cluster of some objects.
pub fn compare_objects(objects: &[Value], dns: &[(String, IpAddr)], with_oracle: bool) -> Compared {
    let text = serde_json::to_vec(objects).unwrap_or_default();
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower(&manifests.objects, dns.to_vec());
    let program = compile(&lowered.cluster);
    let oracle = with_oracle.then(|| Oracle::new(objects, dns));
    let comparison = Comparison::new(&lowered.cluster, &program, oracle);
    comparison.run()
}

/// The ports between each pair.
type Pairs = BTreeMap<(MemberId, MemberId), Reach>;

struct Comparison<'c> {
    cluster: &'c Cluster<'c>,
    program: &'c Program,
    evaluator: FlowEvaluator<'c>,
    connectivity: Connectivity<'c>,
    oracle: Option<Oracle>,
    compared: Compared,
}

impl<'c> Comparison<'c> {
    fn new(
        cluster: &'c Cluster<'c>,
        program: &'c Program,
        oracle: Option<Oracle>,
    ) -> Comparison<'c> {
        Comparison {
            cluster,
            program,
            evaluator: FlowEvaluator::new(cluster, program),
            connectivity: Connectivity::new(cluster, program, &Selection::ALL),
            oracle,
            compared: Compared::default(),
        }
    }

    fn run(mut self) -> Compared {
        let pairs = self.pairs();
        let mut summary = Summary::default();
        let n_members = self.connectivity.members().len();
        let members: Vec<MemberId> = (0..u32::try_from(n_members).unwrap_or(0))
            .map(MemberId)
            .collect();
        for source in &members {
            for destination in &members {
                if !self.connectivity.is_source(*source) || self.is_skipped(*source, *destination) {
                    continue;
                }
                let no_ports = Reach::default();
                let folded = pairs.get(&(*source, *destination)).unwrap_or(&no_ports);
                self.pair(*source, *destination, folded, &mut summary);
            }
        }
        self.totals(&members, summary);
        self.blocks(&pairs);
        self.matrix(&pairs);
        self.compared
    }

    fn pairs(&self) -> Pairs {
        let mut pairs = Pairs::new();
        let result = self.connectivity.pairs(&|_, _| {}, &mut |pair| {
            pairs.insert((pair.source, pair.destination), pair.reach.clone());
            Ok::<(), Infallible>(())
        });
        let Ok(()) = result;
        pairs
    }

    fn member(&self, id: MemberId) -> Option<Member> {
        self.connectivity.members().get(id.0 as usize).copied()
    }

    /// Whether a pair is not compared: a member with itself, or a client that may be a backend of a
    /// headless Service.
    fn is_skipped(&self, source: MemberId, destination: MemberId) -> bool {
        if source == destination {
            return !self.connectivity.is_template(source);
        }
        let (Some(Member::Pod(pod)), Some(Member::Service(service))) =
            (self.member(source), self.member(destination))
        else {
            return false;
        };
        let service = self.cluster.services.get(service.0 as usize);
        service.is_some_and(|service| {
            let backends = service.ports.iter().flat_map(|port| &port.backends);
            let mut targets = backends.map(|backend| backend.target);
            service.is_headless && targets.any(|target| self.is_behind(target, pod))
        })
    }

    fn is_behind(&self, target: BackendTarget, pod: PodId) -> bool {
        match target {
            BackendTarget::Pod(it) => it == pod,
            BackendTarget::Address(address) => {
                let pod = self.cluster.pods.get(pod.0 as usize);
                pod.is_some_and(|pod| pod.addresses.contains(&address))
            }
        }
    }

    /// The name of a member in a flow query.
    fn query_name(&self, id: MemberId) -> Option<String> {
        match self.member(id)? {
            Member::Network(NetworkId(network)) => {
                let network = self.connectivity.networks().get(network as usize)?;
                let addresses = network
                    .blocks
                    .iter()
                    .flat_map(|block| sample_addresses(*block));
                let mut free = addresses.filter(|it| self.program.owner(*it).is_none());
                Some(free.next()?.to_string())
            }
            Member::Pod(_) | Member::Node(_) | Member::Service(_) => {
                self.connectivity.names(id).into_iter().next()
            }
        }
    }

    fn pair(
        &mut self,
        source: MemberId,
        destination: MemberId,
        folded: &Reach,
        summary: &mut Summary,
    ) {
        let (Some(from), Some(to)) = (self.query_name(source), self.query_name(destination)) else {
            return;
        };
        let Ok(question) = FlowQuery::parse(&format!("{from} {to} any")) else {
            self.compared
                .differences
                .push(format!("{from} {to} is no flow query"));
            return;
        };
        let answers = self.evaluator.answer_ports(&question);
        let mut decided = Reach::default();
        let mut denied = PortSet::default();
        for answer in answers.iter().flatten() {
            let into = match answer.answer.outcome.verdict {
                FlowVerdict::Allow => &mut decided.allowed,
                FlowVerdict::Mixed => &mut decided.mixed,
                FlowVerdict::Unknown => &mut decided.unknown,
                FlowVerdict::Deny => &mut denied,
            };
            into.add(&answer.ports);
        }
        if decided != *folded {
            let reach = |reach: &Reach| {
                let sets = [&reach.allowed, &reach.mixed, &reach.unknown];
                sets.map(|set| set.text().join(" ")).join(" | ")
            };
            self.compared.differences.push(format!(
                "{from} {to}: fold {}; single decisions {}",
                reach(folded),
                reach(&decided)
            ));
            return;
        }
        let sets = [
            (Verdict::Allow, &decided.allowed),
            (Verdict::Mixed, &decided.mixed),
            (Verdict::Unknown, &decided.unknown),
            (Verdict::Deny, &denied),
        ];
        for (verdict, set) in sets {
            for port in set.edges() {
                self.compared.cells += 1;
                self.compare_with_oracle(&from, &to, &port, verdict);
            }
        }
        if self.is_pod(source) && self.is_pod(destination) && source != destination {
            match answers.ok().and_then(|answers| join(&answers)) {
                None => summary.no_family += 1,
                Some(outcome) => match outcome.verdict {
                    FlowVerdict::Allow => summary.allowed += 1,
                    FlowVerdict::Deny => summary.denied += 1,
                    FlowVerdict::Mixed => summary.mixed += 1,
                    FlowVerdict::Unknown => summary.unknown += 1,
                },
            }
        }
    }

    fn is_pod(&self, id: MemberId) -> bool {
        let Some(Member::Pod(pod)) = self.member(id) else {
            return false;
        };
        let pod = self.cluster.pods.get(pod.0 as usize);
        pod.is_some_and(|pod| !pod.host_network)
    }

    fn compare_with_oracle(&mut self, from: &str, to: &str, port: &PortQuery, verdict: Verdict) {
        let Some(oracle) = &self.oracle else {
            return;
        };
        let port = match port {
            PortQuery::Number(protocol, port) => {
                format!("{}/{port}", protocol.name().to_ascii_lowercase())
            }
            PortQuery::Icmp => "icmp".to_owned(),
            PortQuery::Icmp6(_) => "icmpv6".to_owned(),
            PortQuery::Ip(number) => format!("ip/{number}"),
            PortQuery::Name(..) | PortQuery::Any => return,
        };
        let question = format!("{from} {to} {port}");
        let answer = oracle.answer(&question);
        self.compared.oracle_cells += 1;
        if answer.error || answer.verdict != verdict {
            self.compared.differences.push(format!(
                "{question}: fold {verdict:?}, oracle {:?} (error: {})",
                answer.verdict, answer.error
            ));
        }
    }

    fn totals(&mut self, members: &[MemberId], mut expected: Summary) {
        let pods = members.iter().filter(|id| self.is_pod(**id));
        expected.endpoints = pods.count() as u64;
        let counted = self.connectivity.summary(&|_, _| {});
        if counted != expected {
            let difference = format!("the totals are {counted:?}, but pair by pair {expected:?}");
            self.compared.differences.push(difference);
        }
    }

    /// Checks that the blocks together equal the pairs.
    fn blocks(&mut self, pairs: &Pairs) {
        let blocks = match self.connectivity.blocks(usize::MAX, &|_, _| {}) {
            Ok(blocks) => blocks,
            Err(too_many) => {
                self.compared.differences.push(too_many.to_string());
                return;
            }
        };
        let mut from_blocks: Pairs = Pairs::new();
        for block in &blocks.list {
            for source in self.connectivity.group(&blocks, block.from) {
                for destination in self.connectivity.group(&blocks, block.to) {
                    if source == destination && !self.connectivity.is_template(source) {
                        continue;
                    }
                    let reach = from_blocks.entry((source, destination)).or_default();
                    reach.allowed.add(&block.reach.allowed);
                    reach.mixed.add(&block.reach.mixed);
                    reach.unknown.add(&block.reach.unknown);
                }
            }
        }
        // A port that one block allows is not undecided because of another.
        for reach in from_blocks.values_mut() {
            let allowed = reach.allowed.clone();
            reach.mixed.remove_all(&allowed);
            reach.unknown.remove_all(&allowed);
        }
        from_blocks.retain(|_, reach| !reach.is_empty());
        if from_blocks != *pairs {
            let keys: BTreeSet<_> = from_blocks.keys().chain(pairs.keys()).collect();
            let first = keys
                .into_iter()
                .find(|key| from_blocks.get(key) != pairs.get(key));
            let first = first.map(|(a, b)| (self.query_name(*a), self.query_name(*b)));
            let difference = format!("blocks and pairs differ, first at {first:?}");
            self.compared.differences.push(difference);
        }
    }

    fn matrix(&mut self, pairs: &Pairs) {
        let Some(matrix) = self.connectivity.matrix(usize::MAX, &|_, _| {}) else {
            return;
        };
        let no_ports = Reach::default();
        for (sources, row) in matrix.kinds.iter().zip(&matrix.cells) {
            for (destinations, cell) in matrix.kinds.iter().zip(row) {
                let from_blocks = matrix.reaches.get(*cell as usize).unwrap_or(&no_ports);
                for source in sources {
                    for destination in destinations {
                        let is_itself = source == destination;
                        if is_itself && !self.connectivity.is_template(*source) {
                            continue;
                        }
                        let pair = pairs.get(&(*source, *destination)).unwrap_or(&no_ports);
                        if pair != from_blocks {
                            let (a, b) = (self.query_name(*source), self.query_name(*destination));
                            let difference = format!("the matrix differs at {a:?} {b:?}");
                            self.compared.differences.push(difference);
                            return;
                        }
                    }
                }
            }
        }
    }
}

/// Sample addresses of a block: those of documentation, and its first and last.
pub(crate) fn sample_addresses(block: Cidr) -> impl Iterator<Item = IpAddr> {
    let documentation = ["203.0.113.7", "2001:db8::7"];
    let documentation = documentation.into_iter().filter_map(|it| it.parse().ok());
    let inside = documentation.filter(move |it| block.contains(*it));
    let ends = [block.first(), block.last()].into_iter();
    let is_unicast = |it: &IpAddr| {
        let is_reserved = match it {
            IpAddr::V4(it) => matches!(it.octets(), [0 | 224.., ..]),
            IpAddr::V6(it) => it.to_ipv4_mapped().is_some(),
        };
        !is_reserved && !it.is_loopback() && !it.is_multicast() && !it.is_unspecified()
    };
    inside.chain(ends).filter(is_unicast)
}
