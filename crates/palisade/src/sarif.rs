//! SARIF 2.1.0: problems as code-scanning services read them.

use palisade_api::{Code, Severity};
use serde_json::{Value, json};

use crate::view::Placed;

/// The log of one run.
pub(crate) fn log(placed: &[Placed<'_>]) -> Value {
    let rules: Vec<Value> = Code::ALL.iter().copied().map(rule).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "palisade",
                "version": env!("CARGO_PKG_VERSION"),
                "informationUri": env!("CARGO_PKG_REPOSITORY"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": placed.iter().map(result).collect::<Vec<Value>>(),
        }],
    })
}

fn rule(code: Code) -> Value {
    json!({
        "id": code.name(),
        "shortDescription": {"text": code.summary()},
        "helpUri": format!("{}/blob/main/docs/problems.md#{}", env!("CARGO_PKG_REPOSITORY"), code.name().to_lowercase()),
        "defaultConfiguration": {"level": level(code.severity())},
    })
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Info => "note",
    }
}

fn result(placed: &Placed<'_>) -> Value {
    let problem = placed.problem;
    let mut text = problem.message.clone();
    if let Some(help) = &problem.help {
        text.push_str("; ");
        text.push_str(help);
    }
    let rule_index = Code::ALL.iter().position(|code| *code == problem.code);
    let mut location = json!({
        "physicalLocation": physical(placed.file, placed.start, Some(placed.end)),
    });
    if let (Some(object), Some(location)) = (&problem.object, location.as_object_mut()) {
        let name = match &problem.path {
            Some(path) => format!("{object} {path}"),
            None => object.clone(),
        };
        location.insert(
            "logicalLocations".to_owned(),
            json!([{"fullyQualifiedName": name}]),
        );
    }
    let mut result = json!({
        "ruleId": problem.code.name(),
        "ruleIndex": rule_index,
        "level": level(problem.severity()),
        "message": {"text": text},
        "locations": [location],
    });
    if let (Some(place), Some(related), Some(result)) =
        (&placed.related, &problem.related, result.as_object_mut())
    {
        let related = json!([{
            "physicalLocation": physical(place.file, place.start, None),
            "message": {"text": related.label},
        }]);
        result.insert("relatedLocations".to_owned(), related);
    }
    result
}

fn physical(file: &str, start: (usize, usize), end: Option<(usize, usize)>) -> Value {
    let mut region = json!({"startLine": start.0, "startColumn": start.1});
    if let (Some(end), Some(region)) = (end, region.as_object_mut()) {
        region.insert("endLine".to_owned(), json!(end.0));
        region.insert("endColumn".to_owned(), json!(end.1));
    }
    json!({"artifactLocation": {"uri": uri(file)}, "region": region})
}

/// A path as a relative URI reference.
fn uri(path: &str) -> String {
    let mut uri = String::new();
    // A colon in the first segment would read as a scheme.
    if path
        .split('/')
        .next()
        .is_some_and(|first| first.contains(':'))
    {
        uri.push_str("./");
    }
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:@!$&'()*+,;=".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uri_references() {
        assert_eq!(uri("a b/ä.yaml"), "a%20b/%C3%A4.yaml");
        assert_eq!(uri("c:x.yaml"), "./c:x.yaml");
        assert_eq!(uri("/tmp/x.yaml"), "/tmp/x.yaml");
    }
}
