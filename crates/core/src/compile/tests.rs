//! Clusters with many rules: every index finds the first rule that matches.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::net::{IpAddr, Ipv4Addr};

use super::compile;
use crate::decide::{Cause, Flow, FlowEnd, FlowView, Identity, Traffic};
use crate::fixture::{
    PolicyDraft, Random, admin, block, cluster_in, declared, everything, named, namespace, netpol,
    pod, port, ports, rule,
};
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{Cluster, NamespaceId, NamespaceSet, Peer, Pod, PodId, PodSet, PortMatch, Rule};
use crate::net::Protocol;
use crate::policy::{Action, Direction, Tier, Verdict};
use crate::program::{LONG_ROW, Program, RuleId, direction_index};

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

fn selector(random: &mut Random, key: &'static str, n_values: usize) -> Selector<&'static str> {
    if random.below(6) == 0 {
        return everything();
    }
    let operator = random.one(&Operator::ALL);
    let values = match operator {
        Operator::In | Operator::NotIn => vec![random.one(&NAMES[..n_values])],
        Operator::Exists | Operator::DoesNotExist => Vec::new(),
    };
    Selector {
        requirements: vec![Requirement {
            key,
            operator,
            values,
        }],
    }
}

fn some_rule(random: &mut Random, action: Action, own: NamespaceId) -> Rule<'static> {
    let peers = match random.below(8) {
        0..4 => vec![Peer::Pods(PodSet {
            namespaces: if random.below(2) == 0 {
                NamespaceSet::Exact(own)
            } else {
                NamespaceSet::Selected {
                    selector: selector(random, "name", 3),
                    except: Vec::new(),
                }
            },
            pods: Some(selector(random, "app", 12)),
        })],
        4 => vec![Peer::All],
        _ => {
            let (net, length) = (random.below(256), 26 + random.below(6));
            block(&format!("10.0.0.{net}/{length}"))
        }
    };
    let port = match random.below(8) {
        0 => None,
        1 => Some(named("web")),
        2 => Some(PortMatch::Named(Some(Protocol::Udp), "web")),
        _ => {
            let first = 1 + random.below(200) as u16;
            Some(ports(Protocol::Tcp, first, first + random.below(3) as u16))
        }
    };
    rule(action, peers, port.map(|port| vec![port]))
}

/// A NetworkPolicy with one rule in each direction, or an Admin policy with 25.
fn some_policy(random: &mut Random, index: usize, is_admin: bool) -> PolicyDraft {
    let own = NamespaceId(u32::from(random.below(4) == 0));
    let name = random.one(&NAMES);
    let mut draft = if is_admin {
        admin(name, index as i64)
    } else {
        netpol(own, name)
    };
    let actions: &[Action] = if is_admin {
        &[Action::Accept, Action::Deny, Action::Pass]
    } else {
        &[Action::Accept]
    };
    for _ in 0..if is_admin { 25 } else { 1 } {
        let action = random.one(actions);
        draft = draft.ingress(some_rule(random, action, own));
        let action = random.one(actions);
        draft = draft.egress(some_rule(random, action, own));
    }
    let pods = match random.below(2) {
        0 => everything(),
        _ => selector(random, "app", 12),
    };
    draft.subject(PodSet {
        namespaces: NamespaceSet::Exact(own),
        pods: Some(pods),
    })
}

fn cluster(random: &mut Random, n_policies: usize, n_admin_rules: usize) -> Cluster<'static> {
    let namespaces = ["a", "b", "c"].map(|name| namespace(name, &[("name", name)]));
    let pods = (0..90).map(|index: u32| {
        let has_name = !index.is_multiple_of(3);
        let ports = has_name.then(|| declared("web", 80 + (index % 2) as u16, Protocol::Tcp));
        Pod {
            labels: [("app", NAMES[index as usize % 12])].into(),
            ports: ports.into_iter().collect(),
            addresses: vec![IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + index * 2))],
            ..pod(NamespaceId(index / 30), "pod")
        }
    });
    let n_all = n_policies + n_admin_rules.div_ceil(25);
    let policies = (0..n_all).map(|index| some_policy(random, index, index >= n_policies));
    cluster_in(namespaces.into(), pods.collect(), policies.collect())
}

fn flow(random: &mut Random, cluster: &Cluster<'_>, program: &Program) -> Flow {
    let mut flow_end = |pods: usize| {
        let pod = random.below(pods);
        FlowEnd {
            identity: Identity::Pod(PodId(pod as u32)),
            address: program.address_atom(cluster.pods[pod].addresses[0]),
        }
    };
    let (destination, source) = (flow_end(60), flow_end(90));
    let protocol = [Protocol::Tcp, Protocol::Udp][usize::from(random.below(10) == 0)];
    let port = port(1 + random.below(202) as u16);
    Flow {
        source,
        destination,
        traffic: Traffic::Port(protocol, port),
        via_service: true,
        node_local: false,
    }
}

/// Evaluates one rule after the other.
fn rule_by_rule(program: &Program, view: &FlowView<'_>) -> Cause {
    let matches = |id: &RuleId| program.matches(&program.rules[id.0 as usize], view);
    let admin = program.subject_rules(Tier::Admin, view);
    if let Some(id) = admin.iter().find(|id| matches(id)) {
        match program.rules[id.0 as usize].action {
            Action::Accept => return Cause::AdminRule(Verdict::Allow, *id),
            Action::Deny => return Cause::AdminRule(Verdict::Deny, *id),
            Action::Pass => {}
        }
    }
    let index = direction_index(view.direction);
    match program.unions[index].get(view.subject.unions[index] as usize) {
        None => Cause::Default,
        Some(union) => match union.rules.iter().find(|id| matches(id)) {
            Some(id) => Cause::NetworkPolicyRule(*id),
            None => Cause::Isolation(union.isolation),
        },
    }
}

fn check(program: &Program, cluster: &Cluster<'_>, random: &mut Random) {
    for _ in 0..20_000 {
        let flow = flow(random, cluster, program);
        for direction in Direction::BOTH {
            let view = program.view(&flow, direction).unwrap();
            let cause = program.direction(&flow, direction);
            assert_eq!(cause, rule_by_rule(program, &view), "{flow:?} {direction}");
        }
    }
}

#[test]
fn an_indexed_namespace_is_decided_by_the_first_rule_that_matches() {
    for n_policies in [200, 600, 3000] {
        let mut random = Random(n_policies as u64);
        let cluster = cluster(&mut random, n_policies, 0);
        let program = compile(&cluster);
        assert!(!program.policy_indexes.is_empty());
        check(&program, &cluster, &mut random);
    }
}

#[test]
fn a_long_row_is_decided_by_the_first_rule_that_matches() {
    let mut random = Random(7);
    let cluster = cluster(&mut random, 20, 25 * 100);
    let program = compile(&cluster);
    assert!(program.tables[0].subjects.words > LONG_ROW);
    check(&program, &cluster, &mut random);
}
