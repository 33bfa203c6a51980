//! Decisions that the worked examples do not reach (section 3.12 and parts of sections 2 and 3).

use super::{anp, check, cluster, cnp, node, np, pod, world};
use serde_json::{Value, json};

const ANP: &str = "AdminNetworkPolicy";
const OLD: &str = "networking.k8s.io/v1alpha1";

#[track_caller]
fn with(name: &str, more: &[Value], lines: &str) {
    let mut all = world();
    all.extend_from_slice(more);
    check(name, &all, &[], lines);
}

fn in_rule(rule: Value) -> Value {
    cnp("p", "A10", json!({"ingress": [rule]}))
}

#[test]
fn defects_of_cluster_network_policies() {
    let every = json!([{"namespaces": {}}]);
    let rules = [
        (
            "D17 two fields",
            json!({"from": [{"namespaces": {}, "all": {}}]}),
        ),
        ("D17 no from", json!({})),
        ("D17 empty from", json!({"from": []})),
        ("D17 unknown key", json!({"from": every, "note": 1})),
        ("D117 protocols []", json!({"from": every, "protocols": []})),
        (
            "D17 named port ''",
            json!({"from": every, "protocols": [{"destinationNamedPort": ""}]}),
        ),
        (
            "D29 port 0",
            json!({"from": every, "protocols": [{"tcp": {"destinationPort": {"number": 0}}}]}),
        ),
        (
            "D17 range",
            json!({"from": every, "protocols": [{"tcp": {"destinationPort": {"range": {"start": 9, "end": 8}}}}]}),
        ),
        (
            "D122 null label",
            json!({"from": [{"namespaces": {"matchLabels": {"a": null}}}]}),
        ),
        (
            "D117 no podSelector",
            json!({"from": [{"pods": {"namespaceSelector": {}}}]}),
        ),
        ("D57 inner key", json!({"from": [{"all": {"x": 1}}]})),
        (
            "D38 struct in CNP",
            json!({"from": [{"namespaces": {"namespaceSelector": {}}}]}),
        ),
        ("D123 type", json!({"from": {"namespaces": {}}})),
    ];
    for (name, rule) in rules {
        for (action, verdict) in [
            ("Accept", "Allow"),
            ("Deny", "Deny"),
            ("Pass", "Deny"),
            ("Log", "Deny"),
        ] {
            let mut rule = rule.clone();
            rule["action"] = json!(action);
            // Deny-all also denies traffic that no peer can match.
            with(
                name,
                &[in_rule(rule)],
                &format!("203.0.113.7 x/a udp/53 : {verdict}"),
            );
        }
    }
    with(
        "D50",
        &[in_rule(
            json!({"action": "Deny", "from": every, "protocols": [{"tcp": {}}]}),
        )],
        "y/c x/a tcp/9 : Deny\ny/c x/a udp/9 : Allow",
    );
    let one = json!([{"tcp": {"destinationPort": {"range": {"start": 8, "end": 8}}}}]);
    with(
        "D118",
        &[in_rule(
            json!({"action": "Deny", "from": every, "protocols": one}),
        )],
        "y/c x/a tcp/8 : Deny\ny/c x/a tcp/9 : Allow",
    );
    with(
        "D112",
        &[in_rule(json!({"from": every}))],
        "y/c x/a tcp/8 : Deny\n203.0.113.7 x/a tcp/9 : Allow",
    );
    let p = |spec: Value| {
        vec![cluster(
            "policy.networking.k8s.io/v1alpha2",
            "ClusterNetworkPolicy",
            "p",
            spec,
        )]
    };
    let x = json!({"namespaces": {}});
    let deny = json!([{"action": "Deny", "from": every}]);
    with(
        "D19",
        &p(json!({"tier": "Other", "priority": 5, "subject": x, "ingress": deny})),
        "203.0.113.7 x/a tcp/9 : Deny ; ingress Deny AdminRule cnp/p#ingress[0]",
    );
    with(
        "D116",
        &p(json!({"tier": "Baseline", "subject": x, "ingress": deny})),
        "203.0.113.7 x/a tcp/9 : Deny ; ingress Deny BaselineRule cnp/p#ingress[0]",
    );
    with(
        "D20",
        &p(
            json!({"tier": "Admin", "priority": 5, "subject": {"namespaces": {}, "extra": 1}, "ingress": deny}),
        ),
        "y/c x/a tcp/9 : Allow",
    );
    with(
        "D111",
        &p(json!({"tier": "Admin", "priority": 5, "subject": x, "extra": 1, "ingress": deny})),
        "y/c x/a tcp/9 : Deny",
    );
    with(
        "D123",
        &p(json!({"tier": "Admin", "priority": 5, "subject": x, "ingress": {"action": "Deny"}})),
        "y/c x/a tcp/9 : Allow",
    );
    let order = [
        cnp(
            "a",
            "A10",
            json!({"ingress": [{"action": "Accept", "from": every}]}),
        ),
        cnp("b", "A-1", json!({"ingress": deny})),
    ];
    with("D116 order", &order, "y/c x/a tcp/9 : Deny");
}

