//! Prints policies of a cluster as readable manifests, one source each.

use palisade_api::Source;
use palisade_core::text::name;
use palisade_kube::Resource;
use palisade_kube::split::{ObjectLocation, SplitObject, Splitter};
use serde_json::{Map, Value};

/// Metadata that programs write and that is noise to readers.
const NOISE: [&str; 2] = ["managedFields", "selfLink"];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns the policies of a list. A page that is no list becomes one source as it is: reading it
/// reports the error.
pub(super) fn policies(resource: Resource, page: String) -> Vec<Source> {
    let Some(items) = items(page.as_bytes()) else {
        let name = format!("cluster:{}", resource.plural);
        return vec![Source::new(name, page.into_bytes())];
    };
    let sources = items.into_iter().map(|item| match item {
        SplitObject::Whole(bytes) => policy_of(resource, bytes),
        // The content is lost; reading the stand-in reports an error.
        SplitObject::TooLarge => {
            Source::new(format!("cluster:{}", resource.plural), b"[0]".to_vec())
        }
    });
    sources.collect()
}

/// Splits a list into its items, as they came; `None` if it is no list.
fn items(page: &[u8]) -> Option<Vec<SplitObject>> {
    let mut splitter = Splitter::new(ObjectLocation::Items);
    let items = splitter.push(page).ok()?;
    let (rest, taken) = splitter.finish().ok()?;
    palisade_kube::response::page(&rest, taken).ok()?;
    Some(items)
}

/// Prints a policy, or keeps it as it came if it is nested too deeply to print.
fn policy_of(resource: Resource, bytes: Vec<u8>) -> Source {
    match serde_json::from_slice(&bytes) {
        Ok(item) => policy(resource, item),
        Err(_) => Source::served(resource.kind, resource.group_version(), bytes),
    }
}

fn policy(resource: Resource, mut item: Value) -> Source {
    let source_name = source_name(resource, &item);
    if let Value::Object(object) = &mut item {
        dress(resource, object);
    }
    let text = match serde_saphyr::to_string(&item) {
        Ok(text) => text,
        Err(_) => item.to_string(),
    };
    Source::new(source_name, text.into_bytes())
}

/// Turns an item of a list into a complete object, without fields for programs.
fn dress(resource: Resource, object: &mut Map<String, Value>) {
    let api_version = resource.group_version();
    // Items of built-in kinds have neither apiVersion nor kind.
    let is_set = |it: &Value| it.as_str().is_some_and(|it| !it.is_empty());
    if !object.get("apiVersion").is_some_and(is_set) {
        object.insert("apiVersion".to_owned(), Value::String(api_version));
    }
    if !object.get("kind").is_some_and(is_set) {
        let kind = resource.kind.name().to_owned();
        object.insert("kind".to_owned(), Value::String(kind));
    }
    object.remove("status");
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return;
    };
    for noise in NOISE {
        metadata.remove(noise);
    }
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove(LAST_APPLIED);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

/// Names the source of a policy: `cluster:netpol/shop/db`.
fn source_name(resource: Resource, item: &Value) -> String {
    let metadata = |key: &str| {
        let value = item.get("metadata").and_then(|it| it.get(key));
        value.and_then(Value::as_str).map(name)
    };
    let mut source_name = format!("cluster:{}", resource.kind.short());
    let parts = [metadata("namespace"), metadata("name")];
    for part in parts.into_iter().flatten() {
        source_name.push('/');
        source_name += &part;
    }
    // The extension of a source's name states its format; the name of an object does not.
    if source_name.ends_with(".gz") || source_name.ends_with(".json") {
        source_name.push('/');
    }
    source_name
}

#[cfg(test)]
mod tests {
    use palisade_api::{Kind, Options, Source, read};
    use palisade_core::policy::Direction;
    use palisade_kube::Resource;
    use serde_json::json;

    use super::policies;

    fn printed(item: &serde_json::Value) -> Vec<Source> {
        let page = json!({"kind": "NetworkPolicyList", "apiVersion": "networking.k8s.io/v1",
            "metadata": {"resourceVersion": "1"}, "items": [item]});
        policies(Resource::of(Kind::NetworkPolicy).unwrap(), page.to_string())
    }

