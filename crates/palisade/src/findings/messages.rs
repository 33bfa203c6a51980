//! The sentence and the help for every finding of the engine.

mod phrases;

use palisade_core::analysis::lint::{Code, Finding, FindingTarget};
use palisade_core::model::Cluster;

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
        | FindingTarget::Port(place, _) => cluster.rule_name(place),
        FindingTarget::Namespace(id) => format!("ns/{}", cluster.namespace_name(id)),
        FindingTarget::Pod(id) => cluster.pod_name(id),
        FindingTarget::Service(id) => cluster.service_name(id),
    }
}

/// A sentence, and the help.
type Message = (String, &'static str);

/// A finding, and the cluster that has its names.
struct MessageBuilder<'f> {
    cluster: &'f Cluster<'f>,
    finding: &'f Finding,
}

impl MessageBuilder<'_> {
    fn message(&self) -> Message {
        match self.finding.code {
            Code::Tie => self.tie(),
            Code::TieOverlap => self.tie_overlap(),
            Code::TieConflict => self.tie_conflict(),
            Code::Shadowed => self.shadowed(),
            Code::Unreachable => self.unreachable(),
            Code::NeverMatches => self.never_matches(),
            Code::SelectsNothing => self.selects_nothing(),
            Code::PeerMatchesNothing => self.peer_matches_nothing(),
            Code::RedundantRule => self.redundant_rule(),
            Code::RedundantPolicy => self.redundant_policy(),
            Code::Overridden => self.overridden(),
            Code::OverriddenPartly => self.overridden_partly(),
            Code::PassNoEffect => self.pass_no_effect(),
            Code::NoEffect => self.no_effect(),
            Code::RuleNameDup => self.rule_name_dup(),
            Code::PortUnexposed => self.port_unexposed(),
            Code::NamedPortAddresses => self.named_port_addresses(),
            Code::DomainUnlearned => self.domain_unlearned(),
            Code::TenantUnlabelled => self.tenant_unlabelled(),
            Code::MixedGeneration => self.mixed_generation(),
            Code::LabelTypo => self.label_typo(),
            Code::V6Open => self.v6_open(),
            Code::SnatIpBlock => self.snat_ip_block(),
            Code::NodeLocalDns => self.node_local_dns(),
            Code::NoDns => self.no_dns(),
            Code::DefaultIsolation => self.default_isolation(),
            Code::PeerOr => self.peer_or(),
            Code::LockoutDns => self.lockout_dns(),
            Code::LockoutApiServer => self.lockout_api_server(),
            Code::LockoutControlPlane => self.lockout_control_plane(),
            Code::LockoutKubelet => self.lockout_kubelet(),
        }
    }

    fn tie(&self) -> Message {
        let policy = self.policy();
        let message = format!(
            "{policy} has the same priority{} as {}, so names decide precedence",
            self.priority(),
            self.others(),
        );
        (message, "give them different priorities")
    }

    fn tie_overlap(&self) -> Message {
        let policy = self.policy();
        let message = format!(
            "{policy} and {} have the same priority{} and can select the same pod",
            self.others(),
            self.priority(),
        );
        (
            message,
            "give them different priorities; the lower number has precedence",
        )
    }

    fn tie_conflict(&self) -> Message {
        let policy = self.policy();
        let message = format!(
            "{policy} and {} have the same priority{} and disagree{}; only their names decide",
            self.others(),
            self.priority(),
            self.about(),
        );
        (
            message,
            "give them different priorities; the lower number has precedence",
        )
    }

    fn shadowed(&self) -> Message {
        let rule = self.rule();
        let by = self.by();
        let now = self.now();
        let message =
            format!("{rule} decides nothing: all its matches are decided first by {by}{now}");
        (
            message,
            "remove the rule, or move it before the rules that decide",
        )
    }

    fn unreachable(&self) -> Message {
        let policy = self.policy();
        let by = self.by();
        let now = self.now();
        let message = format!(
            "no rule of {policy} decides a flow: all its matches are decided first by {by}{now}"
        );
        (
            message,
            "remove the policy, or give it precedence over the others",
        )
    }

    fn never_matches(&self) -> Message {
        let message = format!(
            "{} contradicts itself{}; it never matches",
            self.selector(),
            self.on_text(),
        );
        (
            message,
            "correct the selector; all requirements of a selector must hold at once",
        )
    }

    fn selects_nothing(&self) -> Message {
        let policy = self.policy();
        let message = format!("{policy} selects no pod in the input");
        (
            message,
            "compare its labels with those of the pods; for future pods, suppress the finding with `palisade.dev/lint-ignore`",
        )
    }

    fn peer_matches_nothing(&self) -> Message {
        let rule = self.rule();
        let message = format!("a peer of {rule} matches no pod or node in the input");
        (
            message,
            "compare its labels with those of pods, namespaces and nodes",
        )
    }

    fn redundant_rule(&self) -> Message {
        let rule = self.rule();
        let by = self.by();
        let now = self.now();
        let message = format!("every flow that {rule} allows is also allowed by {by}{now}");
        (message, "remove one of them, if only one is needed")
    }

    fn redundant_policy(&self) -> Message {
        let policy = self.policy();
        let now = self.now();
        let message = format!("without {policy} every flow would get the same verdict{now}");
        (message, "remove the policy, if it is not needed")
    }

    fn overridden(&self) -> Message {
        let rule = self.rule();
        let by = self.by();
        let now = self.now();
        let message = format!(
            "{rule} decides nothing: every flow that it allows is decided first by {by}{now}"
        );
        (
            message,
            "contact the administrators of the cluster, or remove the rule",
        )
    }

    fn overridden_partly(&self) -> Message {
        let rule = self.rule();
        let by = self.by();
        let flow = self.flow();
        let message = format!(
            "some flows that {rule} allows{} are denied first by {by}{flow}",
            self.percent()
        );
        (
            message,
            "`palisade affecting` shows both; contact the administrators of the cluster if the rest is not enough",
        )
    }

    fn pass_no_effect(&self) -> Message {
        let rule = self.rule();
        let now = self.now();
        let message =
            format!("every flow that {rule} passes would get the same verdict without it{now}");
        (message, "remove the rule, unless a future policy needs it")
    }

    fn no_effect(&self) -> Message {
        let policy = self.policy();
        let message = format!("{policy} has neither ingress nor egress rules, and has no effect");
        (message, "add rules, or remove the policy")
    }

    fn rule_name_dup(&self) -> Message {
        let rule = self.rule();
        let by = self.by();
        let text = self.text();
        let message = format!("{rule} and {by} have the same name {text}");
        (
            message,
            "give every rule of a policy its own name; logs and explanations show it",
        )
    }

    fn port_unexposed(&self) -> Message {
        let rule = self.rule();
        let message = format!(
            "no destination of {rule} has a port named {}",
            self.port_name()
        );
        (
            message,
            "a port name must be that of a container port of the destination; add it there, or write the number",
        )
    }

    fn named_port_addresses(&self) -> Message {
        let rule = self.rule();
        let message = format!(
            "{rule} has the named port {} with addresses or nodes, and only pods have named ports",
            self.port_name()
        );
        (
            message,
            "write the port number in a separate rule for the addresses",
        )
    }

    fn domain_unlearned(&self) -> Message {
        let rule = self.rule();
        let message = format!(
            "no address is known for {}; that entry of {rule} matches nothing",
            self.text_or("a domain name")
        );
        (
            message,
            "add resolved addresses with `--dns FILE`, or compare the name with the names that pods resolve",
        )
    }

    fn tenant_unlabelled(&self) -> Message {
        let rule = self.rule();
        let message = format!(
            "{} have no label {}; {rule} matches them neither as the same tenant nor as another",
            self.share_of("namespaces"),
            self.tenant_keys()
        );
        (
            message,
            "label every namespace, or add a rule for those without the label",
        )
    }

    fn mixed_generation(&self) -> Message {
        let message = self.mixed();
        (
            message,
            "write them in one API version; docs/reference/model.md has the order in which Palisade evaluates them",
        )
    }

    fn label_typo(&self) -> Message {
        let message = self.typo();
        (message, "correct the label, or the selector")
    }

    fn v6_open(&self) -> Message {
        let rule = self.rule();
        let message = format!(
            "{rule} denies all addresses of one family, and its policy leaves {} open",
            self.plain_text_or("the other")
        );
        (message, "deny both `0.0.0.0/0` and `::/0`")
    }

    fn snat_ip_block(&self) -> Message {
        let rule = self.rule();
        let message = format!(
            "{rule} matches client addresses for pods behind {}; packets may arrive with a node's address instead",
            self.text_or_others("a Service")
        );
        (
            message,
            "set `externalTrafficPolicy: Local` on the Service, or allow the nodes' addresses",
        )
    }

    fn node_local_dns(&self) -> Message {
        let policy = self.policy();
        let flow = self.flow();
        let message = format!(
            "pods that {policy} selects may query the cluster's DNS but not the resolver on their node{}{flow}",
            self.share()
        );
        (
            message,
            "allow the address of the node-local resolver as well",
        )
    }

    fn no_dns(&self) -> Message {
        let policy = self.policy();
        let flow = self.flow();
        let message = format!(
            "pods that {policy} selects have some egress but cannot query the cluster's DNS{}{flow}",
            self.share()
        );
        (
            message,
            "allow UDP and TCP port 53 to the pods of the cluster's DNS",
        )
    }

    fn default_isolation(&self) -> Message {
        let policy = self.policy();
        let message = format!(
            "{policy} isolates for{}: a DefaultNetworkPolicy isolates for the directions whose keys it has",
            self.direction()
        );
        (
            message,
            "write both `ingress` and `egress`, as empty lists if needed",
        )
    }

    fn peer_or(&self) -> Message {
        let rule = self.rule();
        let message = format!(
            "two peers of {rule} look like one peer with both selectors; a match of either one is enough"
        );
        (
            message,
            "remove the dash before the second selector if both must match",
        )
    }

    fn lockout_dns(&self) -> Message {
        let rule = self.rule();
        let flow = self.flow();
        let message = format!(
            "{rule} blocks pods from the cluster's DNS{}{flow}",
            self.share()
        );
        (
            message,
            "insert a rule before it that accepts UDP and TCP port 53 to the cluster's DNS",
        )
    }

    fn lockout_api_server(&self) -> Message {
        let rule = self.rule();
        let flow = self.flow();
        let message = format!(
            "{rule} blocks components of the cluster from the API server{}{flow}",
            self.share()
        );
        (
            message,
            "insert a rule before it that accepts traffic to the API server",
        )
    }

    fn lockout_control_plane(&self) -> Message {
        let rule = self.rule();
        let flow = self.flow();
        let message = format!(
            "{rule} blocks components of the cluster from each other{}{flow}",
            self.share()
        );
        (
            message,
            "exclude `kube-system` from the subject, or insert a rule before it that accepts this traffic",
        )
    }

    fn lockout_kubelet(&self) -> Message {
        let rule = self.rule();
        let flow = self.flow();
        let message = format!(
            "{rule} blocks components of the cluster from the kubelets{}{flow}",
            self.share()
        );
        (
            message,
            "insert a rule before it that accepts TCP port 10250 to the nodes",
        )
    }
}
