//! Lists and watches of a server, with some malformed objects.

use std::collections::HashSet;
use std::sync::OnceLock;

use palisade_api::Kind;
use palisade_kube::Resource;
use serde_json::{Value, json};

use super::mutate::{Decisions, change};
use super::seeds::TARGETS;

/// An empty list.
pub(super) const EMPTY_LIST: &[u8] = br#"{"metadata":{"resourceVersion":"9"},"items":[]}"#;

const NAMESPACES: [&str; 2] = ["x", "y"];
const NAMES: [&str; 3] = ["a", "b", "c"];
const VARIANTS: usize = 4;

/// The text of a page of a list.
pub(super) fn list(resource: Resource, decisions: &mut Decisions<'_>) -> Vec<u8> {
    let count = decisions.byte() % 6;
    let items: Vec<Vec<u8>> = (0..count).map(|_| object(resource, decisions)).collect();
    let more = match decisions.byte() % 8 {
        0 => r#","continue":"next""#,
        _ => "",
    };
    let head = format!(r#"{{"kind":"List","metadata":{{"resourceVersion":"5"{more}}},"items":["#);
    let text = [head.as_bytes(), &items.join(&b',')[..], b"]}\n"].concat();
    maybe_truncate(text, decisions)
}

/// The text of a watch.
pub(super) fn watch(resource: Resource, decisions: &mut Decisions<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..decisions.byte() % 6 {
        let types = [
            "ADDED", "MODIFIED", "MODIFIED", "DELETED", "DELETED", "BOOKMARK", "ERROR", "OTHER",
        ];
        let kind = types.get(decisions.byte() % types.len()).copied();
        let kind = kind.unwrap_or_default();
        let object = match kind {
            "BOOKMARK" => br#"{"metadata":{"resourceVersion":"7"}}"#.to_vec(),
            "ERROR" => br#"{"kind":"Status","code":410}"#.to_vec(),
            _ => object(resource, decisions),
        };
        text.extend_from_slice(format!(r#"{{"type":"{kind}","object":"#).as_bytes());
        text.extend_from_slice(&object);
        text.extend_from_slice(b"}\n");
    }
    maybe_truncate(text, decisions)
}

fn maybe_truncate(mut text: Vec<u8>, decisions: &mut Decisions<'_>) -> Vec<u8> {
    if decisions.byte() % 8 == 7 {
        text.truncate(decisions.below(text.len() + 1));
    }
    text
}

/// Whether an object was not mutated.
pub(super) fn is_unmutated(resource: Resource, bytes: &[u8]) -> bool {
    static ALL: OnceLock<HashSet<(Kind, Vec<u8>)>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let mut all = HashSet::new();
        for resource in Resource::of_agents(true) {
            for namespace in NAMESPACES {
                for name in NAMES {
                    for variant in 0..VARIANTS {
                        let object = build(resource, namespace, name, variant);
                        all.insert((resource.kind, object.to_string().into_bytes()));
                    }
                }
            }
        }
        all
    });
    all.contains(&(resource.kind, bytes.to_vec()))
}

/// An object, as the decisions have it.
fn object(resource: Resource, decisions: &mut Decisions<'_>) -> Vec<u8> {
    let which = decisions.byte();
    let namespace = NAMESPACES.get(which % NAMESPACES.len());
    let name = NAMES.get(which / 2 % NAMES.len());
    let variant = which / 8 % VARIANTS;
    let (namespace, name) = (namespace.unwrap_or(&"x"), name.unwrap_or(&"a"));
    let mut object = build(resource, namespace, name, variant);
    match decisions.byte() % 24 {
        0 | 1 => {
            for _ in 0..=decisions.byte() % 4 {
                change(&mut object, decisions, 0);
            }
            object.to_string().into_bytes()
        }
        2 => {
            let metadata = object.get_mut("metadata");
            if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
                let fields = ["namespace", "name", "resourceVersion", "labels"];
                let field = fields.get(decisions.byte() % fields.len());
                let field = field.copied().unwrap_or_default();
                match decisions.byte() % 4 {
                    0 => drop(metadata.remove(field)),
                    1 => drop(metadata.insert(field.to_owned(), json!("x"))),
                    2 => drop(metadata.insert(field.to_owned(), json!(""))),
                    _ => drop(metadata.insert(field.to_owned(), decisions.entry())),
                }
            }
            object.to_string().into_bytes()
        }
        3 => corrupt(object.to_string().into_bytes(), decisions),
        4 => {
            // Unknown fields, nested deeply.
            let depth = decisions.byte() * 16;
            let deep = "[".repeat(depth) + &"]".repeat(depth);
            let text = object.to_string();
            let text = text.replacen('{', &format!("{{\"deep\":{deep},"), 1);
            text.into_bytes()
        }
        5 => {
            // No object at all.
            let others: [&[u8]; 6] = [b"null", b"12", b"\"x\"", b"{}", b"[]", b"\xff"];
            let other = others.get(decisions.byte() % others.len());
            other.copied().unwrap_or_default().to_vec()
        }
        _ => object.to_string().into_bytes(),
    }
}

