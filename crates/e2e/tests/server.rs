//! The state that watches of a real API server keep equals the server's objects: random objects, a
//! server that stops and comes back, rights that come late, and kinds that come and go. Needs the
//! programs of the testbed.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    dead_code,
    reason = "a test fails by panicking, and shares a server with others"
)]

#[path = "server/wire.rs"]
mod wire;
#[path = "server/writer.rs"]
mod writer;

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use palisade_agent::cluster::Kinds;
use palisade_agent::{Agent, Config, Nft};
use palisade_api::{Options as Reading, Source, lower, read};
use palisade_core::compile::compile;
use palisade_core::plan::{MERGE_OVER, plan_merging};
use palisade_kube::watch::{WatchGate, WatchMessage, follow};
use palisade_kube::{Access, Resource};
use palisade_testbed::{API_SERVER, Api, Options, group};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use self::wire::Wire;
use self::writer::Writer;
use palisade_campaigns::canonical::{Canonical, canonical, planner_rule_name, program_rule_names};
use palisade_campaigns::history::{Event, History};

const NODES: [&str; 2] = ["n1", "n2"];
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    group(
        "api",
        API_SERVER,
        vec![
            (
                "the watched state equals the state of the server",
                histories,
            ),
            ("kinds come and go, and rights come late", kinds_and_rights),
            (
                "a tenant's objects are that tenant's alone",
                hostile_objects,
            ),
        ],
    )
}

/// The state of a node's agent, and its watches.
struct Follower {
    agents: Vec<(&'static str, Kinds, Agent)>,
    receiver: Receiver<WatchMessage>,
    resources: Vec<Resource>,
}

impl Follower {
    fn new(kubeconfig: &Path) -> Follower {
        let resources = Resource::of_agents(true);
        let (sender, receiver) = channel();
        let access = Access {
            kubeconfig: Some(kubeconfig.to_owned()),
            ..Access::default()
        };
        let followed = resources.clone();
        thread::spawn(move || listen(&access, &followed, &sender));
        Follower {
            agents: NODES
                .map(|node| {
                    (
                        node,
                        Kinds::new(&resources),
                        Agent::new(Nft::default(), Config::new(node), None),
                    )
                })
                .into(),
            receiver,
            resources,
        }
    }

    fn kinds(&self) -> &Kinds {
        &self.agents[0].1
    }

    /// The number of lists, of all kinds.
    fn lists(&self) -> u64 {
        self.kinds().following().map(|it| it.lists).sum()
    }

    /// Applies the events of a time.
    fn take(&mut self, wait: Duration) -> usize {
        let end = Instant::now() + wait;
        let mut taken = 0;
        while let Ok(event) = self
            .receiver
            .recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            taken += 1;
            for (_, kinds, agent) in &mut self.agents {
                let mut store = agent.objects(Duration::ZERO);
                kinds.take(Duration::ZERO, event.kind, event.event.clone(), &mut store);
            }
        }
        taken
    }

    /// Applies events until this number of NetworkPolicies exists, without a problem.
    fn knows_policies(&mut self, count: usize) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.take(Duration::from_millis(100));
            let live = self.agents[0].2.planner_mut();
            live.commit();
            let known = live.counts().network_policies;
            let missing = self.kinds().missing();
            if known == count && missing.is_empty() {
                assert_eq!(self.kinds().unread_objects(), 0);
                return;
            }
            assert!(Instant::now() < end, "{known} of {count}, {missing:?}");
        }
    }

    /// Applies events until the state equals the server's objects.
    fn agrees(&mut self, runtime: &Runtime, writer: &Writer, at: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.take(Duration::from_millis(150));
            let held = runtime.block_on(writer.all(&self.resources));
            let mut differs = None;
            for (node, _, agent) in &mut self.agents {
                let expected = rebuilt(&held, node);
                let live = agent.planner_mut();
                live.commit();
                let kept = canonical(&live.plan(), &|rule| planner_rule_name(live, rule));
                if kept != expected {
                    differs = Some((*node, kept, expected));
                }
            }
            let Some((node, kept, expected)) = differs else {
                return;
            };
            assert!(
                Instant::now() < end,
                "{at}: {node} does not know what the server holds:\n{kept:#?}\n{expected:#?}\n{:?}",
                self.kinds().missing()
            );
        }
    }
}

