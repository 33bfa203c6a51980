//! `palisade connectivity`, by running it: answers read off the specification, and every form.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "connectivity/forms.rs"]
mod forms;
#[path = "connectivity/wrong.rs"]
mod wrong;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn run(manifests: &str, args: &[&str]) -> Ran {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("c.yaml"), manifests).unwrap();
    std::fs::write(
        directory.path().join("dns.txt"),
        "db.example.com 198.51.100.9\n",
    )
    .unwrap();
    in_directory(directory.path(), &[&["-f", "c.yaml"], args].concat())
}

fn in_directory(directory: &Path, args: &[&str]) -> Ran {
    let output = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .arg("connectivity")
        .args(args)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ran {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub(crate) fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out, ran.err))
}

/// Every pair for which something is allowed, `source -> destination`, and its ports.
fn pairs(manifests: &str, args: &[&str]) -> BTreeMap<String, String> {
    let ran = run(manifests, &[&["--pairs", "-o", "jsonl"], args].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    let words = |value: &Value, mark: &str| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.map(|it| format!("{mark}{}", it.as_str().unwrap()))
            .collect()
    };
    let line = |line: &str| {
        let pair: Value = serde_json::from_str(line).unwrap();
        let ports = [
            words(&pair["ports"], ""),
            words(&pair["mixedPorts"], "mixed:"),
            words(&pair["unknownPorts"], "unknown:"),
        ];
        let (source, destination) = (pair["source"].as_str(), pair["destination"].as_str());
        let key = format!("{} -> {}", source.unwrap(), destination.unwrap());
        (key, ports.concat().join(" "))
    };
    let pairs: Vec<(String, String)> = ran.out.lines().map(line).collect();
    let count = pairs.len();
    let pairs: BTreeMap<String, String> = pairs.into_iter().collect();
    assert_eq!(pairs.len(), count, "a pair is listed twice");
    pairs
}

#[track_caller]
fn check(manifests: &str, args: &[&str], expected: &[(&str, &str)]) {
    let expected: BTreeMap<String, String> = expected
        .iter()
        .map(|(pair, ports)| ((*pair).to_owned(), (*ports).to_owned()))
        .collect();
    assert_eq!(pairs(manifests, args), expected);
}

/// Everything, between ends that have addresses of IPv4 only.
const ANY: &str = "tcp/* udp/* sctp/* icmp ip/*";

/// Two namespaces, two nodes, a pod in its node's network, a Service, a NetworkPolicy and a
/// ClusterNetworkPolicy.
pub(crate) const CLUSTER: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: x, labels: {team: red}}
---
apiVersion: v1
kind: Namespace
metadata: {name: w, labels: {team: blue}}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 192.0.2.1}]}
---
apiVersion: v1
kind: Node
metadata: {name: n2}
status: {addresses: [{type: InternalIP, address: 192.0.2.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: x, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c, image: i, ports: [{name: http, containerPort: 8080}]}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: x, labels: {app: db}}
spec: {nodeName: n2, containers: [{name: c, image: i}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: h, namespace: x, labels: {app: web}}
spec: {nodeName: n1, hostNetwork: true, containers: [{name: c, image: i}]}
status: {phase: Running, podIPs: [{ip: 192.0.2.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: c, namespace: w, labels: {app: client}}
spec: {nodeName: n2, containers: [{name: c, image: i}]}
status: {phase: Running, podIPs: [{ip: 10.0.0.3}]}
---
apiVersion: v1
kind: Service
metadata: {name: a, namespace: x}
spec: {clusterIP: 10.96.0.1, selector: {app: web}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: a-1, namespace: x, labels: {kubernetes.io/service-name: a}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: a, namespace: x}}]
ports: [{port: 8080, protocol: TCP}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: x}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{namespaceSelector: {matchLabels: {team: blue}}}]
    ports: [{port: http}]
  - from: [{ipBlock: {cidr: 203.0.113.0/24}}]
    ports: [{port: 443}]
---
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: apart}
spec:
  tier: Admin
  priority: 10
  subject: {namespaces: {matchLabels: {team: red}}}
  egress: [{action: Deny, to: [{namespaces: {matchLabels: {team: blue}}}]}]
