//! Policies of other vendors are beside every answer that they could change.

use serde_json::{Value, json};

use crate::server::Server;
use crate::{CLUSTER, document, run};

/// Three policies that are not evaluated, and one that is.
const OTHERS: &str = "---
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: a, namespace: shop}
spec: {endpointSelector: {}}
---
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: b, namespace: shop}
spec: {endpointSelector: {}}
---
apiVersion: crd.projectcalico.org/v1
kind: NetworkPolicy
metadata: {name: default.a, namespace: shop}
spec: {selector: all()}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a, namespace: shop}
spec: {podSelector: {}, ingress: [{}]}
";

const LINE: &str = "palisade: 3 policies of kinds that are not judged: 2 CiliumNetworkPolicy, \
                    1 NetworkPolicy of crd.projectcalico.org; the answer may differ where they are enforced\n";

fn expected() -> Value {
    json!([
        {"kind": "CiliumNetworkPolicy", "group": "cilium.io", "count": 2},
        {"kind": "NetworkPolicy", "group": "crd.projectcalico.org", "count": 1},
    ])
}

const COMMANDS: [&[&str]; 8] = [
    &["explain", "-f", "c.yaml", "shop/web", "shop/db", "tcp/80"],
    &["explain", "-f", "c.yaml", "shop/web", "shop/db"],
    &["affecting", "-f", "c.yaml", "shop/db"],
    &["affecting", "-f", "c.yaml", "netpol/shop/a"],
    &["connectivity", "-f", "c.yaml"],
    &["connectivity", "-f", "c.yaml", "--summary"],
    &["connectivity", "-f", "c.yaml", "--pairs"],
    &["diff", "c.yaml", "c.yaml"],
];