fn listen(access: &Access, resources: &[Resource], sender: &Sender<WatchMessage>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(access.server()).unwrap();
    let all = LocalSet::new();
    let gate = WatchGate::default();
    for (seed, resource) in (0..).zip(resources) {
        let sender = sender.clone();
        let send = move |event| sender.send(event).is_ok();
        all.spawn_local(follow(server.clone(), *resource, gate.clone(), seed, send));
    }
    runtime.block_on(all);
}

/// The plan of all objects together, in words.
fn rebuilt(lists: &[Value], node: &str) -> Canonical {
    let text = serde_json::to_vec(lists).unwrap();
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Reading::default(), &|_| {});
    let lowered = lower(&manifests.objects, Vec::new());
    let program = compile(&lowered.cluster);
    let plan = plan_merging(&lowered.cluster, &program, node, MERGE_OVER);
    canonical(&plan, &program_rule_names(&lowered.cluster, &program))
}

/// CRDs without a schema: the server stores what an older or newer one would.
fn definitions() -> Vec<Value> {
    let policy = "policy.networking.k8s.io";
    let early = "networking.k8s.io";
    [
        (
            policy,
            "v1alpha1",
            "AdminNetworkPolicy",
            "adminnetworkpolicies",
        ),
        (
            policy,
            "v1alpha1",
            "BaselineAdminNetworkPolicy",
            "baselineadminnetworkpolicies",
        ),
        (
            policy,
            "v1alpha2",
            "ClusterNetworkPolicy",
            "clusternetworkpolicies",
        ),
        (
            early,
            "v1alpha1",
            "ClusterNetworkPolicy",
            "clusternetworkpolicies",
        ),
        (
            early,
            "v1alpha1",
            "DefaultNetworkPolicy",
            "defaultnetworkpolicies",
        ),
    ]
    .map(|(group, version, kind, plural)| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{plural}.{group}"),
                "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
            },
            "spec": {
                "group": group,
                "scope": "Cluster",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{
                    "name": version,
                    "served": true,
                    "storage": true,
                    "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": true,
                    }},
                }],
            },
        })
    })
    .into()
}

fn define(api: &Api, verb: &str, definitions: &[Value]) {
    let file = api.directory().join("definitions.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": definitions});
    std::fs::write(&file, list.to_string()).unwrap();
    ok(api.kubectl().arg(verb).arg("-f").arg(&file));
    if verb == "create" {
        let mut wait = api.kubectl();
        wait.args(["wait", "--for=condition=Established", "--timeout=60s", "-f"]);
        ok(wait.arg(&file));
    }
}

/// Runs a command that must succeed.
#[track_caller]
fn ok(command: &mut Command) {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
}

