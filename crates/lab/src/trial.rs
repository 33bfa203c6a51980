//! A question, what is predicted, and what packets show.

use palisade_core::EndName;
use palisade_core::answer::{Answer, FlowAnswer, FlowEvaluator, FlowVerdict, QueryError};
use palisade_core::query::FlowQuery;

use crate::complete::CompletedCluster;
use crate::lab::ProbeOutcome;
use crate::probe_plan::{ProbeKind, ProbePlanner, Unprobeable};
use crate::questions::through;

/// A question with its prediction, and how it is shown.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What is predicted for each of its flows.
    pub predicted: Answer,
    /// How each of them is shown, in the same order.
    pub means: Vec<Result<ProbeKind, Unprobeable>>,
}

/// A template stands for pods that are not itself; so do the pods that were made of it.
fn without_selves(furnished: &CompletedCluster<'_>, answer: Answer) -> Answer {
    let is_self = |single: &FlowAnswer| {
        let made = match single.source {
            EndName::Pod(id) => id >= furnished.first_made,
            EndName::Node(_) | EndName::Address(_) => false,
        };
        made && single.source == single.destination && !single.flow.via_service
    };
    let others = answer.flows.iter().filter(|it| !is_self(it));
    Answer::fold(others.cloned().collect()).unwrap_or(answer)
}

/// What a trial came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdicts {
    /// What was predicted.
    pub predicted: FlowVerdict,
    /// What packets showed; the reason if they could not show it.
    pub measured: Result<FlowVerdict, Unprobeable>,
    /// Whether some flow was not as predicted.
    pub differs: bool,
    /// Whether some packet arrived whose answer did not come back.
    pub unanswered: bool,
}

impl Trial {
    /// Predicts the answer to a question, and finds a way to show it.
    pub fn new(
        respondent: &FlowEvaluator<'_>,
        furnished: &CompletedCluster<'_>,
        realiser: &mut ProbePlanner<'_, '_>,
        question: &FlowQuery,
    ) -> Result<Trial, QueryError> {
        let predicted = respondent.answer(question)?;
        let predicted = without_selves(furnished, predicted);
        let through = through(furnished, question);
        let flows = predicted.flows.iter();
        let means = flows
            .map(|single| realiser.means(single, through))
            .collect();
        Ok(Trial { predicted, means })
    }

    /// The same for every port: at both ends of each range of ports that get one answer.
    pub fn of_any_port(
        respondent: &FlowEvaluator<'_>,
        furnished: &CompletedCluster<'_>,
        realiser: &mut ProbePlanner<'_, '_>,
        question: &FlowQuery,
    ) -> Result<Trial, QueryError> {
        let answers = respondent.answer_ports(question)?;
        let mut flows = Vec::new();
        let mut means = Vec::new();
        for port in answers.iter().flat_map(|answer| answer.ports.edges()) {
            let question = FlowQuery {
                port,
                ..question.clone()
            };
            let trial = Trial::new(respondent, furnished, realiser, &question)?;
            flows.extend(trial.predicted.flows);
            means.extend(trial.means);
        }
        let predicted = Answer::fold(flows).ok_or(QueryError::NoFamily)?;
        Ok(Trial { predicted, means })
    }

    /// The flows that are shown.
    pub fn shown(&self) -> impl Iterator<Item = ProbeKind> {
        self.means.iter().filter_map(|it| it.as_ref().ok().copied())
    }

    /// Compares what is predicted with what was seen of the flows that are shown.
    pub fn compare(&self, mut seen: impl Iterator<Item = ProbeOutcome>) -> Verdicts {
        let mut measured: Option<FlowVerdict> = None;
        let mut verdicts = Verdicts {
            predicted: self.predicted.outcome.verdict,
            measured: Err(Unprobeable::Outside),
            differs: false,
            unanswered: false,
        };
        let mut obstacle = None;
        for (single, means) in self.predicted.flows.iter().zip(&self.means) {
            let seen = match means {
                Ok(_) => seen.next().unwrap_or(ProbeOutcome::Absent),
                Err(why) => {
                    obstacle = Some(why.clone());
                    continue;
                }
            };
            let own = match seen {
                ProbeOutcome::Arrived => FlowVerdict::Allow,
                ProbeOutcome::Unanswered | ProbeOutcome::Absent => FlowVerdict::Deny,
            };
            verdicts.unanswered |= seen == ProbeOutcome::Unanswered;
            let is_definite = matches!(
                single.outcome.verdict,
                FlowVerdict::Allow | FlowVerdict::Deny
            );
            verdicts.differs |= is_definite && own != single.outcome.verdict;
            measured = Some(match measured {
                Some(before) if before != own => FlowVerdict::Mixed,
                Some(_) | None => own,
            });
        }
        verdicts.measured = match (measured, obstacle) {
            // A flow that could not be shown leaves the whole open.
            (_, Some(why)) => Err(why),
            (Some(measured), None) => Ok(measured),
            (None, None) => Err(Unprobeable::Outside),
        };
        verdicts
    }
}
