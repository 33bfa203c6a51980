//! Tests of the clusters' counts and shares, read from the written objects.

use std::collections::{BTreeMap, BTreeSet};

use palisade_api::{Options, Source, read};

use super::*;
use crate::tests::{identity, load};

fn objects(plan: &Plan) -> Vec<Value> {
    let mut objects = Vec::new();
    each_object(plan, &mut |value| {
        objects.push(value.clone());
        Ok(())
    })
    .unwrap();
    objects
}

fn text(plan: &Plan, format: Format) -> String {
    let mut bytes = Vec::new();
    let written = write(plan, format, &mut bytes).unwrap();
    assert_eq!(written.bytes, bytes.len() as u64);
    String::from_utf8(bytes).unwrap()
}

fn of_kind<'o>(objects: &'o [Value], kind: &str) -> Vec<&'o Value> {
    objects.iter().filter(|it| it["kind"] == kind).collect()
}

/// All rules of a policy of either kind, with the field that holds their peers.
fn rules(policy: &Value) -> Vec<(&Value, &'static str)> {
    let sides = [("ingress", "from"), ("egress", "to")];
    let rules = sides.into_iter().flat_map(|(side, peers)| {
        let rules = policy["spec"][side].as_array();
        rules.into_iter().flatten().map(move |rule| (rule, peers))
    });
    rules.collect()
}

/// Whether `part` of `whole` is `percent`, give or take.
#[track_caller]
fn assert_share(part: usize, whole: usize, percent: f64, tolerance: f64) {
    let found = part as f64 * 100.0 / whole as f64;
    assert!(
        (found - percent).abs() <= tolerance,
        "{found} % of {whole}, not {percent} %"
    );
}

#[test]
fn the_points_have_their_counts() {
    for (name, pods, namespaces, network_policies, admin_policies) in [
        ("S", 300, 30, 150, 0),
        ("S20", 300, 30, 150, 20),
        ("S20-structured", 300, 30, 150, 20),
        ("R", 5_413, 604, 13_678, 20),
    ] {
        let objects = objects(&Plan::named(name).unwrap());
        let count = |kind| of_kind(&objects, kind).len();
        assert_eq!(count("Pod"), pods, "{name}");
        assert_eq!(count("Namespace"), namespaces, "{name}");
        assert_eq!(count("NetworkPolicy"), network_policies, "{name}");
        assert_eq!(count("ClusterNetworkPolicy"), admin_policies, "{name}");
        assert_eq!(count("Node"), pods.div_ceil(50), "{name}");
        assert!(count("Service") > 10, "{name}");
        let identities: BTreeSet<String> = objects.iter().map(identity).collect();
        assert_eq!(identities.len(), objects.len(), "{name}");
    }
    for (name, pods, namespaces, network_policies, admin_policies) in [
        ("L", 100_000, 10_000, 20_000, 1_000),
        ("L1", 100_000, 1_000, 20_000, 1_000),
        ("A", 100_000, 25_000, 75_000, 0),
        ("X", 150_000, 10_000, 250_000, 1_000),
    ] {
        let plan = Plan::named(name).unwrap();
        let counts = (plan.pods, plan.namespaces, plan.network_policies);
        assert_eq!(counts, (pods, namespaces, network_policies), "{name}");
        assert_eq!(plan.admin_policies, admin_policies, "{name}");
        let population = Population::new(&plan);
        assert_eq!(population.n_namespaces() as u64, namespaces, "{name}");
        assert_eq!(population.namespace_of(pods), namespaces as usize, "{name}");
    }
    assert_eq!(Plan::named("X").unwrap().admin_rules, (25, 25));
    assert_eq!(Plan::named("M"), None);
}

#[test]
fn equal_seeds_give_equal_bytes() {
    let plan = Plan::named("S20").unwrap();
    let other = Plan {
        seed: 2,
        ..plan.clone()
    };
    for format in [Format::Json, Format::Yaml] {
        let first = text(&plan, format);
        assert!(first == text(&plan, format));
        assert!(first != text(&other, format));
    }
}

#[test]
fn json_and_yaml_have_the_same_objects() {
    let plan = Plan::named("S20").unwrap();
    let list: Value = serde_json::from_str(&text(&plan, Format::Json)).unwrap();
    assert_eq!(list["kind"], "List");
    assert!(list["items"].as_array().unwrap() == &load(&text(&plan, Format::Yaml)));
}

