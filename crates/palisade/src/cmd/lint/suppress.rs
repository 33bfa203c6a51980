//! Suppresses findings by an annotation of the object.
//!
//! `palisade.dev/lint-ignore: CODE[,CODE] reason`. A later reader must know why: an annotation
//! without a reason suppresses nothing.

use std::collections::BTreeMap;

use palisade_api::{Object, PathStep, Severity, Text, path_text};
use palisade_core::text::{nearest, ticked};

use crate::findings::{IgnoreCode, LintCode, LocatedFinding};

const ANNOTATION: &str = "palisade.dev/lint-ignore";

/// A suppressed finding, and the reason.
#[derive(Debug)]
pub(crate) struct Suppressed {
    pub(crate) finding: LocatedFinding,
    pub(crate) justification: String,
}

/// Removes and returns suppressed findings, and adds findings for invalid annotations.
pub(crate) fn suppress(
    objects: &[Object<'_>],
    findings: &mut Vec<LocatedFinding>,
) -> Vec<Suppressed> {
    let known = LintCode::all();
    let mut ignored: BTreeMap<(usize, LintCode), Entry> = BTreeMap::new();
    let mut wrong: Vec<LocatedFinding> = Vec::new();
    for (index, object) in objects.iter().enumerate() {
        for (_, text) in object
            .metadata
            .annotations
            .iter()
            .filter(|it| it.0 == ANNOTATION)
        {
            let Ok(text) = text else { continue };
            let (codes, reason) = split(&text.value);
            let invalid =
                |code, message, help| annotation_finding(index, object, text, code, message, help);
            if reason.is_empty() {
                let message = "the annotation has no reason and suppresses nothing".to_owned();
                let help = "write the reason after the codes: `CODE[,CODE] reason`".to_owned();
                wrong.push(invalid(IgnoreCode::Reason, message, help));
                continue;
            }
            for name in codes {
                match known.iter().find(|code| code.name() == name) {
                    Some(code) => {
                        let entry = Entry {
                            reason: reason.to_owned(),
                            used: false,
                            unused: invalid(
                                IgnoreCode::Unused,
                                format!("this object has no finding {}", ticked(name)),
                                "remove the code".to_owned(),
                            ),
                        };
                        ignored.insert((index, *code), entry);
                    }
                    None => {
                        let (message, help) = unknown(name, &known);
                        wrong.push(invalid(IgnoreCode::Unknown, message, help));
                    }
                }
            }
        }
    }
    let mut suppressed = Vec::new();
    let mut kept = Vec::with_capacity(findings.len());
    for finding in findings.drain(..) {
        let entry = finding.object.map(|object| (object, finding.code));
        match entry.and_then(|key| ignored.get_mut(&key)) {
            Some(entry) => {
                entry.used = true;
                let justification = entry.reason.clone();
                suppressed.push(Suppressed {
                    finding,
                    justification,
                });
            }
            None => kept.push(finding),
        }
    }
    *findings = kept;
    findings.extend(wrong);
    let unused = ignored.into_values().filter(|entry| !entry.used);
    findings.extend(unused.map(|entry| entry.unused));
    suppressed
}

/// One code of an annotation.
struct Entry {
    reason: String,
    used: bool,
    /// The finding if the code suppresses nothing.
    unused: LocatedFinding,
}

/// Splits an annotation into codes and reason. Spaces may follow commas.
fn split(text: &str) -> (Vec<&str>, &str) {
    let mut rest = text.trim();
    let mut codes = Vec::new();
    loop {
        let end = rest.find(|c: char| c == ',' || c.is_whitespace());
        let (code, after) = rest.split_at(end.unwrap_or(rest.len()));
        if !code.is_empty() {
            codes.push(code);
        }
        let after = after.trim_start();
        match after.strip_prefix(',') {
            Some(more) => rest = more.trim_start(),
            None => return (codes, after),
        }
    }
}

fn unknown(name: &str, known: &[LintCode]) -> (String, String) {
    let is_error = |it: &&palisade_api::Code| it.name() == name && it.severity() == Severity::Error;
    if palisade_api::Code::ALL.iter().any(|it| is_error(&it)) {
        return (
            format!("{} is an error; errors cannot be suppressed", ticked(name)),
            "correct the object".to_owned(),
        );
    }
    let names: Vec<&str> = known.iter().map(|code| code.name()).collect();
    let help = match nearest(name, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "docs/reference/lint.md lists all codes; the reason follows them".to_owned(),
    };
    (format!("code {} not found", ticked(name)), help)
}

fn annotation_finding(
    index: usize,
    object: &Object<'_>,
    text: &Text<'_>,
    code: IgnoreCode,
    message: String,
    help: String,
) -> LocatedFinding {
    let path = [
        PathStep::Field("metadata"),
        PathStep::Field("annotations"),
        PathStep::Field(ANNOTATION),
    ];
    LocatedFinding {
        code: LintCode::Ignore(code),
        object: Some(index),
        object_id: Some(object.id()),
        namespace: object.namespace().map(str::to_owned),
        path: path_text(&path),
        place: Some((object.source, text.span)),
        message,
        help: Some(help),
        related: None,
        rules: Vec::new(),
        witness: None,
        always: None,
        finding: None,
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn codes_come_first_and_the_reason_is_the_rest() {
        let check = |text, codes: &[&str], reason| {
            let found = split(text);
            assert_eq!((found.0.as_slice(), found.1), (codes, reason), "{text}");
        };
        check("NO-DNS it has none", &["NO-DNS"], "it has none");
        check("A,B, C  why, oh why", &["A", "B", "C"], "why, oh why");
        check("A ,B", &["A", "B"], "");
        check(" A ", &["A"], "");
        check("", &[], "");
        check(",", &[], "");
    }
}