#[test]
fn every_command_that_evaluates_reports_them() {
    let cluster = format!("{CLUSTER}{OTHERS}");
    for args in COMMANDS.into_iter().chain([&["lint", "-f", "c.yaml"][..]]) {
        let ran = run(&cluster, args);
        assert!(ran.code < 2, "{args:?}: {}", ran.err);
        assert_eq!(ran.err, LINE, "{args:?}");
        let ran = run(&cluster, &[args, &["-q", "-o", "json"]].concat());
        assert_eq!(ran.err, "", "{args:?}");
        assert_eq!(document(&ran)["notJudged"], expected(), "{args:?}");
        assert_eq!(ran.out.matches("notJudged").count(), 1, "{args:?}");
        let ran = run(&cluster, &[args, &["-o", "yaml"]].concat());
        assert!(ran.out.contains("\nnotJudged:"), "{args:?}: {}", ran.out);
        let without = run(CLUSTER, &[args, &["-o", "json"]].concat());
        assert!(!without.out.contains("notJudged"), "{args:?}");
    }
    let ran = run(&cluster, &["compile", "-f", "c.yaml"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, LINE));
    // Reading alone takes no account of policies.
    let ran = run(&cluster, &["check", "-f", "c.yaml"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let one = OTHERS.split("---\n").nth(1).unwrap();
    let ran = run(&format!("{CLUSTER}---\n{one}"), COMMANDS[0]);
    let expected = "palisade: 1 policy of kinds that are not judged: 1 CiliumNetworkPolicy; \
                    the answer may differ where they are enforced\n";
    assert_eq!(ran.err, expected);
}

/// The resources of a group and version: kinds, and their plurals.
fn resources(group_version: &str, kinds: &[(&str, &str)]) -> Value {
    let resource = |(kind, plural): &(&str, &str)| json!({"name": plural, "kind": kind, "namespaced": true, "verbs": ["get", "list"]});
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": kinds.iter().map(resource).collect::<Vec<Value>>()})
}

fn group(name: &str, versions: &[&str]) -> Value {
    let version = |it: &&str| json!({"groupVersion": format!("{name}/{it}"), "version": it});
    json!({"name": name, "versions": versions.iter().map(version).collect::<Vec<Value>>()})
}

fn list(kind: &str, remaining: Option<usize>, n_items: usize) -> Value {
    let mut metadata = json!({"resourceVersion": "1"});
    if let Some(remaining) = remaining {
        metadata["continue"] = json!("next");
        metadata["remainingItemCount"] = json!(remaining);
    }
    json!({"kind": format!("{kind}List"), "apiVersion": "v1", "metadata": metadata,
        "items": vec![json!({"metadata": {"name": "a"}}); n_items]})
}

fn server() -> Server {
    let groups = json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [
        group("apps", &["v1"]),
        group("cilium.io", &["v2", "v2alpha1"]),
        group("crd.projectcalico.org", &["v1"]),
        group("projectcalico.org", &["v3"]),
        group("security.istio.io", &["v1"]),
    ]});
    let forbidden = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden",
        "message": "no", "code": 403});
    let pod = json!({"metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": []}, "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}});
    let pods = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": [pod]});
    Server::start(&[
        ("/api/v1/pods", pods),
        ("/apis", groups),
        (
            "/apis/cilium.io/v2",
            resources(
                "cilium.io/v2",
                &[("CiliumNetworkPolicy", "ciliumnetworkpolicies")],
            ),
        ),
        // The other kind of the group is in another version.
        (
            "/apis/cilium.io/v2alpha1",
            resources(
                "cilium.io/v2alpha1",
                &[(
                    "CiliumClusterwideNetworkPolicy",
                    "ciliumclusterwidenetworkpolicies",
                )],
            ),
        ),
        (
            "/apis/cilium.io/v2/ciliumnetworkpolicies",
            list("CiliumNetworkPolicy", Some(41), 1),
        ),
        (
            "/apis/cilium.io/v2alpha1/ciliumclusterwidenetworkpolicies",
            list("CiliumClusterwideNetworkPolicy", None, 3),
        ),
        // Calico serves its policies in two groups.
        (
            "/apis/crd.projectcalico.org/v1",
            resources(
                "crd.projectcalico.org/v1",
                &[("NetworkPolicy", "networkpolicies")],
            ),
        ),
        (
            "/apis/crd.projectcalico.org/v1/networkpolicies",
            list("NetworkPolicy", None, 2),
        ),
        (
            "/apis/projectcalico.org/v3",
            resources(
                "projectcalico.org/v3",
                &[("NetworkPolicy", "networkpolicies")],
            ),
        ),
        (
            "/apis/projectcalico.org/v3/networkpolicies",
            list("NetworkPolicy", None, 5),
        ),
        (
            "/apis/security.istio.io/v1",
            resources(
                "security.istio.io/v1",
                &[("AuthorizationPolicy", "authorizationpolicies")],
            ),
        ),
        (
            "/apis/security.istio.io/v1/authorizationpolicies",
            forbidden,
        ),
    ])
}

#[test]
fn policies_of_the_cluster_are_counted() {
    let server = server();
    let line = "palisade: 47 policies of kinds that are not judged: 3 CiliumClusterwideNetworkPolicy, \
                42 CiliumNetworkPolicy, 2 NetworkPolicy of crd.projectcalico.org; the answer may differ where they are enforced\n";
    for args in [
        &["explain", "shop/web", "192.0.2.1", "tcp/80"][..],
        &["affecting", "shop/web"],
        &["connectivity"],
        &["lint"],
        &["diff", "cluster", "cluster"],
    ] {
        let ran = server.palisade(args);
        assert!(ran.code < 2, "{args:?}: {}{}", ran.out, ran.err);
        assert!(ran.err.ends_with(line), "{args:?}: {}", ran.err);
        let ran = server.palisade(&[args, &["-o", "json"]].concat());
        let expected = json!([
            {"kind": "CiliumClusterwideNetworkPolicy", "group": "cilium.io", "count": 3},
            {"kind": "CiliumNetworkPolicy", "group": "cilium.io", "count": 42},
            {"kind": "NetworkPolicy", "group": "crd.projectcalico.org", "count": 2},
        ]);
        assert_eq!(document(&ran)["notJudged"], expected, "{args:?}");
    }
    // Files over the cluster are counted with it.
    let manifest = "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: new, namespace: shop}\n";
    server.write("new.yaml", manifest);
    let ran = server.palisade(&["diff", "cluster", "-f", "new.yaml", "-o", "json"]);
    assert_eq!(document(&ran)["notJudged"][1]["count"], 43, "{}", ran.err);
    let ran = server.palisade(&["check"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}
