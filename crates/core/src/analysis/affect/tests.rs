//! Small clusters whose effects follow from the specification, and random ones whose effects are
//! computed a second time, flow by flow.

mod oracle;

use std::collections::BTreeSet;

use super::*;
use crate::compile::compile;
use crate::fixture::{
    PolicyDraft, admin, all, allow, baseline, block, cluster, decider, declared, deny, everything,
    labelled, named, netpol, node, pass, pod, pod_id, pods_of, policy_id, port, ports, rule,
    service, tcp, template,
};
use crate::model::Peer;
use crate::policy::Action;

fn overrides(cluster: &Cluster<'_>, pod: &str) -> Vec<String> {
    let program = compile(cluster);
    let finder = OverrideFinder::new(cluster, &program);
    let effects = finder.effects(&[pod_id(cluster, pod)]);
    for it in &effects.overrides {
        check(&program, it);
    }
    let words = effects.overrides.iter().map(|it| {
        let does = match it.verdict {
            Verdict::Allow => "allows",
            Verdict::Deny => "denies",
        };
        let (winner, loser) = (decider(cluster, it.winner), decider(cluster, it.loser));
        format!("{winner} {does}, not {loser}")
    });
    words.collect()
}

/// Asserts that the engine gives the witness the verdict of the override.
fn check(program: &Program, it: &Override) {
    let decision = program.decide(&it.witness.flow);
    let cause = decision.cause(it.winner.direction());
    assert_eq!(cause.verdict(), it.verdict, "{it:?}");
}

const NOTHING: [&str; 0] = [];

#[test]
fn an_admin_deny_overrides_what_a_network_policy_allows() {
    let cluster = cluster(
        vec![pod("x", "a"), pod("y", "b")],
        vec![
            admin("top", 10).ingress(deny(pods_of("y"))),
            netpol("x", "open").ingress(allow(all())),
        ],
    );
    // The isolation is not overridden: it would deny the same flows.
    assert_eq!(
        overrides(&cluster, "x/a"),
        ["cnp/top#ingress[0] denies, not netpol/x/open#ingress[0]"]
    );
    assert_eq!(overrides(&cluster, "y/b"), NOTHING);
}

#[test]
fn an_admin_accept_overrides_isolation_and_not_the_rules_that_agree() {
    let cluster = cluster(
        vec![pod("x", "a"), pod("y", "b")],
        vec![
            admin("top", 10).ingress(allow(pods_of("y"))),
            netpol("x", "closed").ingress_isolates(),
            netpol("x", "from-y").ingress(rule(Action::Accept, pods_of("y"), Some(vec![tcp(80)]))),
        ],
    );
    assert_eq!(
        overrides(&cluster, "x/a"),
        [
            "cnp/top#ingress[0] allows, not netpol/x/closed (ingress)",
            "cnp/top#ingress[0] allows, not netpol/x/from-y (ingress)",
        ]
    );
}

#[test]
fn without_a_peer_to_show_it_nothing_is_overridden() {
    // No pod has the label of the peer.
    let mut cluster = cluster(
        vec![pod("x", "a")],
        vec![
            admin("top", 10).ingress(deny(labelled("app", "none"))),
            netpol("x", "open").ingress(allow(all())),
        ],
    );
    assert_eq!(overrides(&cluster, "x/a"), NOTHING);
    // A single pod is no peer of itself (D76), except through a Service (D77).
    cluster.policies = vec![
        admin("top", 10).ingress(deny(pods_of("x"))).build(),
        netpol("x", "open").ingress(allow(all())).build(),
    ];
    assert_eq!(overrides(&cluster, "x/a"), NOTHING);
    cluster.services = vec![service("x", "web", (PodId(0), 8080))];
    let expected = ["cnp/top#ingress[0] denies, not netpol/x/open#ingress[0]"];
    assert_eq!(overrides(&cluster, "x/a"), expected);
    let program = compile(&cluster);
    let effects = OverrideFinder::new(&cluster, &program).effects(&[PodId(0)]);
    let witness = effects.overrides[0].witness;
    assert_eq!(witness.via, Some(ServiceId(0)));
    assert_eq!(
        witness.transport,
        Transport::Port(Protocol::Tcp, port(8080))
    );
    // A template stands for several pods, which are peers of each other.
    cluster.services.clear();
    cluster.pods = vec![template("x", "a")];
    assert_eq!(overrides(&cluster, "x/deploy/a"), expected);
}

