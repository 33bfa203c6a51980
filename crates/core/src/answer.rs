//! Answers flow queries: unfolds a query into single flows, evaluates each, folds the results.
//!
//! A query may stand for several flows: the pods of a workload, the backends of a Service, both
//! families of a dual-stack pair. An end without a known address stands for every address that it
//! could have (D136).

mod notes;
mod ports;
mod services;
#[cfg(test)]
mod tests;
mod unfold;

use std::net::IpAddr;

use crate::decide::{Cause, Decision, Flow, FlowEnd, Identity, Traffic};
use crate::flow_end::{EndCandidate, EndName};
use crate::model::{Cluster, NodeId, PolicyId, ServiceId};
use crate::name_index::{NameIndex, UnknownName};
use crate::net::{Cidr, Family, Protocol};
use crate::policy::{Direction, Verdict};
use crate::program::{AddressAtom, IsolationId, Program};
use crate::query::FlowQuery;

pub use self::notes::Note;
pub use self::ports::{PortAnswer, join};
pub use self::services::Services;
pub(crate) use self::services::{backends, service_families};
use self::unfold::FlowCase;
pub use crate::portset::PortSet;

/// Evaluates flow queries against one cluster.
#[derive(Debug)]
pub struct FlowEvaluator<'c> {
    /// The cluster, for names and objects.
    pub cluster: &'c Cluster<'c>,
    /// The compiled policies of the cluster.
    pub program: &'c Program,
    /// The objects of the cluster by name.
    pub names: NameIndex<'c>,
    services: Services,
    /// The address atoms that a pod could be in, for each family.
    possible: [Vec<AddressAtom>; 2],
}

/// Why a query has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A name matches no object.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// The source is a Service, which only receives.
    #[error("`{0}` is a Service: it cannot be a source")]
    FromService(String),
    /// The Service is an alias for a DNS name outside the cluster.
    #[error("`{0}` is an ExternalName Service; it has no address")]
    ExternalName(String),
    /// The Service has no such port.
    #[error("`{0}` does not offer this port; it offers {1}")]
    NotOffered(String, String),
    /// The port of the Service has no ready backend.
    #[error("`{0}` has no ready backend for this port")]
    NoBackend(String),
    /// The query has a protocol without ports, which Services do not translate.
    #[error("`{0}` is a Service; it translates TCP, UDP and SCTP only")]
    Portless(String),
    /// Source and destination share no address family.
    #[error("source and destination share no address family")]
    NoFamily,
    /// The protocol exists only in the other family.
    #[error("`{0}` exists only in {1}; source and destination do not share that family")]
    WrongFamily(&'static str, Family),
    /// Only pods name the node, so its address is unknown.
    #[error("the node `{0}` has no Node object in the input; add it")]
    NoNodeObject(String),
    /// The Node object has no address that counts (D106).
    #[error(
        "the Node object of `{0}` has no InternalIP or ExternalIP; add one to `status.addresses`"
    )]
    NoAddress(String),
    /// A loopback address stands for the source itself, and the source is outside the cluster.
    #[error("{0} is a loopback address; only the pod or node itself reaches it")]
    Loopback(IpAddr),
    /// A block of loopback, multicast or other addresses that no endpoint has.
    #[error("no endpoint can have an address in {0}")]
    NoEndpoint(Cidr),
    /// `0.0.0.0` or `::`.
    #[error("{0} is the unspecified address; no endpoint has it")]
    Unspecified(IpAddr),
    /// No container port of the destination has the name.
    #[error("the destination has no {0} port named {1}{2}")]
    NoPortName(Protocol, String, String),
    /// `via` does not fit the source or the destination.
    #[error(
        "`via` must be a node that outside traffic enters through, or a Service of the destination pod"
    )]
    Via,
}

/// The protocol and port of a flow, as output shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// A protocol with ports, and the destination port.
    Port(Protocol, std::num::NonZeroU16),
    /// An ICMP echo request.
    Icmp,
    /// An ICMPv6 message: an echo request (`None`), or a message of another type.
    Icmp6(Option<u8>),
    /// Another IP protocol, by number.
    Ip(u8),
}

impl Transport {
    /// Returns the only family in which the protocol exists; `None`: both.
    pub fn family(self) -> Option<Family> {
        match self {
            Transport::Icmp => Some(Family::V4),
            Transport::Icmp6(_) => Some(Family::V6),
            Transport::Port(..) | Transport::Ip(_) => None,
        }
    }