#[test]
fn dialects() {
    let p = |rules: Value| {
        [anp(
            ANP,
            "p",
            json!({"priority": 1, "subject": {"namespaces": {}}, "ingress": rules}),
        )]
    };
    let mixed = json!([{"action": "Pass", "from": [{"namespaces": {"namespaceSelector": {}}}]}, {"action": "Deny", "from": [{"namespaces": {}}]}]);
    with(
        "D120",
        &p(mixed),
        "203.0.113.7 x/a tcp/9 : Deny ; ingress Deny AdminRule anp/p#ingress[0]",
    );
    let own = json!([{"action": "Deny", "from": [{"namespaces": {"related": "self"}}]}]);
    with(
        "D104",
        &p(own),
        "x/b x/a tcp/9 : Deny\ny/c x/a tcp/9 : Allow",
    );
    let nothing = json!([{"action": "Deny", "from": [{"namespaces": {"sameLabels": []}}, {"namespaces": {"notSameLabels": []}}]}]);
    with(
        "D46",
        &p(nothing),
        "x/b x/a tcp/9 : Allow\nz/d x/a tcp/9 : Allow",
    );
    let flat = json!([{"action": "Deny", "from": [{"pods": {"podSelector": {}}}]}]);
    with("D117", &p(flat), "203.0.113.7 x/a tcp/9 : Deny");
    let ports =
        |ports: Value| json!([{"action": "Deny", "from": [{"namespaces": {}}], "ports": ports}]);
    with("D39", &p(ports(json!([]))), "y/c x/a icmp : Deny");
    with(
        "D40",
        &p(ports(json!([{"portNumber": {"protocol": "", "port": 9}}]))),
        "y/c x/a tcp/9 : Deny\ny/c x/a udp/9 : Allow",
    );
    with(
        "D41",
        &p(ports(json!([{"namedPort": "dns"}]))),
        "y/c x/a udp/53 : Deny\ny/c x/a tcp/53 : Allow",
    );
    let egress = anp(
        ANP,
        "p",
        json!({"priority": 1, "subject": {"namespaces": {}}, "egress": [
        {"action": "Deny", "to": [{"networks": ["192.0.2.0/24"]}, {"namespaces": {"sameLabels": ["team"]}}]}]}),
    );
    with("D120 networks", &[egress], "x/a 203.0.113.7 tcp/9 : Deny");
    let banp = anp(
        "BaselineAdminNetworkPolicy",
        "other",
        json!({"subject": {"namespaces": {}}, "ingress": [{"action": "Pass", "from": [{"namespaces": {}}]}]}),
    );
    with(
        "D112 BANP Pass",
        &[banp],
        "y/c x/a tcp/9 : Deny ; ingress Deny BaselineRule banp/other#ingress[0]",
    );
}