fn address(api: &Api) -> SocketAddr {
    api.url().trim_start_matches("https://").parse().unwrap()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn histories() {
    let mut api = Api::start(&Options::default()).unwrap();
    define(&api, "create", &definitions());
    let runtime = runtime();
    let mut writer = runtime.block_on(Writer::new(&api.kubeconfig()));
    let wire = Wire::to(address(&api));
    let kubeconfig = wire.kubeconfig(&api.kubeconfig(), &api.url());
    let mut follower = Follower::new(&kubeconfig);
    let seed = std::env::var("SERVER_SEED").ok();
    let seed = seed.map_or(1, |it| it.parse().expect("a number"));
    println!("SERVER_SEED={seed}");
    let mut history = History::new(seed);
    let mut lists_again = 0;
    for batch in 0..24 {
        let n_events = 1 + history.rng.below(8);
        let lists = follower.lists();
        let weather = batch % 8;
        match weather {
            // Connections break during lists and watches.
            2 => wire.break_after(20_000),
            3 => wire.break_after(3_000 + history.rng.below(20_000) as u64),
            4 => wire.break_after(0),
            // Changes while no watch is open arrive afterwards.
            5 => wire.cut(),
            6 => api.restart().unwrap(),
            // A new server has no older versions: everything is listed again.
            7 => wire.cut(),
            _ => {}
        }
        for _ in 0..n_events {
            match history.next_event() {
                Some(Event::Set(object)) => runtime.block_on(writer.set(&object)),
                Some(Event::Deleted(object)) => runtime.block_on(writer.delete(&object)),
                None => {}
            }
        }
        if weather == 7 {
            api.restart().unwrap();
        }
        wire.mend();
        follower.agrees(&runtime, &writer, &format!("seed {seed}, batch {batch}"));
        lists_again += u64::from(weather == 7 && follower.lists() > lists);
    }
    assert!(lists_again > 0, "the server never forgot anything");
    println!("{} taken, {} refused", writer.taken, writer.refused);
    assert!(writer.taken > 40, "the server took {}", writer.taken);
}

fn kinds_and_rights() {
    let mut api = Api::start(&Options::default()).unwrap();
    let runtime = runtime();
    let mut writer = runtime.block_on(Writer::new(&api.kubeconfig()));
    let unauthorized = api.kubeconfig_for("unauthorized", &[]).unwrap();
    let mut follower = Follower::new(&unauthorized);
    follower.take(Duration::from_secs(1));
    let missing = follower.kinds().missing().join("\n");
    assert!(missing.contains("cannot read pods"), "{missing}");
    assert!(missing.contains("forbidden"), "{missing}");
    assert!(!follower.kinds().are_complete());

    // With the permission alone, it continues by itself.
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "reader"},
        "rules": [
            {"apiGroups": [""], "resources": ["pods", "nodes", "namespaces"], "verbs": ["list", "watch"]},
            {"apiGroups": ["networking.k8s.io", "policy.networking.k8s.io"], "resources": ["*"], "verbs": ["list", "watch"]},
        ],
    });
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    runtime
        .block_on(writer.request("POST", roles, &role))
        .unwrap();
    let mut binding = api.kubectl();
    binding.args(["create", "clusterrolebinding", "reader"]);
    ok(binding.args(["--clusterrole=reader", "--user=unauthorized"]));
    let end = Instant::now() + PATIENCE;
    while !follower.kinds().are_complete() {
        assert!(Instant::now() < end, "{:?}", follower.kinds().missing());
        follower.take(Duration::from_millis(200));
    }
    assert_eq!(follower.kinds().missing(), Vec::<String>::new());

    // After an outage, the server is watched again, including absent kinds.
    let kinds = follower.kinds().following().count();
    api.stop_server();
    let end = Instant::now() + PATIENCE;
    while follower.kinds().missing().len() < kinds {
        assert!(Instant::now() < end, "{:?}", follower.kinds().missing());
        follower.take(Duration::from_millis(200));
    }
    api.start_server().unwrap();
    let end = Instant::now() + PATIENCE;
    while !follower.kinds().missing().is_empty() {
        assert!(Instant::now() < end, "{:?}", follower.kinds().missing());
        follower.take(Duration::from_millis(200));
    }

    // A kind that is installed later is found, with its objects, and is removed with them.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "none"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
    });
    let policy = json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "closed"},
        "spec": {
            "tier": "Admin", "priority": 1, "subject": {"namespaces": {}},
            "ingress": [{"action": "Deny", "from": [{"namespaces": {}}]}],
        },
    });
    let definitions = definitions();
    define(&api, "create", &definitions);
    runtime.block_on(writer.set(&pod));
    runtime.block_on(writer.set(&policy));
    follower.agrees(&runtime, &writer, "a kind that came");
    let faced = follower.agents[0].2.planner().counts();
    assert_eq!((faced.ordered_policies, faced.chains), (1, 1));
    define(&api, "delete", &definitions);
    let end = Instant::now() + PATIENCE;
    while follower.agents[0].2.planner().counts().ordered_policies > 0 {
        assert!(Instant::now() < end, "a policy of a removed kind");
        follower.take(Duration::from_millis(200));
    }
    follower.agrees(&runtime, &writer, "a kind that went");
}