    fn traffic(self) -> Traffic {
        match self {
            Transport::Port(protocol, port) => Traffic::Port(protocol, port),
            // 130 to 132 and 143 are multicast listener messages, 133 to 137 neighbor discovery and
            // redirects. IPv6 does not work without them, and policies never evaluate them (D89).
            Transport::Icmp6(Some(130..=137 | 143)) => Traffic::NeighborDiscovery,
            Transport::Icmp | Transport::Icmp6(_) | Transport::Ip(_) => Traffic::Portless,
        }
    }
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The outcome of all flows together.
    pub outcome: Outcome,
    /// The family, if all flows have the same one.
    pub family: Option<Family>,
    /// The flows that the query stands for; at least one.
    pub flows: Vec<FlowAnswer>,
}

impl Answer {
    /// Folds flows into one answer; `None`: there are no flows.
    pub fn fold(flows: Vec<FlowAnswer>) -> Option<Answer> {
        let outcomes = flows.iter().map(|it| it.outcome);
        let outcome = outcomes.reduce(Outcome::and)?;
        // A flow without a known family makes the family of the whole answer unknown.
        let mut families = flows.iter().map(|it| it.family);
        let first = families.next().flatten();
        let family = first.filter(|first| families.all(|it| it == Some(*first)));
        Some(Answer {
            outcome,
            family,
            flows,
        })
    }

    /// Returns whether the flows have different outcomes, which output then shows one by one.
    pub fn is_split(&self) -> bool {
        let mut outcomes = self.flows.iter().map(|it| it.outcome);
        let first = outcomes.next();
        outcomes.any(|it| Some(it) != first)
    }
}

/// One flow and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowAnswer {
    /// The source, as the query names it.
    pub source: EndName,
    /// The destination after translation: a backend, not its Service.
    pub destination: EndName,
    /// The source's address as the destination sees it, if known.
    pub source_address: Option<IpAddr>,
    /// The destination's address, if known.
    pub destination_address: Option<IpAddr>,
    /// The family; none if an end has no known address.
    pub family: Option<Family>,
    /// The protocol and port.
    pub transport: Transport,
    /// The Service that the flow goes through.
    pub via: Option<ServiceId>,
    /// The node through which the flow enters the cluster, if that is known.
    pub entry: Option<NodeId>,
    /// Remarks that change no verdict, sorted.
    pub notes: Vec<Note>,
    /// The evaluated flow, for one of the addresses that an end could have.
    pub flow: Flow,
    /// The verdict, and the result of each direction.
    pub outcome: Outcome,
}

/// The verdict on one or several flows, and the result of each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The verdict of both directions together.
    pub verdict: FlowVerdict,
    /// The result at the source.
    pub egress: DirectionAnswer,
    /// The result at the destination.
    pub ingress: DirectionAnswer,
}

impl Outcome {
    /// Combines two outcomes: equal parts stay, different verdicts become `Mixed`.
    fn and(self, other: Outcome) -> Outcome {
        Outcome {
            verdict: if self.verdict == other.verdict {
                self.verdict
            } else {
                FlowVerdict::Mixed
            },
            egress: self.egress.and(other.egress, DirectionVerdict::Mixed),
            ingress: self.ingress.and(other.ingress, DirectionVerdict::Mixed),
        }
    }

    /// Returns the result of a direction.
    pub fn direction(&self, direction: Direction) -> DirectionAnswer {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        }
    }
}

/// The verdict on a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowVerdict {
    /// All flows are allowed.
    Allow,
    /// All flows are denied.
    Deny,
    /// Some flows are allowed and some are denied.
    Mixed,
    /// The verdict depends on an unknown address.
    Unknown,
}

impl FlowVerdict {
    /// Returns the name in every output.
    pub fn name(self) -> &'static str {
        match self {
            FlowVerdict::Allow => "Allow",
            FlowVerdict::Deny => "Deny",
            FlowVerdict::Mixed => "Mixed",
            FlowVerdict::Unknown => "Unknown",
        }
    }
}

impl From<Verdict> for FlowVerdict {
    fn from(verdict: Verdict) -> FlowVerdict {
        match verdict {
            Verdict::Allow => FlowVerdict::Allow,
            Verdict::Deny => FlowVerdict::Deny,
        }
    }
}

/// The verdict on one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DirectionVerdict {
    /// All flows are allowed.
    Allow,
    /// All flows are denied.
    Deny,
    /// Some flows are allowed and some are denied.
    Mixed,
    /// The verdict depends on an unknown address.
    Unknown,
    /// Policies are not evaluated.
    Exempt,
    /// The end is not a pod.
    NotApplicable,
}

