//! From a question to its answer: unfold it into single flows, decide each, fold the decisions.
//!
//! A question may stand for several flows: the pods of a workload, the backends of a Service, both
//! families of a dual-stack pair. An end without a known address stands for every address that it
//! could have (D136).

mod ports;
mod unfold;

use std::net::IpAddr;

use crate::decide::{Cause, Decision, Flow, FlowEnd, Identity, Traffic};
use crate::flow_end::{EndCandidate, EndName};
use crate::model::{Cluster, PolicyId, ServiceId};
use crate::name_index::{NameIndex, UnknownName};
use crate::net::{Family, Protocol};
use crate::policy::{Direction, Verdict};
use crate::program::{AddressAtom, IsolationId, Program};
use crate::query::FlowQuery;

pub use self::ports::{PortAnswer, join};
use self::unfold::FlowCase;
pub use self::unfold::Services;
pub(crate) use self::unfold::{backings, service_families};
pub use crate::portset::PortSet;

/// Answers questions about one cluster.
#[derive(Debug)]
pub struct FlowEvaluator<'c> {
    /// The cluster.
    pub cluster: &'c Cluster<'c>,
    /// Its program.
    pub program: &'c Program,
    /// Its names.
    pub directory: NameIndex<'c>,
    services: Services,
    /// The address atoms that a pod could be in, for each family.
    possible: [Vec<AddressAtom>; 2],
}

/// Why a question cannot be answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A name stands for nothing.
    #[error(transparent)]
    Unknown(#[from] UnknownName),
    /// Services only receive.
    #[error("`{0}` is a Service: flows lead to it, and do not start there")]
    FromService(String),
    /// The Service is another name for something outside.
    #[error("`{0}` is an ExternalName Service, which leads to no address")]
    ExternalName(String),
    /// The Service has no such port.
    #[error("`{0}` does not offer this port; it offers {1}")]
    NotOffered(String, String),
    /// The Service leads nowhere.
    #[error("`{0}` has no ready backend for this port")]
    NoBackend(String),
    /// Only ports are translated.
    #[error("`{0}` is a Service, which only translates ports of TCP, UDP and SCTP")]
    Portless(String),
    /// The ends have no address of one family.
    #[error("the two ends have no addresses of one family")]
    NoFamily,
    /// The protocol exists only in the other family.
    #[error("`{0}` exists only in {1}, and the two ends have no such addresses")]
    WrongFamily(&'static str, Family),
    /// A node is known by name only.
    #[error("the node `{0}` is not given, so that its address is not known")]
    NoAddress(String),
    /// Loopback addresses have no meaning there.
    #[error("{0} is a loopback address, which only a pod or node itself reaches")]
    Loopback(IpAddr),
    /// Not the address of anyone.
    #[error("{0} is not the address of anyone")]
    Unspecified(IpAddr),
    /// The destination has no port of the name.
    #[error("the destination has no {0} port called {1}{2}")]
    NoPortName(Protocol, String, String),
    /// `via` makes no sense there.
    #[error(
        "`via` takes a node that traffic from outside enters through, or a Service that leads to the pod"
    )]
    Via,
}

/// What a flow carries, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// A port.
    Port(Protocol, std::num::NonZeroU16),
    /// An ICMP echo request.
    Icmp,
    /// An ICMPv6 message: an echo request unless another type is said.
    Icmp6(Option<u8>),
    /// Another protocol.
    Ip(u8),
}

impl Transport {
    /// The family that it can only exist in.
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
            Transport::Icmp6(Some(130..=137 | 143)) => Traffic::NeighborDiscovery,
            Transport::Icmp | Transport::Icmp6(_) | Transport::Ip(_) => Traffic::Portless,
        }
    }
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What becomes of its flows together.
    pub outcome: Outcome,
    /// The family, if all have one.
    pub family: Option<Family>,
    /// The flows that it stands for; at least one.
    pub flows: Vec<FlowAnswer>,
}

impl Answer {
    /// Folds flows into one answer; `None`: there are none.
    pub fn fold(flows: Vec<FlowAnswer>) -> Option<Answer> {
        let outcomes = flows.iter().map(|it| it.outcome);
        let outcome = outcomes.reduce(Outcome::and)?;
        let mut families = flows.iter().map(|it| it.family);
        let first = families.next().flatten();
        let family = first.filter(|first| families.all(|it| it == Some(*first)));
        Some(Answer {
            outcome,
            family,
            flows,
        })
    }

    /// Whether the flows get different answers, so that each has to be shown.
    pub fn is_split(&self) -> bool {
        let mut outcomes = self.flows.iter().map(|it| it.outcome);
        let first = outcomes.next();
        outcomes.any(|it| Some(it) != first)
    }
}

/// One flow and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowAnswer {
    /// Where it starts.
    pub source: EndName,
    /// Where it ends, after translation.
    pub destination: EndName,
    /// The source's address as the destination sees it, if it is known.
    pub source_address: Option<IpAddr>,
    /// The destination's address, if it is known.
    pub destination_address: Option<IpAddr>,
    /// The family; none if an end has no known address.
    pub family: Option<Family>,
    /// What it carries.
    pub carried: Transport,
    /// The Service that it went through.
    pub via: Option<ServiceId>,
    /// The flow as it was decided, for one of the addresses that an end could have.
    pub flow: Flow,
    /// What becomes of it.
    pub outcome: Outcome,
}

