//! Every port set with its own answer: what to say when no port is asked for.

use std::num::NonZeroU16;

use super::{Answer, FlowEvaluator, Outcome, QueryError};
use crate::decide::Identity;
use crate::flow_end::EndName;
use crate::model::ServicePort;
use crate::net::{Family, Protocol};
use crate::portset::PortSet;
use crate::query::{Endpoint, FlowQuery, PortQuery};

/// A port set and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortAnswer {
    /// The ports.
    pub ports: PortSet,
    /// The answer for each of them.
    pub answer: Answer,
}

/// What makes two answers the same: flows are compared only where they get different answers.
type Shape = (Outcome, Vec<(EndName, EndName, Option<Family>, Outcome)>);

fn shape(answer: &Answer) -> Shape {
    let flows = answer.flows.iter().filter(|_| answer.is_split());
    let flows = flows.map(|it| (it.source, it.destination, it.family, it.outcome));
    (answer.outcome, flows.collect())
}

impl FlowEvaluator<'_> {
    /// Answers a question for every port set that gets its own answer, in the order of ports. The
    /// ports of a Service are those that it offers.
    pub fn answer_ports(&self, question: &FlowQuery) -> Result<Vec<PortAnswer>, QueryError> {
        if let Some(ports) = self.offered_ports(question) {
            return self.answer_offered(question, ports);
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
            let starts = self.starts(&question.destination, protocol);
            let ends = starts.iter().skip(1).map(|next| next.get() - 1);
            let ends: Vec<u16> = ends.chain([u16::MAX]).collect();
            for (first, last) in starts.iter().zip(ends) {
                let answer = self.at(question, PortQuery::Number(protocol, *first))?;
                add(answer, &|ports| ports.add_run(protocol, first.get(), last));
            }
        }
        // Of the two forms of ICMP the ends may have only one.
        let icmp = self.at(question, PortQuery::Icmp).ok();
        let icmp6 = self.at(question, PortQuery::Icmp6(None)).ok();
        let other = self.at(question, PortQuery::Ip(OTHER_PROTOCOL)).ok();
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

    fn at(&self, question: &FlowQuery, port: PortQuery) -> Result<Answer, QueryError> {
        self.answer(&FlowQuery {
            port,
            ..question.clone()
        })
    }

    fn answer_offered(
        &self,
        question: &FlowQuery,
        ports: &[ServicePort<'_>],
    ) -> Result<Vec<PortAnswer>, QueryError> {
        let mut answers = Vec::new();
        let mut failed = None;
        for offered in ports {
            let port = PortQuery::Number(offered.protocol, offered.port);
            match self.at(question, port) {
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
            // A Service without ports offers none.
            None if answers.is_empty() => self.at(question, PortQuery::Icmp).map(|_| Vec::new()),
            _ => Ok(answers),
        }
    }

    fn offered_ports(&self, question: &FlowQuery) -> Option<&[ServicePort<'_>]> {
        let id = match &question.destination {
            Endpoint::Service(namespace, name) => self.directory.service(namespace, name).ok()?,
            Endpoint::Address(address) => self.services.at(*address)?,
            Endpoint::Pod(..) | Endpoint::Workload(..) | Endpoint::Node(_) => return None,
        };
        let service = self.cluster.services.get(id.0 as usize)?;
        Some(&service.ports)
    }

    /// The ports at which an answer may change: where a rule's range starts or has ended, and where
    /// a port has a name at the destination.
    fn starts(&self, destination: &Endpoint, protocol: Protocol) -> Vec<NonZeroU16> {
        let mut starts: Vec<u16> = self.program.ports.starts(protocol).to_vec();
        starts.push(1);
        for party in self.parties(destination).unwrap_or_default() {
            let Identity::Pod(pod) = party.identity else {
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

/// Any protocol that has neither ports nor a form of its own.
const OTHER_PROTOCOL: u8 = 253;

/// What several answers have in common.
pub fn join(answers: &[PortAnswer]) -> Option<Outcome> {
    let outcomes = answers.iter().map(|it| it.answer.outcome);
    outcomes.reduce(Outcome::and)
}