impl DirectionVerdict {
    fn of(cause: Cause) -> DirectionVerdict {
        match (cause, cause.verdict()) {
            (Cause::Exempt(_), _) => DirectionVerdict::Exempt,
            (Cause::NotApplicable(_), _) => DirectionVerdict::NotApplicable,
            (_, Verdict::Allow) => DirectionVerdict::Allow,
            (_, Verdict::Deny) => DirectionVerdict::Deny,
        }
    }

    /// Returns the name in every output.
    pub fn name(self) -> &'static str {
        match self {
            DirectionVerdict::Allow => "Allow",
            DirectionVerdict::Deny => "Deny",
            DirectionVerdict::Mixed => "Mixed",
            DirectionVerdict::Unknown => "Unknown",
            DirectionVerdict::Exempt => "Exempt",
            DirectionVerdict::NotApplicable => "NotApplicable",
        }
    }
}

/// The result of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectionAnswer {
    /// The verdict of all flows and addresses together.
    pub verdict: DirectionVerdict,
    /// The reason, if it is the same for all flows and addresses.
    pub reason: Option<Reason>,
    /// The deciding policies, if they are the same for all flows and addresses.
    pub deciding: Option<DecidingPolicies>,
    /// The cause, if it is the same for all flows and addresses.
    pub cause: Option<Cause>,
}

/// The policies that a cause names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DecidingPolicies {
    /// No policy decided.
    None,
    /// The policy whose rule decided.
    Policy(PolicyId),
    /// The policies that isolate the pod together.
    Isolating(IsolationId),
}

impl DecidingPolicies {
    fn of(program: &Program, cause: Cause) -> DecidingPolicies {
        match cause {
            Cause::AdminRule(_, rule)
            | Cause::BaselineRule(_, rule)
            | Cause::NetworkPolicyRule(rule) => match program.place(rule) {
                Some(place) => DecidingPolicies::Policy(place.policy),
                None => DecidingPolicies::None,
            },
            Cause::Isolation(id) | Cause::DefaultIsolation(id) => DecidingPolicies::Isolating(id),
            Cause::Default | Cause::Exempt(_) | Cause::NotApplicable(_) => DecidingPolicies::None,
        }
    }

    /// Returns the policies, in order.
    pub fn policies(self, program: &Program) -> Vec<PolicyId> {
        match self {
            DecidingPolicies::None => Vec::new(),
            DecidingPolicies::Policy(policy) => vec![policy],
            DecidingPolicies::Isolating(id) => program.isolation(id).to_vec(),
        }
    }
}

/// The kind of a [`Cause`], without its rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A rule of the Admin tier decided.
    AdminRule,
    /// A rule of a NetworkPolicy matched.
    NetworkPolicyRule,
    /// NetworkPolicies isolate the pod, and none of their rules matched.
    Isolation,
    /// A rule of the Baseline tier decided.
    BaselineRule,
    /// DefaultNetworkPolicies isolate the pod, and none of their rules matched.
    DefaultIsolation,
    /// No policy decided.
    Default,
    /// Policies are not evaluated.
    Exempt,
    /// The end is not a pod.
    NotApplicable,
}

impl Reason {
    /// Returns the reason of a cause.
    pub fn of(cause: Cause) -> Reason {
        match cause {
            Cause::AdminRule(..) => Reason::AdminRule,
            Cause::NetworkPolicyRule(_) => Reason::NetworkPolicyRule,
            Cause::Isolation(_) => Reason::Isolation,
            Cause::BaselineRule(..) => Reason::BaselineRule,
            Cause::DefaultIsolation(_) => Reason::DefaultIsolation,
            Cause::Default => Reason::Default,
            Cause::Exempt(_) => Reason::Exempt,
            Cause::NotApplicable(_) => Reason::NotApplicable,
        }
    }

    /// Returns the name in every output.
    pub fn name(self) -> &'static str {
        match self {
            Reason::AdminRule => "AdminRule",
            Reason::NetworkPolicyRule => "NetworkPolicyRule",
            Reason::Isolation => "Isolation",
            Reason::BaselineRule => "BaselineRule",
            Reason::DefaultIsolation => "DefaultIsolation",
            Reason::Default => "Default",
            Reason::Exempt => "Exempt",
            Reason::NotApplicable => "NotApplicable",
        }
    }
}

