//! Clusters with many rules: every index finds the first rule that matches.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use super::compile;
use crate::decide::{Cause, Flow, FlowEnd, FlowView, Identity, Traffic};
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{
    Cluster, ContainerPort, Effect, Namespace, NamespaceId, NamespaceSet, Origin, Peer, Pod, PodId,
    PodPhase, PodSet, Policy, PolicyRank, PortMatch, Rule, Rules,
};
use crate::net::{CidrText, PortRange, Protocol};
use crate::policy::{Action, Direction, PolicyApi, Tier, Verdict};
use crate::program::{LONG_ROW, Program, RuleId, direction_index};

/// Random numbers with a fixed seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

const NAMES: [&str; 12] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

fn selector<'a>(numbers: &mut Numbers, key: &'a str, n_values: usize) -> Selector<&'a str> {
    let operator = Operator::ALL[numbers.below(4)];
    let values = match operator {
        Operator::In | Operator::NotIn => vec![NAMES[numbers.below(n_values)]],
        Operator::Exists | Operator::DoesNotExist => Vec::new(),
    };
    let requirement = Requirement {
        key,
        operator,
        values,
    };
    let requirements = if numbers.below(6) == 0 {
        Vec::new()
    } else {
        vec![requirement]
    };
    Selector { requirements }
}

fn rule<'a>(numbers: &mut Numbers, action: Action, own: NamespaceId) -> Rule<'a> {
    let peer = match numbers.below(8) {
        0..4 => Peer::Pods(PodSet {
            namespaces: if numbers.below(2) == 0 {
                NamespaceSet::Exact(own)
            } else {
                NamespaceSet::Selected {
                    selector: selector(numbers, "name", 3),
                    except: Vec::new(),
                }
            },
            pods: Some(selector(numbers, "app", 12)),
        }),
        4 => Peer::All,
        _ => {
            let (net, length) = (numbers.below(256), 26 + numbers.below(6));
            let text = format!("10.0.0.{net}/{length}");
            Peer::Block {
                cidr: CidrText::parse(&text).unwrap().cidr,
                except: Vec::new(),
            }
        }
    };
    let port = match numbers.below(8) {
        0 => None,
        1 => Some(PortMatch::Named(None, "web")),
        2 => Some(PortMatch::Named(Some(Protocol::Udp), "web")),
        _ => {
            let start = 1 + numbers.below(200);
            let end = start + numbers.below(3);
            let port = |number: usize| NonZeroU16::new(number as u16).unwrap();
            let range = PortRange::new(port(start), port(end)).unwrap();
            Some(PortMatch::Numbers(Protocol::Tcp, range))
        }
    };
    Rule {
        name: None,
        written_action: None,
        effect: Some(Effect {
            action,
            peers: Some(vec![peer]),
            ports: port.map(|port| vec![port]),
        }),
        failed_closed: false,
    }
}

fn cluster(numbers: &mut Numbers, n_policies: usize, n_admin_rules: usize) -> Cluster<'static> {
    let namespaces = NAMES[..3].iter().map(|name| Namespace {
        name,
        labels: [("name", *name)].into(),
        has_object: true,
    });
    let mut pods: Vec<Pod<'_>> = Vec::new();
    for index in 0..90_u32 {
        let ports = (index % 3 != 0).then_some(ContainerPort {
            name: Some("web"),
            port: NonZeroU16::new(80 + (index % 2) as u16).unwrap(),
            protocol: Protocol::Tcp,
        });
        let address = Ipv4Addr::from(0x0a00_0000 + index * 2);
        pods.push(Pod {
            namespace: NamespaceId(index / 30),
            name: "pod",
            template: None,
            labels: [("app", NAMES[index as usize % 12])].into(),
            ports: ports.into_iter().collect(),
            addresses: vec![IpAddr::V4(address)],
            node: None,
            host_network: false,
            phase: PodPhase::Running,
            ready: true,
            created: None,
            origin: Origin(index),
        });
    }
    let mut policies = Vec::new();
    for index in 0..n_policies + n_admin_rules.div_ceil(25) {
        let own = NamespaceId(if numbers.below(4) == 0 { 1 } else { 0 });
        let is_admin = index >= n_policies;
        let actions = [Action::Accept, Action::Deny, Action::Pass];
        let mut list = |isolates: bool| Rules {
            isolates,
            list: (0..if is_admin { 25 } else { 1 })
                .map(|_| {
                    let admin = actions[numbers.below(3)];
                    rule(numbers, if is_admin { admin } else { Action::Accept }, own)
                })
                .collect(),
        };
        let (ingress, egress) = (list(!is_admin), list(!is_admin));
        let mut pods = selector(numbers, "app", 12);
        if numbers.below(2) == 0 {
            pods.requirements.clear();
        }
        policies.push(Policy {
            api: if is_admin {
                PolicyApi::Cluster
            } else {
                PolicyApi::NetworkPolicy
            },
            api_version: "v1",
            namespace: (!is_admin).then_some(own),
            name: NAMES[numbers.below(12)],
            rank: if is_admin {
                PolicyRank::Ordered(Tier::Admin, index as i64)
            } else {
                PolicyRank::NetworkPolicy
            },
            subject: Some(PodSet {
                namespaces: NamespaceSet::Exact(own),
                pods: Some(pods),
            }),
            ingress,
            egress,
            audited: false,
            created: None,
            is_over_budget: false,
            origin: Origin(0),
        });
    }
    Cluster {
        namespaces: namespaces.collect(),
        pods,
        policies,
        ..Cluster::default()
    }
}

fn flow(numbers: &mut Numbers, cluster: &Cluster<'_>, program: &Program) -> Flow {
    let mut flow_end = |pods: usize| {
        let pod = numbers.below(pods);
        FlowEnd {
            identity: Identity::Pod(PodId(pod as u32)),
            address: program.address_atom(cluster.pods[pod].addresses[0]),
        }
    };
    let (destination, source) = (flow_end(60), flow_end(90));
    let protocol = [Protocol::Tcp, Protocol::Udp][usize::from(numbers.below(10) == 0)];
    let port = NonZeroU16::new(1 + numbers.below(202) as u16).unwrap();
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

fn check(program: &Program, cluster: &Cluster<'_>, numbers: &mut Numbers) {
    for _ in 0..20_000 {
        let flow = flow(numbers, cluster, program);
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
        let mut numbers = Numbers(n_policies as u64);
        let cluster = cluster(&mut numbers, n_policies, 0);
        let program = compile(&cluster);
        assert!(!program.policy_indexes.is_empty());
        check(&program, &cluster, &mut numbers);
    }
}

#[test]
fn a_long_row_is_decided_by_the_first_rule_that_matches() {
    let mut numbers = Numbers(7);
    let cluster = cluster(&mut numbers, 20, 25 * 100);
    let program = compile(&cluster);
    assert!(program.tables[0].subjects.words > LONG_ROW);
    check(&program, &cluster, &mut numbers);
}
