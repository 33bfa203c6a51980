//! Reading: the problems of a text, their places, and the parts that are still read.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_api::{Kind, Lines, Manifests, Options, Source, lower, read, read_served};

const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";

fn with(name: &str, bytes: &[u8], check: impl Fn(&Manifests<'_>, &str)) {
    let sources = [Source::new(name, bytes.to_vec())];
    let manifests = read(&sources, Options::default(), &|_| {});
    check(&manifests, sources[0].text());
}

/// The problems as `CODE line:column path`, and how many valid objects were read.
#[track_caller]
fn check(name: &str, bytes: &[u8], problems: &[&str], valid: usize) {
    with(name, bytes, |manifests, text| {
        let lines = Lines::new(text);
        let found: Vec<String> = manifests
            .problems
            .iter()
            .map(|it| {
                let (line, column) = lines.position(it.span.start as usize);
                let path = it
                    .path
                    .as_deref()
                    .map(|path| format!(" {path}"))
                    .unwrap_or_default();
                format!("{} {line}:{column}{path}", it.code)
            })
            .collect();
        assert_eq!(found, problems, "{}", String::from_utf8_lossy(bytes));
        let read = manifests
            .objects
            .iter()
            .filter(|object| object.valid)
            .count();
        assert_eq!(read, valid, "{}", String::from_utf8_lossy(bytes));
    });
}

#[track_caller]
fn yaml(text: &str, problems: &[&str]) {
    check("a.yaml", text.as_bytes(), problems, 0);
    // Between two good documents it hides neither, and is three lines further down.
    let between = format!(
        "{NAMESPACE}---\n{text}\n---\n{}",
        NAMESPACE.replace("name: a", "name: b")
    );
    let shifted: Vec<String> = problems.iter().map(|it| shift(it, 4)).collect();
    let shifted: Vec<&str> = shifted.iter().map(String::as_str).collect();
    check("a.yaml", between.as_bytes(), &shifted, 2);
}

fn shift(problem: &str, lines: usize) -> String {
    let mut words: Vec<String> = problem.split(' ').map(str::to_owned).collect();
    let (line, column) = words[1].split_once(':').unwrap();
    words[1] = format!("{}:{column}", line.parse::<usize>().unwrap() + lines);
    words.join(" ")
}

#[test]
fn broken_yaml_is_reported_where_it_breaks() {
    yaml("a: [1, 2\nb: 3", &["YAML-SYNTAX 2:2"]);
    yaml("a: \"x\\q\"", &["YAML-SYNTAX 1:4"]);
    yaml("a: b: c", &["YAML-SYNTAX 1:5"]);
    yaml("a: @b", &["YAML-SYNTAX 1:4"]);
    check("a.yaml", b"%YAML 3.0\n---\na: 1\n", &["YAML-SYNTAX 1:1"], 0);
    yaml("kind:Pod\nb: 1", &["YAML-SYNTAX 1:1"]);
    yaml("kind Pod\nb: 1", &["YAML-SYNTAX 1:1"]);
}

#[test]
fn tabs_as_indentation() {
    yaml("a:\n\tb: 1", &["TAB-INDENT 2:1"]);
    yaml("a:\n  b: 1\n\tc: 1", &["TAB-INDENT 3:1"]);
    yaml("a:\n\t- b", &["TAB-INDENT 2:1"]);
    // Between a key and its value a tab is like a space.
    check(
        "a.yaml",
        NAMESPACE.replace("kind: ", "kind:\t").as_bytes(),
        &[],
        1,
    );
}

#[test]
fn control_characters_and_bytes_that_are_not_utf8() {
    yaml("a: \u{7}", &["CONTROL-CHARACTER 1:4"]);
    yaml("a: \u{7f}", &["CONTROL-CHARACTER 1:4"]);
    yaml("é: \u{0}", &["CONTROL-CHARACTER 1:4"]);
    let bytes = [NAMESPACE.as_bytes(), b"---\na: \xff\n---\n", b"b: 1\n"].concat();
    check("a.yaml", &bytes, &["NOT-UTF8 5:4", "NO-TYPE 7:1"], 1);
    check("a.yaml", b"\xff\xfea\0:\0 \x001\0", &["NOT-UTF8 1:1"], 0);
}

#[test]
fn templates_that_were_not_rendered() {
    yaml("a: {{ .Values.x }}", &["HELM-TEMPLATE 1:4"]);
    yaml(
        "{{- if .Values.x }}\na: 1\n{{- end }}",
        &["HELM-TEMPLATE 1:1"],
    );
    let quoted = NAMESPACE.replace("name: a", "name: \"{{ .x }}\"");
    yaml(&quoted, &["HELM-TEMPLATE 3:18 metadata.name"]);
    // Braces in a text elsewhere are not the cause of a flaw.
    yaml("t: \"{{ x }}\"\na: 1\na: 2", &["DUPLICATE-KEY 3:1 a"]);
    // Templates in the data of other kinds are valid.
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {t: \"{{ x }}\"}\n";
    check("a.yaml", config.as_bytes(), &[], 0);
}

#[test]
fn duplicate_keys_at_any_depth() {
    yaml(
        "a: 1\na: 2\na: 3",
        &["DUPLICATE-KEY 2:1 a", "DUPLICATE-KEY 3:1 a"],
    );
    yaml(
        "a: [{b: 1}, {b: {c: 1, c: 2}}]",
        &["DUPLICATE-KEY 1:24 a[1].b.c"],
    );
    yaml("y: 1\ntrue: 2", &["DUPLICATE-KEY 2:1 true"]);
    let many: String = (0..40).map(|i| format!("k{i}: 1\n")).collect();
    yaml(&format!("{many}k7: 2"), &["DUPLICATE-KEY 41:1 k7"]);
}

#[test]
fn anchors_aliases_and_merge_keys() {
    yaml("a: *b", &["ALIAS-UNDEFINED 1:4"]);
    yaml("a: &a [*a]", &["ALIAS-CYCLE 1:8 a[0]"]);
    yaml("a: &a {b: *a}", &["ALIAS-CYCLE 1:11 a.b"]);
    yaml("a: &a 1\nb: {<<: *a}", &["MERGE-KEY 2:5 b"]);
    yaml("a: {<<: {b: 1}, <<: {c: 1}}", &["DUPLICATE-KEY 1:17 a"]);
    let good = "x: &labels {app: web, tier: a}\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  labels: {<<: *labels, tier: b}\n";
    check("a.yaml", good.as_bytes(), &["UNKNOWN-FIELD 1:1 x"], 0);
    with("a.yaml", good.as_bytes(), |manifests, _| {
        let labels = &manifests.objects[0].metadata.labels;
        let labels: Vec<(&str, &str)> = labels.iter().map(|(k, v)| (&**k, &**v)).collect();
        assert_eq!(labels, [("tier", "b"), ("app", "web")]);
    });
}

/// The value of a merge key is removed from the tree, with the nodes of an anchor inside it: this
/// once looped until memory ran out.
#[test]
fn an_anchor_in_a_merged_value_is_not_kept() {
    let text = "a: &x {\t:}\n:\n  : \n  <<:a  <<:a: &x {\t:}\n:\n  : \n  <<: *x\n<<:  *x\n<<: &x {\t:}\n:\n  : \n  <<(: *x\n<<:  *x\n<<: *x\n";
    let sources = [Source::new("circle.yaml", text.as_bytes().to_vec())];
    assert!(
        read(&sources, Options::default(), &|_| {})
            .objects
            .is_empty()
    );
    let text = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: x\n  <<: &y {labels: {a: b}}\nother: *y\n";
    let sources = [Source::new("merged.yaml", text.as_bytes().to_vec())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let codes: Vec<&str> = manifests.problems.iter().map(|it| it.code.name()).collect();
    assert!(codes.contains(&"ALIAS-UNDEFINED"), "{codes:?}");
}

#[test]
fn an_alias_bomb_is_rejected_quickly() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    with("a.yaml", text.as_bytes(), |manifests, _| {
        let codes: Vec<&str> = manifests.problems.iter().map(|it| it.code.name()).collect();
        assert_eq!(codes, ["ALIAS-BUDGET"]);
    });
}

#[test]
fn deep_nesting_is_rejected_in_every_style() {
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(10_000),
    ] {
        with("a.yaml", text.as_bytes(), |manifests, _| {
            assert_eq!(manifests.problems.len(), 1);
            assert_eq!(manifests.problems[0].code.name(), "NESTING-DEPTH");
        });
    }
}

/// An API server stores such an object of any user, and lists it among others.
#[test]
fn json_may_be_nested_in_unread_fields() {
    let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
    let maps = r#"{"a":"#.repeat(300) + "1" + &"}".repeat(300);
    let pod = |name: &str, fields: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"x","managedFields":[{{"fieldsV1":{fields}}}]}},"spec":{{"nodeName":"n1"}}}}"#
        )
    };
    let items = [
        pod("a", "{}"),
        pod("b", &deep),
        pod("c", &maps),
        pod("d", "{}"),
    ];
    let list = format!(
        r#"{{"apiVersion":"v1","kind":"PodList","items":[{}]}}"#,
        items.join(",")
    );
    with("a.json", list.as_bytes(), |manifests, _| {
        let names = manifests.objects.iter().map(|it| &*it.metadata.name);
        assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    });
    // It is still JSON, or nothing.
    for broken in ["[".repeat(300), "{\"a\"".repeat(300), "[1 2]".to_owned()] {
        let maps = r#"{"a":"#.repeat(250) + &broken + &"}".repeat(250);
        let text = pod("a", &maps);
        with("a.json", text.as_bytes(), |manifests, _| {
            assert_eq!(manifests.problems[0].code.name(), "JSON-SYNTAX");
        });
    }
}