impl DirectionAnswer {
    fn of(program: &Program, cause: Cause) -> DirectionAnswer {
        DirectionAnswer {
            verdict: DirectionVerdict::of(cause),
            reason: Some(Reason::of(cause)),
            deciding: Some(DecidingPolicies::of(program, cause)),
            cause: Some(cause),
        }
    }

    /// Combines two results: equal parts stay, different verdicts become `differing`.
    fn and(self, other: DirectionAnswer, differing: DirectionVerdict) -> DirectionAnswer {
        DirectionAnswer {
            verdict: if self.verdict == other.verdict {
                self.verdict
            } else {
                differing
            },
            // Each part is compared separately: flows with different rules can still have the same
            // reason and the same deciding policies (D136).
            reason: self.reason.filter(|it| other.reason == Some(*it)),
            deciding: self.deciding.filter(|it| other.deciding == Some(*it)),
            cause: self.cause.filter(|it| other.cause == Some(*it)),
        }
    }
}

impl<'c> FlowEvaluator<'c> {
    /// Creates an evaluator for a cluster and its program.
    pub fn new(cluster: &'c Cluster<'c>, program: &'c Program) -> FlowEvaluator<'c> {
        FlowEvaluator {
            cluster,
            program,
            names: NameIndex::new(cluster),
            services: Services::new(cluster),
            // The atoms depend on the program only: computed once for all queries.
            possible: Family::BOTH.map(|family| program.addresses.possible(family)),
        }
    }

    /// Answers a query for one port.
    pub fn answer(&self, query: &FlowQuery) -> Result<Answer, QueryError> {
        let cases = self.unfold(query)?;
        let mut flows = Vec::with_capacity(cases.len());
        for case in &cases {
            self.decide(case, &mut flows);
        }
        Answer::fold(flows).ok_or(QueryError::NoFamily)
    }

    /// Evaluates a case in each family that its ends share, or once for all families if an end has
    /// an unknown address.
    fn decide(&self, case: &FlowCase<'c>, flows: &mut Vec<FlowAnswer>) {
        let (source, destination) = (&case.source, &case.destination);
        let is_possible = |family: &Family| {
            source.addresses.may_have(*family)
                && (case.is_loopback || destination.addresses.may_have(*family))
                && case.families.contains(family)
        };
        let families: Vec<Family> = Family::BOTH.into_iter().filter(is_possible).collect();
        let is_known = |family: &Family| {
            source.addresses.of(*family).is_some()
                && (case.is_loopback || destination.addresses.of(*family).is_some())
        };
        // A pod without an address may get one of either family or of both. One answer then covers
        // all families that the case allows.
        let known: Vec<Family> = families.iter().copied().filter(is_known).collect();
        if known.len() == families.len() {
            for family in known {
                flows.push(self.evaluate_known(case, family));
            }
        } else if let Some(flow) = self.evaluate_unknown(case, &families) {
            flows.push(flow);
        }
    }

    fn atom(&self, candidate: &EndCandidate<'_>, family: Family) -> AddressAtom {
        // Only a loopback destination can have no address here. Its flow is exempt or not
        // applicable, and no rule reads the atom.
        let address = candidate.addresses.of(family);
        address.map_or(AddressAtom(0), |address| self.program.address_atom(address))
    }

    fn evaluate_known(&self, case: &FlowCase<'c>, family: Family) -> FlowAnswer {
        let source = self.atom(&case.source, family);
        let destination = self.atom(&case.destination, family);
        let flow = case.flow(source, destination);
        let decision = self.decision(case, &flow);
        let outcome = Outcome {
            verdict: decision.verdict().into(),
            egress: DirectionAnswer::of(self.program, decision.egress),
            ingress: DirectionAnswer::of(self.program, decision.ingress),
        };
        case.flow_answer(Some(family), flow, outcome)
    }

    fn decision(&self, case: &FlowCase<'c>, flow: &Flow) -> Decision {
        let mut decision = self.program.decide(flow);
        // The program knows only that the end is not a pod. The case also knows whether the query
        // named a host-network pod, a node or an address (D138).
        if let Cause::NotApplicable(_) = decision.egress {
            decision.egress = Cause::NotApplicable(case.source.absence);
        }
        if let Cause::NotApplicable(_) = decision.ingress {
            decision.ingress = Cause::NotApplicable(case.destination.absence);
        }
        decision
    }

    /// Evaluates a case for every address that its ends could have.
    fn evaluate_unknown(&self, case: &FlowCase<'c>, families: &[Family]) -> Option<FlowAnswer> {
        // Whether some choice of addresses allows the flow, and whether some choice denies it.
        let mut can_be = [false; 2];
        let mut answers: Option<(DirectionAnswer, DirectionAnswer)> = None;
        let mut any_flow = None;
        for family in families {
            let atoms = |candidate: &EndCandidate<'_>| match candidate.addresses.of(*family) {
                Some(address) => vec![self.program.address_atom(address)],
                None => self.possible(*family).to_vec(),
            };
            let (sources, destinations) = (atoms(&case.source), atoms(&case.destination));
            let (first_source, first_destination) = (*sources.first()?, *destinations.first()?);
            let decide = |source, destination| {
                let flow = case.flow(source, destination);
                self.decision(case, &flow)
            };
            any_flow.get_or_insert(case.flow(first_source, first_destination));
            // A direction never reads the address of its own subject: egress depends on the
            // destination's address, ingress on the source's. The two choices are independent:
            // evaluating each list once gives the same result as evaluating every pair.
            let egress: Vec<Cause> = destinations
                .iter()
                .map(|destination| decide(first_source, *destination).egress)
                .collect();
            let ingress: Vec<Cause> = sources
                .iter()
                .map(|source| decide(*source, first_destination).ingress)
                .collect();
            let allows = |causes: &[Cause]| causes.iter().any(|it| it.verdict() == Verdict::Allow);
            let denies = |causes: &[Cause]| causes.iter().any(|it| it.verdict() == Verdict::Deny);
            can_be[0] |= allows(&egress) && allows(&ingress);
            can_be[1] |= denies(&egress) || denies(&ingress);
            let join = |causes: &[Cause]| {
                let answers = causes
                    .iter()
                    .map(|cause| DirectionAnswer::of(self.program, *cause));
                answers.reduce(|a, b| a.and(b, DirectionVerdict::Unknown))
            };
            let (egress, ingress) = (join(&egress)?, join(&ingress)?);
            answers = Some(match answers {
                None => (egress, ingress),
                Some((e, i)) => (
                    e.and(egress, DirectionVerdict::Unknown),
                    i.and(ingress, DirectionVerdict::Unknown),
                ),
            });
        }
        let (egress, ingress) = answers?;
        let verdict = match can_be {
            [true, false] => FlowVerdict::Allow,
            [false, true] => FlowVerdict::Deny,
            // Neither is possible only without families, and `unfold` drops such cases.
            [true, true] | [false, false] => FlowVerdict::Unknown,
        };
        let outcome = Outcome {
            verdict,
            egress,
            ingress,
        };
        Some(case.flow_answer(None, any_flow?, outcome))
    }

