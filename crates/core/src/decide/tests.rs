//! One flow each for the decisions that the evaluation order consists of.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use super::{Absence, Cause, Exemption, FlowEnd, Identity, Traffic};
use crate::compile::compile;
use crate::fixture::{
    PolicyDraft, admin, all, allow, baseline, cluster, default_policy, deny, flow, labelled,
    netpol, pass, pod, pods_of, rule, tcp,
};
use crate::model::Cluster;
use crate::net::Protocol;
use crate::policy::{Action, Direction, Verdict};
use crate::program::Program;

/// The pods `x/a`, `x/b` and `y/c` with some policies.
fn world(policies: Vec<PolicyDraft>) -> (Cluster<'static>, Program) {
    let pods = vec![pod("x", "a"), pod("x", "b"), pod("y", "c")];
    let cluster = cluster(pods, policies);
    let program = compile(&cluster);
    (cluster, program)
}

/// The cause as text: `Deny cnp/a#ingress[0]`, `isolated by netpol/x/a`.
fn named(cluster: &Cluster<'_>, program: &Program, cause: Cause) -> String {
    let isolated = |id| {
        let policies = program.isolation(id).iter();
        let names: Vec<String> = policies.map(|it| cluster.policy_name(*it)).collect();
        format!("isolated by {}", names.join(", "))
    };
    match cause {
        Cause::AdminRule(verdict, id) | Cause::BaselineRule(verdict, id) => {
            let place = program.place(id).unwrap();
            format!("{verdict} {}", cluster.rule_name(place))
        }
        Cause::NetworkPolicyRule(id) => cluster.rule_name(program.place(id).unwrap()),
        Cause::Isolation(id) | Cause::DefaultIsolation(id) => isolated(id),
        Cause::Default => "default".to_owned(),
        Cause::Exempt(exemption) => format!("{exemption:?}"),
        Cause::NotApplicable(absence) => format!("{absence:?}"),
    }
}

/// The cause of the ingress from `x/b` to `x/a` on a TCP port.
fn ingress(policies: Vec<PolicyDraft>, number: u16) -> String {
    let (cluster, program) = world(policies);
    let flow = flow(&cluster, &program, ["x/b", "x/a"], number);
    named(&cluster, &program, program.decide(&flow).ingress)
}

#[test]
fn both_directions_are_evaluated_and_each_can_deny() {
    // D1, D2: the Accept at the source says nothing about the destination.
    let policies = vec![
        admin("a", 1).egress(allow(all())),
        netpol("x", "closed").ingress_isolates(),
    ];
    let (cluster, program) = world(policies);
    let decision = program.decide(&flow(&cluster, &program, ["x/b", "x/a"], 80));
    let causes = [decision.egress, decision.ingress].map(|it| named(&cluster, &program, it));
    assert_eq!(
        causes,
        ["Allow cnp/a#egress[0]", "isolated by netpol/x/closed"]
    );
    assert_eq!(decision.verdict(), Verdict::Deny);
    assert_eq!(decision.cause(Direction::Ingress), decision.ingress);
}

#[test]
fn the_first_rule_of_the_smallest_priority_decides() {
    // D7: of equal priorities the name decides.
    let policies = vec![
        admin("b", 1).ingress(allow(all())),
        admin("a", 1)
            .ingress(deny(pods_of("y")))
            .ingress(deny(all())),
        admin("c", 0).ingress(allow(pods_of("y"))),
    ];
    assert_eq!(ingress(policies, 80), "Deny cnp/a#ingress[1]");
}

#[test]
fn pass_ends_the_admin_tier() {
    // D10: the Deny behind the Pass is not evaluated, and the other tiers are.
    let policies = vec![
        admin("a", 1).ingress(pass(all())).ingress(deny(all())),
        admin("b", 2).ingress(deny(all())),
        netpol("x", "open").ingress(allow(pods_of("x"))),
    ];
    assert_eq!(ingress(policies, 80), "netpol/x/open#ingress[0]");
    let passed = baseline("a", 1).ingress(pass(all())).ingress(deny(all()));
    assert_eq!(ingress(vec![passed], 80), "default");
}

#[test]
fn an_isolated_pod_never_reaches_the_baseline() {
    // D11.
    let policies = vec![
        admin("a", 1).ingress(pass(all())),
        netpol("x", "closed").ingress_isolates(),
        baseline("b", 1).ingress(allow(all())),
    ];
    assert_eq!(ingress(policies, 80), "isolated by netpol/x/closed");
}

#[test]
fn directions_are_isolated_separately() {
    // D12: the pod is isolated for egress only.
    let policies = vec![
        netpol("x", "no-egress").egress_isolates(),
        baseline("b", 1).ingress(deny(all())),
    ];
    assert_eq!(ingress(policies.clone(), 80), "Deny cnp/b#ingress[0]");
    let (cluster, program) = world(policies);
    let decision = program.decide(&flow(&cluster, &program, ["x/a", "y/c"], 80));
    let egress = named(&cluster, &program, decision.egress);
    assert_eq!(egress, "isolated by netpol/x/no-egress");
}

