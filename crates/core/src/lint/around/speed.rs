//! How long all of it takes in a large cluster. Not a test: nothing is asserted of the time.
//!
//! ```text
//! cargo test --release -p palisade-core --lib around::speed -- --ignored --nocapture
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking, and this one is read by people"
)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::time::Instant;

use super::*;
use crate::compile::compile;
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{
    Backend, BackendParty, ContainerPort, Effect, Life, Namespace, NamespaceId, NamespaceSet, Node,
    Origin, Peer, Place, Pod, PodId, PodSet, Policy, PortMatch, Rule, Rules, Service, ServicePort,
};
use crate::net::{CidrText, PortRange, Protocol};
use crate::policy::{Action, Generation, Tier};

const NAMESPACES: u32 = 1_000;
const WORKLOADS: u32 = 20;
const REPLICAS: u32 = 5;

fn text(text: String) -> &'static str {
    text.leak()
}

fn is(key: &'static str, value: &'static str) -> Selector<&'static str> {
    Selector {
        requirements: vec![Requirement {
            key,
            operator: Operator::In,
            values: vec![value],
        }],
    }
}

fn everywhere() -> NamespaceSet<'static> {
    let selector = Selector {
        requirements: Vec::new(),
    };
    NamespaceSet::Selected {
        selector,
        except: Vec::new(),
    }
}

fn rule(
    action: Action,
    peers: Vec<Peer<'static>>,
    ports: Vec<PortMatch<'static>>,
) -> Rule<'static> {
    Rule {
        name: None,
        written_action: None,
        effect: Some(Effect {
            action,
            peers: Some(peers),
            ports: (!ports.is_empty()).then_some(ports),
        }),
        failed_closed: false,
    }
}

fn block(text: &str) -> Peer<'static> {
    Peer::Block {
        cidr: CidrText::parse(text).unwrap().cidr,
        except: Vec::new(),
    }
}

fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

fn pods() -> Vec<Pod<'static>> {
    let mut pods = Vec::new();
    for namespace in 0..NAMESPACES {
        for workload in 0..WORKLOADS {
            let app = text(format!("app-{workload}"));
            let tier = text(format!("tier-{}", workload % 3));
            let labels = [("app", app), ("k8s-app", "kube-dns"), ("tier", tier)];
            // The first namespace is the cluster's own, and its first workload the DNS.
            let labels = match (namespace, workload) {
                (0, 0) => labels.to_vec(),
                _ => vec![("app", app), ("tier", tier)],
            };
            let declared = [
                (Some("dns"), 53, Protocol::Udp),
                (Some("http"), 8080, Protocol::Tcp),
            ];
            let ports = declared.map(|(name, number, protocol)| ContainerPort {
                name,
                port: port(number),
                protocol,
            });
            let first = Pod {
                namespace: NamespaceId(namespace),
                name: "",
                template: None,
                labels: labels.into(),
                ports: ports.into(),
                addresses: Vec::new(),
                node: None,
                host_network: false,
                life: Life::Running,
                ready: true,
                created: None,
                origin: Origin(0),
            };
            for replica in 0..REPLICAS {
                let number = (namespace * WORKLOADS + workload) * REPLICAS + replica;
                let v4 = Ipv4Addr::from_bits(0x0a00_0000 + number);
                let v6 = Ipv6Addr::from_bits((0xfd00 << 112) + u128::from(number));
                pods.push(Pod {
                    name: text(format!("{app}-{replica}")),
                    addresses: vec![IpAddr::V4(v4), IpAddr::V6(v6)],
                    ..first.clone()
                });
            }
        }
    }
    pods
}