#[test]
fn keys_and_tags_that_a_manifest_cannot_have() {
    yaml("[a]: 1", &["YAML-KEY 1:1"]);
    yaml("~: 1", &["YAML-KEY 1:1"]);
    yaml("a: !!int x", &["YAML-TAG 1:4 a"]);
    yaml("a: !secret x", &["YAML-TAG 1:4 a"]);
    yaml("a: .inf", &["WRONG-TYPE 1:4 a"]);
}

#[test]
fn what_is_read_silently() {
    let crlf = NAMESPACE.replace('\n', "\r\n");
    let bom = format!("\u{feff}{NAMESPACE}");
    let empty = format!("---\n---\n# nothing\n---\n{NAMESPACE}...\n---\n");
    for text in [NAMESPACE, &crlf, &bom, &empty] {
        check("a.yaml", text.as_bytes(), &[], 1);
    }
    check("a.yaml", b"null\n---\n~\n", &[], 0);
    check("a.yaml", b"", &[], 0);
    check("a.json", b" ", &[], 0);
}

#[test]
fn documents_that_are_not_objects() {
    yaml("just text", &["NOT-AN-OBJECT 1:1"]);
    yaml("- a: 1", &["NOT-AN-OBJECT 1:1"]);
    yaml("replicas: 2", &["NO-TYPE 1:1"]);
    yaml("kind: Pod", &["API-VERSION-MISSING 1:1 apiVersion"]);
    yaml("apiVersion: v1", &["KIND-MISSING 1:1 kind"]);
    yaml("apiVersion: v1\nkind: \"\"", &["KIND-MISSING 1:1 kind"]);
    yaml("apiVersion: 1\nkind: Pod", &["WRONG-TYPE 1:13 apiVersion"]);
}

