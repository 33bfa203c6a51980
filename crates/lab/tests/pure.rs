//! Decisions before the lab is built: nodes and addresses of pods, the matrix of flow queries, and
//! the paths of packets.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "common/cluster.rs"]
mod cluster;

use std::net::IpAddr;

use cluster::with;
use palisade_core::answer::{FlowEvaluator, FlowVerdict};
use palisade_core::compile::compile;
use palisade_core::query::{Endpoint, FlowQuery, PortQuery};
use palisade_lab::complete::{CompletedCluster, OmissionReason};
use palisade_lab::lab::ProbeOutcome;
use palisade_lab::probe_plan::{ProbeKind, ProbePlanner, Unprobeable};
use palisade_lab::questions;
use palisade_lab::topology::Location;
use palisade_lab::trial::Trial;

fn pod(name: &str, more: &str, address: &str) -> String {
    let status = if address.is_empty() {
        "phase: Running".to_owned()
    } else {
        format!("phase: Running, podIPs: [{{ip: \"{address}\"}}]")
    };
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: x, labels: {{app: {name}}}}}\n\
         spec: {{{more}containers: [{{name: c, image: i, ports: [{{containerPort: 80}}]}}]}}\n\
         status: {{{status}}}\n---\n"
    )
}

fn names(furnished: &CompletedCluster<'_>) -> Vec<String> {
    let pods = furnished.pods.iter();
    pods.map(|id| furnished.cluster.pod_name(*id)).collect()
}

#[test]
fn addresses_and_nodes_of_the_objects_stay() {
    let yaml = pod("a", "nodeName: n1, ", "10.0.0.1") + &pod("b", "nodeName: n2, ", "10.0.0.2");
    with(&yaml, &["203.0.113.9"], |furnished| {
        assert_eq!(names(furnished), ["x/a", "x/b"]);
        let topology = &furnished.topology;
        assert_eq!(topology.nodes.len(), 2);
        assert_eq!(
            topology.pods[0].addresses,
            ["10.0.0.1".parse::<IpAddr>().unwrap()]
        );
        assert_eq!((topology.pods[0].node, topology.pods[1].node), (0, 1));
        assert_eq!(topology.outside, ["203.0.113.9".parse::<IpAddr>().unwrap()]);
        topology.check().unwrap();
    });
}

#[test]
fn pods_without_node_go_to_nodes_of_the_lab() {
    let yaml = pod("a", "nodeName: n1, ", "10.0.0.1")
        + &pod("b", "", "10.0.0.2")
        + &pod("c", "", "10.0.0.3");
    with(&yaml, &[], |furnished| {
        let nodes: Vec<&str> = furnished.cluster.nodes.iter().map(|it| it.name).collect();
        assert_eq!(nodes, ["lab-1", "lab-2", "n1"]);
        let of: Vec<usize> = furnished.topology.pods.iter().map(|it| it.node).collect();
        assert_eq!(of, [2, 0, 1]);
    });
}

#[test]
fn addresses_are_of_the_families_that_are_in_use() {
    let yaml = pod("a", "nodeName: n1, ", "fd00::1") + &pod("b", "nodeName: n1, ", "");
    with(&yaml, &[], |furnished| {
        let addresses = &furnished.topology.pods[1].addresses;
        assert_eq!(addresses.len(), 1, "{addresses:?}");
        assert!(addresses[0].is_ipv6());
    });
    with(&pod("b", "nodeName: n1, ", ""), &[], |furnished| {
        assert_eq!(furnished.topology.pods[0].addresses.len(), 2);
        furnished.topology.check().unwrap();
    });
}

#[test]
fn workloads_get_two_pods_at_most() {
    let deployment = |name: &str, replicas: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: x}}\n\
             spec: {{{replicas}selector: {{matchLabels: {{app: {name}}}}}, template: {{metadata: {{labels: {{app: {name}}}}}, \
             spec: {{containers: [{{name: c, image: i}}]}}}}}}\n---\n"
        )
    };
    let yaml = deployment("one", "")
        + &deployment("none", "replicas: 0, ")
        + &deployment("many", "replicas: 5, ");
    with(&yaml, &[], |furnished| {
        let mut made = names(furnished);
        made.sort();
        assert_eq!(made, ["x/many-0", "x/many-1", "x/one-0"]);
        let many = furnished
            .cluster
            .workloads
            .iter()
            .find(|it| it.name == "many");
        assert_eq!(many.unwrap().pods.len(), 2);
    });
}

