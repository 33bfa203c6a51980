//! The sentence and the help for every finding of the engine.

use palisade_core::analysis::affect::Decider;
use palisade_core::analysis::lint::{Finding, FindingDetail, FindingTarget};
use palisade_core::model::{Cluster, NamespaceSet, Peer, PodSet, PolicyId, PolicyRank, PortMatch};
use palisade_core::text::ticked;

use super::rule_id;
use crate::view::affecting::WitnessView;

/// The most names in a list of others.
const NAMED: usize = 3;

/// Returns the message and the help.
pub(crate) fn sentence(cluster: &Cluster<'_>, finding: &Finding) -> (String, String) {
    let builder = MessageBuilder { cluster, finding };
    let (message, help) = builder.message();
    (message, help.to_owned())
}

/// Names the target of a finding.
pub(crate) fn name(cluster: &Cluster<'_>, at: FindingTarget) -> String {
    match at {
        FindingTarget::Policy(id) | FindingTarget::Subject(id) => cluster.policy_name(id),
        FindingTarget::Rule(place)
        | FindingTarget::Peer(place, _)
        | FindingTarget::Port(place, _) => rule_id(cluster, place),
        FindingTarget::Namespace(id) => format!("ns/{}", cluster.namespace_name(id)),
        FindingTarget::Pod(id) => cluster.pod_name(id),
        FindingTarget::Service(id) => cluster.service_name(id),
    }
}

/// A finding, and the cluster that has its names.
struct MessageBuilder<'f> {
    cluster: &'f Cluster<'f>,
    finding: &'f Finding,
}

