//! Compares the difference of two clusters with single answers about both: every pair of endpoints
//! of random clusters before and after a random change, on every edge of a port set.

pub mod campaign;
mod change;
pub mod unseen;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use palisade_api::{Options, Source, lower, read};
use palisade_core::EndName;
use palisade_core::analysis::connect::Member;
use palisade_core::analysis::connect::diff::{
    Block, ChangeKind, Difference, Endpoint, EndpointId, Limits, OneSided, Totals, Version, diff,
};
use palisade_core::answer::{Answer, FlowEvaluator, FlowVerdict};
use palisade_core::compile::compile;
use palisade_core::decide::Cause;
use palisade_core::net::Family;
use palisade_core::query::{FlowQuery, PortQuery};
use palisade_oracle::generate::scenario;
use serde_json::Value;

use crate::cells::sample_addresses;

/// The comparison of two clusters.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Flows on which the difference and single answers agree.
    pub flows: u64,
    /// Of those, flows with different verdicts in the two clusters.
    pub different: u64,
    /// Compared reasons.
    pub reasons: u64,
    /// The mistakes.
    pub mistakes: Vec<String>,
}

/// Compares the clusters of a seed.
pub fn compare(seed: u64) -> Compared {
    let before = scenario(seed, 0);
    let after = change::changed(seed, &before.objects);
    let mut compared = compare_objects([&before.objects, &after], &before.dns);
    if !compared.mistakes.is_empty() {
        compared.mistakes = vec![shrink(seed, [before.objects, after], &before.dns)];
    }
    compared
}

/// Shrinks the clusters, and returns their first mistake.
fn shrink(seed: u64, mut sides: [Vec<Value>; 2], dns: &[(String, IpAddr)]) -> String {
    let first = |sides: &[Vec<Value>; 2]| {
        let [old, new] = sides;
        compare_objects([old, new], dns).mistakes.into_iter().next()
    };
    for side in [1, 0] {
        let mut index = 0;
        while sides.get(side).is_some_and(|it| index < it.len()) {
            let mut fewer = sides.clone();
            // Removes an object from both sides, if possible.
            let taken = fewer.get_mut(side).map(|it| it.remove(index));
            let mut both = fewer.clone();
            if let Some(other) = both.get_mut(1 - side) {
                other.retain(|it| Some(it) != taken.as_ref());
            }
            if first(&both).is_some() {
                sides = both;
            } else if first(&fewer).is_some() {
                sides = fewer;
            } else {
                index += 1;
            }
        }
    }
    let mut text = format!("seed {seed}: {}", first(&sides).unwrap_or_default());
    for (name, objects) in ["old", "new"].into_iter().zip(&sides) {
        text.push_str(&format!("\n  {name}:"));
        for object in objects {
            text.push_str(&format!("\n  {object}"));
        }
    }
    text
}

/// Compares two lists of objects.
pub fn compare_objects(sides: [&[Value]; 2], dns: &[(String, IpAddr)]) -> Compared {
    let texts = sides.map(|objects| serde_json::to_vec(objects).unwrap_or_default());
    let [old, new] = texts.map(|text| [Source::new("objects.json", text)]);
    let old = read(&old, Options::default(), &|_| {});
    let new = read(&new, Options::default(), &|_| {});
    let old = lower(&old.objects, dns.to_vec());
    let new = lower(&new.objects, dns.to_vec());
    let programs = [compile(&old.cluster), compile(&new.cluster)];
    let [old_program, new_program] = &programs;
    let versions = [
        Version {
            cluster: &old.cluster,
            program: old_program,
        },
        Version {
            cluster: &new.cluster,
            program: new_program,
        },
    ];
    let limits = Limits {
        blocks: usize::MAX,
        reasons: usize::MAX,
    };
    let [before, after] = versions;
    match diff(before, after, limits, &|_, _| {}) {
        Ok(difference) => Comparison::new(&difference).run(),
        Err(too_many) => Compared {
            mistakes: vec![too_many.to_string()],
            ..Compared::default()
        },
    }
}

/// The changes of a flow, each with its family if it is in one family only.
type Changes = BTreeSet<(ChangeKind, Option<Family>)>;

