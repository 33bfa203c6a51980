//! The worked examples of section 5: early forms, and the rest.

use super::examples::{blue, every, example};
use super::{anp, check, cluster, cnp, np, world};
use serde_json::{Value, json};

const ANP: &str = "AdminNetworkPolicy";
const OLD: &str = "networking.k8s.io/v1alpha1";

#[test]
fn early_forms() {
    let tenant =
        json!({"namespaces": {"matchExpressions": [{"key": "tenant", "operator": "Exists"}]}});
    let p = anp(
        ANP,
        "p",
        json!({"priority": 20, "subject": tenant, "ingress": [
        {"action": "Pass", "from": [{"namespaces": {"sameLabels": ["tenant"]}}]},
        {"action": "Deny", "from": [{"namespaces": {"namespaceSelector": {}}}]}]}),
    );
    example(
        32,
        &[p],
        "y/c x/a tcp/80 : Allow ; ingress Allow Default\nz/d x/a tcp/80 : Deny ; ingress Deny AdminRule anp/p#ingress[1]\nu/e x/a tcp/80 : Deny",
    );
    let p = anp(
        ANP,
        "p",
        json!({"priority": 50, "subject": tenant, "ingress": [{"action": "Deny", "from": [{"namespaces": {"notSameLabels": ["tenant"]}}]}]}),
    );
    example(
        33,
        &[p],
        "z/d x/a tcp/80 : Deny\ny/c x/a tcp/80 : Allow\nu/e x/a tcp/80 : Allow",
    );
    let p = anp(
        ANP,
        "p",
        json!({"priority": 50, "subject": {"namespaces": {}}, "ingress": [{"action": "Deny", "from": [{"pods": {"namespaces": {"related": "NotSelf"}, "podSelector": {}}}]}]}),
    );
    example(
        34,
        &[p],
        "y/c x/a tcp/80 : Deny ; ingress Deny AdminRule anp/p#ingress[0]\nx/b x/a tcp/80 : Allow",
    );
}

#[test]
fn source_2() {
    let named = |n: &str| json!({"matchLabels": {"kubernetes.io/metadata.name": n}});
    let apps = |apps: &[&str]| json!({"namespaceSelector": named("x"), "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": apps}]}});
    let pods: Vec<Value> = ["a", "b", "c", "d"]
        .iter()
        .zip(1u8..)
        .map(|(n, i)| super::pod(&format!("x/{n}"), n, "n1", i, json!([])))
        .chain([super::pod("y/client", "k", "n1", 9, json!([]))])
        .collect();
    let from = |n: &str| json!([{"namespaces": {"selector": named(n)}}]);
    let np_from = |app: &str, n: &str| {
        np(
            &format!("x/{app}"),
            json!({"podSelector": {"matchLabels": {"app": app}}, "ingress": [{"from": [{"namespaceSelector": named(n)}]}]}),
        )
    };
    let mut all = pods;
    all.extend([
        cluster(OLD, "ClusterNetworkPolicy", "deny", json!({"appliedTo": apps(&["a"]), "ingress": [{"action": "Deny", "from": from("y")}]})),
        cluster(OLD, "ClusterNetworkPolicy", "allow", json!({"appliedTo": apps(&["a", "b"]), "ingress": [{"action": "Allow", "from": from("y")}]})),
        np_from("b", "z"),
        np_from("c", "y"),
        cluster(OLD, "DefaultNetworkPolicy", "dnp", json!({"appliedTo": apps(&["c", "d"]), "ingress": [{"onlyFrom": from("z")}]})),
    ]);
    check(
        "E35",
        &all,
        &[],
        "y/client x/a tcp/80 : Deny ; ingress Deny AdminRule cnp0/deny#ingress[0]
        y/client x/b tcp/80 : Allow ; ingress Allow AdminRule cnp0/allow#ingress[0]
        y/client x/c tcp/80 : Allow ; ingress Allow NetworkPolicyRule netpol/x/c#ingress[0]
        y/client x/d tcp/80 : Deny ; ingress Deny DefaultIsolation dnp/dnp",
    );
    let applied = json!({"namespaceSelector": {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["t"]}]}});
    let all = [
        super::pod("dmz/gw", "gw", "n1", 1, json!([])),
        super::pod("t/p", "p", "n1", 2, json!([])),
        super::pod("t/q", "q", "n1", 3, json!([])),
        cluster(
            OLD,
            "ClusterNetworkPolicy",
            "gateway",
            json!({"appliedTo": applied, "ingress": [{"action": "Deny", "from": [{"namespaces": {"selector": {}, "except": [named("dmz")]}}]}]}),
        ),
        cluster(
            OLD,
            "DefaultNetworkPolicy",
            "own",
            json!({"appliedTo": applied, "ingress": [{"onlyFrom": [{"namespaces": {"self": true}}]}]}),
        ),
    ];
    check(
        "E36",
        &all,
        &[],
        "dmz/gw t/p tcp/80 : Deny ; ingress Deny DefaultIsolation dnp/own
        t/q t/p tcp/80 : Deny ; ingress Deny AdminRule cnp0/gateway#ingress[0]
        203.0.113.7 t/p tcp/80 : Deny ; ingress Deny DefaultIsolation dnp/own",
    );
}

