//! Families of addresses, clients behind Services, tenants without a label.

use palisade_core::analysis::lint::Code;

use super::{EVERYONE, Pod, anp, check, cnp, namespace, netpol, node, object};

#[test]
fn one_family_is_denied_and_the_other_left_open() {
    let policy = |rules: &str| cnp("p", "Admin", &format!("{EVERYONE}, egress: [{rules}]"));
    let dual = || Pod("x", "a").ips(&["10.0.0.1", "fd00::1"]);
    let deny = |networks: &str| format!("{{action: Deny, to: [{{networks: [{networks}]}}]}}");
    let v4 = deny("0.0.0.0/0");
    check(
        Code::V6Open,
        &[policy(&v4), dual()],
        &["cnp/p#egress[0].peer[0]: IPv6"],
    );
    check(
        Code::V6Open,
        &[policy(&deny("\"::/0\"")), dual()],
        &["cnp/p#egress[0].peer[0]: IPv4"],
    );
    check(
        Code::V6Open,
        &[policy(&deny("0.0.0.0/0, \"::/0\"")), dual()],
        &[],
    );
    // A rule of its own is enough for the other family.
    let apart = format!("{v4}, {}", deny("\"::/0\""));
    check(Code::V6Open, &[policy(&apart), dual()], &[]);
    let accepted = format!("{{action: Accept, to: [{{networks: [\"::/0\"]}}]}}, {v4}");
    check(Code::V6Open, &[policy(&accepted), dual()], &[]);
    // A rule for one port does not decide the other ports.
    let port = "{action: Deny, to: [{networks: [\"::/0\"]}], protocols: [{tcp: {destinationPort: {number: 80}}}]}";
    check(
        Code::V6Open,
        &[policy(&format!("{v4}, {port}")), dual()],
        &["cnp/p#egress[0].peer[0]: IPv6"],
    );
    check(Code::V6Open, &[policy(&deny("10.0.0.0/8")), dual()], &[]);
    check(
        Code::V6Open,
        &[policy(&v4), Pod("x", "a").ips(&["10.0.0.1"])],
        &[],
    );
    // The pods with two families are not the subject's.
    let of_other_space =
        "subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: other}}}";
    let of_other_space = cnp("p", "Admin", &format!("{of_other_space}, egress: [{v4}]"));
    check(
        Code::V6Open,
        &[of_other_space, dual(), Pod("other", "b").ips(&["10.0.0.2"])],
        &[],
    );
}

fn service(kind: &str, more: &str) -> String {
    let spec = format!(
        "type: {kind}, clusterIP: 10.96.0.9, selector: {{app: web}}, \
         ports: [{{port: 80, targetPort: 8080{more}"
    );
    object("v1", "Service", "name: web, namespace: x", &spec)
}

#[test]
fn clients_behind_a_service_that_hides_them() {
    let rule = |from: &str, port: u16| {
        let from = format!("from: [{{ipBlock: {{{from}}}}}], ports: [{{port: {port}}}]");
        netpol(
            "x",
            "web",
            &format!("podSelector: {{matchLabels: {{app: web}}}}, ingress: [{{{from}}}]"),
        )
    };
    let web = || Pod("x", "web").ips(&["10.0.0.1"]);
    let n1 = || node("n1", "192.0.2.1", "");
    let clients = || rule("cidr: 203.0.113.0/24", 8080);
    let node_port = || service("NodePort", ", nodePort: 30080}]");
    let expected = ["netpol/x/web#ingress[0].peer[0]: with x/svc/web"];
    check(
        Code::SnatIpBlock,
        &[clients(), web(), n1(), node_port()],
        &expected,
    );
    let local = service(
        "NodePort",
        ", nodePort: 30080}], externalTrafficPolicy: Local",
    );
    check(Code::SnatIpBlock, &[clients(), web(), n1(), local], &[]);
    let inside = service("ClusterIP", "}]");
    check(Code::SnatIpBlock, &[clients(), web(), n1(), inside], &[]);
    let other_port = rule("cidr: 203.0.113.0/24", 9090);
    check(
        Code::SnatIpBlock,
        &[other_port, web(), n1(), node_port()],
        &[],
    );
    // All addresses, and blocks with all nodes in them, include the nodes.
    let everyone = rule("cidr: 0.0.0.0/0", 8080);
    check(
        Code::SnatIpBlock,
        &[everyone, web(), n1(), node_port()],
        &[],
    );
    let nodes = rule("cidr: 192.0.0.0/8", 8080);
    check(Code::SnatIpBlock, &[nodes, web(), n1(), node_port()], &[]);
    let without = rule("cidr: 0.0.0.0/0, except: [192.0.2.0/24]", 8080);
    check(
        Code::SnatIpBlock,
        &[without, web(), n1(), node_port()],
        &expected,
    );
    // Pods that are not backends of the Service.
    let other = Pod("x", "other").ips(&["10.0.0.2"]);
    let of_other = clients().replace("{app: web}", "{app: other}");
    check(
        Code::SnatIpBlock,
        &[of_other, web(), other, n1(), node_port()],
        &[],
    );
}

#[test]
fn namespaces_without_a_tenant() {
    let policy = |subject: &str| {
        let deny = "ingress: [{action: Deny, from: [{namespaces: {notSameLabels: [tenant]}}]}]";
        anp("t", &format!("subject: {{namespaces: {subject}}}, {deny}"))
    };
    let tenants = "{matchExpressions: [{key: tenant, operator: Exists}]}";
    let a = || {
        [
            namespace("a", "tenant: a"),
            Pod("a", "web").ips(&["10.0.0.1"]),
        ]
        .concat_documents()
    };
    let b = || {
        [
            namespace("b", "tenant: b"),
            Pod("b", "web").ips(&["10.0.0.2"]),
        ]
        .concat_documents()
    };
    let u = || [namespace("u", ""), Pod("u", "web").ips(&["10.0.0.3"])].concat_documents();
    let expected = ["anp/t#ingress[0].peer[0]: 1 of 3"];
    check(
        Code::TenantUnlabelled,
        &[policy(tenants), a(), b(), u()],
        &expected,
    );
    check(Code::TenantUnlabelled, &[policy(tenants), a(), b()], &[]);
    // A namespace without pods sends nothing.
    check(
        Code::TenantUnlabelled,
        &[policy(tenants), a(), b(), namespace("u", "")],
        &[],
    );
    // A policy that selects all namespaces is not only for tenants.
    check(Code::TenantUnlabelled, &[policy("{}"), a(), b(), u()], &[]);
}

/// Documents in one text.
trait Documents {
    fn concat_documents(&self) -> String;
}

impl Documents for [String; 2] {
    fn concat_documents(&self) -> String {
        self.join("---\n")
    }
}
