//! A pod that reaches itself through its Service, and other ways through a Service on one node
//! (D77, D78, D80).

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use palisade_testbed::Plugin;
use serde_json::{Value, json};

use super::bridged::APPS;
use super::seen::{Carrier, Case, NODE, compare, node, on_node};
use super::{Findings, Place};
use crate::cluster::campaign::of;
use crate::cluster::pods::Pod;
use crate::cluster::{E2eCluster, until};

/// Addresses of Services: of the pod `web`, and of a socket on the node.
const WEB: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 80)), 80);
const HOST: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 90)), 80);
/// The port of the pod, and that on the node.
const PORT: u16 = 8080;
const HOST_PORT: u16 = 9090;

/// Records source, destination and port of packets to a Service's backend in the forward hook.
const OBSERVER: &str = "add table inet facts; delete table inet facts; add table inet facts; \
    add set inet facts seen { type ipv4_addr . ipv4_addr . inet_service; size 1024; flags dynamic; }; \
    add chain inet facts forward { type filter hook forward priority filter - 20; }; \
    add rule inet facts forward ct direction original ct status dnat tcp dport 8080 add @seen { ip saddr . ip daddr . tcp dport }";

/// The Services.
fn services() -> Value {
    let service = |name: &str, address: SocketAddr, port: u16, selector: Value| {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": "x", "name": name},
            "spec": {
                "clusterIP": address.ip(),
                "selector": selector,
                "ports": [{"port": address.port(), "targetPort": port}],
            },
        })
    };
    json!({"apiVersion": "v1", "kind": "List", "items": [
        service("web", WEB, PORT, json!({"app": "web"})),
        service("host", HOST, HOST_PORT, Value::Null),
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"namespace": "x", "name": "host", "labels": {"kubernetes.io/service-name": "host"}},
            "addressType": "IPv4",
            "ports": [{"port": HOST_PORT}],
            "endpoints": [{"addresses": [NODE], "conditions": {"ready": true}}],
        },
    ]})
}

/// A policy about `web`, or about `client`.
fn policy(app: &str, ingress: &Value, egress: &Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": "x", "name": "hairpin"},
        "spec": {
            "podSelector": {"matchLabels": {"app": app}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    })
}

/// A peer by its app.
fn peer(app: &str) -> Value {
    json!([{"podSelector": {"matchLabels": {"app": app}}}])
}

/// Everything about Services on one node.
pub fn hairpin(whole: &E2eCluster, place: &Place, findings: &mut Findings) -> Result<()> {
    let pods = whole.start_pods(&["x"], &APPS, 1)?;
    let [web, client] = ["web", "client"].map(|app| of(&pods, "x", app));
    let (web, client) = (web?, client?);
    whole.apply(&services())?;
    let listener = web.inside(|| Ok(TcpListener::bind(("0.0.0.0", PORT))?))?;
    let host = node(whole).inside(|| Ok(TcpListener::bind((NODE, HOST_PORT))?))?;
    until("kube-proxy translates", || {
        node(whole).inside(|| Ok(open(WEB) && open(HOST)))
    })?;
    sources(whole, place, findings, (web, client), &listener)?;

    if place.plugin == Plugin::Bridge {
        without_hairpin_mode(whole, place, findings, web)?;
    }

    let when = |what: &str| format!("{}: {what}", place.name);
    for (what, ingress, egress, allowed) in [
        ("web is isolated", json!([]), json!([]), false),
        (
            "web admits itself and sends to itself",
            json!([{"from": peer("web")}]),
            json!([{"to": peer("web")}]),
            true,
        ),
        (
            "web sends to itself and admits no pod",
            json!([]),
            json!([{"to": peer("web")}]),
            false,
        ),
        (
            "web admits itself and sends to no pod",
            json!([{"from": peer("web")}]),
            json!([]),
            false,
        ),
    ] {
        let policy = policy("web", &ingress, &egress);
        whole.apply(&policy)?;
        // The node reaches its own pods by their Service, too (D74).
        let node = node(whole);
        let cases = [
            to_web(web, allowed),
            to_web(client, false),
            to_web(&node, true),
        ];
        compare(whole, findings, &when(what), &cases)?;
        whole.delete(&policy)?;
    }

    let block = json!([{"to": [{"ipBlock": {"cidr": format!("{NODE}/32")}}]}]);
    for (what, egress, allowed) in [
        ("client sends to no pod", json!([]), false),
        ("client sends to the node", block, true),
    ] {
        let policy = policy("client", &json!([]), &egress);
        whole.apply(&policy)?;
        let through = Case {
            from: client,
            called: "172.30.0.101",
            to: SocketAddr::new(NODE, HOST_PORT),
            carrier: Carrier::Tcp,
            is_allowed: allowed,
        };
        compare(whole, findings, &when(what), &[through])?;
        let is_open = client.inside(|| Ok(open(HOST)))?;
        findings.expect(
            is_open == allowed,
            when(&format!(
                "{what}: through a Service whose endpoint is its own node: packets {}",
                if is_open { "Allow" } else { "Deny" }
            )),
        );
        whole.delete(&policy)?;
    }
    drop((listener, host));
    Ok(())
}