";

#[test]
fn who_reaches_a_pod_that_is_isolated() {
    // NetworkPolicy: pods of w on the port called http, the block on 443, and no other.
    // The node that it runs on is exempt (D74); the pod in that node's network stands for it (D73).
    check(
        CLUSTER,
        &["--to", "x/a"],
        &[
            ("w/c -> x/a", "tcp/8080"),
            ("203.0.113.0/24 -> x/a", "tcp/443"),
            ("node/n1 -> x/a", ANY),
            ("x/h -> x/a", ANY),
        ],
    );
}

#[test]
fn whom_pods_reach_behind_a_cluster_policy() {
    // What x sends to w is denied; the pod in the node's network is no subject (D48).
    check(
        CLUSTER,
        &["--from", "pods", "--to", "pods"],
        &[
            ("x/a -> x/b", ANY),
            ("x/a -> x/h", ANY),
            ("x/b -> x/h", ANY),
            ("x/h -> x/a", ANY),
            ("x/h -> x/b", ANY),
            ("x/h -> w/c", ANY),
            ("w/c -> x/a", "tcp/8080"),
            ("w/c -> x/b", ANY),
            ("w/c -> x/h", ANY),
        ],
    );
}

#[test]
fn a_service_is_its_backends_after_translation() {
    // Port 80 leads to http of x/a (D78): w may, its own node may, the block may only 443, and x/a
    // itself comes back through the Service as any pod of x does (D77).
    check(
        CLUSTER,
        &["--to", "x/svc/a"],
        &[
            ("w/c -> x/svc/a", "tcp/80"),
            ("node/n1 -> x/svc/a", "tcp/80"),
            ("x/h -> x/svc/a", "tcp/80"),
        ],
    );
    assert_eq!(
        pairs(CLUSTER, &["--to", "10.96.0.1"]),
        pairs(CLUSTER, &["--to", "x/svc/a"])
    );
}

#[test]
fn filters_choose_and_several_are_a_union() {
    let both = pairs(
        CLUSTER,
        &["--from", "x/", "--from", "node/n2", "--to", "w/c"],
    );
    let expected = [("node/n2 -> w/c", ANY), ("x/h -> w/c", ANY)];
    let expected = expected.map(|(pair, ports)| (pair.to_owned(), ports.to_owned()));
    assert_eq!(both, BTreeMap::from(expected));
    // A name of the destination, as a number, in a range, and by itself.
    for port in ["tcp/8080", "tcp/8000-8080", "tcp/http"] {
        let args = ["--from", "w", "--to", "x/a", "--port", port];
        check(CLUSTER, &args, &[("w/c -> x/a", "tcp/8080")]);
    }
    let args = [
        "--from", "w/c", "--to", "x/b", "--port", "udp/53", "--port", "icmp",
    ];
    check(CLUSTER, &args, &[("w/c -> x/b", "udp/53 icmp")]);
    check(
        CLUSTER,
        &["--from", "w/c", "--to", "x/a", "--port", "tcp/9"],
        &[],
    );
    // A block matches every address in it, and divides networks exactly.
    check(
        CLUSTER,
        &["--from", "203.0.113.128/25", "--to", "x/a"],
        &[("203.0.113.128/25 -> x/a", "tcp/443")],
    );
    check(
        CLUSTER,
        &["--from", "10.0.0.3/32", "--to", "x/a"],
        &[("w/c -> x/a", "tcp/8080")],
    );
    check(
        CLUSTER,
        &["--from", "203.0.113.7", "--to", "x/a"],
        &[("203.0.113.7/32 -> x/a", "tcp/443")],
    );
    // Flows that start or end there; with labels, at such pods.
    let near = pairs(CLUSTER, &["-n", "w", "--from", "pods", "--to", "pods"]);
    let keys: Vec<&str> = near.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["w/c -> x/a", "w/c -> x/b", "w/c -> x/h", "x/h -> w/c"]
    );
    let near = pairs(
        CLUSTER,
        &["-l", "app in (db)", "--from", "pods", "--to", "pods"],
    );
    let keys: Vec<&str> = near.keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        ["w/c -> x/b", "x/a -> x/b", "x/b -> x/h", "x/h -> x/b"]
    );
}

