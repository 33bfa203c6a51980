//! The parts of sentences about findings: names, shares, witnesses.

use palisade_core::analysis::affect::Decider;
use palisade_core::analysis::lint::{Finding, FindingDetail, FindingTarget};
use palisade_core::model::{NamespaceSet, Peer, PodSet, PolicyId, PolicyRank, PortMatch};
use palisade_core::text::ticked;

use super::{MessageBuilder, name};
use crate::report::flow::NamedFlow;

/// The most names in a list of others.
const NAMED: usize = 3;

impl MessageBuilder<'_> {
    /// Names the policy of the finding, in backticks.
    pub(super) fn policy(&self) -> String {
        let name = match self.finding.at {
            FindingTarget::Policy(id) | FindingTarget::Subject(id) => self.cluster.policy_name(id),
            FindingTarget::Rule(place)
            | FindingTarget::Peer(place, _)
            | FindingTarget::Port(place, _) => self.cluster.policy_name(place.policy),
            at @ (FindingTarget::Namespace(_)
            | FindingTarget::Pod(_)
            | FindingTarget::Service(_)) => name(self.cluster, at),
        };
        ticked(&name)
    }

    /// Names the rule of the finding, or the policy.
    pub(super) fn rule(&self) -> String {
        ticked(&name(self.cluster, self.finding.at))
    }

    /// Names the selector of the finding.
    pub(super) fn selector(&self) -> String {
        match self.finding.at {
            FindingTarget::Policy(_) | FindingTarget::Subject(_) => {
                format!("the subject of {}", self.policy())
            }
            FindingTarget::Peer(..) => format!("a peer of {}", self.rule()),
            FindingTarget::Rule(_)
            | FindingTarget::Port(..)
            | FindingTarget::Namespace(_)
            | FindingTarget::Pod(_)
            | FindingTarget::Service(_) => {
                format!("a selector of {}", self.rule())
            }
        }
    }

    /// Formats the priority as ` 10`, if there is one.
    pub(super) fn priority(&self) -> String {
        let (FindingTarget::Policy(id) | FindingTarget::Subject(id)) = self.finding.at else {
            return String::new();
        };
        let policy = self.cluster.policies.get(id.0 as usize);
        match policy.map(|policy| policy.rank) {
            Some(PolicyRank::Ordered(_, priority)) => format!(" {priority}"),
            Some(PolicyRank::EarlyAdmin | PolicyRank::NetworkPolicy | PolicyRank::DefaultGroup)
            | None => String::new(),
        }
    }

    /// Names what causes the finding: rules and isolations.
    pub(super) fn by(&self) -> String {
        let names = self.finding.by.iter().map(|part| match part {
            Decider::Rule(place) => ticked(&self.cluster.rule_name(*place)),
            Decider::Isolation(policy, _) => {
                let name = ticked(&self.cluster.policy_name(*policy));
                format!("the isolation by {name}")
            }
        });
        let names: Vec<String> = names.collect();
        if names.is_empty() {
            "others".to_owned()
        } else {
            listed(&names)
        }
    }

    /// Names the policies that cause the finding, or the policy with the finding.
    pub(super) fn by_or(&self, own: String) -> String {
        let policies = policies_by(self.finding);
        if policies.is_empty() {
            return own;
        }
        let names = policies
            .iter()
            .map(|id| ticked(&self.cluster.policy_name(*id)));
        listed(&names.collect::<Vec<String>>())
    }

    /// Names the other targets: those of the detail, or the policies that cause the finding.
    pub(super) fn others(&self) -> String {
        if let FindingDetail::Others(others) = &self.finding.detail
            && !others.is_empty()
        {
            let names = others.iter().map(|at| ticked(&name(self.cluster, *at)));
            return listed(&names.collect::<Vec<String>>());
        }
        self.by_or("another".to_owned())
    }

    /// Quotes the text of the detail.
    pub(super) fn text(&self) -> String {
        self.text_or("of the rule")
    }

    pub(super) fn text_or(&self, otherwise: &str) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => ticked(text),
            FindingDetail::Nothing
            | FindingDetail::Typo { .. }
            | FindingDetail::Share(..)
            | FindingDetail::Others(_) => otherwise.to_owned(),
        }
    }

    pub(super) fn text_or_others(&self, otherwise: &str) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => ticked(text),
            FindingDetail::Others(_) => self.others(),
            FindingDetail::Nothing | FindingDetail::Typo { .. } | FindingDetail::Share(..) => {
                otherwise.to_owned()
            }
        }
    }

    /// Names the port of the finding.
    pub(super) fn port_name(&self) -> String {
        if let FindingDetail::Text(text) = &self.finding.detail {
            return ticked(text);
        }
        let found = match self.finding.at {
            FindingTarget::Port(place, index) => {
                let effect = self.cluster.effect(place);
                let ports = effect.and_then(|effect| effect.ports.as_ref());
                ports.and_then(|ports| ports.get(index as usize))
            }
            FindingTarget::Policy(_)
            | FindingTarget::Subject(_)
            | FindingTarget::Rule(_)
            | FindingTarget::Peer(..)
            | FindingTarget::Namespace(_)
            | FindingTarget::Pod(_)
            | FindingTarget::Service(_) => None,
        };
        match found {
            Some(PortMatch::Named(_, name)) => ticked(name),
            Some(PortMatch::Numbers(..)) | None => "by name".to_owned(),
        }
    }

    /// Describes policies of several API versions, in a namespace or beside a policy.
    pub(super) fn mixed(&self) -> String {
        let (policy, others) = (self.policy(), self.others());
        if matches!(self.finding.at, FindingTarget::Namespace(_)) {
            return format!(
                "policies of different API versions share {policy}: {others}; their combination is undefined"
            );
        }
        format!(
            "{policy} and {others} have different API versions and share a tier; their order is undefined"
        )
    }

    /// Describes a label that no object has, and the label that is probably intended.
    pub(super) fn typo(&self) -> String {
        let selector = self.selector();
        match &self.finding.detail {
            FindingDetail::Typo { wrong, right } => format!(
                "{selector} names {}, which no object has; did you mean {}?",
                ticked(wrong),
                ticked(right)
            ),
            FindingDetail::Nothing
            | FindingDetail::Text(_)
            | FindingDetail::Share(..)
            | FindingDetail::Others(_) => {
                format!("{selector} names a label that no object has{}", self.more())
            }
        }
    }

    /// Names the labels that distinguish tenants.
    pub(super) fn tenant_keys(&self) -> String {
        let keys = match self.finding.at {
            FindingTarget::Peer(place, index) => {
                let effect = self.cluster.effect(place);
                let peers = effect.and_then(|effect| effect.peers.as_ref());
                match peers.and_then(|peers| peers.get(index as usize)) {
                    Some(Peer::Pods(PodSet {
                        namespaces:
                            NamespaceSet::SameLabels(keys) | NamespaceSet::NotSameLabels(keys),
                        ..
                    })) => keys.join(", "),
                    Some(_) | None => String::new(),
                }
            }
            FindingTarget::Policy(_)
            | FindingTarget::Subject(_)
            | FindingTarget::Rule(_)
            | FindingTarget::Port(..)
            | FindingTarget::Namespace(_)
            | FindingTarget::Pod(_)
            | FindingTarget::Service(_) => String::new(),
        };
        if keys.is_empty() {
            self.text_or("that distinguishes tenants")
        } else {
            ticked(&keys)
        }
    }

    /// Formats the share as ` (about 12 %)`.
    pub(super) fn percent(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Share(some, all) if *all > 0 => {
                let percent = u128::from(*some) * 100 / u128::from(*all);
                format!(" (about {} %)", percent.max(1))
            }
            FindingDetail::Nothing
            | FindingDetail::Text(_)
            | FindingDetail::Typo { .. }
            | FindingDetail::Share(..)
            | FindingDetail::Others(_) => String::new(),
        }
    }

    pub(super) fn plain_text_or(&self, otherwise: &str) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => palisade_core::text::name(text),
            FindingDetail::Nothing
            | FindingDetail::Typo { .. }
            | FindingDetail::Share(..)
            | FindingDetail::Others(_) => otherwise.to_owned(),
        }
    }

    /// Formats the text of the detail as ` on` and the quoted text.
    pub(super) fn on_text(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => format!(" on {}", ticked(text)),
            FindingDetail::Nothing
            | FindingDetail::Typo { .. }
            | FindingDetail::Share(..)
            | FindingDetail::Others(_) => String::new(),
        }
    }

    /// Formats the detail in parentheses.
    pub(super) fn more(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => format!(" ({})", ticked(text)),
            FindingDetail::Share(some, all) => format!(" ({some} of {all})"),
            FindingDetail::Others(_) => format!(" ({})", self.others()),
            FindingDetail::Nothing | FindingDetail::Typo { .. } => String::new(),
        }
    }

    /// Formats the share as ` (3 of 8 pods)`.
    pub(super) fn share(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Share(some, 1) => format!(" ({some} of 1 pod)"),
            FindingDetail::Share(some, all) => format!(" ({some} of {all} pods)"),
            FindingDetail::Nothing
            | FindingDetail::Text(_)
            | FindingDetail::Typo { .. }
            | FindingDetail::Others(_) => String::new(),
        }
    }

    pub(super) fn share_of(&self, what: &str) -> String {
        match &self.finding.detail {
            FindingDetail::Share(some, all) => format!("{some} of {all} {what}"),
            FindingDetail::Nothing
            | FindingDetail::Text(_)
            | FindingDetail::Typo { .. }
            | FindingDetail::Others(_) => what.to_owned(),
        }
    }

    /// Formats the direction as ` ingress`, if there is one.
    pub(super) fn direction(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => format!(" {text}"),
            FindingDetail::Nothing
            | FindingDetail::Typo { .. }
            | FindingDetail::Share(..)
            | FindingDetail::Others(_) => String::new(),
        }
    }

    /// Formats the witness as ` on a -> b tcp/80`.
    pub(super) fn about(&self) -> String {
        match self.witness() {
            Some(flow) => format!(" on {flow}"),
            None => String::new(),
        }
    }

    /// Formats the witness as `, such as a -> b tcp/80`.
    pub(super) fn flow(&self) -> String {
        match self.witness() {
            Some(flow) => format!(", such as {flow}"),
            None => String::new(),
        }
    }

    pub(super) fn witness(&self) -> Option<String> {
        let witness = self.finding.witness.as_ref()?;
        Some(NamedFlow::of_witness(self.cluster, witness).text())
    }

    /// Limits a sentence to the current pods, if other pods may change the finding.
    pub(super) fn now(&self) -> &'static str {
        if self.finding.always {
            ""
        } else {
            ", for the current pods"
        }
    }
}

/// Returns the policies that cause a finding, each once.
fn policies_by(finding: &Finding) -> Vec<PolicyId> {
    let mut policies: Vec<PolicyId> = finding.by.iter().map(|part| part.policy()).collect();
    policies.dedup();
    policies
}

/// Joins names: `a`, `a and b`, `a, b, c and 4 more`.
fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [names @ .., last] if names.len() < NAMED => format!("{} and {last}", names.join(", ")),
        names => {
            let shown = names.get(..NAMED).unwrap_or_default();
            format!("{} and {} more", shown.join(", "), names.len() - NAMED)
        }
    }
}
