//! A node with pods, and its objects.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result};
use palisade_api::Kind;
use palisade_core::net::Family;
use palisade_lab::network::LabNetwork;
use palisade_lab::services::translations;
use palisade_lab::topology::{Location, NodeSpec, PodSpec, Topology};
use palisade_nft::Kernel;
use serde_json::{Value, json};

/// The node's name.
pub(super) const NAME: &str = "n1";
/// The blocks of its pods.
pub(super) const BLOCKS: [&str; 2] = ["10.0.1.0/24", "fd00:1::/64"];

/// The pod that may connect to the server and to the outside, on one port.
pub(super) const CLIENT: Location = Location::Pod(0);
/// The server's pod.
pub(super) const SERVER: Location = Location::Pod(1);
/// The isolated pod.
pub(super) const ISOLATED: Location = Location::Pod(2);
/// The node itself.
pub(super) const NODE: Location = Location::Node(0);
/// The pods, with the values of their label `app`.
pub(super) const PODS: [(Location, &str); 3] = [
    (CLIENT, "client"),
    (SERVER, "server"),
    (ISOLATED, "isolated"),
];
/// The port of allowed flows.
pub(super) const PORT: u16 = 5_001;

/// The address of a location.
pub(super) fn address(place: Location, family: Family) -> IpAddr {
    match (place, family) {
        (Location::Pod(pod), Family::V4) => Ipv4Addr::new(10, 0, 1, pod as u8 + 1).into(),
        (Location::Pod(pod), Family::V6) => {
            Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, pod as u16 + 1).into()
        }
        (Location::Node(_), Family::V4) => Ipv4Addr::new(192, 0, 2, 1).into(),
        (Location::Node(_), Family::V6) => Ipv6Addr::new(0xfd00, 0xff, 0, 0, 0, 0, 0, 1).into(),
        (Location::Outside, Family::V4) => Ipv4Addr::new(203, 0, 113, 1).into(),
        (Location::Outside, Family::V6) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// Builds a node as after a restart, without tables and connections.
pub(super) fn build() -> Result<LabNetwork> {
    let both = |place| Family::BOTH.map(|family| address(place, family)).to_vec();
    let topology = Topology {
        nodes: vec![NodeSpec {
            addresses: both(NODE),
        }],
        pods: PODS
            .iter()
            .map(|(place, _)| PodSpec {
                node: 0,
                addresses: both(*place),
            })
            .collect(),
        outside: both(Location::Outside),
    };
    LabNetwork::build(&topology, &|_| {}).context("cannot build the namespaces")
}

/// Enables connection tracking on the node, as the address translation of Services does.
pub(super) fn track(network: &LabNetwork) -> Result<()> {
    let install = || Kernel::open()?.install_plain(&translations(&[]));
    Ok(network.in_node(0, install)??)
}

/// All objects of a kind.
pub(super) fn objects(kind: Kind) -> Vec<Value> {
    if kind == Kind::Namespace {
        vec![json!({"metadata": {"name": "x"}})]
    } else if kind == Kind::Node {
        let addresses =
            Family::BOTH.map(|it| json!({"type": "InternalIP", "address": address(NODE, it)}));
        vec![json!({
            "metadata": {"name": NAME},
            "spec": {"podCIDR": BLOCKS[0], "podCIDRs": BLOCKS},
            "status": {"addresses": addresses},
        })]
    } else if kind == Kind::Pod {
        PODS.iter().map(|(place, app)| pod(*place, app)).collect()
    } else if kind == Kind::NetworkPolicy {
        policies()
    } else {
        Vec::new()
    }
}

fn pod(place: Location, app: &str) -> Value {
    let addresses = Family::BOTH.map(|it| json!({"ip": address(place, it)}));
    json!({
        "metadata": {"name": app, "namespace": "x", "labels": {"app": app}},
        "spec": {"nodeName": NAME, "containers": [{"name": "main", "image": "main"}]},
        "status": {"phase": "Running", "podIPs": addresses},
    })
}

/// The server allows ingress from the client and from outside, the client egress to the server and
/// outside, all on one port. The third pod is isolated.
fn policies() -> Vec<Value> {
    let of = |app: &str| json!({"podSelector": {"matchLabels": {"app": app}}});
    let outside = Family::BOTH.map(|it| {
        let address = address(Location::Outside, it);
        let length = if address.is_ipv4() { 32 } else { 128 };
        json!({"ipBlock": {"cidr": format!("{address}/{length}")}})
    });
    let with = |peer: Value| {
        let mut peers = outside.to_vec();
        peers.push(peer);
        peers
    };
    let ports = json!([{"protocol": "UDP", "port": PORT}]);
    let specs = [
        (
            "server",
            json!({
                "policyTypes": ["Ingress"],
                "ingress": [{"from": with(of("client")), "ports": ports}],
            }),
        ),
        (
            "client",
            json!({
                "policyTypes": ["Egress"],
                "egress": [{"to": with(of("server")), "ports": ports}],
            }),
        ),
        ("isolated", json!({"policyTypes": ["Ingress", "Egress"]})),
    ];
    specs
        .into_iter()
        .map(|(app, mut spec)| {
            if let (Some(spec), Some(subject)) = (spec.as_object_mut(), of(app).as_object()) {
                spec.extend(subject.clone());
            }
            json!({"metadata": {"name": app, "namespace": "x"}, "spec": spec})
        })
        .collect()
}