pub(crate) fn pod(namespace: &str, name: &str, labels: &str, addresses: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}, labels: {{{labels}}}}}\n\
         spec: {{containers: [{{name: c, image: i}}]}}\nstatus: {{phase: Running, podIPs: [{addresses}]}}\n---\n"
    )
}

pub(crate) fn namespace(name: &str, rest: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}{rest}}}\n---\n")
}

/// x/a, w/c and z/d, with the labels of the worked examples of the specification.
fn three_pods(policies: &str) -> String {
    [
        namespace("x", ", labels: {team: red, tenant: t1}"),
        namespace("w", ", labels: {team: blue, tenant: t1}"),
        namespace("z", ", labels: {team: red, tenant: t2}"),
        pod("x", "a", "app: web", "{ip: 10.0.0.1}"),
        pod("w", "c", "app: client", "{ip: 10.0.0.3}"),
        pod("z", "d", "app: client", "{ip: 10.0.0.4}"),
        policies.to_owned(),
    ]
    .concat()
}

#[track_caller]
fn reach_a(policies: &str, expected: &[(&str, &str)]) {
    let args = ["--to", "x/a", "--from", "w/", "--from", "z/"];
    check(&three_pods(policies), &args, expected);
}

#[test]
fn policies_of_every_generation_count() {
    let (from_w, from_z) = ("w/c -> x/a", "z/d -> x/a");
    reach_a("", &[(from_w, ANY), (from_z, ANY)]);
    let admin = "\
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata: {name: a10}
spec:
  priority: 10
  subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: x}}}
  ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: blue}}}]}]
";
    reach_a(admin, &[(from_z, ANY)]);
    let baseline = "\
apiVersion: policy.networking.k8s.io/v1alpha1
kind: BaselineAdminNetworkPolicy
metadata: {name: default}
spec:
  subject: {namespaces: {}}
  ingress:
  - {action: Deny, from: [{namespaces: {}}], ports: [{portRange: {protocol: TCP, start: 1, end: 65535}}]}
";
    let but_tcp = "udp/* sctp/* icmp ip/*";
    reach_a(baseline, &[(from_w, but_tcp), (from_z, but_tcp)]);
    let early = "\
apiVersion: networking.k8s.io/v1alpha1
kind: ClusterNetworkPolicy
metadata: {name: early}
spec:
  appliedTo: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: x}}}
  ingress: [{action: Deny, from: [{namespaces: {selector: {matchLabels: {team: red}}}}]}]
";
    reach_a(early, &[(from_w, ANY)]);
    let default = "\
apiVersion: networking.k8s.io/v1alpha1
kind: DefaultNetworkPolicy
metadata: {name: early}
spec:
  appliedTo: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: x}}}
  ingress: [{onlyFrom: [{namespaces: {selector: {matchLabels: {team: blue}}}}]}]
";
    reach_a(default, &[(from_w, ANY)]);
    // The annotation isolates; the policy of 2016 opens one port.
    let of_2016 = "\
apiVersion: v1beta
kind: NetworkPolicy
metadata: {name: old, namespace: x}
spec:
  podSelector: {}
  ingress: [{from: [{namespaces: {matchLabels: {team: blue}}}], ports: [{protocol: TCP, port: 80}]}]
