//! A flow query, its predicted answer, and the answer by packets.

use palisade_core::EndName;
use palisade_core::answer::{Answer, FlowAnswer, FlowEvaluator, FlowVerdict, QueryError};
use palisade_core::query::FlowQuery;

use crate::complete::CompletedCluster;
use crate::lab::ProbeOutcome;
use crate::probe_plan::{ProbeKind, ProbePlanner, Unprobeable};

/// The prediction of a flow query, and the probes that measure it.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The predicted answer for each of its flows.
    pub predicted: Answer,
    /// The way to measure each flow, in the same order.
    pub means: Vec<Result<ProbeKind, Unprobeable>>,
}

/// Leaves out flows of a made pod to itself. A template stands for pods that are different from
/// each other.
fn without_selves(completed: &CompletedCluster<'_>, answer: Answer) -> Answer {
    let is_self = |single: &FlowAnswer| {
        let made = match single.source {
            EndName::Pod(id) => id >= completed.first_made,
            EndName::Node(_) | EndName::Address(_) | EndName::Block(_) => false,
        };
        made && single.source == single.destination && !single.flow.via_service
    };
    let others = answer.flows.iter().filter(|it| !is_self(it));
    Answer::fold(others.cloned().collect()).unwrap_or(answer)
}

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdicts {
    /// The predicted verdict.
    pub predicted: FlowVerdict,
    /// The verdict by packets, or why packets could not show it.
    pub measured: Result<FlowVerdict, Unprobeable>,
    /// Whether a flow was not as predicted.
    pub differs: bool,
    /// Whether a packet arrived whose answer did not come back.
    pub unanswered: bool,
}

impl Trial {
    /// Predicts the answer to a query, and plans its probes.
    pub fn new(
        evaluator: &FlowEvaluator<'_>,
        completed: &CompletedCluster<'_>,
        planner: &mut ProbePlanner<'_, '_>,
        query: &FlowQuery,
    ) -> Result<Trial, QueryError> {
        let predicted = evaluator.answer(query)?;
        let predicted = without_selves(completed, predicted);
        let flows = predicted.flows.iter();
        let means = flows.map(|single| planner.means(single)).collect();
        Ok(Trial { predicted, means })
    }

    /// Makes a trial of every port: at both ends of each range of ports with one answer.
    pub fn of_any_port(
        evaluator: &FlowEvaluator<'_>,
        completed: &CompletedCluster<'_>,
        planner: &mut ProbePlanner<'_, '_>,
        query: &FlowQuery,
    ) -> Result<Trial, QueryError> {
        let answers = evaluator.answer_ports(query)?;
        let mut flows = Vec::new();
        let mut means = Vec::new();
        for port in answers.iter().flat_map(|answer| answer.ports.edges()) {
            let query = FlowQuery {
                port,
                ..query.clone()
            };
            let trial = Trial::new(evaluator, completed, planner, &query)?;
            flows.extend(trial.predicted.flows);
            means.extend(trial.means);
        }
        let predicted = Answer::fold(flows).ok_or(QueryError::NoFamily)?;
        Ok(Trial { predicted, means })
    }

    /// Returns the probes of all flows that can be measured.
    pub fn shown(&self) -> impl Iterator<Item = ProbeKind> {
        self.means.iter().filter_map(|it| it.as_ref().ok().copied())
    }

    /// Compares the prediction with the outcomes of its probes.
    pub fn compare(&self, mut outcomes: impl Iterator<Item = ProbeOutcome>) -> Verdicts {
        let mut measured: Option<FlowVerdict> = None;
        let mut verdicts = Verdicts {
            predicted: self.predicted.outcome.verdict,
            measured: Err(Unprobeable::Outside),
            differs: false,
            unanswered: false,
        };
        let mut obstacle = None;
        for (single, means) in self.predicted.flows.iter().zip(&self.means) {
            let outcome = match means {
                Ok(_) => outcomes.next().unwrap_or(ProbeOutcome::Absent),
                Err(why) => {
                    obstacle = Some(why.clone());
                    continue;
                }
            };
            let own = match outcome {
                ProbeOutcome::Arrived => FlowVerdict::Allow,
                ProbeOutcome::Unanswered | ProbeOutcome::Absent => FlowVerdict::Deny,
            };
            verdicts.unanswered |= outcome == ProbeOutcome::Unanswered;
            let is_definite = matches!(
                single.outcome.verdict,
                FlowVerdict::Allow | FlowVerdict::Deny
            );
            // Unknown and Mixed predictions contradict no packet.
            verdicts.differs |= is_definite && own != single.outcome.verdict;
            measured = Some(match measured {
                Some(before) if before != own => FlowVerdict::Mixed,
                Some(_) | None => own,
            });
        }
        verdicts.measured = match (measured, obstacle) {
            // One flow without a measurement leaves the verdict open.
            (_, Some(why)) => Err(why),
            (Some(measured), None) => Ok(measured),
            (None, None) => Err(Unprobeable::Outside),
        };
        verdicts
    }
}