#[test]
fn kinds_and_versions() {
    let object = |version: &str, kind: &str| {
        format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}")
    };
    for (version, kind) in [
        ("networking.k8s.io/v2", "NetworkPolicy"),
        ("v1", "NetworkPolicy"),
        ("networking.k8s.oi/v1", "NetworkPolicy"),
        ("policy.networking.k8s.io/v1beta1", "ClusterNetworkPolicy"),
        ("policy.networking.k8s.io/v1alpha2", "AdminNetworkPolicy"),
        ("networking.kubernetes.io/v1", "NetworkPolicy"),
        ("v2", "Pod"),
        ("V1", "Pod"),
        ("core/v1", "Namespace"),
        ("apps/v3", "Deployment"),
        ("apps", "Deployment"),
        ("discovery/v1", "EndpointSlice"),
    ] {
        yaml(&object(version, kind), &["UNKNOWN-VERSION 1:13 apiVersion"]);
    }
    for (version, kind) in [
        ("networking.k8s.io/v1", "NetworkPolicies"),
        ("v1", "Pods"),
        ("v1", "Deployment"),
        ("v1beta", "networkPolicy"),
        ("extensions/v1beta1", "NetworkPolic"),
        ("policy.networking.k8s.io/v1alpha1", "Something"),
    ] {
        yaml(&object(version, kind), &["UNKNOWN-KIND 2:7 kind"]);
    }
    for (version, kind) in [
        ("crd.projectcalico.org/v1", "NetworkPolicy"),
        ("crd.antrea.io/v1beta1", "ClusterNetworkPolicy"),
        ("cilium.io/v2", "CiliumNetworkPolicy"),
        ("v1", "ConfigMap"),
        ("example.com/v1", "Anything"),
    ] {
        check("a.yaml", object(version, kind).as_bytes(), &[], 0);
    }
}