";
    let isolated =
        ", labels: {team: red}, annotations: {net.beta.kubernetes.io/network-isolation: 'true'}";
    let plain = ", labels: {team: red, tenant: t1}";
    let world = three_pods(of_2016).replace(&namespace("x", plain), &namespace("x", isolated));
    let args = ["--to", "x/a", "--from", "w/", "--from", "z/"];
    check(&world, &args, &[(from_w, "tcp/80")]);
}

#[test]
fn domain_names_are_what_they_resolved_to() {
    let policy = "\
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: names}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: x}}}
  egress:
  - {action: Accept, to: [{domainNames: [db.example.com]}], protocols: [{tcp: {destinationPort: {number: 443}}}]}
  - {action: Deny, to: [{networks: [0.0.0.0/0]}]}
";
    let args = ["--from", "x/a", "--to", "networks", "--dns", "dns.txt"];
    check(
        &three_pods(policy),
        &args,
        &[("x/a -> 198.51.100.9/32", "tcp/443")],
    );
}

#[test]
fn families_of_a_dual_stack_pair_may_differ() {
    // Only IPv4 is denied (D44): ICMP exists there alone, ICMPv6 only in the other family.
    let world = [
        namespace("x", ""),
        pod("x", "a", "app: a", "{ip: 10.0.0.1}, {ip: 'fd00::1'}"),
        pod("x", "b", "app: b", "{ip: 10.0.0.2}, {ip: 'fd00::2'}"),
        pod("x", "six", "app: c", "{ip: 'fd00::3'}"),
        pod("x", "four", "app: d", "{ip: 10.0.0.4}"),
        "\
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: v4}
spec:
  tier: Admin
  priority: 1
  subject: {pods: {podSelector: {matchLabels: {app: a}}}}
  egress: [{action: Deny, to: [{networks: [0.0.0.0/0]}]}]
"
        .to_owned(),
    ]
    .concat();
    check(
        &world,
        &["--from", "x/a", "--to", "pods"],
        &[
            (
                "x/a -> x/b",
                "icmpv6 mixed:tcp/* mixed:udp/* mixed:sctp/* mixed:ip/*",
            ),
            ("x/a -> x/six", "tcp/* udp/* sctp/* icmpv6 ip/*"),
        ],
    );
    let ran = run(&world, &["--from", "x/a", "--to", "x/b", "-o", "json"]);
    let block = &json(&ran)["blocks"][0];
    assert_eq!(block["ports"], serde_json::json!(["icmpv6"]));
    let mixed = serde_json::json!(["tcp/*", "udp/*", "sctp/*", "ip/*"]);
    assert_eq!(block["mixedPorts"], mixed);
    // a -> b differs; a -> four is denied; a -> six is open; six and four have no family in common.
    let ran = run(&world, &["--summary", "-o", "json"]);
    let summary = json(&ran);
    assert_eq!(summary["kind"], "ConnectivitySummary");
    assert_eq!(summary["apiVersion"], "palisade.dev/v1alpha1");
    assert_eq!(summary["endpoints"], 4);
    assert_eq!(summary["mixedPairs"], 1);
    assert_eq!(summary["deniedPairs"], 1);
    assert_eq!(summary["noFamilyPairs"], 2);
    assert_eq!(summary["allowedPairs"], 12 - 4);
    assert_eq!(summary.get("unknownPairs"), None);
}

#[test]
fn an_address_that_is_not_known_leaves_the_answer_open() {
    let world = [
        namespace("x", ""),
        "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: t, namespace: x}
spec:
  selector: {matchLabels: {app: t}}
  template: {metadata: {labels: {app: t}}, spec: {containers: [{name: c, image: i}]}}
---
"
        .to_owned(),
        pod("x", "b", "app: b", "{ip: 10.0.0.2}"),
        "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: b, namespace: x}
spec:
  podSelector: {matchLabels: {app: b}}
  ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 80}]}]