#[test]
fn all_isolating_policies_and_the_smallest_rule_are_named() {
    // D4, D137.
    let closed = |name| netpol("x", name).ingress_isolates();
    let both = vec![closed("b"), closed("a")];
    assert_eq!(ingress(both, 80), "isolated by netpol/x/a, netpol/x/b");
    let open = |name| netpol("x", name).ingress(allow(labelled("app", "b")));
    let both = vec![open("b"), open("a"), closed("c")];
    assert_eq!(ingress(both, 80), "netpol/x/a#ingress[0]");
}

#[test]
fn rules_before_the_default_policies_apply_to_pods_that_these_isolate() {
    // D62: of the Baseline tier, only rules behind the default policies do not.
    let isolating = || default_policy("d").ingress_isolates();
    let before = baseline("b", 1).ingress(allow(all()));
    assert_eq!(
        ingress(vec![isolating(), before], 80),
        "Allow cnp/b#ingress[0]"
    );
    assert_eq!(ingress(vec![isolating()], 80), "isolated by dnp/d");
}

#[test]
fn a_rule_without_ports_matches_every_protocol() {
    // D14.
    let (cluster, program) = world(vec![
        netpol("x", "open").ingress(allow(pods_of("y"))),
        netpol("x", "web").ingress(rule(Action::Accept, pods_of("x"), Some(vec![tcp(80)]))),
    ]);
    let named = |ends: [&str; 2], traffic: Option<Traffic>| {
        let mut flow = flow(&cluster, &program, ends, 80);
        flow.traffic = traffic.unwrap_or(flow.traffic);
        named(&cluster, &program, program.decide(&flow).ingress)
    };
    let udp = Traffic::Port(Protocol::Udp, 80.try_into().unwrap());
    assert_eq!(named(["x/b", "x/a"], None), "netpol/x/web#ingress[0]");
    for traffic in [udp, Traffic::Portless] {
        let isolated = named(["x/b", "x/a"], Some(traffic));
        assert_eq!(isolated, "isolated by netpol/x/open, netpol/x/web");
        let open = named(["y/c", "x/a"], Some(traffic));
        assert_eq!(open, "netpol/x/open#ingress[0]");
    }
}

#[test]
fn exempt_traffic_is_not_evaluated() {
    let (cluster, program) = world(vec![admin("a", 1).ingress(deny(all())).egress(deny(all()))]);
    let flow = flow(&cluster, &program, ["x/b", "x/a"], 80);
    let both = |exemption| [Cause::Exempt(exemption); 2];
    let causes = |flow| {
        let decision = program.decide(&flow);
        [decision.egress, decision.ingress]
    };
    // D89.
    let mut solicited = flow;
    solicited.traffic = Traffic::NeighborDiscovery;
    assert_eq!(causes(solicited), both(Exemption::NeighborDiscovery));
    // D76, and D77: through a Service, the pod is its own peer.
    let mut own = flow;
    own.destination = flow.source;
    assert_eq!(causes(own), both(Exemption::SelfAddress));
    own.via_service = true;
    assert!(causes(own).iter().all(|it| it.verdict() == Verdict::Deny));
    // D74: the node is not a subject, and its traffic is exempt from ingress.
    let mut local = flow;
    local.node_local = true;
    local.source.identity = Identity::Node(None);
    assert_eq!(
        causes(local),
        [
            Cause::NotApplicable(Absence::Node),
            Cause::Exempt(Exemption::NodeLocal)
        ]
    );
}

#[test]
fn only_pods_with_a_network_of_their_own_are_subjects() {
    // D73, D138: the host-network pod is no subject, and matches no selector.
    let mut host = pod("x", "h");
    host.host_network = true;
    let policies = vec![
        admin("a", 1).egress(deny(all())),
        netpol("x", "open").ingress(allow(pods_of("x"))),
    ];
    let cluster = cluster(vec![pod("x", "a"), host], policies);
    let program = compile(&cluster);
    let mut flow = flow(&cluster, &program, ["x/h", "x/a"], 80);
    let decision = program.decide(&flow);
    assert_eq!(decision.egress, Cause::NotApplicable(Absence::HostNetwork));
    let ingress = named(&cluster, &program, decision.ingress);
    assert_eq!(ingress, "isolated by netpol/x/open");
    flow.source = FlowEnd {
        identity: Identity::External,
        address: program.address_atom("203.0.113.7".parse().unwrap()),
    };
    let outside = program.decide(&flow);
    assert_eq!(outside.egress, Cause::NotApplicable(Absence::External));
}
