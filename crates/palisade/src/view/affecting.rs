//! The documents of `affecting`.

mod maker;

use palisade_core::analysis::affect::Witness;
use palisade_core::answer::Transport;
use palisade_core::model::Cluster;
use palisade_core::policy::Direction;
use serde::Serialize;

use super::API_VERSION;
use crate::draw::clean;

pub(crate) use self::maker::ViewBuilder;

/// The policies that select a pod, or pods with the same answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AffectingView {
    api_version: &'static str,
    kind: &'static str,
    /// The queried endpoint.
    pub(crate) endpoint: String,
    /// The pods of a workload.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pods: Vec<String>,
    /// Whether it is a host-network pod, which no policy selects.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) host_network: bool,
    pub(crate) egress: Vec<EntryView>,
    pub(crate) ingress: Vec<EntryView>,
}

impl AffectingView {
    pub(crate) fn entries(&self, direction: Direction) -> &[EntryView] {
        match direction {
            Direction::Egress => &self.egress,
            Direction::Ingress => &self.ingress,
        }
    }

    /// Returns the answer without witnesses: pods that agree in the rest share one answer.
    pub(crate) fn without_witnesses(&self) -> AffectingView {
        let mut view = AffectingView {
            pods: Vec::new(),
            ..self.clone()
        };
        for entry in view.egress.iter_mut().chain(&mut view.ingress) {
            for it in &mut entry.overridden_by {
                it.witness = WitnessView::default();
            }
        }
        view
    }
}

/// Different answers for the pods of one workload.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AffectingSetView<'v> {
    api_version: &'static str,
    kind: &'static str,
    answers: &'v [AffectingView],
}

impl<'v> AffectingSetView<'v> {
    pub(crate) fn new(answers: &'v [AffectingView]) -> AffectingSetView<'v> {
        AffectingSetView {
            api_version: API_VERSION,
            kind: "AffectingSet",
            answers,
        }
    }
}

/// A policy that selects a pod, in one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntryView {
    pub(crate) policy: String,
    pub(crate) tier: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<i64>,
    pub(crate) rules: Vec<String>,
    pub(crate) isolates: bool,
    /// Whether it does not fit into the budget of its namespace (D148).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) over_budget: bool,
    pub(crate) state: State,
    pub(crate) overridden_by: Vec<OverrideView>,
    pub(crate) rule_details: Vec<RuleView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
}

/// Whether a policy takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum State {
    /// It decides flows, and is overridden on none.
    InForce,
    /// It decides some flows, and is overridden on others.
    PartlyOverridden,
    /// It decides no flow, and on some flow an earlier policy has the opposite verdict.
    Overridden,
    /// It decides no flow, which changes no verdict.
    NeverDecides,
    /// It is in audit mode.
    DryRun,
}

/// A rule of an entry.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RuleView {
    pub(crate) id: String,
    #[serde(skip)]
    pub(crate) index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rule_name: Option<String>,
    /// Whether it decides a flow of the pod.
    pub(crate) decides: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) failed_closed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
}

/// An override between the queried policy and another one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OverrideView {
    /// The other policy.
    pub(crate) policy: String,
    pub(crate) direction: &'static str,
    /// Its rules.
    pub(crate) rules: Vec<String>,
    /// Whether its isolation takes effect, and no rule.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) isolation: bool,
    /// The rules of the queried policy.
    pub(crate) own_rules: Vec<String>,
    /// Whether the isolation of the queried policy takes effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) own_isolation: bool,
    /// The verdict for the witness; the overridden policy has the opposite verdict.
    pub(crate) verdict: &'static str,
    /// Whether the earlier policy matches with Pass: later tiers decide.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) passes: bool,
    pub(crate) witness: WitnessView,
}

/// A flow, with the keys of the flow of an explanation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WitnessView {
    pub(crate) source: String,
    pub(crate) destination: String,
    pub(crate) protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) family: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) via: Option<String>,
}

impl WitnessView {
    pub(crate) fn new(cluster: &Cluster<'_>, witness: &Witness) -> WitnessView {
        let (protocol, port) = match witness.transport {
            Transport::Port(protocol, port) => (protocol.name().to_owned(), Some(port.get())),
            Transport::Icmp => ("ICMP".to_owned(), None),
            Transport::Icmp6(_) => ("ICMPv6".to_owned(), None),
            Transport::Ip(number) => (number.to_string(), None),
        };
        WitnessView {
            source: witness.source.text(cluster),
            destination: witness.destination.text(cluster),
            protocol,
            port,
            family: witness.family.map(|family| family.to_string()),
            via: witness.via.map(|id| cluster.service_name(id)),
        }
    }

    /// Formats the flow: `shop/web -> shop/db tcp/5432`.
    pub(crate) fn words(&self) -> String {
        let protocol = match self.protocol.parse::<u8>() {
            Ok(number) => format!("ip/{number}"),
            Err(_) => self.protocol.to_ascii_lowercase(),
        };
        let port = self.port.map(|port| format!("/{port}")).unwrap_or_default();
        let via = self.via.as_ref().map(|it| format!(" via {it}"));
        let via = via.unwrap_or_default();
        let WitnessView {
            source,
            destination,
            ..
        } = self;
        clean(&format!("{source} -> {destination} {protocol}{port}{via}"))
    }
}

/// The overrides of a policy, in both directions.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AffectedByView {
    api_version: &'static str,
    kind: &'static str,
    pub(crate) policy: String,
    pub(crate) tier: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<i64>,
    /// Whether it is in audit mode; the answer is as if it were enforced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dry_run: bool,
    /// The directions in which it isolates.
    pub(crate) isolates: Vec<&'static str>,
    /// The directions in which it has rules or isolates.
    pub(crate) directions: Vec<&'static str>,
    /// The pods that it selects.
    pub(crate) subjects: Vec<String>,
    /// Their namespaces.
    pub(crate) namespaces: Vec<String>,
    pub(crate) overrides: Vec<OverrideView>,
    pub(crate) overridden_by: Vec<OverrideView>,
    /// The policies that decide the flows that its Pass rules match.
    pub(crate) defers_to: Vec<OverrideView>,
    /// The NetworkPolicies that isolate its pods, if it is a policy of the Baseline tier.
    pub(crate) out_of_reach: Vec<ReachView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) line: Option<usize>,
}

/// A NetworkPolicy that isolates pods which a policy of the Baseline tier selects.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReachView {
    pub(crate) policy: String,
    pub(crate) direction: &'static str,
    pub(crate) subjects: Vec<String>,
}