#[test]
fn lists_complete_the_type_of_their_items() {
    let typed = "apiVersion: v1\nkind: NamespaceList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n";
    check("a.yaml", typed.as_bytes(), &[], 2);
    let late = "{\"items\":[{\"metadata\":{\"name\":\"a\"}}],\"kind\":\"NamespaceList\",\"apiVersion\":\"v1\"}";
    check("a.json", late.as_bytes(), &[], 1);
    let plain = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n- 1\n- {kind: Pod}\n";
    check(
        "a.yaml",
        plain.as_bytes(),
        &["NOT-AN-OBJECT 5:3", "API-VERSION-MISSING 6:3 apiVersion"],
        1,
    );
    let array = "[{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"a\"}}]";
    check("a.json", array.as_bytes(), &[], 1);
    check("a.yaml", b"apiVersion: v1\nkind: PodList\nitems:\n", &[], 0);
    check(
        "a.yaml",
        b"apiVersion: v1\nkind: List\nitems: x\n",
        &["WRONG-TYPE 3:8 items"],
        0,
    );
    check(
        "a.yaml",
        b"apiVersion: v1\nkind: List\n",
        &["REQUIRED 2:7 items"],
        0,
    );
    // Not a list, although it has items.
    let other = "{\"items\":[1],\"kind\":\"Basket\",\"apiVersion\":\"example.com/v1\"}";
    check("a.json", other.as_bytes(), &[], 0);
}

#[test]
fn broken_json_is_reported_where_it_breaks_and_the_next_document_is_read() {
    let good = "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"a\"}}";
    for (broken, position) in [
        ("{\"a\":1,}", "1:8"),
        ("{\"a\" 1}", "1:6"),
        ("{'a': 1}", "1:2"),
        ("{\"a\": tru}", "1:7"),
        ("{\"a\": 01}", "1:7"),
        ("{\"a\": \"\\x\"}", "1:8"),
        ("{\"a\": \"\\ud800\"}", "1:8"),
        ("{\"a\": 1 // no\n}", "1:9"),
        ("{\"a\": [1 2]}", "1:10"),
        ("{\"a\": 1", "1:8"),
        ("{\"a\": {\"b\": [", "1:14"),
    ] {
        let text = format!("{broken}\n{good}\n");
        check(
            "a.json",
            text.as_bytes(),
            &[&format!("JSON-SYNTAX {position}")],
            1,
        );
        // Also when the broken one is not the first, or is the last.
        let other = good.replace("\"a\"", "\"b\"");
        let text = format!("{good}\n{broken}\n{other}\n{broken}");
        with("a.json", text.as_bytes(), |manifests, _| {
            assert_eq!(manifests.objects.len(), 2, "{text}");
            assert_eq!(manifests.problems.len(), 2, "{text}");
        });
    }
}

#[test]
fn duplicate_keys_in_json_are_reported_at_every_place() {
    let pod = "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"},\"spec\":{\"x\":{\"y\":1,\"y\":2}}}";
    check("a.json", pod.as_bytes(), &["DUPLICATE-KEY 1:76"], 0);
    let twice = "{\"apiVersion\":\"v1\",\"apiVersion\":\"v2\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}";
    check(
        "a.json",
        twice.as_bytes(),
        &["DUPLICATE-KEY 1:20 apiVersion"],
        0,
    );
}