struct Comparison<'d> {
    difference: &'d Difference<'d>,
    evaluators: [FlowEvaluator<'d>; 2],
    blocks: BTreeMap<(EndpointId, EndpointId), Vec<&'d Block>>,
    compared: Compared,
}

/// The verdicts of one cluster on a flow: by family, or for an unknown address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    families: [Option<FlowVerdict>; 2],
    unknown: Option<FlowVerdict>,
}

impl State {
    fn new(answer: Option<&Answer>) -> State {
        let mut state = State::default();
        for flow in answer.into_iter().flat_map(|it| &it.flows) {
            let slot = match flow.family {
                Some(Family::V4) => &mut state.families[0],
                Some(Family::V6) => &mut state.families[1],
                None => &mut state.unknown,
            };
            let verdict = flow.outcome.verdict;
            *slot = Some(match *slot {
                Some(known) if known != verdict => FlowVerdict::Unknown,
                _ => verdict,
            });
        }
        state
    }

    fn is_absent(self) -> bool {
        self == State::default()
    }

    /// The verdict in a family, or in the other one if this has no flow.
    fn of(self, index: usize) -> FlowVerdict {
        let family = self.families.get(index).copied().flatten();
        let other = self.families.get(1 - index).copied().flatten();
        family
            .or(self.unknown)
            .or(other)
            .unwrap_or(FlowVerdict::Deny)
    }
}

/// The expected changes of a flow. `None` if both verdicts depend on an unknown address.
fn expected(old: State, new: State) -> Option<Changes> {
    let kind = |old: FlowVerdict, new: FlowVerdict| match (old, new) {
        (FlowVerdict::Deny, FlowVerdict::Allow) => Some(Some(ChangeKind::Gained)),
        (FlowVerdict::Allow, FlowVerdict::Deny) => Some(Some(ChangeKind::Lost)),
        (FlowVerdict::Unknown, FlowVerdict::Unknown) => None,
        (old, new) if old == new => Some(None),
        _ => Some(Some(ChangeKind::Undecided)),
    };
    let families = [(0, Family::V4), (1, Family::V6)];
    let has = |state: State, index: usize| state.families.get(index).copied().flatten().is_some();
    let relevant = families
        .into_iter()
        .filter(|(index, _)| has(old, *index) || has(new, *index));
    let relevant: Vec<(usize, Family)> = relevant.collect();
    if relevant.is_empty() {
        let kind = kind(old.of(0), new.of(0))?;
        return Some(kind.map(|kind| (kind, None)).into_iter().collect());
    }
    let mut kinds = Vec::new();
    for (index, family) in &relevant {
        kinds.push((kind(old.of(*index), new.of(*index))?, *family));
    }
    let changes = match kinds.as_slice() {
        [(Some(kind), _)] => Changes::from([(*kind, None)]),
        [(Some(kind), _), (Some(other), _)] if kind == other => Changes::from([(*kind, None)]),
        kinds => {
            let kinds = kinds.iter();
            kinds
                .filter_map(|(kind, family)| Some(((*kind)?, Some(*family))))
                .collect()
        }
    };
    Some(changes)
}