"
        .to_owned(),
    ]
    .concat();
    check(
        &world,
        &["--from", "x/deploy/t", "--to", "x/b"],
        &[("x/deploy/t -> x/b", "unknown:tcp/80")],
    );
    // A template stands for pods that are not there yet, and for more than one of them.
    let own = pairs(&world, &["--from", "x/deploy/t", "--to", "x/deploy/t"]);
    assert_eq!(own.len(), 1);
    let ran = run(&world, &["--from", "x/deploy/t", "--to", "x/b"]);
    assert!(ran.out.contains("unknown: tcp/80"), "{}", ran.out);
}

#[test]
fn blocks_say_what_pairs_say() {
    let ran = run(CLUSTER, &["-o", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let document = json(&ran);
    assert_eq!(document["apiVersion"], "palisade.dev/v1alpha1");
    assert_eq!(document["kind"], "Connectivity");
    let groups = document["groups"].as_object().unwrap();
    let names: Vec<String> = (1..=groups.len()).map(|it| format!("g{it}")).collect();
    let given: Vec<&String> = groups.keys().collect();
    assert_eq!(given.len(), names.len());
    assert!(names.iter().all(|name| groups.contains_key(name)));
    let mut printed: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for block in document["blocks"].as_array().unwrap() {
        let group = |key: &str| {
            let members = groups[block[key].as_str().unwrap()].as_array().unwrap();
            members.iter().map(|it| it.as_str().unwrap().to_owned())
        };
        let ports = block["ports"].as_array().unwrap().iter();
        let ports: Vec<String> = ports.map(|it| it.as_str().unwrap().to_owned()).collect();
        for from in group("from") {
            for to in group("to").filter(|to| *to != from) {
                printed
                    .entry(format!("{from} -> {to}"))
                    .or_default()
                    .extend(ports.clone());
            }
        }
    }
    // Networks of several blocks are one member, and are in a group block by block.
    for (pair, ports) in pairs(CLUSTER, &[]) {
        let (source, destination) = pair.split_once(" -> ").unwrap();
        for source in source.split(' ') {
            for destination in destination.split(' ').filter(|it| *it != source) {
                let key = format!("{source} -> {destination}");
                let own: Vec<String> = ports.split(' ').map(str::to_owned).collect();
                assert_eq!(printed.remove(&key), Some(own), "{key}");
            }
        }
    }
    let is_network = |pair: &String| pair.split(" -> ").all(|it| it.contains(['.', ':']));
    printed.retain(|pair, _| !is_network(pair));
    assert!(printed.is_empty(), "{printed:#?}");
}

/// A rule may match some pods by one peer and others by a peer that depends on the subject.
#[test]
fn peers_that_depend_on_the_subject_are_combined_with_others() {
    let manifests = "
apiVersion: v1
kind: Pod
metadata: {name: p1, namespace: z}
spec: {containers: [{name: c}]}
status: {phase: Running, podIP: 10.0.0.1}
---
apiVersion: v1
kind: Pod
metadata: {name: p7, namespace: z, labels: {track: a}}
spec: {containers: [{name: c}]}
status: {phase: Running, podIP: 10.0.0.7}
---
apiVersion: v1
kind: Pod
metadata: {name: s, namespace: w}
spec: {containers: [{name: c}]}
status: {phase: Running, podIP: 10.0.0.9}
---
apiVersion: networking.k8s.io/v1alpha1
kind: ClusterNetworkPolicy
metadata: {name: q}
spec:
  appliedTo: {namespaceSelector: {}}
  egress:
  - action: Deny
    to:
    - {namespaces: {selector: {}}, podSelector: {matchLabels: {track: a}}}
    - {namespaces: {self: true}}
";
    let pairs = pairs(manifests, &["--from", "w/s", "--to", "z/"]);
    assert!(pairs.contains_key("w/s -> z/p1"), "{pairs:?}");
    assert!(!pairs.contains_key("w/s -> z/p7"), "{pairs:?}");
}
