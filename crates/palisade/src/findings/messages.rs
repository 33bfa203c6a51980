//! A sentence for every finding of the engine, and what to do about it.

use palisade_core::affect::Decider;
use palisade_core::lint::{Finding, FindingDetail, FindingTarget};
use palisade_core::model::{Cluster, NamespaceSet, Peer, PodSet, PolicyId, PolicyRank, PortMatch};
use palisade_core::text::ticked;

use super::rule_id;
use crate::view::affecting::WitnessView;

/// How many others a sentence names.
const NAMED: usize = 3;

/// What is found, and what to do.
pub(crate) fn sentence(cluster: &Cluster<'_>, finding: &Finding) -> (String, String) {
    let told = MessageBuilder { cluster, finding };
    let (message, help) = told.message();
    (message, help.to_owned())
}

/// What a thing is called.
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

/// One finding, and what its names mean.
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
                    "{policy} has the same priority{} as {}, so that their names decide which goes first",
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
                "give them different priorities; the one with the lower number goes first",
            ),
            "TIE-CONFLICT" => (
                format!(
                    "{policy} and {} have the same priority{} and disagree{}, so that only their names decide",
                    self.others(),
                    self.priority(),
                    self.about(),
                ),
                "give them different priorities; the one with the lower number goes first",
            ),
            "SHADOWED" => (
                format!(
                    "{rule} decides nothing: whatever it matches is decided before it by {by}{now}"
                ),
                "remove the rule, or put it before those that decide",
            ),
            "UNREACHABLE" => (
                format!(
                    "no rule of {policy} ever decides anything: what it matches is decided before it by {by}{now}"
                ),
                "remove the policy, or give it a priority before the others",
            ),
            "NEVER-MATCHES" => (
                format!(
                    "{} contradicts itself{}, so that nothing can ever match it",
                    self.selector(),
                    self.about_text(),
                ),
                "correct the selector; requirements of one selector must all hold at once",
            ),
            "SELECTS-NOTHING" => (
                format!("{policy} selects no pod that is given"),
                "compare its labels with those of the pods; a policy for pods that are still to come can say so with `palisade.dev/lint-ignore`",
            ),
            "PEER-MATCHES-NOTHING" => (
                format!("a peer of {rule} matches no pod or node that is given"),
                "compare its labels with those of pods, namespaces and nodes",
            ),
            "REDUNDANT-RULE" => (
                format!("whatever {rule} allows is allowed by {by} too{now}"),
                "remove one of them, if nobody counts on both",
            ),
            "REDUNDANT-POLICY" => (
                format!("without {policy} every flow would get the same verdict{now}"),
                "remove the policy, if nobody counts on it",
            ),
            "OVERRIDDEN" => (
                format!(
                    "{rule} decides nothing: whatever it allows is decided before it by {by}{now}"
                ),
                "ask those who administer the cluster, or remove the rule",
            ),
            "OVERRIDDEN-PARTLY" => (
                format!(
                    "some of what {rule} allows{} is denied before it by {by}{flow}",
                    self.percent()
                ),
                "`palisade affecting` shows both; ask those who administer the cluster if the rest is not what was meant",
            ),
            "PASS-NO-EFFECT" => (
                format!("what {rule} passes on would get the same verdict without it{now}"),
                "remove the rule, if no policy is still to come that it would pass flows on to",
            ),
            "NO-EFFECT" => (
                format!("{policy} has neither ingress nor egress rules, and does nothing"),
                "add rules, or remove the policy",
            ),
            "RULE-NAME-DUP" => (
                format!("the name {text} of {rule} is also that of {by}"),
                "give every rule of a policy its own name, so that logs and explanations can tell them apart",
            ),
            "PORT-UNEXPOSED" => (
                format!(
                    "no pod that {rule} can lead to has a port called {}",
                    self.port_name()
                ),
                "a port's name is that of a container port of the destination; name it there, or write the number",
            ),
            "NAMED-PORT-ADDRESSES" => (
                format!(
                    "{rule} names the port {} together with addresses or nodes, and only pods have names for ports",
                    self.port_name()
                ),
                "write the number of the port in a rule of its own for the addresses",
            ),
            "DOMAIN-UNLEARNED" => (
                format!(
                    "no address has been learned for {}, so that {rule} matches none by it",
                    self.text_or("a domain name")
                ),
                "give what names have resolved to with `--dns FILE`, or compare the name with what pods ask for",
            ),
            "TENANT-UNLABELLED" => (
                format!(
                    "{} have no label {}, so that {rule} takes them neither for the same tenant nor for another",
                    self.share_of("namespaces"),
                    self.tenant_keys()
                ),
                "label every namespace, or add a rule for those without the label",
            ),
            "MIXED-GENERATION" => (
                self.mixed(),
                "write them in one generation; docs/model.md says in which order Palisade asks them",
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
                    "{rule} names addresses of clients for pods behind {}, which may show them a node's address instead",
                    self.text_or_others("a Service")
                ),
                "set `externalTrafficPolicy: Local` on the Service, or allow the nodes' addresses",
            ),
            "NODE-LOCAL-DNS" => (
                format!(
                    "pods that {policy} selects may ask the cluster's DNS and not the resolver on their node{}{flow}",
                    self.share()
                ),
                "allow the address of the node-local resolver as well",
            ),
            "NO-DNS" => (
                format!(
                    "pods that {policy} selects may send something and may not ask the cluster's DNS{}{flow}",
                    self.share()
                ),
                "allow UDP and TCP port 53 to the pods of the cluster's DNS",
            ),
            "DEFAULT-ISOLATION" => (
                format!(
                    "{policy} isolates for{}, which follows from the keys that it has",
                    self.direction()
                ),
                "write both `ingress` and `egress`, if need be as empty lists",
            ),
            "PEER-OR" => (
                format!(
                    "two peers of {rule} look like one that was meant to have both selectors: either of them is enough"
                ),
                "remove the dash before the second selector if both have to hold",
            ),
            "LOCKOUT-DNS" => (
                format!(
                    "{rule} keeps pods from the cluster's DNS{}{flow}",
                    self.share()
                ),
                "put a rule before it that accepts UDP and TCP port 53 to the cluster's DNS",
            ),
            "LOCKOUT-API-SERVER" => (
                format!(
                    "{rule} keeps components of the cluster from the API server{}{flow}",
                    self.share()
                ),
                "put a rule before it that accepts what goes to the API server",
            ),
            "LOCKOUT-CONTROL-PLANE" => (
                format!(
                    "{rule} keeps components of the cluster from each other{}{flow}",
                    self.share()
                ),
                "leave `kube-system` out of the subject, or put a rule before it that accepts this",
            ),
            "LOCKOUT-KUBELET" => (
                format!(
                    "{rule} keeps components of the cluster from the kubelets{}{flow}",
                    self.share()
                ),
                "put a rule before it that accepts TCP port 10250 to the nodes",
            ),
            _ => {
                let summary = self.finding.code.summary().trim_end_matches('.');
                let mut letters = summary.chars();
                let first = letters.next().map(|it| it.to_ascii_lowercase());
                let summary: String = first.into_iter().chain(letters).collect();
                (
                    format!("{summary}{}{flow}", self.more()),
                    "docs/lint.md says what to do",
                )
            }
        }
    }

    /// The policy that is meant, in backticks.
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

    /// The rule that is meant, or the policy.
    fn rule(&self) -> String {
        ticked(&name(self.cluster, self.finding.at))
    }

    /// The selector that is meant.
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

    /// ` 10`, if there is one.
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

    /// What makes it so: rules and isolations.
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

    /// The policies that make it so, or the one that is meant.
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

    /// Who else is meant: named places, or the policies that make it so.
    fn others(&self) -> String {
        if let FindingDetail::Others(others) = &self.finding.detail
            && !others.is_empty()
        {
            let names = others.iter().map(|at| ticked(&name(self.cluster, *at)));
            return listed(&names.collect::<Vec<String>>());
        }
        self.by_or("another".to_owned())
    }

    /// A text of the objects.
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

    /// The name of the port that is meant.
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
            Some(PortMatch::Numbers(..)) | None => "by its name".to_owned(),
        }
    }

    /// Generations that meet, in a namespace or at a policy.
    fn mixed(&self) -> String {
        let (policy, others) = (self.policy(), self.others());
        if matches!(self.finding.at, FindingTarget::Namespace(_)) {
            return format!(
                "policies of different generations meet in {policy}: {others}; no source defines what they mean together"
            );
        }
        format!(
            "{policy} meets policies of another generation, such as {others}; no source defines their order"
        )
    }

    /// A label that nobody has, and the one that may be meant: the text has both.
    fn typo(&self) -> String {
        let selector = self.selector();
        let text = match &self.finding.detail {
            FindingDetail::Text(text) => text.as_str(),
            FindingDetail::Nothing | FindingDetail::Share(..) | FindingDetail::Others(_) => "",
        };
        match text.split_once(" -> ") {
            Some((wrong, right)) => format!(
                "{selector} names {}, which nobody has; is {} meant?",
                ticked(wrong),
                ticked(right)
            ),
            None => format!("{selector} names a label that nobody has{}", self.more()),
        }
    }

    /// The labels that tell tenants apart.
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
            self.text_or("that tells tenants apart")
        } else {
            ticked(&keys)
        }
    }

    /// ` (about 12 %)`.
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

    /// ` about` a text of the objects.
    fn about_text(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => format!(" about {}", ticked(text)),
            FindingDetail::Nothing | FindingDetail::Share(..) | FindingDetail::Others(_) => {
                String::new()
            }
        }
    }

    /// What else is said, in brackets.
    fn more(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => format!(" ({})", ticked(text)),
            FindingDetail::Share(some, all) => format!(" ({some} of {all})"),
            FindingDetail::Others(_) => format!(" ({})", self.others()),
            FindingDetail::Nothing => String::new(),
        }
    }

    /// ` (3 of 8 pods)`.
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

    /// ` ingress`, if a direction is said.
    fn direction(&self) -> String {
        match &self.finding.detail {
            FindingDetail::Text(text) => format!(" {text}"),
            FindingDetail::Nothing | FindingDetail::Share(..) | FindingDetail::Others(_) => {
                String::new()
            }
        }
    }

    /// ` about a -> b tcp/80`.
    fn about(&self) -> String {
        match self.witness() {
            Some(flow) => format!(" about {flow}"),
            None => String::new(),
        }
    }

    /// `, such as a -> b tcp/80`.
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

    /// That it may be otherwise tomorrow.
    fn now(&self) -> &'static str {
        if self.finding.always {
            ""
        } else {
            ", with the pods that are given"
        }
    }
}

/// The policies that make a finding so, each once.
fn policies_by(finding: &Finding) -> Vec<PolicyId> {
    let mut policies: Vec<PolicyId> = finding.by.iter().map(|part| part.policy()).collect();
    policies.dedup();
    policies
}

/// `a`, `a and b`, `a, b, c and 4 more`.
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