#[test]
fn a_pod_whose_address_another_has_is_left_out() {
    let yaml = pod("a", "nodeName: n1, ", "10.0.0.1") + &pod("b", "nodeName: n1, ", "10.0.0.1");
    with(&yaml, &[], |furnished| {
        assert_eq!(names(furnished), ["x/a"]);
        let (left_out, why) = furnished.left_out[0];
        assert_eq!(furnished.cluster.pod_name(left_out), "x/b");
        assert_eq!(why, OmissionReason::AddressTaken);
    });
}

#[test]
fn the_matrix_has_declared_and_undeclared_ports_and_echoes() {
    let yaml = pod("a", "nodeName: n1, ", "10.0.0.1") + &pod("b", "nodeName: n1, ", "10.0.0.2");
    with(&yaml, &[], |furnished| {
        let queries = questions::matrix(furnished);
        let to_b = queries.iter().filter(|it| {
            it.source == Endpoint::Pod("x".into(), "a".into())
                && it.destination == Endpoint::Pod("x".into(), "b".into())
        });
        let ports: Vec<String> = to_b.map(|it| format!("{:?}", it.port)).collect();
        assert_eq!(
            ports,
            [
                "Number(Tcp, 80)",
                "Number(Tcp, 7777)",
                "Number(Udp, 5353)",
                "Icmp"
            ]
        );
    });
}

const SERVICE: &str = "\
    apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n\
    status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n---\n\
    apiVersion: v1\nkind: Service\nmetadata: {name: s, namespace: x}\n\
    spec: {clusterIP: 10.96.0.1, selector: {app: b}, ports: [{port: 8080, targetPort: 80}]}\n---\n";

fn trial(
    furnished: &CompletedCluster<'_>,
    realiser: &mut ProbePlanner<'_, '_>,
    question: &str,
) -> Trial {
    let program = compile(&furnished.cluster);
    let respondent = FlowEvaluator::new(&furnished.cluster, &program);
    let question = FlowQuery::parse(question).unwrap();
    assert_ne!(question.port, PortQuery::Any);
    Trial::new(&respondent, furnished, realiser, &question).unwrap()
}

#[test]
fn a_service_is_dialled_at_its_address() {
    let yaml =
        pod("a", "nodeName: n1, ", "10.0.0.1") + &pod("b", "nodeName: n2, ", "10.0.0.2") + SERVICE;
    with(&yaml, &["203.0.113.9"], |furnished| {
        let mut realiser = ProbePlanner::new(furnished);
        let trial_of = trial(furnished, &mut realiser, "x/a x/svc/s tcp/8080");
        let Ok(ProbeKind::Packet(attempt)) = trial_of.means[0] else {
            panic!("{:?}", trial_of.means);
        };
        assert_eq!(attempt.destination, "10.96.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(
            (attempt.from, attempt.to),
            (Location::Pod(0), Location::Pod(1))
        );
        assert_eq!(format!("{:?}", attempt.carried), "Port(Tcp, 8080)");
        // From outside there is a port of the node where the backend is, and no masquerading.
        let trial_of = trial(furnished, &mut realiser, "203.0.113.9 x/svc/s tcp/8080");
        let Ok(ProbeKind::Packet(attempt)) = trial_of.means[0] else {
            panic!("{:?}", trial_of.means);
        };
        assert_eq!(attempt.from, Location::Outside);
        let entry = &realiser.entries.of_nodes[&1][0];
        assert_eq!(entry.address, attempt.destination);
        assert!(!entry.masquerade);
        // Through another node, the backend sees that node.
        let trial_of = trial(
            furnished,
            &mut realiser,
            "203.0.113.9 x/svc/s tcp/8080 via node/n1",
        );
        assert!(trial_of.means[0].is_ok());
        assert!(realiser.entries.of_nodes[&0][0].masquerade);
    });
}