fn to_web(from: &Pod, is_allowed: bool) -> Case<'_> {
    Case {
        from,
        called: "x/svc/web",
        to: WEB,
        carrier: Carrier::Tcp,
        is_allowed,
    }
}

fn open(to: SocketAddr) -> bool {
    std::net::TcpStream::connect_timeout(&to, Duration::from_millis(700)).is_ok()
}

/// The source address: in the forward hook, and at the server.
fn sources(
    whole: &E2eCluster,
    place: &Place,
    findings: &mut Findings,
    (web, client): (&Pod, &Pod),
    listener: &TcpListener,
) -> Result<()> {
    for (from, what) in [(web, "a pod to itself"), (client, "another pod")] {
        while accepted(listener)?.is_some() {}
        on_node(whole, &format!("nft '{OBSERVER}'"))?;
        let is_open = from.inside(|| Ok(open(WEB)))?;
        let seen = on_node(whole, "nft list set inet facts seen")?;
        let elements = seen
            .split_once("elements = {")
            .and_then(|(_, rest)| rest.split_once('}'))
            .map_or("nothing", |(it, _)| it.trim())
            .to_owned();
        let by_server = match accepted(listener)? {
            Some(address) => address.ip().to_string(),
            None => "none".to_owned(),
        };
        let when = &place.name;
        let words = format!(
            "{when}: {what} ({}) through its Service, without policies: connected {is_open}; forward sees {elements}; the server sees {by_server}",
            from.address
        );
        let wanted = format!("{} . {} . {PORT}", from.address, web.address);
        // Only that of the source is decided: before it is translated (D77).
        findings.expect(elements == wanted, words);
    }
    on_node(whole, "nft delete table inet facts").map(drop)
}

/// The same if ports of the bridge do not send frames back to their origin (hairpin mode off), the
/// default of some plugins.
fn without_hairpin_mode(
    whole: &E2eCluster,
    place: &Place,
    findings: &mut Findings,
    web: &Pod,
) -> Result<()> {
    let set = |mode: &str| {
        let ports = "ip -o link show master cni0 | cut -d: -f2 | cut -d@ -f1";
        let script = format!(
            "for it in $({ports}); do bridge link set dev $it hairpin {mode} || exit 1; done"
        );
        on_node(whole, &script)
    };
    set("off")?;
    let is_open = web.inside(|| Ok(open(WEB)));
    set("on")?;
    findings.record(format!(
        "{}: a pod to itself through its Service, without policies, hairpin mode of the bridge's ports off: connected {}",
        place.name, is_open?
    ));
    Ok(())
}

/// The address of the newest connection of the last moment, if there is one.
fn accepted(listener: &TcpListener) -> Result<Option<SocketAddr>> {
    listener.set_nonblocking(true)?;
    let end = Instant::now() + Duration::from_millis(100);
    while Instant::now() < end {
        match listener.accept() {
            Ok((_, from)) => return Ok(Some(from)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error).context("cannot accept"),
        }
    }
    Ok(None)
}
