//! Answers queries for any port: every port set with its own answer.

use std::num::NonZeroU16;

use super::{Answer, FlowEvaluator, Outcome, QueryError};
use crate::decide::Identity;
use crate::flow_end::EndName;
use crate::model::ServicePort;
use crate::net::{Family, Protocol};
use crate::portset::PortSet;
use crate::program::Owner;
use crate::query::{Endpoint, FlowQuery, PortQuery};

/// A port set and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAnswer {
    /// The ports, all with the same answer.
    pub ports: PortSet,
    /// The answer for the first of these ports that was evaluated.
    pub answer: Answer,
}

/// What two equal answers have in common. Flows are compared only if their outcomes differ.
type Shape = (Outcome, Vec<(EndName, EndName, Option<Family>, Outcome)>);

fn shape(answer: &Answer) -> Shape {
    let flows = answer.flows.iter().filter(|_| answer.is_split());
    let flows = flows.map(|it| (it.source, it.destination, it.family, it.outcome));
    (answer.outcome, flows.collect())
}

impl FlowEvaluator<'_> {
    /// Answers a query for every port set that has its own answer, in the order of ports. For a
    /// Service these are the ports that it offers.
    pub fn answer_ports(&self, query: &FlowQuery) -> Result<Vec<PortAnswer>, QueryError> {
        if let Some(ports) = self.offered_ports(query) {
            return self.answer_offered(query, ports);
        }
        let mut answers: Vec<(Shape, PortAnswer)> = Vec::new();
        let mut add = |answer: Answer, into: &dyn Fn(&mut PortSet)| {
            let shape = shape(&answer);
            if let Some((_, known)) = answers.iter_mut().find(|(it, _)| *it == shape) {
                into(&mut known.ports);
                return;
            }
            let mut ports = PortSet::default();
            into(&mut ports);
            answers.push((shape, PortAnswer { ports, answer }));
        };
        for protocol in Protocol::ALL {
            let starts = self.starts(&query.destination, protocol);
            // No rule distinguishes the ports between two starts: the first port of each run stands
            // for all of it.
            let ends = starts.iter().skip(1).map(|next| next.get() - 1);
            let ends: Vec<u16> = ends.chain([u16::MAX]).collect();
            for (first, last) in starts.iter().zip(ends) {
                let answer = match self.at(query, PortQuery::Number(protocol, *first)) {
                    // A node port without a backend leads nowhere: it has no answer of its own.
                    Err(QueryError::NoBackend(_)) => continue,
                    answer => answer?,
                };
                add(answer, &|ports| ports.add_run(protocol, first.get(), last));
            }
        }
        // ICMP or ICMPv6 is an error if the ends do not share its family. Any other error ended the
        // loop above.
        let icmp = self.at(query, PortQuery::Icmp).ok();
        let icmp6 = self.at(query, PortQuery::Icmp6(None)).ok();
        let other = self.at(query, PortQuery::Ip(OTHER_PROTOCOL)).ok();
        if let Some(answer) = icmp {
            add(answer, &|ports| ports.add_icmp());
        }
        if let Some(answer) = icmp6 {
            add(answer, &|ports| ports.add_icmp6());
        }
        if let Some(answer) = other {
            add(answer, &|ports| ports.add_other());
        }
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    fn at(&self, query: &FlowQuery, port: PortQuery) -> Result<Answer, QueryError> {
        self.answer(&FlowQuery {
            port,
            ..query.clone()
        })
    }

    fn answer_offered(
        &self,
        query: &FlowQuery,
        ports: &[ServicePort<'_>],
    ) -> Result<Vec<PortAnswer>, QueryError> {
        let mut answers = Vec::new();
        // A port without a ready backend does not hide the answers of the other ports. If every
        // port fails, the first error is reported.
        let mut failed = None;
        for offered in ports {
            let port = PortQuery::Number(offered.protocol, offered.port);
            match self.at(query, port) {
                Ok(answer) => {
                    let mut ports = PortSet::default();
                    ports.add_run(offered.protocol, offered.port.get(), offered.port.get());
                    answers.push(PortAnswer { ports, answer });
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        match failed {
            Some(error) if answers.is_empty() => Err(error),
            // A Service without ports has no answer at all. The query for ICMP finds the error that
            // fits the Service.
            None if answers.is_empty() => self.at(query, PortQuery::Icmp).map(|_| Vec::new()),
            _ => Ok(answers),
        }
    }

    fn offered_ports(&self, query: &FlowQuery) -> Option<&[ServicePort<'_>]> {
        // An unknown name or address is not an error here: the query for a single port reports it.
        let id = match &query.destination {
            Endpoint::Service(namespace, name) => self.names.service(namespace, name).ok()?,
            Endpoint::Address(address) => self.services.at(*address)?,
            Endpoint::Pod(..) | Endpoint::Workload(..) | Endpoint::Node(_) | Endpoint::Block(_) => {
                return None;
            }
        };
        let service = self.cluster.services.get(id.0 as usize)?;
        Some(&service.ports)
    }

    /// Returns the ports at which an answer may change: where an atom of the program starts, and
    /// before and after each port that has a name at the destination.
    fn starts(&self, destination: &Endpoint, protocol: Protocol) -> Vec<NonZeroU16> {
        let mut starts: Vec<u16> = self.program.ports.starts(protocol).to_vec();
        starts.push(1);
        // A node port of a node's address leads elsewhere than the ports beside it (D141).
        let is_of_node = matches!(destination, Endpoint::Address(address)
            if matches!(self.program.owner(*address), Some(Owner::Node(_))));
        if is_of_node {
            for port in self.services.node_ports(protocol) {
                starts.push(port.get());
                starts.extend(port.get().checked_add(1));
            }
        }
        // A name at the destination adds rules for one port only. It is not a bound of an atom,
        // since pods give the same name to different ports.
        for candidate in self.candidates(destination).unwrap_or_default() {
            let Identity::Pod(pod) = candidate.identity else {
                continue;
            };
            let class = self.program.class(pod);
            let map = class.and_then(|class| self.program.port_map(class));
            for entry in map.iter().flat_map(|map| &map.entries) {
                if entry.protocol == protocol {
                    starts.push(entry.port.get());
                    starts.extend(entry.port.get().checked_add(1));
                }
            }
        }
        starts.sort_unstable();
        starts.dedup();
        starts.into_iter().filter_map(NonZeroU16::new).collect()
    }
}

/// A protocol without ports that is not ICMP: 253, reserved for experiments. Rules cannot name such
/// a protocol, and one stands for all (D93).
const OTHER_PROTOCOL: u8 = 253;

/// Combines several answers: equal parts stay, different verdicts become `Mixed`.
pub fn join(answers: &[PortAnswer]) -> Option<Outcome> {
    let outcomes = answers.iter().map(|it| it.answer.outcome);
    outcomes.reduce(Outcome::and)
}
