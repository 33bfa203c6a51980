//! Tests of generated objects, read back from the files.

use std::collections::BTreeSet;

use saphyr_parser::{Event, Parser, ScalarStyle};

use super::*;

const SMALL: Manifests = Manifests {
    seed: 7,
    files: 600,
    bytes: 3_000_000,
};

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let scratch = tempfile::tempdir().unwrap();
    let plan = Manifests {
        seed: 3,
        files: 40,
        bytes: 200_000,
    };
    let all = |name: &str, plan: &Manifests| -> Vec<(String, String)> {
        manifests(&scratch.path().join(name), plan).unwrap();
        read(&scratch.path().join(name))
    };
    let first = all("first", &plan);
    assert_eq!(first, all("second", &plan));
    assert_ne!(first, all("third", &Manifests { seed: 4, ..plan }));

    let one = |name: &str| -> Vec<u8> {
        let path = scratch.path().join(name);
        list(
            &path,
            &List {
                seed: 3,
                bytes: 100_000,
            },
        )
        .unwrap();
        fs::read(path).unwrap()
    };
    assert_eq!(one("first.json"), one("second.json"));
}

#[test]
fn a_directory_has_the_size_and_the_documents_it_reports() {
    let scratch = tempfile::tempdir().unwrap();
    let written = manifests(scratch.path(), &SMALL).unwrap();
    let files = read(scratch.path());
    let bytes: usize = files.iter().map(|(_, text)| text.len()).sum();
    let documents: Vec<usize> = files.iter().map(|(_, text)| load(text).len()).collect();
    assert_eq!(files.len() as u64, SMALL.files);
    assert_eq!(bytes as u64, written.bytes);
    assert_eq!(documents.iter().sum::<usize>() as u64, written.documents);
    assert!(bytes.abs_diff(3_000_000) < 300_000, "{bytes} bytes");
    assert!(
        documents.iter().any(|n_documents| *n_documents > 2),
        "no file with many documents"
    );
}

#[test]
fn a_list_has_the_size_it_reports() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("list.json");
    let written = list(
        &path,
        &List {
            seed: 7,
            bytes: 2_000_000,
        },
    )
    .unwrap();
    let bytes = fs::metadata(&path).unwrap().len();
    assert_eq!(bytes, written.bytes);
    assert!(bytes.abs_diff(2_000_000) < 200_000, "{bytes} bytes");
    let value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(
        value["items"].as_array().unwrap().len() as u64,
        written.objects
    );
    assert_eq!(value["kind"], "List");
}

#[test]
fn pods_have_the_size_of_real_ones() {
    let json = mean_size(&Mix::LIST, |pod| serde_json::to_string(pod).unwrap());
    assert!((4_500..4_900).contains(&json), "{json} bytes of JSON");
    let yaml = mean_size(&Mix::MANIFESTS, |pod| {
        let mut text = String::new();
        to_yaml(&mut text, pod, Style::Kubectl);
        text
    });
    assert!((4_500..5_000).contains(&yaml), "{yaml} bytes of YAML");
}

#[test]
fn no_two_objects_have_the_same_identity() {
    let scratch = tempfile::tempdir().unwrap();
    let written = manifests(scratch.path(), &SMALL).unwrap();
    let mut seen = BTreeSet::new();
    for (name, text) in read(scratch.path()) {
        for document in load(&text) {
            let objects = match document.get("items") {
                Some(Value::Array(items)) => items.clone(),
                _ => vec![document],
            };
            for object in objects {
                let identity = identity(&object);
                assert!(seen.insert(identity.clone()), "{identity} again in {name}");
            }
        }
    }
    assert_eq!(seen.len() as u64, written.objects);

    let mut cluster = Cluster::new(1);
    let identities: BTreeSet<String> = (0..20_000)
        .map(|_| identity(&cluster.next_object(&Mix::LIST).value))
        .collect();
    assert_eq!(identities.len(), 20_000);
}

#[test]
fn every_kind_is_drawn() {
    let mut cluster = Cluster::new(7);
    let kinds: BTreeSet<&str> = (0..2_000)
        .map(|_| cluster.next_object(&Mix::MANIFESTS).kind.name())
        .collect();
    assert_eq!(kinds.len(), 9);
}

#[test]
fn yaml_reads_back_as_what_was_printed() {
    let mut cluster = Cluster::new(7);
    for _ in 0..1_000 {
        let object = cluster.next_object(&Mix::MANIFESTS);
        for style in [Style::Kubectl, Style::Helm] {
            let mut text = String::new();
            to_yaml(&mut text, &object.value, style);
            assert_eq!(load(&text), std::slice::from_ref(&object.value), "{text}");
        }
    }
}