impl MessageBuilder<'_> {
    fn message(&self) -> (String, &'static str) {
        let by = self.by();
        let policy = self.policy();
        let rule = self.rule();
        let now = self.now();
        let flow = self.flow();
        let text = self.text();
        match self.finding.code.name() {
            "TIE" => (
                format!(
                    "{policy} has the same priority{} as {}, so names decide precedence",
                    self.priority(),
                    self.others(),
                ),
                "give them different priorities",
            ),
            "TIE-OVERLAP" => (
                format!(
                    "{policy} and {} have the same priority{} and can select the same pod",
                    self.others(),
                    self.priority(),
                ),
                "give them different priorities; the lower number has precedence",
            ),
            "TIE-CONFLICT" => (
                format!(
                    "{policy} and {} have the same priority{} and disagree{}; only their names decide",
                    self.others(),
                    self.priority(),
                    self.about(),
                ),
                "give them different priorities; the lower number has precedence",
            ),
            "SHADOWED" => (
                format!("{rule} decides nothing: all its matches are decided first by {by}{now}"),
                "remove the rule, or move it before the rules that decide",
            ),
            "UNREACHABLE" => (
                format!(
                    "no rule of {policy} decides a flow: all its matches are decided first by {by}{now}"
                ),
                "remove the policy, or give it precedence over the others",
            ),
            "NEVER-MATCHES" => (
                format!(
                    "{} contradicts itself{}; it never matches",
                    self.selector(),
                    self.on_text(),
                ),
                "correct the selector; all requirements of a selector must hold at once",
            ),
            "SELECTS-NOTHING" => (
                format!("{policy} selects no pod in the input"),
                "compare its labels with those of the pods; for future pods, suppress the finding with `palisade.dev/lint-ignore`",
            ),
            "PEER-MATCHES-NOTHING" => (
                format!("a peer of {rule} matches no pod or node in the input"),
                "compare its labels with those of pods, namespaces and nodes",
            ),
            "REDUNDANT-RULE" => (
                format!("everything that {rule} allows is also allowed by {by}{now}"),
                "remove one of them, if only one is needed",
            ),
            "REDUNDANT-POLICY" => (
                format!("without {policy} every flow would get the same verdict{now}"),
                "remove the policy, if it is not needed",
            ),
            "OVERRIDDEN" => (
                format!(
                    "{rule} decides nothing: everything that it allows is decided first by {by}{now}"
                ),
                "contact the administrators of the cluster, or remove the rule",
            ),
            "OVERRIDDEN-PARTLY" => (
                format!(
                    "some of what {rule} allows{} is denied first by {by}{flow}",
                    self.percent()
                ),
                "`palisade affecting` shows both; contact the administrators of the cluster if the rest is not enough",
            ),
            "PASS-NO-EFFECT" => (
                format!("what {rule} passes on would get the same verdict without it{now}"),
                "remove the rule, unless a future policy needs it",
            ),
            "NO-EFFECT" => (
                format!("{policy} has neither ingress nor egress rules, and has no effect"),
                "add rules, or remove the policy",
            ),
            "RULE-NAME-DUP" => (
                format!("{rule} and {by} have the same name {text}"),
                "give every rule of a policy its own name; logs and explanations show it",
            ),
            "PORT-UNEXPOSED" => (
                format!(
                    "no destination of {rule} has a port named {}",
                    self.port_name()
                ),
                "a port name must be that of a container port of the destination; add it there, or write the number",
            ),
            "NAMED-PORT-ADDRESSES" => (
                format!(
                    "{rule} has the named port {} with addresses or nodes, and only pods have named ports",
                    self.port_name()
                ),
                "write the port number in a separate rule for the addresses",
            ),
            "DOMAIN-UNLEARNED" => (
                format!(
                    "no address is known for {}; {rule} matches no address by it",
                    self.text_or("a domain name")
                ),
                "add resolved addresses with `--dns FILE`, or compare the name with the names that pods resolve",
            ),
            "TENANT-UNLABELLED" => (
                format!(
                    "{} have no label {}; to {rule} they are neither the same tenant nor another",
                    self.share_of("namespaces"),
                    self.tenant_keys()
                ),
                "label every namespace, or add a rule for those without the label",
            ),
            "MIXED-GENERATION" => (
                self.mixed(),
                "write them in one API version; docs/reference/model.md has the order in which Palisade evaluates them",
            ),
            "LABEL-TYPO" => (self.typo(), "correct the label, or the selector"),
            "V6-OPEN" => (
                format!(
                    "{rule} denies all addresses of one family, and its policy leaves {} open",
                    self.plain_text_or("the other")
                ),
                "deny both `0.0.0.0/0` and `::/0`",
            ),
            "SNAT-IPBLOCK" => (
                format!(
                    "{rule} names client addresses for pods behind {}, where clients may appear with a node's address",
                    self.text_or_others("a Service")
                ),
                "set `externalTrafficPolicy: Local` on the Service, or allow the nodes' addresses",
            ),
            "NODE-LOCAL-DNS" => (
                format!(
                    "pods that {policy} selects may query the cluster's DNS but not the resolver on their node{}{flow}",
                    self.share()
                ),
                "allow the address of the node-local resolver as well",
            ),
            "NO-DNS" => (
                format!(
                    "pods that {policy} selects have some egress but cannot query the cluster's DNS{}{flow}",
                    self.share()
                ),
                "allow UDP and TCP port 53 to the pods of the cluster's DNS",
            ),
            "DEFAULT-ISOLATION" => (
                format!(
                    "{policy} isolates for{}, because of the keys that it has",
                    self.direction()
                ),
                "write both `ingress` and `egress`, as empty lists if needed",
            ),
            "PEER-OR" => (
                format!(
                    "two peers of {rule} look like one peer with both selectors; as written, either of them is enough"
                ),
                "remove the dash before the second selector if both must match",
            ),
            "LOCKOUT-DNS" => (
                format!(
                    "{rule} blocks pods from the cluster's DNS{}{flow}",
                    self.share()
                ),
                "insert a rule before it that accepts UDP and TCP port 53 to the cluster's DNS",
            ),
            "LOCKOUT-API-SERVER" => (
                format!(
                    "{rule} blocks components of the cluster from the API server{}{flow}",
                    self.share()
                ),
                "insert a rule before it that accepts traffic to the API server",
            ),
            "LOCKOUT-CONTROL-PLANE" => (
                format!(
                    "{rule} blocks components of the cluster from each other{}{flow}",
                    self.share()
                ),
                "exclude `kube-system` from the subject, or insert a rule before it that accepts this traffic",
            ),
            "LOCKOUT-KUBELET" => (
                format!(
                    "{rule} blocks components of the cluster from the kubelets{}{flow}",
                    self.share()
                ),
                "insert a rule before it that accepts TCP port 10250 to the nodes",
            ),
            _ => {
                let summary = self.finding.code.summary().trim_end_matches('.');
                let mut letters = summary.chars();
                let first = letters.next().map(|it| it.to_ascii_lowercase());
                let summary: String = first.into_iter().chain(letters).collect();
                (
                    format!("{summary}{}{flow}", self.more()),
                    "docs/reference/lint.md explains what to do",
                )
            }
        }
    }

    /// Names the policy of the finding, in backticks.
    fn policy(&self) -> String {
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
    fn rule(&self) -> String {
        ticked(&name(self.cluster, self.finding.at))
    }

    /// Names the selector of the finding.
    fn selector(&self) -> String {
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
    fn priority(&self) -> String {
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
    fn by(&self) -> String {
        let names = self.finding.by.iter().map(|part| match part {
            Decider::Rule(place) => ticked(&rule_id(self.cluster, *place)),
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
    fn by_or(&self, own: String) -> String {
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
    fn others(&self) -> String {
        if let FindingDetail::Others(others) = &self.finding.detail
            && !others.is_empty()
        {
            let names = others.iter().map(|at| ticked(&name(self.cluster, *at)));
            return listed(&names.collect::<Vec<String>>());
        }
        self.by_or("another".to_owned())
    }

    /// Quotes the text of the detail.
    fn text(&self) -> String {
        self.text_or("of the rule")
    }

    fn text_or(&self, otherwise: &str) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => ticked(text),
            FindingDetail::Nothing | FindingDetail::Share(..) | FindingDetail::Others(_) => {
                otherwise.to_owned()
            }
        }
    }

    fn text_or_others(&self, otherwise: &str) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => ticked(text),
            FindingDetail::Others(_) => self.others(),
            FindingDetail::Nothing | FindingDetail::Share(..) => otherwise.to_owned(),
        }
    }

    /// Names the port of the finding.
    fn port_name(&self) -> String {
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
    fn mixed(&self) -> String {
        let (policy, others) = (self.policy(), self.others());
        if matches!(self.finding.at, FindingTarget::Namespace(_)) {
            return format!(
                "policies of different API versions meet in {policy}: {others}; their combination is undefined"
            );
        }
        format!(
            "{policy} meets policies of another API version, such as {others}; their order is undefined"
        )
    }

    /// Describes a label that no object has, and the label that is probably intended: the text has
    /// both.
    fn typo(&self) -> String {
        let selector = self.selector();
        let text = match &self.finding.detail {
            FindingDetail::Text(text) => text.as_str(),
            FindingDetail::Nothing | FindingDetail::Share(..) | FindingDetail::Others(_) => "",
        };
        match text.split_once(" -> ") {
            Some((wrong, right)) => format!(
                "{selector} names {}, which no object has; did you mean {}?",
                ticked(wrong),
                ticked(right)
            ),
            None => format!("{selector} names a label that no object has{}", self.more()),
        }
    }

    /// Names the labels that distinguish tenants.
    fn tenant_keys(&self) -> String {
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
    fn percent(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Share(some, all) if *all > 0 => {
                let percent = u128::from(*some) * 100 / u128::from(*all);
                format!(" (about {} %)", percent.max(1))
            }
            FindingDetail::Nothing
            | FindingDetail::Text(_)
            | FindingDetail::Share(..)
            | FindingDetail::Others(_) => String::new(),
        }
    }

    fn plain_text_or(&self, otherwise: &str) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => palisade_core::text::name(text),
            FindingDetail::Nothing | FindingDetail::Share(..) | FindingDetail::Others(_) => {
                otherwise.to_owned()
            }
        }
    }

    /// Formats the text of the detail as ` on` and the quoted text.
    fn on_text(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => format!(" on {}", ticked(text)),
            FindingDetail::Nothing | FindingDetail::Share(..) | FindingDetail::Others(_) => {
                String::new()
            }
        }
    }

    /// Formats the detail in parentheses.
    fn more(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => format!(" ({})", ticked(text)),
            FindingDetail::Share(some, all) => format!(" ({some} of {all})"),
            FindingDetail::Others(_) => format!(" ({})", self.others()),
            FindingDetail::Nothing => String::new(),
        }
    }

    /// Formats the share as ` (3 of 8 pods)`.
    fn share(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Share(some, 1) => format!(" ({some} of 1 pod)"),
            FindingDetail::Share(some, all) => format!(" ({some} of {all} pods)"),
            FindingDetail::Nothing | FindingDetail::Text(_) | FindingDetail::Others(_) => {
                String::new()
            }
        }
    }

    fn share_of(&self, what: &str) -> String {
        match &self.finding.detail {
            FindingDetail::Share(some, all) => format!("{some} of {all} {what}"),
            FindingDetail::Nothing | FindingDetail::Text(_) | FindingDetail::Others(_) => {
                what.to_owned()
            }
        }
    }

    /// Formats the direction as ` ingress`, if there is one.
    fn direction(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => format!(" {text}"),
            FindingDetail::Nothing | FindingDetail::Share(..) | FindingDetail::Others(_) => {
                String::new()
            }
        }
    }

    /// Formats the witness as ` on a -> b tcp/80`.
    fn about(&self) -> String {
        match self.witness() {
            Some(flow) => format!(" on {flow}"),
            None => String::new(),
        }
    }

    /// Formats the witness as `, such as a -> b tcp/80`.
    fn flow(&self) -> String {
        match self.witness() {
            Some(flow) => format!(", such as {flow}"),
            None => String::new(),
        }
    }

    fn witness(&self) -> Option<String> {
        let witness = self.finding.witness.as_ref()?;
        Some(WitnessView::new(self.cluster, witness).words())
    }

    /// Limits a sentence to the current pods, if other pods may change the finding.
    fn now(&self) -> &'static str {
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