/// A NetworkPolicy of a tenant, as bytes; `fields` is the value of
/// `metadata.managedFields[].fieldsV1`.
fn hostile(name: &str, fields: &[u8]) -> Vec<u8> {
    let head = format!(
        r#"{{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{{"name":"{name}","namespace":"tenant","managedFields":[{{"manager":"m","operation":"Update","apiVersion":"networking.k8s.io/v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":"#
    );
    let tail = br#"}]},"spec":{"podSelector":{},"policyTypes":["Egress"]}}"#;
    [head.as_bytes(), fields, &tail[..]].concat()
}

/// No object that a user with `edit` in one namespace can write removes policies of others, neither
/// as an event of a watch nor as an item of a list.
fn hostile_objects() {
    let api = Api::start(&Options::default()).unwrap();
    let runtime = runtime();
    let mut writer = runtime.block_on(Writer::new(&api.kubeconfig()));
    let policy = |namespace: &str, name: &str| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
        })
    };
    // Before and after the tenant's, in the order of a list.
    for (namespace, name) in [("a", "first"), ("tenant", "own"), ("z", "last")] {
        runtime.block_on(writer.set(&policy(namespace, name)));
    }
    let tenant = api.kubeconfig_for("tenant", &[]).unwrap();
    let mut binding = api.kubectl();
    binding.args(["create", "rolebinding", "tenant", "-n", "tenant"]);
    // The parts of the role `edit`: the controller that aggregates it does not run here.
    ok(binding.args(["--clusterrole=system:aggregate-to-edit", "--user=tenant"]));
    let mut watching = Follower::new(&api.kubeconfig());
    watching.knows_policies(3);

    let path = "/apis/networking.k8s.io/v1/namespaces/tenant/networkpolicies";
    let directory = tempfile::tempdir().unwrap();
    let deep = |levels| {
        let map = r#"{"f:a":"#.repeat(levels) + "{}" + &"}".repeat(levels);
        map.into_bytes()
    };
    let shapes: [(&str, Vec<u8>); 3] = [
        ("deep", deep(250)),
        ("deeper", deep(5_000)),
        ("bytes", b"{\"f:\xff\":{},\"f:\xc3(\":{}}".to_vec()),
    ];
    for (name, fields) in &shapes {
        let file = directory.path().join(name);
        std::fs::write(&file, hostile(name, fields)).unwrap();
        let mut create = api.kubectl();
        create.arg("--kubeconfig").arg(&tenant);
        ok(create.args(["create", "--raw", path, "-f"]).arg(&file));
    }
    // The server must return the written objects, or the test shows nothing.
    let served = api.kubectl().args(["get", "--raw", path]).output().unwrap();
    assert!(served.stdout.contains(&0xff), "the bytes are not served");
    let levels = served.stdout.windows(5).filter(|it| *it == b"\"f:a\"");
    assert!(levels.count() >= 5_250, "the levels are not served");

    watching.knows_policies(6);
    let mut listing = Follower::new(&api.kubeconfig());
    listing.knows_policies(6);
    // A new policy of another user arrives behind them, and they can be deleted.
    runtime.block_on(writer.set(&policy("z", "later")));
    for follower in [&mut watching, &mut listing] {
        follower.knows_policies(7);
    }
    for (name, _) in &shapes {
        let mut delete = api.kubectl();
        ok(delete.args(["delete", "networkpolicy", "-n", "tenant", name]));
    }
    for follower in [&mut watching, &mut listing] {
        follower.knows_policies(4);
    }
}