#[test]
fn source_1() {
    for (word, lines) in [
        (
            "true",
            "s/front s/back tcp/6379 : Allow ; ingress Allow NetworkPolicyRule np0/s/p#ingress[0]
            s/front s/back tcp/80 : Deny ; ingress Deny Isolation np0/s/(isolation),np0/s/p
            s/front s/other tcp/6379 : Deny ; ingress Deny Isolation np0/s/(isolation)",
        ),
        (
            "false",
            "s/front s/back tcp/80 : Allow ; ingress Allow Default",
        ),
    ] {
        let all = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "s", "annotations": {"net.beta.kubernetes.io/network-isolation": word}}}),
            super::pod("s/front", "front", "n1", 1, json!([])),
            super::pod("s/back", "back", "n1", 2, json!([])),
            super::pod("s/other", "other", "n1", 3, json!([])),
            json!({"apiVersion": "v1beta", "kind": "NetworkPolicy", "metadata": {"name": "p", "namespace": "s"},
                "spec": {"podSelector": {"app": "back"}, "ingress": [{"from": [{"pods": {"app": "front"}}], "ports": [{"protocol": "TCP", "port": 6379}]}]}}),
        ];
        check("E37/E38", &all, &[], lines);
    }
}

#[test]
fn others() {
    let base = cnp(
        "b1000",
        "B1000",
        json!({"ingress": [{"action": "Deny", "from": [{"all": {}}]}]}),
    );
    example(
        39,
        std::slice::from_ref(&base),
        "203.0.113.7 x/a tcp/80 : Deny ; ingress Deny BaselineRule cnp/b1000#ingress[0]\ny/c x/a tcp/80 : Deny",
    );
    let p = np(
        "x/np",
        json!({"ingress": [{"from": [{"ipBlock": {"cidr": "203.0.113.0/24"}}]}]}),
    );
    example(
        39,
        &[base, p],
        "203.0.113.7 x/a tcp/80 : Allow\ny/c x/a tcp/80 : Deny ; ingress Deny Isolation netpol/x/np",
    );
    let mut job = super::pod("y/job", "job", "n1", 9, json!([]));
    job["status"]["phase"] = json!("Succeeded");
    let k = super::pod("z/k", "k", "n1", 9, json!([]));
    let p = np(
        "x/np",
        json!({"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "blue"}}}]}]}),
    );
    example(
        40,
        &[job, k, p],
        "z/k x/a tcp/80 : Deny\n10.0.0.9 x/a tcp/80 : Deny\ny/job x/a tcp/80 : error",
    );
    let b5 = cnp(
        "b5",
        "B5",
        json!({"ingress": [{"action": "Accept", "from": [blue()]}]}),
    );
    let banp = anp(
        "BaselineAdminNetworkPolicy",
        "default",
        json!({"subject": {"namespaces": {}}, "ingress": [{"action": "Deny", "from": [every()]}]}),
    );
    example(
        48,
        &[b5, banp],
        "y/c x/a tcp/80 : Allow\nz/d x/a tcp/80 : Deny ; ingress Deny BaselineRule banp/default#ingress[0]",
    );
    let p = cnp(
        "a10",
        "A10",
        json!({"ingress": [{"action": "Accept", "from": [{"pods": {"podSelector": {"matchLabels": {"app": "client"}}}}]}]}),
    );
    example(
        49,
        &[p, np("x/np", json!({"ingress": []}))],
        "z/d x/a tcp/80 : Allow",
    );
    let mut all = world();
    all.push(cnp("a10", "A10", json!({"egress": [{"action": "Accept", "to": [{"domainNames": ["*.example.com"]}], "protocols": [{"tcp": {"destinationPort": {"number": 443}}}]}]})));
    all.push(cnp(
        "a20",
        "A20",
        json!({"egress": [{"action": "Deny", "to": [{"networks": ["0.0.0.0/0", "::/0"]}]}]}),
    ));
    check(
        "E50",
        &all,
        &[("a.b.example.com", "198.51.100.4")],
        "x/a 198.51.100.4 tcp/443 : Allow ; egress Allow AdminRule cnp/a10#egress[0]",
    );
    check(
        "E50",
        &all,
        &[("example.com", "198.51.100.4")],
        "x/a 198.51.100.4 tcp/443 : Deny ; egress Deny AdminRule cnp/a20#egress[0]",
    );
}