#[test]
fn the_points_have_no_problems() {
    for name in ["S", "S20", "S20-structured", "R"] {
        let plan = Plan::named(name).unwrap();
        for format in [Format::Json, Format::Yaml] {
            assert_sound(name, text(&plan, format));
        }
    }
}

#[track_caller]
fn assert_sound(name: &str, text: String) {
    let sources = [Source::new("cluster", text.into_bytes())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let problems = manifests.problems.iter().map(|it| &it.message);
    let problems: BTreeSet<&String> = problems.collect();
    assert!(problems.is_empty(), "{name}: {problems:?}");
}

#[test]
fn pods_are_spread_as_stated() {
    let plan = Plan::new(10_000, 1_000, 0, 0);
    let objects = objects(&plan);
    let pods = of_kind(&objects, "Pod");
    let mut of_namespace: BTreeMap<&str, u64> = BTreeMap::new();
    let mut of_app: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let (mut addresses, mut stateful, mut bytes) = (BTreeSet::new(), BTreeSet::new(), 0);
    for pod in &pods {
        let (metadata, status) = (&pod["metadata"], &pod["status"]);
        let namespace = metadata["namespace"].as_str().unwrap();
        let app = metadata["labels"]["app"].as_str().unwrap();
        *of_namespace.entry(namespace).or_default() += 1;
        *of_app.entry((namespace, app)).or_default() += 1;
        let ips = status["podIPs"].as_array().unwrap();
        assert_eq!(ips[0]["ip"], status["podIP"]);
        assert!(addresses.insert(ips[0]["ip"].as_str().unwrap()));
        assert!(pod["spec"]["nodeName"].is_string());
        assert_eq!(metadata["ownerReferences"][0]["controller"], true);
        let labels = metadata["labels"].as_object().unwrap();
        for key in ["component", "tier", "version"] {
            assert!(labels.contains_key(key), "{key}");
        }
        if labels.contains_key("statefulset.kubernetes.io/pod-name") {
            stateful.insert((namespace, app));
        } else {
            assert!(labels.contains_key("pod-template-hash"));
        }
        bytes += serde_json::to_string(pod).unwrap().len();
    }
    assert_eq!(of_namespace.len(), 1_000);
    assert!(of_namespace.values().all(|n_pods| *n_pods <= 3_000));
    assert!(of_app.values().all(|n_pods| *n_pods <= 200));
    assert_share(stateful.len(), of_app.len(), 10.0, 1.5);
    // The logarithm of a namespace's size deviates by 1.3, so the middle has less than half of the
    // mean, which is ten here; rounding up to one pod adds a little.
    let mut sizes: Vec<u64> = of_namespace.into_values().collect();
    sizes.sort_unstable();
    assert!((3..=6).contains(&sizes[500]), "{}", sizes[500]);
    assert!(sizes[999] > 150, "{}", sizes[999]);
    // exp(1 + 0.9^2 / 2) is 4.1; the last application of a namespace takes the rest.
    let mean = pods.len() as f64 / of_app.len() as f64;
    assert!((2.4..3.8).contains(&mean), "{mean}");
    let mean = bytes / pods.len();
    assert!((4_600..4_800).contains(&mean), "{mean} bytes of JSON");
}

#[test]
fn namespaces_have_tenants_and_environments() {
    let objects = objects(&Plan::new(400, 400, 0, 0));
    let mut of_tenant: BTreeMap<&str, usize> = BTreeMap::new();
    let mut environments = BTreeSet::new();
    for namespace in of_kind(&objects, "Namespace") {
        let labels = &namespace["metadata"]["labels"];
        *of_tenant
            .entry(labels["tenant"].as_str().unwrap())
            .or_default() += 1;
        environments.insert(labels["env"].as_str().unwrap());
    }
    assert_eq!(of_tenant.len(), 40);
    assert!(of_tenant.values().all(|n_namespaces| *n_namespaces == 10));
    assert_eq!(environments.len(), 4);
}

#[test]
fn network_policies_have_the_stated_shares() {
    let objects = objects(&Plan::new(5_000, 500, 10_000, 0));
    let policies = of_kind(&objects, "NetworkPolicy");
    let apps = of_kind(&objects, "Pod").into_iter().map(|pod| {
        let metadata = &pod["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap();
        (namespace, metadata["labels"]["app"].as_str().unwrap())
    });
    let apps: BTreeSet<(&str, &str)> = apps.collect();
    let (mut nothing, mut all, mut one) = (0, 0, 0);
    let mut sides: BTreeMap<String, usize> = BTreeMap::new();
    let mut peers: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut n_rules, mut with_ports) = (0, 0);
    let mut blocks = BTreeSet::new();
    for policy in &policies {
        let namespace = policy["metadata"]["namespace"].as_str().unwrap();
        let spec = &policy["spec"];
        let subject = &spec["podSelector"];
        let equal = subject["matchLabels"]["app"].as_str();
        let app = equal.or_else(|| subject["matchExpressions"][0]["values"][0].as_str());
        match app {
            None => all += 1,
            Some(app) if apps.contains(&(namespace, app)) => one += 1,
            Some(_) => nothing += 1,
        }
        *sides.entry(spec["policyTypes"].to_string()).or_default() += 1;
        for (rule, field) in rules(policy) {
            n_rules += 1;
            with_ports += usize::from(!rule["ports"].is_null());
            for peer in rule[field].as_array().unwrap() {
                let selector = &peer["namespaceSelector"];
                let kind = if peer.get("ipBlock").is_some() {
                    blocks.insert(peer["ipBlock"].to_string());
                    "block"
                } else if selector.is_null() {
                    "own"
                } else if selector == &serde_json::json!({}) {
                    "any"
                } else if selector["matchLabels"].get("tenant").is_some() {
                    "tenant"
                } else {
                    "other"
                };
                *peers.entry(kind).or_default() += 1;
            }
        }
    }
    assert_share(nothing, policies.len(), 26.0, 2.0);
    assert_share(all, policies.len(), 19.0, 2.0);
    assert_share(one, policies.len(), 55.0, 2.0);
    assert_share(sides[r#"["Ingress"]"#], policies.len(), 60.0, 2.0);
    assert_share(sides[r#"["Egress"]"#], policies.len(), 30.0, 2.0);
    assert_share(sides[r#"["Ingress","Egress"]"#], policies.len(), 10.0, 2.0);
    let n_peers = peers.values().sum();
    for (kind, percent) in [
        ("block", 40.0),
        ("own", 32.0),
        ("other", 18.0),
        ("tenant", 7.0),
        ("any", 3.0),
    ] {
        assert_share(peers[kind], n_peers, percent, 1.0);
    }
    assert_eq!(blocks.len(), 300);
    assert_share(with_ports, n_rules, 60.0, 1.5);
    // 1.7 peers a rule, as in the test data of other tools.
    assert_share(n_peers, n_rules, 170.0, 5.0);
}

#[test]
fn cluster_wide_policies_have_the_stated_shares() {
    let objects = objects(&Plan::new(500, 100, 0, 4_000));
    let policies = of_kind(&objects, "ClusterNetworkPolicy");
    let subject = |key: &str| {
        let has = |policy: &&&Value| {
            let labels = &policy["spec"]["subject"]["namespaces"]["matchLabels"];
            labels.get(key).is_some()
        };
        policies.iter().filter(has).count()
    };
    assert_share(subject("env"), policies.len(), 30.0, 2.5);
    assert_share(subject("tenant"), policies.len(), 60.0, 2.5);
    let baseline = policies
        .iter()
        .filter(|it| it["spec"]["tier"] == "Baseline");
    assert_share(baseline.count(), policies.len(), 5.0, 1.0);
    let mut actions: BTreeMap<&str, usize> = BTreeMap::new();
    let mut n_rules = 0;
    for policy in &policies {
        let rules = rules(policy);
        assert!((1..=5).contains(&rules.len()), "{}", rules.len());
        n_rules += rules.len();
        for (rule, _) in rules {
            *actions.entry(rule["action"].as_str().unwrap()).or_default() += 1;
        }
    }
    for action in ["Accept", "Deny", "Pass"] {
        assert_share(actions[action], n_rules, 100.0 / 3.0, 2.0);
    }
    let priorities = policies
        .iter()
        .take(1_000)
        .map(|it| it["spec"]["priority"].as_u64());
    assert_eq!(priorities.collect::<BTreeSet<_>>().len(), 1_000);
}

/// The policies alone: a test spends most of its time on pods.
fn policies(plan: &Plan) -> Vec<Value> {
    let population = Population::new(plan);
    let mut policies = Vec::new();
    let mut take = |value: Value| {
        policies.push(value);
        Ok(())
    };
    network_policy::each(plan, &population, &mut take).unwrap();
    admin::each(plan, &population, &mut take).unwrap();
    policies
}

/// The number of policies by kind, of rules, and of peers.
fn size(policies: &[Value]) -> (BTreeMap<&str, usize>, usize, usize) {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut n_rules, mut n_peers) = (0, 0);
    for policy in policies {
        *kinds.entry(policy["kind"].as_str().unwrap()).or_default() += 1;
        for (rule, peers) in rules(policy) {
            n_rules += 1;
            n_peers += rule[peers].as_array().unwrap().len();
        }
    }
    (kinds, n_rules, n_peers)
}

#[test]
fn every_adversary_has_a_twin_of_its_size() {
    for adversary in Adversary::ALL {
        let name = adversary.name();
        let plan = Plan::named(name).unwrap();
        let twin = Plan::named(&format!("{name}-twin")).unwrap();
        assert_eq!(
            plan,
            Plan {
                adversary: Some(adversary),
                ..twin.clone()
            }
        );
        let (hostile, honest) = (policies(&plan), policies(&twin));
        assert_eq!(size(&hostile), size(&honest), "{name}");
        let same = hostile.iter().zip(&honest).filter(|(a, b)| a == b);
        assert!(
            same.count() < hostile.len() * 3 / 4,
            "{name} is its own twin"
        );
        check_adversary(adversary, &plan, &hostile);
    }
}

#[test]
fn adversaries_have_no_problems() {
    for adversary in Adversary::ALL {
        let plan = Plan {
            pods: 200,
            namespaces: 20,
            network_policies: 100,
            admin_policies: 20,
            ..adversary.plan()
        };
        assert_sound(adversary.name(), text(&plan, Format::Json));
    }
}

fn check_adversary(adversary: Adversary, plan: &Plan, objects: &[Value]) {
    let policies = of_kind(objects, "NetworkPolicy");
    let of_rules = |found: &dyn Fn(&Value, &str) -> String| {
        let rules = policies.iter().flat_map(|policy| rules(policy));
        let found = rules.map(|(rule, peers)| found(rule, peers));
        found.collect::<BTreeSet<String>>().len()
    };
    match adversary {
        Adversary::OwnClass => {
            let named = of_rules(&|rule, peers| rule[peers][0]["podSelector"].to_string());
            assert_eq!(named, 10_000);
        }
        Adversary::OneNamespace => {
            assert_eq!((plan.namespaces, plan.pods), (1, 10_000));
            let empty = |policy: &&Value| policy["spec"]["podSelector"] == serde_json::json!({});
            assert!(policies.iter().all(empty));
        }
        Adversary::PolicyPerPod => {
            let population = Population::new(plan);
            for (pod, policy) in (0..).zip(&policies) {
                let home = population.home(population.namespace_of(pod));
                assert_eq!(policy["metadata"]["namespace"], home.name);
                let subject = &policy["spec"]["podSelector"]["matchLabels"]["instance"];
                assert_eq!(subject, &format!("i-{pod}"));
            }
            assert_eq!(policies.len(), 10_000);
        }
        Adversary::OnePriority => {
            let policies = of_kind(objects, "ClusterNetworkPolicy");
            assert_eq!(policies.len(), 1_000);
            assert!(policies.iter().all(|it| it["spec"]["priority"] == 500));
        }
        Adversary::PortRanges => {
            let mut ranges = BTreeSet::new();
            for (rule, _) in policies.iter().flat_map(|policy| rules(policy)) {
                let port = &rule["ports"][0];
                let (first, last) = (port["port"].as_u64(), port["endPort"].as_u64());
                ranges.insert((first.unwrap(), last.unwrap()));
            }
            assert_eq!(ranges.len(), 5_000);
            let ranges: Vec<(u64, u64)> = ranges.into_iter().collect();
            assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
            assert!(
                ranges
                    .iter()
                    .all(|(first, last)| first <= last && *last <= 65_535)
            );
        }
        Adversary::Blocks => {
            let n_blocks = of_rules(&|rule, peers| rule[peers][0]["ipBlock"].to_string());
            assert!(n_blocks > 15_000, "{n_blocks}");
        }
        Adversary::Negative => {
            let text = serde_json::to_string(&policies).unwrap();
            assert!(!text.contains("matchLabels") && text.contains("NotIn"));
        }
        Adversary::NamespaceSelectors => {
            let selectors =
                of_rules(&|rule, peers| rule[peers][0]["namespaceSelector"].to_string());
            assert_eq!(selectors, 10_000);
        }
    }
}