#[test]
fn ports_are_distinguished_to_the_last() {
    let range = |first, last| vec![ports(Protocol::Tcp, first, last)];
    let with = |first, last| {
        cluster(
            vec![pod("x", "a"), pod("y", "b")],
            vec![
                admin("top", 10).ingress(rule(Action::Deny, all(), Some(range(first, last)))),
                admin("under", 20).ingress(rule(Action::Accept, all(), Some(range(80, 89)))),
            ],
        )
    };
    let expected = ["cnp/top#ingress[0] denies, not cnp/under#ingress[0]"];
    assert_eq!(overrides(&with(1, 79), "x/a"), NOTHING);
    assert_eq!(overrides(&with(1, 80), "x/a"), expected);
    assert_eq!(overrides(&with(89, 65535), "x/a"), expected);
    assert_eq!(overrides(&with(90, 65535), "x/a"), NOTHING);
}

#[test]
fn a_port_that_only_has_a_name_is_the_port_of_that_name() {
    // 8080 is the only port of the rule by number, and it is called `http` at the destination.
    let with = |name: &'static str| {
        let mut a = pod("x", "a");
        a.ports = [declared(name, 8080, Protocol::Tcp)].into();
        cluster(
            vec![a, pod("y", "b")],
            vec![
                admin("top", 10).ingress(rule(Action::Accept, all(), Some(vec![named("http")]))),
                admin("under", 20).ingress(rule(Action::Deny, all(), Some(vec![tcp(8080)]))),
            ],
        )
    };
    assert_eq!(
        overrides(&with("http"), "x/a"),
        ["cnp/top#ingress[0] allows, not cnp/under#ingress[0]"]
    );
    assert_eq!(overrides(&with("other"), "x/a"), NOTHING);
    // Completely: the other rule decides no flow.
    let cluster = with("http");
    let program = compile(&cluster);
    let effects = OverrideFinder::new(&cluster, &program).effects(&[pod_id(&cluster, "x/a")]);
    assert!(effects.settles(PolicyId(0), Direction::Ingress));
    assert!(!effects.settles(PolicyId(1), Direction::Ingress));
}

#[test]
fn pass_overrides_the_rest_of_its_tier_and_defers_to_later_ones() {
    let cluster = cluster(
        vec![pod("x", "a"), pod("y", "b")],
        vec![
            admin("a-pass", 10).ingress(pass(pods_of("y"))),
            admin("b-deny", 20).ingress(deny(all())),
            netpol("x", "web").ingress(rule(Action::Accept, all(), Some(vec![tcp(80)]))),
        ],
    );
    // tcp/80 from y is passed, and allowed; on other ports the Deny agrees with the isolation.
    assert_eq!(
        overrides(&cluster, "x/a"),
        [
            "cnp/a-pass#ingress[0] allows, not cnp/b-deny#ingress[0]",
            "cnp/b-deny#ingress[0] denies, not netpol/x/web#ingress[0]",
        ]
    );
    let program = compile(&cluster);
    let effects = OverrideFinder::new(&cluster, &program).effects(&[pod_id(&cluster, "x/a")]);
    let deferrals: Vec<(String, Verdict)> = effects
        .deferrals
        .iter()
        .map(|it| (decider(&cluster, it.to), it.verdict))
        .collect();
    assert_eq!(
        deferrals,
        [
            ("netpol/x/web#ingress[0]".to_owned(), Verdict::Allow),
            ("netpol/x/web (ingress)".to_owned(), Verdict::Deny),
        ]
    );
}

#[test]
fn a_pass_behind_a_deny_is_overridden_only_if_later_tiers_would_allow() {
    let with = |policies: Vec<PolicyDraft>| {
        let mut all_of_them = vec![
            admin("a-deny", 10).ingress(deny(pods_of("y"))),
            admin("b-pass", 20).ingress(pass(all())),
        ];
        all_of_them.extend(policies);
        cluster(vec![pod("x", "a"), pod("y", "b")], all_of_them)
    };
    assert_eq!(
        overrides(&with(Vec::new()), "x/a"),
        ["cnp/a-deny#ingress[0] denies, not cnp/b-pass#ingress[0]"]
    );
    let closed = netpol("x", "closed").ingress_isolates();
    assert_eq!(overrides(&with(vec![closed]), "x/a"), NOTHING);
}