/// What becomes of one or several flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The verdict.
    pub verdict: FlowVerdict,
    /// At the source.
    pub egress: DirectionAnswer,
    /// At the destination.
    pub ingress: DirectionAnswer,
}

impl Outcome {
    /// What two have in common.
    fn and(self, other: Outcome) -> Outcome {
        Outcome {
            verdict: if self.verdict == other.verdict {
                self.verdict
            } else {
                FlowVerdict::Mixed
            },
            egress: self.egress.and(other.egress, SideVerdict::Mixed),
            ingress: self.ingress.and(other.ingress, SideVerdict::Mixed),
        }
    }

    /// A direction of it.
    pub fn side(&self, direction: Direction) -> DirectionAnswer {
        match direction {
            Direction::Ingress => self.ingress,
            Direction::Egress => self.egress,
        }
    }
}

/// A verdict on a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowVerdict {
    /// All flows are allowed.
    Allow,
    /// All flows are denied.
    Deny,
    /// Flows differ.
    Mixed,
    /// It depends on an address that is not known.
    Unknown,
}

impl From<Verdict> for FlowVerdict {
    fn from(verdict: Verdict) -> FlowVerdict {
        match verdict {
            Verdict::Allow => FlowVerdict::Allow,
            Verdict::Deny => FlowVerdict::Deny,
        }
    }
}

/// A verdict on one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SideVerdict {
    /// All flows are allowed.
    Allow,
    /// All flows are denied.
    Deny,
    /// Flows differ.
    Mixed,
    /// It depends on an address that is not known.
    Unknown,
    /// No policy may decide.
    Exempt,
    /// The end is not a pod.
    NotApplicable,
}

impl SideVerdict {
    fn of(cause: Cause) -> SideVerdict {
        match (cause, cause.verdict()) {
            (Cause::Exempt(_), _) => SideVerdict::Exempt,
            (Cause::NotApplicable(_), _) => SideVerdict::NotApplicable,
            (_, Verdict::Allow) => SideVerdict::Allow,
            (_, Verdict::Deny) => SideVerdict::Deny,
        }
    }

    /// The word in every output.
    pub fn name(self) -> &'static str {
        match self {
            SideVerdict::Allow => "Allow",
            SideVerdict::Deny => "Deny",
            SideVerdict::Mixed => "Mixed",
            SideVerdict::Unknown => "Unknown",
            SideVerdict::Exempt => "Exempt",
            SideVerdict::NotApplicable => "NotApplicable",
        }
    }
}

/// What becomes of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectionAnswer {
    /// The verdict.
    pub verdict: SideVerdict,
    /// The sort of cause, if all flows and addresses have one.
    pub reason: Option<Reason>,
    /// The policies behind it, likewise.
    pub deciding: Option<DecidingPolicies>,
    /// The cause, likewise.
    pub cause: Option<Cause>,
}

/// The policies behind a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DecidingPolicies {
    /// None.
    Nobody,
    /// The one whose rule decides.
    Policy(PolicyId),
    /// Those that isolate together.
    Isolating(IsolationId),
}

impl DecidingPolicies {
    fn of(program: &Program, cause: Cause) -> DecidingPolicies {
        match cause {
            Cause::AdminRule(_, rule)
            | Cause::BaselineRule(_, rule)
            | Cause::NetworkPolicyRule(rule) => match program.place(rule) {
                Some(place) => DecidingPolicies::Policy(place.policy),
                None => DecidingPolicies::Nobody,
            },
            Cause::Isolation(id) | Cause::DefaultIsolation(id) => DecidingPolicies::Isolating(id),
            Cause::Default | Cause::Exempt(_) | Cause::NotApplicable(_) => DecidingPolicies::Nobody,
        }
    }

    /// The policies.
    pub fn policies(self, program: &Program) -> Vec<PolicyId> {
        match self {
            DecidingPolicies::Nobody => Vec::new(),
            DecidingPolicies::Policy(policy) => vec![policy],
            DecidingPolicies::Isolating(id) => program.isolation(id).to_vec(),
        }
    }
}

/// The sort of cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A rule of the Admin tier.
    AdminRule,
    /// A rule of a NetworkPolicy.
    NetworkPolicyRule,
    /// NetworkPolicies isolate.
    Isolation,
    /// A rule of the Baseline tier.
    BaselineRule,
    /// Default policies isolate.
    DefaultIsolation,
    /// Nothing decides.
    Default,
    /// No policy may decide.
    Exempt,
    /// The end is not a pod.
    NotApplicable,
}

impl Reason {
    /// The sort of a cause.
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