fn policy(generation: Generation, place: Place, subject: PodSet<'static>) -> Policy<'static> {
    Policy {
        generation,
        api_version: "",
        namespace: None,
        name: "",
        place,
        subject: Some(subject),
        ingress: Rules::default(),
        egress: Rules::default(),
        audited: false,
        origin: Origin(0),
    }
}

fn policies() -> Vec<Policy<'static>> {
    let mut policies = Vec::new();
    for number in 0..100 {
        let place = Place::Ordered(Tier::Admin, number);
        let subject = PodSet {
            namespaces: everywhere(),
            pods: None,
        };
        let mut it = policy(Generation::Cluster, place, subject);
        it.name = text(format!("admin-{number}"));
        let to = Peer::Pods(PodSet {
            namespaces: everywhere(),
            pods: Some(is("app", text(format!("app-{}", number % 40)))),
        });
        let block = block(&format!("198.51.{number}.0/24"));
        it.egress.list = vec![rule(Action::Deny, vec![to, block], Vec::new())];
        policies.push(it);
    }
    let mut namespaced = Vec::new();
    for namespace in 0..NAMESPACES {
        for workload in 0..WORKLOADS {
            let own = NamespaceSet::Exact(NamespaceId(namespace));
            let subject = PodSet {
                namespaces: own.clone(),
                pods: Some(is("app", text(format!("app-{workload}")))),
            };
            let mut it = policy(Generation::NetworkPolicy, Place::NetworkPolicy, subject);
            it.namespace = Some(NamespaceId(namespace));
            it.name = text(format!("policy-{workload}"));
            let team = Peer::Pods(PodSet {
                namespaces: NamespaceSet::Selected {
                    selector: is("team", text(format!("team-{}", namespace % 50))),
                    except: Vec::new(),
                },
                pods: None,
            });
            let app = text(format!("app-{}", workload + 1));
            let next = Peer::Pods(PodSet {
                namespaces: own,
                pods: Some(is("app", app)),
            });
            let clients = block(&format!("203.0.{}.0/24", namespace % 250));
            let http = PortMatch::Named(Some(Protocol::Tcp), "http");
            let number = PortMatch::Numbers(Protocol::Tcp, PortRange::single(port(5432)));
            it.ingress.isolates = true;
            it.ingress.list = vec![rule(
                Action::Accept,
                vec![team, next.clone(), clients],
                vec![http],
            )];
            it.egress.isolates = true;
            it.egress.list = vec![rule(Action::Accept, vec![next], vec![number])];
            namespaced.push(it);
        }
    }
    policies.extend(namespaced);
    policies
}

fn services() -> Vec<Service<'static>> {
    let service = |namespace: u32| {
        let first = namespace * WORKLOADS * REPLICAS;
        let backends = (first..first + REPLICAS).map(|pod| Backend {
            party: BackendParty::Pod(PodId(pod)),
            port: port(8080),
        });
        Service {
            namespace: NamespaceId(namespace),
            name: "web",
            cluster_addresses: Vec::new(),
            external_addresses: Vec::new(),
            is_external_name: false,
            is_headless: false,
            external_traffic_local: false,
            ports: vec![ServicePort {
                name: None,
                port: port(80),
                node_port: Some(port(30080)),
                protocol: Protocol::Tcp,
                backends: backends.collect(),
            }],
        }
    };
    (0..NAMESPACES).map(service).collect()
}

#[test]
#[ignore = "measures, for people to read"]
fn speed() {
    let namespaces = (0..NAMESPACES).map(|number| {
        let name = match number {
            0 => "kube-system",
            _ => text(format!("namespace-{number:04}")),
        };
        let team = text(format!("team-{}", number % 50));
        Namespace {
            name,
            labels: [("kubernetes.io/metadata.name", name), ("team", team)].into(),
            known: true,
        }
    });
    let nodes = (0..2_000).map(|number| Node {
        name: text(format!("node-{number:04}")),
        labels: [].into(),
        addresses: vec![IpAddr::V4(Ipv4Addr::from_bits(0xac10_0000 + number))],
        pod_cidrs: Vec::new(),
        known: true,
    });
    let cluster = Cluster {
        namespaces: namespaces.collect(),
        nodes: nodes.collect(),
        pods: pods(),
        policies: policies(),
        services: services(),
        ..Cluster::default()
    };
    let program = compile(&cluster);
    println!("{:?} classes, address atoms, port atoms", program.size());
    for _ in 0..3 {
        let ground = Ground::new(&cluster, &program);
        let mut n_findings = Vec::new();
        for (name, part) in [
            ("shape", shape::find as fn(&Ground<'_>) -> Vec<Finding>),
            ("names", names::find),
            ("typos", typos::find),
            ("addresses", addresses::find),
            ("lockout", lockout::find),
        ] {
            let start = Instant::now();
            let found = part(&ground).len();
            n_findings.push((name, found, start.elapsed()));
        }
        let start = Instant::now();
        let found = find(&cluster, &program).len();
        println!("{:?} for {found} findings: {n_findings:?}", start.elapsed());
    }
}