#[test]
fn network_policies_override_the_baseline_per_direction() {
    let cluster = cluster(
        vec![pod("x", "a"), pod("y", "b")],
        vec![
            netpol("x", "web").ingress(rule(Action::Accept, all(), Some(vec![tcp(80)]))),
            baseline("all", 10).ingress(deny(all())).egress(deny(all())),
            baseline("later", 20).egress(allow(pods_of("y"))),
        ],
    );
    // The Baseline still applies to egress of the pod (D12); there the order decides.
    assert_eq!(
        overrides(&cluster, "x/a"),
        [
            "cnp/all#egress[0] denies, not cnp/later#egress[0]",
            "netpol/x/web#ingress[0] allows, not cnp/all#ingress[0]",
        ]
    );
    let program = compile(&cluster);
    let effects = OverrideFinder::new(&cluster, &program).effects(&[pod_id(&cluster, "x/a")]);
    let all = policy_id(&cluster, "cnp/all");
    assert!(!effects.settles(all, Direction::Ingress));
    assert!(effects.settles(all, Direction::Egress));
}

#[test]
fn an_unknown_address_proves_nothing() {
    let with = |peer| {
        cluster(
            vec![pod("x", "a"), template("y", "b")],
            vec![
                admin("top", 10).ingress(deny(block("10.0.0.0/8"))),
                netpol("x", "from-y").ingress(allow(peer)),
            ],
        )
    };
    // The pods of `y` may get an address in the block, or not.
    assert_eq!(overrides(&with(pods_of("y")), "x/a"), NOTHING);
    // An outside address in the block is denied for certain.
    assert_eq!(
        overrides(&with(block("10.0.0.0/16")), "x/a"),
        ["cnp/top#ingress[0] denies, not netpol/x/from-y#ingress[0]"]
    );
    // Here the address decides the part of the NetworkPolicy: its rule, or its isolation.
    let with = |action, blocks: &[&str]| {
        let blocks = blocks.iter().flat_map(|it| block(it)).collect();
        cluster(
            vec![pod("x", "a"), template("y", "b")],
            vec![
                admin("top", 10).ingress(rule(action, pods_of("y"), None)),
                netpol("x", "blocks").ingress(allow(blocks)),
            ],
        )
    };
    let some = ["10.0.0.0/8"];
    assert_eq!(overrides(&with(Action::Accept, &some), "x/a"), NOTHING);
    assert_eq!(overrides(&with(Action::Deny, &some), "x/a"), NOTHING);
    let every = ["0.0.0.0/1", "128.0.0.0/1"];
    assert_eq!(overrides(&with(Action::Accept, &every), "x/a"), NOTHING);
    assert_eq!(
        overrides(&with(Action::Deny, &every), "x/a"),
        ["cnp/top#ingress[0] denies, not netpol/x/blocks#ingress[0]"]
    );
}

#[test]
fn nodes_are_peers_and_the_own_node_only_by_its_address() {
    let mut cluster = cluster(
        vec![pod("x", "a")],
        vec![
            admin("top", 10).ingress(deny(vec![Peer::Nodes(everything())])),
            netpol("x", "open").ingress(allow(all())),
        ],
    );
    cluster.nodes = vec![node("n1", "192.0.2.1")];
    cluster.pods[0].node = Some("n1");
    let expected = ["cnp/top#ingress[0] denies, not netpol/x/open#ingress[0]"];
    assert_eq!(overrides(&cluster, "x/a"), expected);
    let program = compile(&cluster);
    let effects = OverrideFinder::new(&cluster, &program).effects(&[PodId(0)]);
    let named = effects.overrides[0].witness.source;
    assert_eq!(named, EndName::Address("192.0.2.1".parse().unwrap()));
    cluster.nodes.push(node("n2", "192.0.2.2"));
    let program = compile(&cluster);
    let effects = OverrideFinder::new(&cluster, &program).effects(&[PodId(0)]);
    let named = effects.overrides[0].witness.source;
    assert_eq!(named, EndName::Node(crate::model::NodeId(1)));
}

#[test]
fn every_address_of_a_block_may_be_taken() {
    // The block is one address, which a pod has: no outside address can be a witness.
    let with = |address: &'static str| {
        let mut b = pod("y", "b");
        b.addresses = vec![address.parse().unwrap()];
        cluster(
            vec![pod("x", "a"), b],
            vec![
                admin("top", 10).ingress(allow(pods_of("y"))),
                admin("under", 20).ingress(deny(block("203.0.113.9/32"))),
            ],
        )
    };
    let expected = ["cnp/top#ingress[0] allows, not cnp/under#ingress[0]"];
    assert_eq!(overrides(&with("203.0.113.9"), "x/a"), expected);
    assert_eq!(overrides(&with("203.0.113.8"), "x/a"), NOTHING);
    let cluster = with("203.0.113.9");
    let program = compile(&cluster);
    let effects = OverrideFinder::new(&cluster, &program).effects(&[pod_id(&cluster, "x/a")]);
    assert!(!effects.settles(PolicyId(1), Direction::Ingress));
}