#[test]
fn a_world_has_what_was_planned() {
    let plan = World::new(5, 500, 200);
    let objects = world(&plan);
    let count = |kind: &str| objects.iter().filter(|it| it["kind"] == kind).count() as u64;
    assert_eq!(count("Pod"), plan.pods);
    assert_eq!(count("Namespace"), plan.namespaces);
    assert_eq!(count("Node"), plan.nodes);
    assert_eq!(count("NetworkPolicy"), plan.network_policies);
    assert_eq!(count("BaselineAdminNetworkPolicy"), 1);
    let (cluster, admin) = (count("ClusterNetworkPolicy"), count("AdminNetworkPolicy"));
    assert_eq!(cluster + admin + 1, plan.cluster_policies);
    assert!(cluster > 0 && admin > 0, "{cluster} and {admin}");
    let identities: BTreeSet<String> = objects.iter().map(identity).collect();
    assert_eq!(identities.len(), objects.len());

    assert_eq!(objects, world(&plan));
    assert_ne!(objects, world(&World { seed: 6, ..plan }));
}

#[test]
fn a_world_is_valid_and_its_policies_name_peers_of_all_kinds() {
    let bytes = world_list(&World::new(5, 1_000, 1_000)).unwrap();
    let text = String::from_utf8(bytes.clone()).unwrap();
    let sources = [palisade_api::Source::new("cluster.json", bytes)];
    let manifests = palisade_api::read(&sources, Default::default(), &|_| {});
    let errors = manifests.problems.iter().filter(|it| it.is_error());
    let errors: Vec<&String> = errors.map(|it| &it.message).collect();
    assert!(errors.is_empty(), "{errors:?}");
    for word in [
        "all",
        "domainNames",
        "except",
        "ipBlock",
        "namespaces",
        "networks",
        "nodes",
        "notSameLabels",
        "pods",
        "related",
        "sameLabels",
        "destinationNamedPort",
        "namedPort",
        "endPort",
    ] {
        assert!(text.contains(&format!("\"{word}\":")), "no {word}");
    }
    for word in ["Accept", "Allow", "Deny", "Pass", "Admin", "Baseline"] {
        assert!(text.contains(&format!(":\"{word}\"")), "no {word}");
    }
}

/// The mean size of a pod in bytes.
fn mean_size(mix: &Mix, print: impl Fn(&Value) -> String) -> usize {
    let mut cluster = Cluster::new(7);
    let sizes: Vec<usize> = (0..2_000)
        .map(|_| cluster.next_object(mix))
        .filter(|object| object.kind == Kind::Pod)
        .map(|object| print(&object.value).len())
        .collect();
    sizes.iter().sum::<usize>() / sizes.len()
}

pub(super) fn identity(object: &Value) -> String {
    let metadata = &object["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or("");
    let kind = object["kind"].as_str().unwrap();
    format!("{kind}/{namespace}/{}", metadata["name"].as_str().unwrap())
}

fn read(dir: &Path) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Documents as values; plain scalars are resolved as a Kubernetes reader does.
pub(super) fn load(text: &str) -> Vec<Value> {
    let mut documents = Vec::new();
    let mut events = Parser::new_from_str(text).map(|event| event.unwrap().0);
    while let Some(event) = events.next() {
        if let Event::DocumentStart(_) = event {
            let first = events.next().unwrap();
            documents.push(node(first, &mut events));
        }
    }
    documents
}

fn node<'a>(event: Event<'a>, events: &mut impl Iterator<Item = Event<'a>>) -> Value {
    match event {
        Event::Scalar(text, ScalarStyle::Plain, ..) => plain(&text),
        Event::Scalar(text, ..) => Value::String(text.into_owned()),
        Event::SequenceStart(..) => {
            let mut items = Vec::new();
            loop {
                let event = events.next().unwrap();
                if event == Event::SequenceEnd {
                    return Value::Array(items);
                }
                items.push(node(event, events));
            }
        }
        Event::MappingStart(..) => {
            let mut map = serde_json::Map::new();
            loop {
                let event = events.next().unwrap();
                if event == Event::MappingEnd {
                    return Value::Object(map);
                }
                let Event::Scalar(key, ..) = event else {
                    panic!("{event:?} as a key")
                };
                let event = events.next().unwrap();
                let value = node(event, events);
                assert_eq!(map.insert(key.into_owned(), value), None, "duplicate key");
            }
        }
        Event::Nothing
        | Event::StreamStart
        | Event::StreamEnd
        | Event::DocumentStart(_)
        | Event::DocumentEnd
        | Event::Alias(_)
        | Event::SequenceEnd
        | Event::MappingEnd => panic!("unexpected {event:?}"),
    }
}

fn plain(text: &str) -> Value {
    match text {
        "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ => text
            .parse::<u64>()
            .map_or_else(|_| Value::String(text.to_owned()), Value::from),
    }
}