/// Bytes with some of them changed.
fn corrupt(mut bytes: Vec<u8>, decisions: &mut Decisions<'_>) -> Vec<u8> {
    for _ in 0..=decisions.byte() % 3 {
        let at = decisions.below(bytes.len());
        let with = decisions.byte() as u8;
        match decisions.byte() % 4 {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, with),
            2 if at < bytes.len() => drop(bytes.remove(at)),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = with;
                }
            }
        }
    }
    bytes
}

/// An object as a server has it.
fn build(resource: Resource, namespace: &str, name: &str, variant: usize) -> Value {
    let kind = resource.kind;
    let mut metadata = json!({"name": name, "resourceVersion": variant.to_string()});
    if let Some(metadata) = metadata.as_object_mut() {
        if kind.is_namespaced() {
            metadata.insert("namespace".to_owned(), json!(namespace));
        }
        if variant % 2 == 1 {
            metadata.insert("labels".to_owned(), json!({"app": name}));
        }
    }
    if let (Kind::BaselineAdminNetworkPolicy, Some(it)) = (kind, metadata.as_object_mut()) {
        it.insert("name".to_owned(), json!("default"));
    }
    // Namespaces have the names that objects refer to.
    if let (Kind::Namespace, Some(it)) = (kind, metadata.as_object_mut()) {
        it.insert("name".to_owned(), json!(namespace));
        if variant == 3 {
            it.insert(
                "deletionTimestamp".to_owned(),
                json!("2026-01-01T00:00:00Z"),
            );
        }
    }
    let rest = spec_of(kind, namespace, name, variant);
    let mut object = json!({"metadata": metadata});
    if let (Some(object), Some(rest)) = (object.as_object_mut(), rest.as_object()) {
        object.extend(rest.clone());
    }
    object
}

fn spec_of(kind: Kind, namespace: &str, name: &str, variant: usize) -> Value {
    if kind == Kind::Pod {
        let letters = namespace.bytes().chain(name.bytes());
        let number = letters.fold(0, |sum, it| (sum * 7 + u32::from(it)) % 200);
        let address = format!("10.0.{variant}.{number}");
        let status = match variant {
            0 => json!({"phase": "Pending"}),
            2 => json!({"phase": "Succeeded", "podIPs": [{"ip": address}]}),
            _ => json!({"phase": "Running", "podIPs": [{"ip": address}]}),
        };
        let containers = json!([{"name": "c", "image": "i"}]);
        return json!({"spec": {"nodeName": "n1", "containers": containers}, "status": status});
    }
    if kind == Kind::Node {
        return json!({"spec": {"podCIDR": format!("10.{variant}.0.0/24")}});
    }
    let mut body = match (kind == Kind::NetworkPolicy, variant) {
        (true, 0) => json!({"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}}),
        (true, 1) => json!({"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}}),
        (true, 2) => json!({"spec": {"podSelector": {"matchLabels": {"app": name}}}}),
        (_, _) => seed(kind),
    };
    if let Some(priority) = body.pointer_mut("/spec/priority") {
        *priority = json!(variant);
    }
    body
}

/// The spec of an object that uses every field of its kind.
fn seed(kind: Kind) -> Value {
    let target = TARGETS.iter().find(|it| it.kind == kind);
    let seeds = target.map(super::Target::seeds).unwrap_or_default();
    let spec = seeds.first().and_then(|it| it.get("spec"));
    spec.map_or(json!({}), |spec| json!({"spec": spec}))
}