    fn possible(&self, family: Family) -> &[AddressAtom] {
        let [v4, v6] = &self.possible;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }
}

impl FlowCase<'_> {
    fn flow(&self, source: AddressAtom, destination: AddressAtom) -> Flow {
        // A template stands for several pods, and two of them differ. The program sees one pod;
        // `via_service` keeps it from exempting the flow as traffic of a pod to itself (D76).
        let is_template_with_itself = self.is_template_with_itself;
        Flow {
            source: FlowEnd {
                identity: self.source.identity,
                address: source,
            },
            destination: FlowEnd {
                // Loopback as destination is the source itself (D139).
                identity: if self.is_loopback {
                    self.source.identity
                } else {
                    self.destination.identity
                },
                address: destination,
            },
            traffic: self.carried.traffic(),
            via_service: self.is_translated || is_template_with_itself,
            node_local: self.node_local,
        }
    }

    fn flow_answer(&self, family: Option<Family>, flow: Flow, outcome: Outcome) -> FlowAnswer {
        let mut notes = self.notes.clone();
        notes.extend(notes::is_undefined(self.carried, &outcome).then_some(Note::WithoutPorts));
        FlowAnswer {
            source: self.source_name,
            destination: self.destination.name,
            source_address: family.and_then(|family| self.source.addresses.of(family)),
            destination_address: family.and_then(|family| self.destination.addresses.of(family)),
            family,
            transport: self.carried,
            via: self.via,
            entry: self.entry,
            notes,
            flow,
            outcome,
        }
    }
}

/// Returns whether the candidate is a pod with a network of its own.
pub(crate) fn is_pod(candidate: &EndCandidate<'_>) -> bool {
    matches!(candidate.identity, Identity::Pod(_))
}