impl<'d> Comparison<'d> {
    fn new(difference: &'d Difference<'d>) -> Comparison<'d> {
        let mut blocks: BTreeMap<(EndpointId, EndpointId), Vec<&'d Block>> = BTreeMap::new();
        for block in &difference.blocks {
            for source in difference.groups.get(block.from) {
                for destination in difference.groups.get(block.to) {
                    blocks.entry((source, destination)).or_default().push(block);
                }
            }
        }
        let of = |version: Version<'d>| FlowEvaluator::new(version.cluster, version.program);
        Comparison {
            difference,
            evaluators: [of(difference.old), of(difference.new)],
            blocks,
            compared: Compared::default(),
        }
    }

    fn run(mut self) -> Compared {
        let endpoints = &self.difference.endpoints;
        let n_endpoints = u32::try_from(endpoints.len()).unwrap_or(0);
        let mut totals = [Totals::default(); 2];
        for source in (0..n_endpoints).map(EndpointId) {
            for destination in (0..n_endpoints).map(EndpointId) {
                if source == destination && !self.is_group(source) {
                    continue;
                }
                self.pair(source, destination, &mut totals);
            }
        }
        let counted = [self.difference.totals, self.difference.one_sided_totals];
        // A network without a free address has no flow query.
        let has_query = |id: u32| self.query_names(EndpointId(id)).is_some();
        let is_complete = (0..n_endpoints).all(has_query);
        if self.compared.mistakes.is_empty() && is_complete && counted != totals {
            let message = format!("the totals are {counted:?}, but pair by pair {totals:?}");
            self.compared.mistakes.push(message);
        }
        self.compared
    }

    fn endpoint(&self, id: EndpointId) -> Option<&'d Endpoint> {
        self.difference.endpoints.get(id.0 as usize)
    }

    fn is_group(&self, id: EndpointId) -> bool {
        let sides = [self.difference.old, self.difference.new];
        let members = self
            .endpoint(id)
            .map(|endpoint| [endpoint.old, endpoint.new]);
        let mut members = sides.into_iter().zip(members.into_iter().flatten());
        members.any(|(version, member)| match member {
            Some(Member::Pod(pod)) => {
                let pod = version.cluster.pods.get(pod.0 as usize);
                pod.is_some_and(|pod| pod.template.is_some())
            }
            Some(Member::Network(_)) => true,
            Some(Member::Node(_) | Member::Service(_)) | None => false,
        })
    }

    /// The name of an endpoint in flow queries of each side.
    fn query_names(&self, id: EndpointId) -> Option<[Option<String>; 2]> {
        let endpoint = self.endpoint(id)?;
        let sides = [self.difference.old, self.difference.new];
        if !endpoint.blocks.is_empty() {
            let addresses = endpoint
                .blocks
                .iter()
                .flat_map(|block| sample_addresses(*block));
            let is_free = |it: &IpAddr| sides.iter().all(|side| side.program.owner(*it).is_none());
            let address = addresses.into_iter().find(is_free)?.to_string();
            return Some([Some(address.clone()), Some(address)]);
        }
        let name = |side: Version<'_>, member: Option<Member>| match member? {
            Member::Pod(pod) => Some(side.cluster.pod_name(pod)),
            Member::Node(node) => Some(EndName::Node(node).text(side.cluster)),
            Member::Network(_) | Member::Service(_) => None,
        };
        let [old, new] = sides;
        Some([name(old, endpoint.old), name(new, endpoint.new)])
    }

    fn pair(&mut self, source: EndpointId, destination: EndpointId, totals: &mut [Totals; 2]) {
        let (Some(from), Some(to)) = (self.query_names(source), self.query_names(destination))
        else {
            return;
        };
        let names: Vec<Option<(String, String)>> = from
            .into_iter()
            .zip(to)
            .map(|(from, to)| Some((from?, to?)))
            .collect();
        let blocks = self.blocks.get(&(source, destination));
        let blocks: Vec<&Block> = blocks.cloned().unwrap_or_default();
        let mut edges: Vec<PortQuery> = Vec::new();
        for (evaluator, names) in self.evaluators.iter().zip(&names) {
            let Some((from, to)) = names else { continue };
            let question = FlowQuery::parse(&format!("{from} {to} any"));
            let answers = question.ok().map(|it| evaluator.answer_ports(&it));
            for answer in answers.into_iter().flatten().flatten() {
                edges.extend(answer.ports.edges());
            }
        }
        edges.extend(blocks.iter().flat_map(|block| block.ports.edges()));
        let mut compared_ports: BTreeSet<String> = BTreeSet::new();
        let mut kinds: BTreeSet<ChangeKind> = BTreeSet::new();
        for edge in edges {
            let Some(port) = message(&edge) else { continue };
            if compared_ports.insert(port.clone()) {
                self.flow(&names, &edge, &port, &blocks, &mut kinds);
            }
        }
        let is_one_sided = names.iter().any(Option::is_none);
        let [common, one_sided] = totals;
        let totals = if is_one_sided { one_sided } else { common };
        totals.gained += u64::from(kinds.contains(&ChangeKind::Gained));
        totals.lost += u64::from(kinds.contains(&ChangeKind::Lost));
        totals.undecided += u64::from(kinds.contains(&ChangeKind::Undecided));
    }

    fn flow(
        &mut self,
        names: &[Option<(String, String)>],
        edge: &PortQuery,
        port: &str,
        blocks: &[&Block],
        kinds: &mut BTreeSet<ChangeKind>,
    ) {
        let answers = self.evaluators.iter().zip(names).map(|(it, names)| {
            let (from, to) = names.as_ref()?;
            let question = FlowQuery::parse(&format!("{from} {to} {port}")).ok()?;
            it.answer(&question).ok()
        });
        let answers: Vec<Option<Answer>> = answers.collect();
        let states: Vec<State> = answers.iter().map(|it| State::new(it.as_ref())).collect();
        let [old, new] = states.as_slice() else {
            return;
        };
        // Compares only ICMP flows that exist on both sides.
        let is_icmp = matches!(edge, PortQuery::Icmp | PortQuery::Icmp6(_));
        let exists = |index: usize| names.get(index).is_some_and(Option::is_some);
        let is_skipped = is_icmp
            && (exists(0) && old.is_absent() != (exists(1) && new.is_absent()))
            && exists(0)
            && exists(1);
        let matching = blocks.iter().filter(|it| has(it, edge));
        let matching: Vec<&&Block> = matching.collect();
        let changes: Changes = matching.iter().map(|it| (it.kind, it.family)).collect();
        kinds.extend(changes.iter().map(|(kind, _)| *kind));
        self.compared.flows += 1;
        self.compared.different += u64::from(!changes.is_empty());
        let expected = expected(*old, *new);
        let names = || format!("{names:?} {port}");
        match expected {
            Some(expected) if expected != changes && !is_skipped => {
                let message = format!(
                    "{}: the difference has {changes:?}, single answers {expected:?}: {old:?}, then {new:?}",
                    names()
                );
                self.compared.mistakes.push(message);
            }
            _ => {}
        }
        let one_sided = match [exists(0), exists(1)] {
            [false, true] => Some(OneSided::New),
            [true, false] => Some(OneSided::Gone),
            _ => None,
        };
        for block in matching {
            if block.one_sided != one_sided {
                let message = format!("{}: one-sided {:?}", names(), block.one_sided);
                self.compared.mistakes.push(message);
            }
            if let Some(message) = self.reason(block, &answers) {
                let message = format!("{}: {message}", names());
                self.compared.mistakes.push(message);
            }
        }
    }

    /// The mistake in the reason of a block for a flow, if any.
    fn reason(&mut self, block: &Block, answers: &[Option<Answer>]) -> Option<String> {
        let why = block.decision?;
        for (changes, answer) in [why.old, why.new].into_iter().zip(answers) {
            let Some(answer) = answer else { continue };
            let flows = answer.flows.iter();
            let mut flows = flows.filter(|it| block.family.is_none() || it.family == block.family);
            let Some(flow) = flows.next() else { continue };
            let Some(cause) = flow.outcome.direction(why.direction).cause else {
                continue;
            };
            // The kind of absence may differ between the flows of a block.
            let is_not_applicable = |cause: &Cause| matches!(cause, Cause::NotApplicable(_));
            if Some(cause) != changes
                && !(is_not_applicable(&cause) && changes.as_ref().is_some_and(is_not_applicable))
            {
                return Some(format!(
                    "the reason is {changes:?}, but single answers have {cause:?}"
                ));
            }
            self.compared.reasons += 1;
        }
        if block.causes.is_empty() {
            return Some("no changed object is named".to_owned());
        }
        None
    }
}

fn has(block: &Block, edge: &PortQuery) -> bool {
    match edge {
        PortQuery::Number(protocol, port) => block.ports.contains(*protocol, *port),
        PortQuery::Icmp => block.ports.has_icmp(),
        PortQuery::Icmp6(_) => block.ports.has_icmp6(),
        PortQuery::Ip(_) => block.ports.has_other(),
        PortQuery::Name(..) | PortQuery::Any => false,
    }
}

fn message(port: &PortQuery) -> Option<String> {
    match port {
        PortQuery::Number(protocol, port) => {
            let protocol = protocol.name().to_ascii_lowercase();
            Some(format!("{protocol}/{port}"))
        }
        PortQuery::Icmp => Some("icmp".to_owned()),
        PortQuery::Icmp6(_) => Some("icmpv6".to_owned()),
        PortQuery::Ip(number) => Some(format!("ip/{number}")),
        PortQuery::Name(..) | PortQuery::Any => None,
    }
}
