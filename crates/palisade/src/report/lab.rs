//! The measurements of a lab, and how two rounds of them differ.

mod change;
mod text;

use std::time::Duration;

use palisade_api::OtherPolicies;
use palisade_core::answer::FlowVerdict;

use super::flow::NamedFlow;

pub(crate) use self::change::{ChangedFiles, RoundChange};
pub(crate) use self::text::text;

/// The result of one round.
#[derive(Clone, Debug)]
pub(crate) struct Round {
    /// The flows, in order.
    pub(crate) probes: Vec<Probe>,
    /// The number of pods in the lab.
    pub(crate) n_pods: usize,
    /// The number of nodes in the lab.
    pub(crate) n_nodes: usize,
    /// The time from the files to installed policies.
    pub(crate) built: Duration,
    /// The time of the packets.
    pub(crate) probed: Duration,
    /// Whether the lab was built in this round.
    pub(crate) is_built: bool,
    /// The policies of other vendors, which the lab does not have.
    pub(crate) other_policies: OtherPolicies,
}

/// A flow, its predicted verdict, and its measured verdict.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    /// The flow.
    pub(crate) flow: NamedFlow,
    /// The verdict of the engine.
    pub(crate) predicted: FlowVerdict,
    /// The verdict of the packets; `None` if they cannot show it.
    pub(crate) measured: Option<FlowVerdict>,
    /// Why it could not be evaluated or measured.
    pub(crate) error: Option<String>,
    /// Whether a packet arrived and its reply did not.
    pub(crate) unanswered: bool,
    /// Whether the packets contradict the prediction.
    pub(crate) differs: bool,
    /// Whether it is a flow of `--flows` that could not be evaluated.
    pub(crate) is_invalid: bool,
    /// The verdict of the previous round, if it was another one.
    pub(crate) was: Option<FlowVerdict>,
}

impl Round {
    /// Returns the number of probes that contradict the prediction.
    pub(crate) fn n_differences(&self) -> usize {
        self.probes.iter().filter(|probe| probe.differs).count()
    }

    /// Reports whether packets showed the verdict of any flow.
    pub(crate) fn is_measured(&self) -> bool {
        self.probes.iter().any(|probe| probe.measured.is_some())
    }
}