#[test]
fn allow_only_forms() {
    let p = |rule: Value| [np("x/p", json!({"ingress": [rule]}))];
    let block = |cidr: &str| json!({"from": [{"ipBlock": {"cidr": cidr}}]});
    with(
        "D124",
        &p(block("010.0.0.0/8")),
        "10.0.0.3 x/a tcp/9 : Allow",
    );
    with(
        "D124 length",
        &p(block("10.0.0.0/08")),
        "10.0.0.3 x/a tcp/9 : Deny",
    );
    with(
        "D124 mapped",
        &p(block("::ffff:10.0.0.0/104")),
        "10.0.0.3 x/a tcp/9 : Deny",
    );
    with(
        "D27 host bits",
        &p(block("10.9.9.9/8")),
        "10.0.0.3 x/a tcp/9 : Allow",
    );
    with(
        "D109",
        &p(json!({"ports": [{"port": 0}, {"port": 9}]})),
        "y/c x/a tcp/9 : Allow\ny/c x/a tcp/8 : Deny",
    );
    with(
        "D32",
        &p(json!({"ports": [{"port": "9"}]})),
        "y/c x/a tcp/9 : Deny",
    );
    with(
        "D21",
        &p(json!({"from": [{"podSelector": {}, "x": 1}, {"namespaceSelector": {}}]})),
        "x/b x/a tcp/9 : Allow\n203.0.113.7 x/a tcp/9 : Deny",
    );
    with("D21 rule", &p(json!({"x": 1})), "y/c x/a tcp/9 : Deny");
    with(
        "D110",
        &[np(
            "x/p",
            json!({"podSelector": {"app": "web"}, "ingress": []}),
        )],
        "y/c x/a tcp/9 : Allow",
    );
    with(
        "D105",
        &[np(
            "x/p",
            json!({"policyTypes": ["Ingress", "x"], "ingress": [{}], "egress": [{}]}),
        )],
        "y/c x/a tcp/9 : Allow\nx/a y/c tcp/9 : Deny",
    );
    let applied = json!({"namespaceSelector": {}});
    let dnp = |spec: Value| [cluster(OLD, "DefaultNetworkPolicy", "d", spec)];
    with(
        "D63",
        &dnp(json!({"appliedTo": applied, "egress": []})),
        "203.0.113.7 x/a tcp/9 : Allow\nx/a 203.0.113.7 tcp/9 : Deny",
    );
    with(
        "D63 neither",
        &dnp(json!({"appliedTo": applied})),
        "203.0.113.7 x/a tcp/9 : Deny\nx/a 203.0.113.7 tcp/9 : Deny",
    );
    with(
        "D64",
        &dnp(json!({"appliedTo": {"podSelector": {}}})),
        "203.0.113.7 x/a tcp/9 : Allow",
    );
    let cnp0 = |rule: Value| {
        [cluster(
            OLD,
            "ClusterNetworkPolicy",
            "c",
            json!({"appliedTo": applied, "ingress": [rule]}),
        )]
    };
    with(
        "D65",
        &cnp0(json!({"action": "Deny", "from": [{"namespaces": {}}]})),
        "203.0.113.7 x/a tcp/9 : Deny",
    );
    with(
        "D66",
        &cnp0(json!({"action": "Deny", "ports": [{"port": 9}]})),
        "203.0.113.7 x/a tcp/9 : Deny\ny/c x/a tcp/8 : Allow",
    );
    with(
        "D114",
        &cnp0(json!({"action": "Drop", "from": [{"namespaces": {"self": true}}]})),
        "x/b x/a tcp/9 : Deny\ny/c x/a tcp/9 : Allow",
    );
    with(
        "D121",
        &cnp0(json!({"action": "Deny", "ports": [{"port": "80"}]})),
        "y/c x/a tcp/9 : Deny",
    );
}

