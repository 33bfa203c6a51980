//! SARIF 2.1.0: problems and findings for code-scanning services.

use palisade_api::{Code, Severity, Source, SourceId};
use serde_json::{Value, json};

use crate::findings::{LintCode, LocatedFinding};
use crate::view::{Placed, Placer};

/// Returns the log of one run of `check`.
pub(crate) fn log(placed: &[Placed<'_>]) -> Value {
    let rules: Vec<Value> = Code::ALL.iter().copied().map(rule).collect();
    let results: Vec<Value> = placed.iter().map(result).collect();
    log_of(&rules, &results)
}

fn log_of(rules: &[Value], results: &[Value]) -> Value {
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
            // The default of SARIF is UTF-16 code units; Palisade counts characters.
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    })
}

fn rule(code: Code) -> Value {
    rule_of(
        code.name(),
        code.summary(),
        "docs/reference/problems.md",
        code.severity(),
    )
}

fn rule_of(name: &str, summary: &str, page: &str, severity: Severity) -> Value {
    json!({
        "id": name,
        "shortDescription": {"text": summary},
        "helpUri": format!("{}/blob/main/{page}#{}", env!("CARGO_PKG_REPOSITORY"), name.to_lowercase()),
        "defaultConfiguration": {"level": level(severity)},
    })
}

/// A finding of `lint` as a result.
pub(crate) struct LintResult<'f> {
    pub(crate) finding: &'f LocatedFinding,
    /// The reason, if it is suppressed.
    pub(crate) justification: Option<&'f str>,
    /// The edits of one source that would fix it.
    pub(crate) edits: &'f [Edit],
}

/// Returns the log of one run of `lint`.
pub(crate) fn lint_log(sources: &[Source], results: &[LintResult<'_>]) -> Value {
    let codes = LintCode::all();
    let rules = codes
        .iter()
        .map(|it| rule_of(it.name(), it.summary(), it.page(), it.severity()));
    let mut placer = Placer::new(sources);
    let results = results.iter();
    let results = results.map(|it| lint_result(&codes, &mut placer, it));
    let results: Vec<Value> = results.collect();
    let rules: Vec<Value> = rules.collect();
    log_of(&rules, &results)
}

fn lint_result(codes: &[LintCode], placer: &mut Placer<'_>, result: &LintResult<'_>) -> Value {
    let finding = result.finding;
    let mut text = finding.message.clone();
    if let Some(help) = &finding.help {
        text.push_str("; ");
        text.push_str(help);
    }
    let mut location = serde_json::Map::new();
    if let Some((source, span)) = finding.place {
        let (file, start, _) = placer.place(source, span.start);
        let end = placer.place(source, span.end).1;
        let place = physical(file, start, Some(end));
        location.insert("physicalLocation".to_owned(), place);
    }
    if let Some(name) = finding.context() {
        let names = json!([{"fullyQualifiedName": name}]);
        location.insert("logicalLocations".to_owned(), names);
    }
    let mut value = serde_json::Map::new();
    value.insert("ruleId".to_owned(), json!(finding.code.name()));
    let index = codes.iter().position(|code| *code == finding.code);
    value.insert("ruleIndex".to_owned(), json!(index));
    value.insert("level".to_owned(), json!(level(finding.severity())));
    value.insert("message".to_owned(), json!({"text": text}));
    value.insert("locations".to_owned(), json!([location]));
    if let Some(related) = &finding.related {
        let (file, start, _) = placer.place(related.source, related.span.start);
        let related = json!([{
            "physicalLocation": physical(file, start, None),
            "message": {"text": related.label},
        }]);
        value.insert("relatedLocations".to_owned(), related);
    }
    if let Some(justification) = result.justification {
        let suppressions = json!([{"kind": "inSource", "justification": justification}]);
        value.insert("suppressions".to_owned(), suppressions);
    }
    if let Some(first) = result.edits.first() {
        let source = first.source;
        let replacements = result.edits.iter().map(|edit| {
            let (_, start, _) = placer.place(source, edit.start);
            let (_, end, _) = placer.place(source, edit.end);
            json!({
                "deletedRegion": region(start, Some(end)),
                "insertedContent": {"text": edit.insert},
            })
        });
        let replacements: Vec<Value> = replacements.collect();
        let file = placer.place(source, first.start).0;
        let fixes = json!([{
            "description": {"text": "removes the finding and changes no verdict"},
            "artifactChanges": [{
                "artifactLocation": {"uri": uri(file)},
                "replacements": replacements,
            }],
        }]);
        value.insert("fixes".to_owned(), fixes);
    }
    Value::Object(value)
}

/// A range of a source, and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) source: SourceId,
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) insert: String,
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
    json!({"artifactLocation": {"uri": uri(file)}, "region": region(start, end)})
}

fn region(start: (usize, usize), end: Option<(usize, usize)>) -> Value {
    let mut region = json!({"startLine": start.0, "startColumn": start.1});
    if let (Some(end), Some(region)) = (end, region.as_object_mut()) {
        region.insert("endLine".to_owned(), json!(end.0));
        region.insert("endColumn".to_owned(), json!(end.1));
    }
    region
}

/// Formats a path as a relative URI reference.
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