#[test]
fn verdicts_that_packets_cannot_show_are_reported() {
    let yaml = pod("a", "nodeName: n1, ", "10.0.0.1") + &pod("b", "nodeName: n1, ", "10.0.0.2");
    with(&yaml, &["203.0.113.9", "203.0.113.8"], |furnished| {
        let mut realiser = ProbePlanner::new(furnished);
        let mut means = |question: &str| trial(furnished, &mut realiser, question).means[0].clone();
        assert_eq!(
            means("203.0.113.8 203.0.113.9 tcp/1"),
            Err(Unprobeable::Outside)
        );
        assert_eq!(
            means("x/a 224.0.0.1 udp/1"),
            Err(Unprobeable::Unroutable("224.0.0.1".parse().unwrap()))
        );
        assert_eq!(means("x/a x/b ip/44"), Err(Unprobeable::Unplaced));
        assert_eq!(means("x/a x/a tcp/1"), Ok(ProbeKind::Inside(0)));
        assert_eq!(means("x/a 127.0.0.1 tcp/1"), Ok(ProbeKind::Inside(0)));
    });
}

#[test]
fn a_flow_that_cannot_be_shown_leaves_the_verdict_open() {
    let yaml = pod("a", "nodeName: n1, ", "10.0.0.1");
    with(&yaml, &[], |furnished| {
        let mut realiser = ProbePlanner::new(furnished);
        let trial = trial(furnished, &mut realiser, "x/a 224.0.0.1 udp/1");
        let verdicts = trial.compare(std::iter::empty());
        assert_eq!(verdicts.predicted, FlowVerdict::Allow);
        assert!(verdicts.measured.is_err());
        assert!(!verdicts.differs);
    });
}

/// One of two backends cannot be built: half of the flows cannot be measured.
#[test]
fn a_backend_that_cannot_be_shown_leaves_the_verdict_open() {
    let node = "nodeName: n1, ";
    let other = pod("other", node, "169.254.1.1").replace("app: other", "app: b");
    let yaml = pod("a", node, "10.0.0.1") + &pod("b", node, "10.0.0.2") + &other + SERVICE;
    with(&yaml, &[], |furnished| {
        let mut realiser = ProbePlanner::new(furnished);
        let trial = trial(furnished, &mut realiser, "x/a x/svc/s tcp/8080");
        assert_eq!(trial.shown().count(), 1, "{:?}", trial.means);
        assert_eq!(trial.means.len(), 2);
        let verdicts = trial.compare(std::iter::once(ProbeOutcome::Arrived));
        assert_eq!(verdicts.predicted, FlowVerdict::Allow);
        assert!(verdicts.measured.is_err(), "{verdicts:?}");
    });
}

/// b is closed, and a is not.
#[test]
fn a_packet_against_its_prediction_is_a_difference() {
    let policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n\
        metadata: {name: closed, namespace: x}\nspec: {podSelector: {matchLabels: {app: b}}}\n";
    let node = "nodeName: n1, ";
    let yaml = pod("a", node, "10.0.0.1") + &pod("b", node, "10.0.0.2") + policy;
    with(&yaml, &[], |furnished| {
        let mut realiser = ProbePlanner::new(furnished);
        let mut differs = |question: &str, seen: ProbeOutcome| {
            let trial = trial(furnished, &mut realiser, question);
            let verdicts = trial.compare(std::iter::once(seen));
            let arrived = if seen == ProbeOutcome::Arrived {
                FlowVerdict::Allow
            } else {
                FlowVerdict::Deny
            };
            assert_eq!(verdicts.measured, Ok(arrived), "{question}");
            verdicts.differs
        };
        assert!(differs("x/a x/b tcp/80", ProbeOutcome::Arrived));
        assert!(!differs("x/a x/b tcp/80", ProbeOutcome::Absent));
        assert!(differs("x/b x/a tcp/80", ProbeOutcome::Absent));
        assert!(differs("x/b x/a tcp/80", ProbeOutcome::Unanswered));
        assert!(!differs("x/b x/a tcp/80", ProbeOutcome::Arrived));
    });
}