    /// The word in every output.
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
            verdict: SideVerdict::of(cause),
            reason: Some(Reason::of(cause)),
            deciding: Some(DecidingPolicies::of(program, cause)),
            cause: Some(cause),
        }
    }

    /// Both, if they are the same; otherwise what they have in common. `differing` is the verdict
    /// if theirs differ.
    fn and(self, other: DirectionAnswer, differing: SideVerdict) -> DirectionAnswer {
        DirectionAnswer {
            verdict: if self.verdict == other.verdict {
                self.verdict
            } else {
                differing
            },
            reason: self.reason.filter(|it| other.reason == Some(*it)),
            deciding: self.deciding.filter(|it| other.deciding == Some(*it)),
            cause: self.cause.filter(|it| other.cause == Some(*it)),
        }
    }
}

impl<'c> FlowEvaluator<'c> {
    /// Someone who answers questions about a cluster and its program.
    pub fn new(cluster: &'c Cluster<'c>, program: &'c Program) -> FlowEvaluator<'c> {
        FlowEvaluator {
            cluster,
            program,
            directory: NameIndex::new(cluster),
            services: Services::new(cluster),
            possible: Family::BOTH.map(|family| program.addresses.possible(family)),
        }
    }

    /// Answers a question about one port.
    pub fn answer(&self, question: &FlowQuery) -> Result<Answer, QueryError> {
        let cases = self.unfold(question)?;
        let mut flows = Vec::with_capacity(cases.len());
        for case in &cases {
            self.decide(case, &mut flows);
        }
        Answer::fold(flows).ok_or(QueryError::NoFamily)
    }

    /// Decides a case in each family that its ends share; in all of them at once if an end could
    /// have any address.
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
        let known: Vec<Family> = families.iter().copied().filter(is_known).collect();
        if known.len() == families.len() {
            for family in known {
                flows.push(self.known_address(case, family));
            }
        } else if let Some(single) = self.unknown(case, &families) {
            flows.push(single);
        }
    }

    fn atom(&self, party: &EndCandidate<'_>, family: Family) -> AddressAtom {
        let address = party.addresses.of(family);
        address.map_or(AddressAtom(0), |address| self.program.address_atom(address))
    }

    fn known_address(&self, case: &FlowCase<'c>, family: Family) -> FlowAnswer {
        let source = self.atom(&case.source, family);
        let destination = self.atom(&case.destination, family);
        let flow = case.flow(source, destination);
        let decision = self.decision(case, &flow);
        let outcome = Outcome {
            verdict: decision.verdict().into(),
            egress: DirectionAnswer::of(self.program, decision.egress),
            ingress: DirectionAnswer::of(self.program, decision.ingress),
        };
        case.single(Some(family), flow, outcome)
    }

    fn decision(&self, case: &FlowCase<'c>, flow: &Flow) -> Decision {
        let mut decision = self.program.decide(flow);
        // The program knows only that the end is no pod; who was asked about, the case knows.
        if let Cause::NotApplicable(_) = decision.egress {
            decision.egress = Cause::NotApplicable(case.source.absence);
        }
        if let Cause::NotApplicable(_) = decision.ingress {
            decision.ingress = Cause::NotApplicable(case.destination.absence);
        }
        decision
    }

    /// Decides a case for every address that its ends could have: egress depends on the
    /// destination's, ingress on the source's.
    fn unknown(&self, case: &FlowCase<'c>, families: &[Family]) -> Option<FlowAnswer> {
        let mut can_be = [false; 2];
        let mut sides: Option<(DirectionAnswer, DirectionAnswer)> = None;
        let mut any_flow = None;
        for family in families {
            let atoms = |party: &EndCandidate<'_>| match party.addresses.of(*family) {
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
                let sides = causes
                    .iter()
                    .map(|cause| DirectionAnswer::of(self.program, *cause));
                sides.reduce(|a, b| a.and(b, SideVerdict::Unknown))
            };
            let (egress, ingress) = (join(&egress)?, join(&ingress)?);
            sides = Some(match sides {
                None => (egress, ingress),
                Some((e, i)) => (
                    e.and(egress, SideVerdict::Unknown),
                    i.and(ingress, SideVerdict::Unknown),
                ),
            });
        }
        let (egress, ingress) = sides?;
        let verdict = match can_be {
            [true, false] => FlowVerdict::Allow,
            [false, true] => FlowVerdict::Deny,
            [true, true] | [false, false] => FlowVerdict::Unknown,
        };
        let outcome = Outcome {
            verdict,
            egress,
            ingress,
        };
        Some(case.single(None, any_flow?, outcome))
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
        let is_template_with_itself = self.is_template_with_itself;
        Flow {
            source: FlowEnd {
                identity: self.source.identity,
                address: source,
            },
            destination: FlowEnd {
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

    fn single(&self, family: Option<Family>, flow: Flow, outcome: Outcome) -> FlowAnswer {
        FlowAnswer {
            source: self.source_name,
            destination: self.destination.name,
            source_address: family.and_then(|family| self.source.addresses.of(family)),
            destination_address: family.and_then(|family| self.destination.addresses.of(family)),
            family,
            carried: self.carried,
            via: self.via,
            flow,
            outcome,
        }
    }
}

/// Whether an end is a pod that no policy could select.
pub(crate) fn is_pod(party: &EndCandidate<'_>) -> bool {
    matches!(party.identity, Identity::Pod(_))
}