#[test]
fn json_inside_yaml_and_yaml_that_looks_like_json() {
    let json = "{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {\"name\": \"b\"}}";
    check(
        "a.yaml",
        format!("{NAMESPACE}---\n{json}\n").as_bytes(),
        &[],
        2,
    );
    check(
        "a.yaml",
        b"{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n",
        &[],
        1,
    );
    check(
        "-",
        b"{apiVersion: v1, kind: Namespace, metadata: {name: a}}\n",
        &[],
        1,
    );
}

#[test]
fn a_duplicate_object_is_reported_at_the_later_one() {
    let twice = format!("{NAMESPACE}---\n{NAMESPACE}");
    check(
        "a.yaml",
        twice.as_bytes(),
        &["DUPLICATE-OBJECT 7:18 metadata.name"],
        1,
    );
    // Kinds of one name in two API versions are two objects.
    let cnp = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: a}\nspec: {tier: Admin, priority: 1, subject: {namespaces: {}}}\n";
    let cnp0 = "apiVersion: networking.k8s.io/v1alpha1\nkind: ClusterNetworkPolicy\nmetadata: {name: a}\nspec: {appliedTo: {namespaceSelector: {}}}\n";
    check("a.yaml", format!("{cnp}---\n{cnp0}").as_bytes(), &[], 2);
}

#[test]
fn one_flawed_item_of_a_list_hides_no_other() {
    let list = |item: &str| {
        format!(
            "apiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: Namespace, metadata: {{name: a}}}}\n- {item}\n- {{apiVersion: v1, kind: Node, metadata: {{name: m}}}}\n"
        )
    };
    let flawed = "{apiVersion: v1, kind: Pod, metadata: {name: a, name: b}}";
    check(
        "a.yaml",
        list(flawed).as_bytes(),
        &["DUPLICATE-KEY 5:51 items[1].metadata.name"],
        2,
    );
    let infinite = "{apiVersion: v1, kind: Pod, metadata: {name: .inf}}";
    check(
        "a.yaml",
        list(infinite).as_bytes(),
        &["WRONG-TYPE 5:48 items[1].metadata.name"],
        2,
    );
    let good = "{\"apiVersion\":\"v1\",\"kind\":\"Namespace\",\"metadata\":{\"name\":\"a\"}}";
    check(
        "a.json",
        format!("[{good},\n{{\"kind\": x}}]").as_bytes(),
        &["JSON-SYNTAX 2:10"],
        1,
    );
    check(
        "a.json",
        format!("[{good}\n{}", good.replace("\"a\"", "\"b\"")).as_bytes(),
        &["JSON-SYNTAX 1:64"],
        2,
    );
}

#[test]
fn problems_past_the_limit_do_not_affect_the_next_document() {
    let labels: String = (0..10_500)
        .map(|i| format!("    k{i}: \"a b\"\n"))
        .collect();
    let bad = format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  labels:\n{labels}");
    let text = format!("{bad}---\n{}", NAMESPACE.replace("name: a", "name: b"));
    with("a.yaml", text.as_bytes(), |manifests, _| {
        assert_eq!(manifests.problems.len(), 10_001);
        let valid: Vec<&str> = manifests
            .objects
            .iter()
            .filter(|it| it.valid)
            .map(|it| &*it.metadata.name)
            .collect();
        assert_eq!(valid, ["b"]);
    });
}

#[test]
fn misspelt_fields_that_policies_see_are_reported_also_where_others_are_skipped() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {hostnetwork: true, hostIPC: true, containers: []}\nstatus: {hostIPs: []}\n";
    check(
        "a.yaml",
        pod.as_bytes(),
        &["UNKNOWN-FIELD 4:8 spec.hostnetwork"],
        0,
    );
    let service =
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selectors: {app: a}}\n";
    check(
        "a.yaml",
        service.as_bytes(),
        &["UNKNOWN-FIELD 4:8 spec.selectors"],
        0,
    );
}

#[test]
fn the_status_that_programs_write_is_valid() {
    let policy = |kind: &str, spec: &str, status: &str| {
        let text = format!("{kind}\nmetadata: {{name: default}}\nspec: {spec}\nstatus: {status}\n");
        let sources = [Source::new("p.yaml", text.into_bytes())];
        let manifests = read(&sources, Options::default(), &|_| {});
        manifests.problems.iter().any(|it| it.is_error())
    };
    let np = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy";
    let banp = "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: BaselineAdminNetworkPolicy";
    assert!(!policy(np, "{podSelector: {}}", "{}"));
    assert!(!policy(
        banp,
        "{subject: {namespaces: {}}}",
        "{conditions: null}"
    ));
    assert!(policy(banp, "{subject: {namespaces: {}}}", "{}"));
}