#[test]
fn addresses() {
    let mut none = pod("x/none", "web", "n1", 1, json!([]));
    none["status"] = json!({"phase": "Running"});
    let p = np(
        "x/p",
        json!({"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}),
    );
    with(
        "D136",
        &[none.clone(), p],
        "x/none x/b tcp/9 : Unknown ; egress Allow Default ; ingress Unknown\ny/c x/none tcp/9 : Unknown",
    );
    let both = np(
        "x/p",
        json!({"ingress": [{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}, {"from": [{"ipBlock": {"cidr": "::/0"}}]}]}),
    );
    with(
        "D136 rule",
        &[none, both],
        "x/none x/b tcp/9 : Allow ; ingress Allow NetworkPolicyRule netpol/x/p",
    );
    let mut old = pod("y/old", "old", "n1", 9, json!([]));
    old["metadata"]["creationTimestamp"] = json!("2024-01-01T00:00:00Z");
    let mut new = pod("z/new", "new", "n1", 9, json!([]));
    new["metadata"]["creationTimestamp"] = json!("2024-01-02T00:00:00Z");
    let p = np(
        "x/p",
        json!({"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}]}),
    );
    with(
        "D82",
        &[old.clone(), new.clone(), p.clone()],
        "10.0.0.9 x/a tcp/9 : Deny\ny/old x/a tcp/9 : Allow",
    );
    new["status"]["phase"] = json!("Pending");
    with("D82 phase", &[old, new, p], "10.0.0.9 x/a tcp/9 : Allow");
    let p = cnp(
        "p",
        "A1",
        json!({"subject": {"namespaces": {}}, "egress": [{"action": "Deny", "to": [{"nodes": {}}]}]}),
    );
    let same = [node("n3", &["10.0.0.1"], json!({})), p.clone()];
    with(
        "D107",
        &same,
        "y/c x/a tcp/9 : Allow\ny/c 10.0.0.1 tcp/9 : Allow\ny/c 192.0.2.2 tcp/9 : Deny",
    );
    let mut host = pod("u/host", "host", "n2", 0, json!([]));
    host["spec"]["hostNetwork"] = json!(true);
    host["status"]["podIPs"] = json!([{"ip": "192.0.2.77"}]);
    with(
        "D108",
        &[host, p],
        "y/c u/host tcp/9 : Deny ; ingress NotApplicable HostNetwork\ny/c 192.0.2.77 tcp/9 : Deny ; ingress NotApplicable Node",
    );
    with(
        "D131",
        &[],
        "y/c 10.0.0.1 icmpv6 : error\ny/c x/a ip/6 : error\ny/c x/a ip/58 : Allow\ny/c x/a ip/47 : Allow",
    );
    with(
        "D139",
        &[],
        "203.0.113.7 127.0.0.1 tcp/9 : error\n127.0.0.1 x/a tcp/9 : error\nnode/n1 ::1 tcp/9 : Allow ; ingress NotApplicable Node",
    );
    with(
        "D24 mapped",
        &[],
        "::ffff:10.0.0.3 x/a tcp/9 : Allow ; egress Allow Default",
    );
}

#[test]
fn services_and_workloads() {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "x"},
        "spec": {"type": "NodePort", "clusterIP": "10.96.0.9", "selector": {"app": "web"}, "externalTrafficPolicy": "Local",
            "ports": [{"name": "w", "port": 80, "targetPort": "http", "nodePort": 30080}]}});
    let p = np(
        "x/p",
        json!({"ingress": [{"from": [{"ipBlock": {"cidr": "203.0.113.0/24"}}], "ports": [{"port": 8080}]}]}),
    );
    let both = [service.clone(), p];
    with("D129", &both, "203.0.113.7 x/svc/s tcp/80 : Allow\n203.0.113.7 x/svc/s tcp/w : Allow\n203.0.113.7 x/svc/s tcp/8080 : error
        203.0.113.7 x/svc/s icmp : error\n203.0.113.7 x/svc/s tcp/30080 via node/n1 : Allow\n203.0.113.7 x/svc/s tcp/30080 via node/n2 : error
        x/svc/s x/a tcp/80 : error\nnode/n1 x/svc/s tcp/80 : Allow ; ingress Exempt NodeLocal");
    // The backend x/a runs on n1. A pod dials the Service; the outside enters at the node.
    with("D141", &both, "203.0.113.7 192.0.2.1 tcp/30080 : Allow\n203.0.113.7 192.0.2.2 tcp/30080 : error
        203.0.113.7 192.0.2.1 tcp/80 : Allow ; ingress NotApplicable Node\ny/c 192.0.2.2 tcp/30080 : Deny
        203.0.113.7 192.0.2.1 tcp/30080 via node/n1 : Allow\n203.0.113.7 192.0.2.1 tcp/30080 via node/n2 : error");
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "s-1", "namespace": "x", "labels": {"kubernetes.io/service-name": "s"}},
        "endpoints": [{"addresses": ["203.0.113.30"]}, {"addresses": ["10.0.0.2"], "conditions": {"ready": false}}],
        "ports": [{"name": "w", "port": 81}]});
    with(
        "slices",
        &[service, slice],
        "x/a x/svc/s tcp/80 : Allow ; ingress NotApplicable External",
    );
    let template = json!({"metadata": {"labels": {"app": "job"}}, "spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 7}]}]}});
    let deploy = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "y"},
        "spec": {"selector": {"matchLabels": {"app": "job"}}, "template": template}});
    let p = np(
        "y/p",
        json!({"ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": "http"}]}]}),
    );
    with(
        "templates",
        &[deploy, p],
        "x/a y/deploy/d tcp/7 : Allow\nx/a y/deploy/d tcp/8 : Deny\nx/a y/deploy/d tcp/http : Allow\ny/deploy/d y/deploy/d tcp/8 : Deny",
    );
    let sets = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "w", "namespace": "x"},
        "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, "template": template}});
    let p = np(
        "x/p",
        json!({"podSelector": {"matchLabels": {"app": "db"}}, "ingress": []}),
    );
    with(
        "workloads",
        &[sets, p],
        "y/c x/sts/w tcp/9 : Mixed ; egress Allow Default ; ingress Mixed\nx/sts/w x/a tcp/9 : Allow",
    );
}