    #[test]
    fn a_policy_of_a_list_becomes_a_manifest_of_its_own() {
        let sources = printed(&json!({
            "metadata": {"name": "db", "namespace": "shop", "managedFields": [{"manager": "kubectl"}],
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "spec": {"podSelector": {"matchLabels": {"app": "db"}},
                "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": 5432}]}]},
            "status": {}
        }));
        assert_eq!(sources.len(), 1);
        assert_eq!(sources[0].name(), "cluster:netpol/shop/db");
        let text = sources[0].text();
        assert!(text.contains("kind: NetworkPolicy\n"), "{text}");
        assert!(!text.contains("managedFields"), "{text}");
        assert!(!text.contains("last-applied"), "{text}");
        assert!(!text.contains("status"), "{text}");
        let manifests = read(&sources, Options::default(), &|_| {});
        assert!(manifests.problems.is_empty(), "{:#?}", manifests.problems);
        let span = manifests.objects[0].rule_span(Direction::Ingress, 0);
        let span = span.unwrap();
        let rule = &text[span.start as usize..span.end as usize];
        assert_eq!(rule, "from");
    }

    #[test]
    fn texts_that_look_like_something_else_stay_texts() {
        let values = [
            "yes",
            "no",
            "null",
            "~",
            "1",
            "1e3",
            "0x1f",
            "01",
            "1.5",
            "true",
            "on",
            "-",
            "=",
            "",
            "1_000",
            "12:30:45",
            "2001-01-01",
            ".inf",
            "0o7",
            "y",
        ];
        for value in values {
            let sources = printed(&json!({
                "metadata": {"name": "a.gz", "namespace": "shop", "annotations": {"note": format!("# {value}\n\t{value}: \"'x'\" ")}},
                "spec": {"podSelector": {"matchLabels": {"app": value}}}
            }));
            assert_eq!(sources[0].name(), "cluster:netpol/shop/a.gz/");
            let manifests = read(&sources, Options::default(), &|_| {});
            let messages: Vec<&str> = (manifests.problems.iter())
                .filter(|it| it.path.as_deref().is_some_and(|it| it.contains("app")))
                .map(|it| it.message.as_str())
                .collect();
            let text = sources[0].text();
            // `-` and `=` are no values of labels, and everything else is.
            let is_label = value != "-"
                && value != "="
                && value != "~"
                && value != ".inf"
                && !value.contains(':');
            assert_eq!(
                messages.is_empty(),
                is_label,
                "{value:?}: {messages:?}\n{text}"
            );
            assert!(
                !messages.iter().any(|it| it.contains("must be a string")),
                "{messages:?}"
            );
        }
    }

    #[test]
    fn a_page_that_is_no_list_becomes_one_source() {
        let resource = Resource::of(Kind::NetworkPolicy).unwrap();
        let sources = policies(resource, "{\"items\": 7}".to_owned());
        assert_eq!(sources[0].name(), "cluster:networkpolicies");
    }

    /// A policy that is nested too deeply to be printed is still evaluated, and the others are
    /// printed.
    #[test]
    fn a_policy_that_is_nested_too_deeply_affects_no_other() {
        let deep = "[".repeat(300) + &"]".repeat(300);
        let item = |name: &str, fields: &str| {
            format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"x","managedFields":[{{"fieldsV1":{fields}}}]}},"spec":{{"podSelector":{{}}}}}}"#
            )
        };
        let items = [item("a", "{}"), item("b", &deep), item("c", "{}")].join(",");
        let page = format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{items}]}}"#);
        let sources = policies(Resource::of(Kind::NetworkPolicy).unwrap(), page);
        let manifests = read(&sources, Options::default(), &|_| {});
        let names = manifests.objects.iter().map(|it| &*it.metadata.name);
        assert_eq!(names.collect::<Vec<_>>(), ["a", "b", "c"]);
        assert!(
            sources[2].text().starts_with("apiVersion:")
                || sources[2].text().contains("kind: NetworkPolicy")
        );
    }
}