#[test]
fn layout_that_kubectl_accepts_is_read() {
    let nad = "\
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata:
  name: net
spec:
  config: '{
    \"cniVersion\": \"0.3.1\",
    \"it''s\": \"eth0\"
  }'
---
apiVersion: v1
kind: Pod
metadata:
  name: a
  annotations:
    note: \"one
  two \\\" three
  \"
  labels: {app: web}
spec:
  containers:
  - name: c
    args: [
      \"-jar\", # a ] and a 'quote
\t      \"-x\",
    \"[\",
    ]
    command: [
    a, {b: c
    }
    ]
    ports:
    - {name: http, containerPort: 0}
";
    check(
        "nad.yaml",
        nad.as_bytes(),
        &["OUT-OF-RANGE 33:35 spec.containers[0].ports[0].containerPort"],
        0,
    );
}

#[test]
fn zero_values_that_programs_write_are_valid() {
    let text = "\
apiVersion: v1
kind: Service
metadata: {name: a, namespace: x, creationTimestamp: null}
spec:
  type: ''
  selector: {app: a}
  ports:
  - {name: '', protocol: '', port: 80, targetPort: 0, nodePort: 0}
  - {name: b, port: 81, targetPort: ''}
status: {loadBalancer: {}}
---
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: x, labels: {app: a}}
spec:
  containers:
  - {name: c, ports: [{containerPort: 81, hostPort: 0, protocol: ''}], resources: {}}
status: {phase: '', podIP: ''}
---
apiVersion: v1
kind: Node
metadata: {name: n1}
spec: {podCIDR: ''}
status: {nodeInfo: {}}
";
    check("zero.yaml", text.as_bytes(), &[], 3);
    with("zero.yaml", text.as_bytes(), |manifests, _| {
        let lowered = lower(&manifests.objects, Vec::new());
        let ports: Vec<(u16, u16)> = lowered.cluster.services[0]
            .ports
            .iter()
            .map(|it| (it.port.get(), it.backends[0].port.get()))
            .collect();
        assert_eq!(ports, [(80, 80), (81, 81)]);
    });
}

/// The kinds and names of the objects of a served text, and whether it has an error.
fn served(text: &[u8]) -> (Vec<(Kind, String)>, bool) {
    let source = Source::served(Kind::Pod, "v1".to_owned(), text.to_vec());
    let manifests = read_served(&source);
    let objects = manifests.objects.iter();
    let objects = objects.map(|it| (it.kind, it.metadata.name.to_string()));
    let has_error = manifests.problems.iter().any(|it| it.is_error());
    (objects.collect(), has_error)
}

const POD: &str =
    r#""metadata":{"name":"a","namespace":"x"},"spec":{"containers":[{"name":"c","image":"i"}]}"#;

#[test]
fn a_served_object_needs_no_type_and_keeps_its_own() {
    let pod = (vec![(Kind::Pod, "a".to_owned())], false);
    assert_eq!(served(format!("{{{POD}}}").as_bytes()), pod);
    let typed = format!(r#"{{"apiVersion":"v1","kind":"Pod",{POD}}}"#);
    assert_eq!(served(typed.as_bytes()), pod);
    let other = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"a"}}"#;
    let node = (vec![(Kind::Node, "a".to_owned())], false);
    assert_eq!(served(other.as_bytes()), node);
    // Bytes that are not UTF-8, in a field that nothing reads.
    let mut bytes = format!(r#"{{{POD},"status":{{"message":""#).into_bytes();
    bytes.extend(b"\xff\"}}");
    assert_eq!(served(&bytes), pod);
}

#[test]
fn a_served_text_that_is_not_one_object_gives_none() {
    let whole = format!("{{{POD}}}");
    let array = format!("[{whole}]");
    let open = whole.trim_end_matches('}');
    for text in [array.as_str(), open, "12", "a: b", ""] {
        let (objects, has_error) = served(text.as_bytes());
        assert!(objects.is_empty() && has_error, "{text}: {objects:?}");
    }
}