#[test]
fn multicast_groups_are_only_destinations() {
    let cluster = cluster(
        vec![pod("x", "a")],
        vec![
            admin("top", 10)
                .ingress(deny(block("224.0.0.0/4")))
                .egress(deny(block("224.0.0.0/4"))),
            admin("under", 20)
                .ingress(allow(all()))
                .egress(allow(all())),
        ],
    );
    assert_eq!(
        overrides(&cluster, "x/a"),
        ["cnp/top#egress[0] denies, not cnp/under#egress[0]"]
    );
}

#[test]
fn pods_that_rules_distinguish_are_not_grouped() {
    let own = vec![Peer::Pods(crate::model::PodSet {
        namespaces: NamespaceSet::Own,
        pods: None,
    })];
    let of_both = |cluster: &Cluster<'_>, names: [&str; 2]| {
        let program = compile(cluster);
        let pods = names.map(|name| pod_id(cluster, name));
        let effects = OverrideFinder::new(cluster, &program).effects(&pods);
        effects.overrides.iter().for_each(|it| check(&program, it));
        effects.overrides.len()
    };
    // Neither pod has a peer in its own namespace.
    let apart = cluster(
        vec![pod("x", "a"), pod("y", "b")],
        vec![
            admin("top", 10).ingress(deny(own)),
            admin("under", 20).ingress(allow(all())),
        ],
    );
    assert_eq!(of_both(&apart, ["x/a", "y/b"]), 0);
    // Only the second has a name for the port.
    let mut b = pod("x", "b");
    b.ports = [declared("http", 8080, Protocol::Tcp)].into();
    let named = cluster(
        vec![pod("x", "a"), b],
        vec![
            admin("top", 10).ingress(rule(Action::Accept, all(), Some(vec![named("http")]))),
            admin("under", 20).ingress(rule(Action::Deny, all(), Some(vec![tcp(8080)]))),
        ],
    );
    assert_eq!(of_both(&named, ["x/a", "x/b"]), 1);
}

#[test]
fn policies_on_a_pod_come_in_order_of_precedence() {
    let early = |name, api, rank| Policy {
        api,
        rank,
        ..admin(name, 0).ingress(allow(all())).build()
    };
    let mut default = early("d", PolicyApi::Default, PolicyRank::DefaultGroup);
    default.ingress.isolates = true;
    let mut cluster = cluster(
        vec![pod("x", "a"), pod("y", "b")],
        vec![
            baseline("early-baseline", 5).ingress(allow(all())),
            netpol("x", "b").ingress_isolates(),
            netpol("x", "a").ingress_isolates(),
            netpol("y", "c").ingress_isolates(),
            admin("late", 30).ingress(allow(all())),
            admin("first", 3).ingress(allow(all())),
            admin("egress-only", 1).egress(allow(all())),
        ],
    );
    cluster.policies.push(default);
    let cnp0 = early("z", PolicyApi::EarlyCluster, PolicyRank::EarlyAdmin);
    cluster.policies.push(cnp0);
    let banp = early(
        "default",
        PolicyApi::BaselineAdmin,
        PolicyRank::Ordered(Tier::Baseline, BASELINE_ADMIN_PRIORITY),
    );
    cluster.policies.push(banp);
    let selecting = policies_on(&cluster, pod_id(&cluster, "x/a"), Direction::Ingress);
    let names: Vec<String> = selecting
        .iter()
        .map(|id| cluster.policy_name(*id))
        .collect();
    assert_eq!(
        names,
        [
            "cnp0/z",
            "cnp/first",
            "cnp/late",
            "netpol/x/a",
            "netpol/x/b",
            "cnp/early-baseline",
            "banp/default",
            "dnp/d",
        ]
    );
}

#[test]
fn subjects_are_the_pods_that_can_be_selected() {
    let mut host = pod("x", "h");
    host.host_network = true;
    let mut ended = pod("x", "z");
    ended.phase = crate::model::PodPhase::Terminated;
    let cluster = cluster(
        vec![pod("x", "a"), host, ended, pod("y", "b")],
        vec![admin("top", 1).ingress(deny(all()))],
    );
    let subjects = subjects(&cluster, &cluster.policies[0]);
    let names: BTreeSet<String> = subjects.iter().map(|id| cluster.pod_name(*id)).collect();
    assert_eq!(names, BTreeSet::from(["x/a".to_owned(), "y/b".to_owned()]));
}
