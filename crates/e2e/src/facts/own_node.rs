//! The conformance tests of egress to nodes (T4 and T17 of the specification), where the client and
//! the host-network server share a node (D75).

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::seen::{Carrier, Case, NODE, compare, node};
use super::{Findings, Place};
use crate::cluster::pods::{Pod, object};
use crate::cluster::{E2eCluster, until};

/// The ports of the host-network pods: of TCP, UDP and SCTP.
const PORTS: [u16; 8] = [
    36_360, 36_361, 36_362, 36_363, 36_364, 36_365, 36_366, 36_367,
];
/// The namespaces of the two pods.
const HOUSE: &str = "gryffindor";
const FOREST: &str = "forbidden-forrest";
/// How explain calls the server.
const CENTAUR: &str = "forbidden-forrest/centaur-1";

/// The policies of the two tests.
fn admin() -> Value {
    let [h0, _, h2, ..] = PORTS;
    json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "node-peers"},
        "spec": {
            "tier": "Admin",
            "priority": 75,
            "subject": {"pods": {
                "namespaceSelector": {"matchLabels": {"conformance-house": HOUSE}},
                "podSelector": {},
            }},
            "egress": [
                {
                    "name": "some-port",
                    "action": "Accept",
                    "to": [{"nodes": {"matchLabels": {"kubernetes.io/os": "linux"}}}],
                    "protocols": [{"tcp": {"destinationPort": {"number": h0}}}],
                },
                {
                    "name": "passed-on",
                    "action": "Pass",
                    "to": [{"nodes": {}}],
                    "protocols": [{"udp": {"destinationPort": {"number": h2}}}],
                },
                {
                    "name": "all-else",
                    "action": "Deny",
                    "to": [
                        {"pods": {
                            "namespaceSelector": {"matchLabels": {"conformance-house": "slytherin"}},
                            "podSelector": {},
                        }},
                        {"nodes": {}},
                        {"networks": ["0.0.0.0/0", "::/0"]},
                    ],
                },
            ],
        },
    })
}

fn baseline() -> Value {
    let [h0, h1, ..] = PORTS;
    json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "node-peers"},
        "spec": {
            "tier": "Baseline",
            "priority": 10,
            "subject": {"namespaces": {"matchLabels": {"conformance-house": HOUSE}}},
            "egress": [
                {
                    "name": "some-ports",
                    "action": "Accept",
                    "to": [{"nodes": {"matchLabels": {"kubernetes.io/os": "linux"}}}],
                    "protocols": [{"tcp": {"destinationPort": {"range": {"start": h0, "end": h1}}}}],
                },
                {
                    "name": "all-else",
                    "action": "Deny",
                    "to": [{"nodes": {}}, {"networks": ["0.0.0.0/0", "::/0"]}],
                },
            ],
        },
    })
}

/// Both tests.
pub fn own_node(whole: &E2eCluster, place: &Place, findings: &mut Findings) -> Result<()> {
    for namespace in [HOUSE, FOREST] {
        whole.apply(&json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": namespace, "labels": {"conformance-house": namespace}},
        }))?;
    }
    let mut centaur = object(FOREST, "centaur-1", "centaur", 1);
    if let Some(spec) = centaur.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("hostNetwork".to_owned(), json!(true));
        let ports = PORTS.map(|it| json!({"containerPort": it, "hostPort": it}));
        if let Some(container) = spec.get_mut("containers").and_then(|it| it.get_mut(0))
            && let Some(container) = container.as_object_mut()
        {
            container.insert("ports".to_owned(), json!(ports));
        }
    }
    let harry = object(HOUSE, "harry-potter-0", "harry-potter", 1);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [harry, centaur]});
    until("pods were made", || whole.apply(&list).map(|()| true))?;
    let words = [
        "-n",
        FOREST,
        "wait",
        "--for=condition=Ready",
        "pod/centaur-1",
    ];
    whole.kubectl(&[&words[..], &["--timeout=120s"]].concat())?;
    let all = 1 + super::bridged::APPS.len();
    let pods = whole.running(all)?;
    let harry = pods.iter().find(|it| it.namespace == HOUSE);
    let harry = harry.context("there is no client")?;
    let _echoes = Echoes::start(&node(whole))?;

    let [h0, h1, h2, _, h4, _, h6, _] = PORTS;
    let case = |carrier, port, is_allowed| Case {
        from: harry,
        called: CENTAUR,
        to: SocketAddr::new(NODE, port),
        carrier,
        is_allowed,
    };
    use Carrier::{Sctp, Tcp, Udp};
    let everything = [
        case(Tcp, h0, true),
        case(Tcp, h1, true),
        case(Udp, h2, true),
        case(Udp, h4, true),
        case(Sctp, h6, true),
    ];
    let when = |what: &str| format!("{}: {what}", place.name);
    compare(whole, findings, &when("no policy"), &everything)?;
    whole.apply(&admin())?;
    let cases = [
        case(Tcp, h0, true),
        case(Udp, h2, true),
        case(Tcp, h1, false),
        case(Udp, h4, false),
        case(Sctp, h6, false),
    ];
    compare(whole, findings, &when("T4, one node"), &cases)?;
    whole.delete(&admin())?;
    compare(whole, findings, &when("T4 is over"), &everything)?;
    whole.apply(&baseline())?;
    let cases = [
        case(Tcp, h0, true),
        case(Tcp, h1, true),
        case(Udp, h4, false),
        case(Sctp, h6, false),
    ];
    compare(whole, findings, &when("T17, one node"), &cases)?;
    whole.delete(&baseline())?;
    whole.delete(&list)
}

/// A process of the node that answers at the ports of UDP.
#[derive(Debug)]
struct Echoes(Arc<AtomicBool>);

impl Echoes {
    fn start(node: &Pod) -> Result<Echoes> {
        let echoes = Echoes(Arc::default());
        let [_, _, h2, _, h4, ..] = PORTS;
        for port in [h2, h4] {
            let socket = node.inside(|| Ok(UdpSocket::bind((NODE, port))?))?;
            socket.set_read_timeout(Some(Duration::from_millis(200)))?;
            let is_over = Arc::clone(&echoes.0);
            thread::spawn(move || {
                let mut buffer = [0; 64];
                while !is_over.load(Ordering::Acquire) {
                    if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                        let _ = socket.send_to(buffer.get(..length).unwrap_or_default(), from);
                    }
                }
            });
        }
        Ok(echoes)
    }
}

impl Drop for Echoes {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
