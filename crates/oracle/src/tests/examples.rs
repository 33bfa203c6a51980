//! The worked examples of section 5: NetworkPolicies, tiers, fail-closed rules.

use super::{anp, check, cnp, np, world};
use serde_json::{Value, json};

const ANP: &str = "AdminNetworkPolicy";

#[track_caller]
pub(crate) fn example(number: u32, policies: &[Value], lines: &str) {
    let mut all = world();
    all.extend_from_slice(policies);
    check(&format!("E{number}"), &all, &[], lines);
}

pub(crate) fn blue() -> Value {
    json!({"namespaces": {"matchLabels": {"team": "blue"}}})
}

pub(crate) fn every() -> Value {
    json!({"namespaces": {}})
}

#[test]
fn network_policies() {
    let closed = np("x/np", json!({"ingress": []}));
    example(
        1,
        &[],
        "y/c x/a tcp/8080 : Allow ; egress Allow Default ; ingress Allow Default",
    );
    example(
        2,
        &[closed.clone()],
        "y/c x/a tcp/80 : Deny ; ingress Deny Isolation netpol/x/np",
    );
    let open = np("x/np2", json!({"ingress": [{}]}));
    let line = "203.0.113.7 x/a tcp/80 : Allow ; egress NotApplicable External ; ingress Allow NetworkPolicyRule netpol/x/np2#ingress[0]";
    example(3, &[closed, open], line);
    example(
        4,
        &[np("x/np", json!({"egress": []}))],
        "x/a y/c tcp/80 : Allow ; egress Allow Default
        y/c x/a tcp/80 : Deny ; ingress Deny Isolation netpol/x/np",
    );
    let from_y = json!([{"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "y"}}}]}]);
    let p = np(
        "x/np",
        json!({"policyTypes": ["Egress"], "ingress": from_y, "egress": [{}]}),
    );
    example(5, &[p], "z/d x/a tcp/80 : Allow ; ingress Allow Default");
    example(
        6,
        &[np(
            "x/np",
            json!({"ingress": [{"from": [{"podSelector": {}}]}]}),
        )],
        "x/b x/a tcp/80 : Allow
        y/c x/a tcp/80 : Deny",
    );
    let (n, p) = (
        json!({"matchLabels": {"team": "blue"}}),
        json!({"matchLabels": {"app": "client"}}),
    );
    for from in [
        json!([{"namespaceSelector": n, "podSelector": p}]),
        json!([{"namespaceSelector": n}, {"podSelector": p}]),
    ] {
        example(
            7,
            &[np("x/np", json!({"ingress": [{"from": from}]}))],
            "z/d x/a tcp/80 : Deny\ny/c x/a tcp/80 : Allow",
        );
    }
    let ports = |ports: Value| [np("x/np", json!({"ingress": [{"ports": ports}]}))];
    example(
        8,
        &ports(json!([{}])),
        "y/c x/a tcp/8080 : Allow\ny/c x/a udp/53 : Deny",
    );
    example(
        9,
        &ports(json!([{"port": "http"}])),
        "y/c x/a tcp/8080 : Allow\ny/c x/b tcp/9090 : Allow\ny/c x/b tcp/8080 : Deny",
    );
    example(
        10,
        &ports(json!([{"port": "dns"}])),
        "y/c x/a udp/53 : Deny ; ingress Deny Isolation netpol/x/np",
    );
    let first = np(
        "x/np",
        json!({"ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]}]}),
    );
    // Over IPv4, the family of the block.
    example(
        11,
        std::slice::from_ref(&first),
        "10.0.0.3 x/a tcp/80 : Deny\ny/c x/a tcp/80 : Deny",
    );
    let second = np(
        "x/np2",
        json!({"ingress": [{"from": [{"namespaceSelector": {}}]}]}),
    );
    example(11, &[first, second], "y/c x/a tcp/80 : Allow");
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "y"},
        "spec": {"clusterIP": "10.96.0.9", "selector": {"app": "client"}, "ports": [{"port": 80}]}});
    let p = np(
        "x/np",
        json!({"policyTypes": ["Egress"], "egress": [{"to": [{"ipBlock": {"cidr": "10.96.0.0/12"}}]}]}),
    );
    example(
        12,
        &[service, p],
        "x/a 10.96.0.9 tcp/80 : Deny ; egress Deny Isolation netpol/x/np\nx/a y/svc/s tcp/80 : Deny",
    );
    example(
        41,
        &ports(json!([{"port": 8000, "endPort": 8080}])),
        "y/c x/a tcp/8080 : Allow\ny/c x/a tcp/8081 : Deny",
    );
    example(
        46,
        &ports(json!([{"protocol": "SCTP", "port": 81}])),
        "y/c x/a tcp/81 : Deny ; ingress Deny Isolation netpol/x/np",
    );
    let p = np(
        "x/np",
        json!({"ingress": [{"from": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}]}),
    );
    example(
        42,
        &[p],
        "203.0.113.7 x/a tcp/80 via node/n2 : Deny\n203.0.113.7 x/a tcp/80 via node/n1 : Allow",
    );
    let p = np(
        "x/np",
        json!({"policyTypes": ["Ingress", "Egress"], "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}], "egress": []}),
    );
    example(
        44,
        &[p],
        "y/c x/a tcp/80 : Allow\nx/a y/c tcp/80 : Deny ; egress Deny Isolation netpol/x/np",
    );
}

#[test]
fn tiers() {
    let closed = np("x/np", json!({"ingress": []}));
    let p = cnp(
        "a10",
        "A10",
        json!({"egress": [{"action": "Deny", "to": [blue()]}]}),
    );
    example(
        13,
        &[p, np("y/np", json!({"ingress": [{}]}))],
        "x/a y/c tcp/80 : Deny ; egress Deny AdminRule cnp/a10#egress[0] ; ingress Allow NetworkPolicyRule netpol/y/np#ingress[0]",
    );
    let p = cnp(
        "a10",
        "A10",
        json!({"ingress": [{"action": "Accept", "from": [blue()]}]}),
    );
    let out = np("y/np", json!({"policyTypes": ["Egress"], "egress": []}));
    example(
        14,
        &[p.clone(), closed.clone(), out],
        "y/c x/a tcp/80 : Deny ; egress Deny Isolation netpol/y/np ; ingress Allow AdminRule cnp/a10#ingress[0]",
    );
    example(14, &[p, closed.clone()], "y/c x/a tcp/80 : Allow");
    let pass = cnp(
        "a10",
        "A10",
        json!({"ingress": [{"action": "Pass", "from": [blue()]}]}),
    );
    let p = cnp(
        "a20",
        "A20",
        json!({"ingress": [{"action": "Deny", "from": [every()]}]}),
    );
    example(
        15,
        &[pass.clone(), p],
        "y/c x/a tcp/80 : Allow ; ingress Allow Default\nz/d x/a tcp/80 : Deny ; ingress Deny AdminRule cnp/a20#ingress[0]",
    );
    let red = np(
        "x/np",
        json!({"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "red"}}}]}]}),
    );
    let b1 = cnp(
        "b1",
        "B1",
        json!({"ingress": [{"action": "Accept", "from": [every()]}]}),
    );
    example(
        16,
        &[pass, red, b1],
        "y/c x/a tcp/80 : Deny ; ingress Deny Isolation netpol/x/np",
    );
    let p = np("x/np", json!({"policyTypes": ["Ingress"], "ingress": [{}]}));
    let b1 = cnp(
        "b1",
        "B1",
        json!({"egress": [{"action": "Deny", "to": [every()]}]}),
    );
    example(
        17,
        &[p, b1],
        "x/a y/c tcp/80 : Deny ; egress Deny BaselineRule cnp/b1#egress[0]",
    );
    let b1 = cnp(
        "b1",
        "B1",
        json!({"ingress": [{"action": "Pass", "from": [blue()]}]}),
    );
    let b2 = cnp(
        "b2",
        "B2",
        json!({"ingress": [{"action": "Deny", "from": [every()]}]}),
    );
    example(
        18,
        &[b1, b2],
        "y/c x/a tcp/80 : Allow ; ingress Allow Default",
    );
    let bbb = cnp(
        "bbb",
        "A10",
        json!({"ingress": [{"action": "Accept", "from": [blue()]}]}),
    );
    let aaa = cnp(
        "aaa",
        "A10",
        json!({"ingress": [{"action": "Deny", "from": [blue()]}]}),
    );
    example(
        19,
        &[bbb, aaa],
        "y/c x/a tcp/80 : Deny ; ingress Deny AdminRule cnp/aaa#ingress[0]",
    );
    let p = cnp(
        "a10",
        "A10",
        json!({"ingress": [{"action": "Accept", "from": [blue()], "protocols": [{"tcp": {"destinationPort": {"number": 8080}}}]}, {"action": "Deny", "from": [blue()]}]}),
    );
    example(
        20,
        &[p],
        "y/c x/a tcp/8080 : Allow ; ingress Allow AdminRule cnp/a10#ingress[0]\ny/c x/a tcp/9000 : Deny ; ingress Deny AdminRule cnp/a10#ingress[1]",
    );
    let p = cnp(
        "a10",
        "A10",
        json!({"ingress": [{"action": "Deny", "from": [every()], "protocols": [{"tcp": {"destinationPort": {"range": {"start": 1, "end": 65535}}}}]}]}),
    );
    example(
        21,
        &[p],
        "y/c x/a icmp : Allow\ny/c x/a icmpv6 : Allow\ny/c x/a tcp/9 : Deny",
    );
    let p = cnp(
        "a10",
        "A10",
        json!({"ingress": [{"action": "Deny", "from": [every()]}]}),
    );
    example(21, &[p], "y/c x/a icmp : Deny");
    let p = cnp(
        "a10",
        "A10",
        json!({"egress": [{"action": "Deny", "to": [{"networks": ["0.0.0.0/0"]}]}]}),
    );
    example(
        22,
        &[p],
        "x/a 10.0.0.3 tcp/80 : Deny\nx/a fd00::3 tcp/80 : Allow\nx/a y/c tcp/80 : Mixed ; egress Mixed ; ingress Allow Default",
    );
    let p = cnp(
        "a10",
        "A10",
        json!({"egress": [{"action": "Deny", "to": [{"nodes": {"matchLabels": {"role": "control-plane"}}}], "protocols": [{"tcp": {"destinationPort": {"number": 6443}}}]}]}),
    );
    example(
        23,
        &[p],
        "x/a 192.0.2.2 tcp/6443 : Deny ; ingress NotApplicable Node\nx/a 192.0.2.2 tcp/10250 : Allow\nx/a node/n2 tcp/6443 : Deny",
    );
    let p = cnp(
        "a10",
        "A10",
        json!({"subject": {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "y"}}}, "egress": [{"action": "Deny", "to": [{"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "x"}}}]}]}),
    );
    example(
        24,
        &[p],
        "y/c x/h tcp/80 : Allow ; ingress NotApplicable HostNetwork\ny/c 192.0.2.1 tcp/80 : Allow ; ingress NotApplicable Node\ny/c x/a tcp/80 : Deny",
    );
    let p = cnp(
        "a0",
        "A0",
        json!({"ingress": [{"action": "Deny", "from": [{"all": {}}]}]}),
    );
    example(25, &[p, closed], "node/n1 x/a tcp/80 : Allow ; ingress Exempt NodeLocal\nx/h x/a tcp/80 : Allow ; egress NotApplicable HostNetwork
        node/n2 x/a tcp/80 : Deny ; ingress Deny AdminRule cnp/a0#ingress[0]\n192.0.2.1 x/a tcp/80 : Deny");
    let p = cnp(
        "a0",
        "A0",
        json!({"ingress": [{"action": "Deny", "from": [{"all": {}}]}], "egress": [{"action": "Deny", "to": [{"all": {}}]}]}),
    );
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "x"},
        "spec": {"clusterIP": "10.96.0.9", "selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}});
    example(26, &[p, service], "x/a 10.0.0.1 tcp/80 : Allow ; egress Exempt SelfAddress\nx/a x/svc/s tcp/80 : Deny ; egress Deny AdminRule cnp/a0#egress[0]
        x/a x/a tcp/80 via x/svc/s : Deny\nx/a 127.0.0.1 tcp/80 : Allow ; ingress Exempt SelfAddress");
    let p = cnp(
        "a0",
        "A0",
        json!({"ingress": [{"action": "Deny", "from": [blue()]}]}),
    );
    let allow = np(
        "x/np",
        json!({"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}]}),
    );
    example(
        45,
        &[p, allow],
        "y/c x/a tcp/80 : Deny ; ingress Deny AdminRule cnp/a0#ingress[0]",
    );
}

#[test]
fn fail_closed() {
    for (action, verdict) in [("Accept", "Allow"), ("Deny", "Deny"), ("Pass", "Deny")] {
        let p = cnp(
            "a10",
            "A10",
            json!({"ingress": [{"action": action, "from": [{}], "protocols": [{"tcp": {"destinationPort": {"number": 80}}}]}]}),
        );
        example(27, &[p], &format!("203.0.113.7 x/a udp/53 : {verdict}"));
    }
    let p = cnp(
        "a10",
        "A10",
        json!({"ingress": [{"action": "Accept", "from": [blue(), {}]}]}),
    );
    let q = cnp(
        "a20",
        "A20",
        json!({"ingress": [{"action": "Deny", "from": [every()]}]}),
    );
    example(
        28,
        &[p, q.clone()],
        "y/c x/a tcp/80 : Deny ; ingress Deny AdminRule cnp/a20#ingress[0]",
    );
    let p = cnp(
        "a10",
        "A10",
        json!({"subject": {"namespaces": {}}, "egress": [{"action": "Deny", "to": [{"networks": ["0.0.0.0/0"]}], "protocols": [{"destinationNamedPort": "http"}]}]}),
    );
    example(
        29,
        &[p],
        "y/c 10.0.0.1 tcp/8080 : Deny\ny/c 203.0.113.7 tcp/8080 : Allow",
    );
    let p = cnp(
        "a10",
        "A10",
        json!({"egress": [{"action": "Deny", "to": [{"domainNames": ["ads.example.com"]}]}]}),
    );
    example(
        30,
        &[p],
        "x/a y/c tcp/80 : Deny\nx/a 203.0.113.7 udp/9 : Deny",
    );
    let x = json!({"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": "x"}}});
    let written = anp(
        ANP,
        "p",
        json!({"priority": 10, "subject": x, "ingress": [{"action": "Allow", "from": [{"namespaces": {"namespaceSelector": {"matchLabels": {"team": "blue"}}}}]}]}),
    );
    let pruned = anp(
        ANP,
        "p",
        json!({"priority": 10, "subject": x, "ingress": [{"action": "Allow", "from": [every()]}]}),
    );
    example(
        31,
        &[written, q.clone()],
        "z/d x/a tcp/80 : Deny\ny/c x/a tcp/80 : Allow",
    );
    example(31, &[pruned, q], "z/d x/a tcp/80 : Allow");
    let p = anp(
        ANP,
        "p",
        json!({"priority": 10, "subject": x, "ingress": [{"action": "allow", "from": [every()]}]}),
    );
    example(
        47,
        &[p],
        "y/c x/a tcp/80 : Deny ; ingress Deny AdminRule anp/p#ingress[0]\n203.0.113.7 x/a tcp/80 : Allow",
    );
}
