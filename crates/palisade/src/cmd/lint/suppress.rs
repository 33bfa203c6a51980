//! Findings that an annotation of the object keeps back.
//!
//! `palisade.dev/lint-ignore: CODE[,CODE] reason`. Whoever comes later has to know why, so that an
//! annotation without a reason keeps nothing back.

use std::collections::BTreeMap;

use palisade_api::{Object, PathStep, Severity, Text, path_text};
use palisade_core::text::{nearest, ticked};

use crate::findings::{IgnoreCode, LintCode, LocatedFinding};

const ANNOTATION: &str = "palisade.dev/lint-ignore";

/// A finding that is kept back, and why.
#[derive(Debug)]
pub(crate) struct Suppressed {
    pub(crate) finding: LocatedFinding,
    pub(crate) justification: String,
}

/// Takes out of the findings what annotations keep back, and adds what is wrong with these.
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
            let told =
                |code, message, help| annotation_finding(index, object, text, code, message, help);
            if reason.is_empty() {
                let message = "the annotation does not say why, and keeps nothing back".to_owned();
                let help = "write the reason behind the codes: `CODE[,CODE] reason`".to_owned();
                wrong.push(told(IgnoreCode::Reason, message, help));
                continue;
            }
            for name in codes {
                match known.iter().find(|code| code.name() == name) {
                    Some(code) => {
                        let entry = Entry {
                            reason: reason.to_owned(),
                            used: false,
                            unused: told(
                                IgnoreCode::Unused,
                                format!("there is no finding {} here", ticked(name)),
                                "remove the code".to_owned(),
                            ),
                        };
                        ignored.insert((index, *code), entry);
                    }
                    None => {
                        let (message, help) = unknown(name, &known);
                        wrong.push(told(IgnoreCode::Unknown, message, help));
                    }
                }
            }
        }
    }
    let mut suppressed = Vec::new();
    let mut kept = Vec::with_capacity(findings.len());
    for told in findings.drain(..) {
        let entry = told.object.map(|object| (object, told.code));
        match entry.and_then(|key| ignored.get_mut(&key)) {
            Some(entry) => {
                entry.used = true;
                let justification = entry.reason.clone();
                suppressed.push(Suppressed {
                    finding: told,
                    justification,
                });
            }
            None => kept.push(told),
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
    /// What to say if it keeps nothing back.
    unused: LocatedFinding,
}

/// The codes and the reason. Commas may have spaces behind them.
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
            format!(
                "{} is an error, and errors cannot be kept back",
                ticked(name)
            ),
            "correct the object".to_owned(),
        );
    }
    let names: Vec<&str> = known.iter().map(|code| code.name()).collect();
    let help = match nearest(name, &names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "docs/lint.md lists all codes; the reason stands behind them".to_owned(),
    };
    (format!("there is no code {}", ticked(name)), help)
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
