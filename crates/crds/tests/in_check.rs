//! Every constraint of every CRD is also one of `check`: for each there is an object that breaks
//! only it, and a problem is reported.
//!
//! The constraints are found by walking the schemas: a new one without a problem fails the test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by panicking"
)]

#[path = "in_check/wrong.rs"]
mod wrong;

use std::collections::BTreeSet;

use palisade_api::{Options, Severity, Source, read};
use palisade_crds::{Channel, crds, legacy};
use serde_json::{Value, json};

use wrong::{Step, fields, minimal, put, wrongs};

/// The problems that `check` reports of an object: code and severity.
fn check(object: &Value) -> BTreeSet<(Severity, &'static str)> {
    let source = Source::new("object.json", object.to_string().into_bytes());
    let sources = [source];
    let manifests = read(&sources, Options::default(), &|_| {});
    let problems = manifests.problems.iter();
    problems.map(|it| (it.severity(), it.code.name())).collect()
}

/// The constraints that `check` does not have, with the reason.
const NOT_IN_CHECK: [(&str, &str, &str); 1] = [(
    "ports",
    "minItems",
    "the list could be empty before v0.1.7, and is no filter in every release (D39, D117)",
)];

struct Walk<'a> {
    kind: &'a str,
    channel: &'a str,
    api_version: &'a str,
    root: &'a Value,
    n_constraints: usize,
    exceptions: BTreeSet<(&'static str, &'static str)>,
    wrong: Vec<String>,
}

impl Walk<'_> {
    fn object(&self, steps: &[Step], leaf: &Value) -> Value {
        let mut object = put(self.root, steps, leaf);
        object["apiVersion"] = json!(self.api_version);
        object["kind"] = json!(self.kind);
        if object["metadata"].get("name").is_none() {
            object["metadata"] = json!({"name": "default"});
        }
        object
    }

    fn walk(&mut self, schema: &Value, name: &str, steps: &mut Vec<Step>) {
        let sound = self.object(steps, &minimal(schema, name));
        let problems = check(&sound);
        let errors = problems.iter().filter(|it| it.0 == Severity::Error);
        assert_eq!(errors.count(), 0, "{}: {sound}: {problems:?}", self.channel);
        for wrong in wrongs(schema, name) {
            // Every request has an object with metadata.
            if steps.is_empty() && ["type", "required metadata"].contains(&&*wrong.constraint) {
                continue;
            }
            self.n_constraints += 1;
            let object = self.object(steps, &wrong.value);
            let more = check(&object);
            let reported = more.iter().any(|it| {
                it.0 == Severity::Error || (it.0 == Severity::Warning && !problems.contains(it))
            });
            let exception = NOT_IN_CHECK
                .iter()
                .find(|it| it.0 == name && it.1 == wrong.constraint);
            match (reported, exception) {
                (false, None) => self.wrong.push(format!(
                    "{} {} {name}: {}: {object}",
                    self.channel, self.kind, wrong.constraint
                )),
                (false, Some((name, constraint, _))) => {
                    self.exceptions.insert((name, constraint));
                }
                (true, Some(_)) => panic!("{name} {} is reported", wrong.constraint),
                (true, None) => {}
            }
        }
        for (field, inner) in fields(schema) {
            // Controllers write the status, and the server itself checks the metadata.
            let is_outer = steps.is_empty() && field != "spec";
            if !is_outer {
                steps.push(Step::Field(field.clone()));
                self.walk(&inner, &field, steps);
                steps.pop();
            }
        }
        for (keyword, step) in [("items", Step::Item), ("additionalProperties", Step::Key)] {
            if let Some(inner) = schema.get(keyword) {
                steps.push(step);
                self.walk(inner, name, steps);
                steps.pop();
            }
        }
    }
}

#[test]
fn every_constraint_is_one_of_check() {
    let mut n_constraints = 0;
    let mut n_crds = 0;
    let mut wrong = Vec::new();
    let mut exceptions = BTreeSet::new();
    let channels = Channel::ALL.map(|channel| (channel.name(), crds(channel)));
    for (channel, crds) in channels.into_iter().chain([("legacy", legacy())]) {
        for crd in crds {
            let spec = &crd["spec"];
            let kind = spec["names"]["kind"].as_str().unwrap();
            // `check` does not read it: only the controller does.
            if kind == "Tenancy" {
                continue;
            }
            let version = &spec["versions"][0];
            let group = spec["group"].as_str().unwrap();
            let api_version = format!("{group}/{}", version["name"].as_str().unwrap());
            let root = &version["schema"]["openAPIV3Schema"];
            let mut walk = Walk {
                kind,
                channel,
                api_version: &api_version,
                root,
                n_constraints: 0,
                exceptions: BTreeSet::new(),
                wrong: Vec::new(),
            };
            walk.walk(root, "", &mut Vec::new());
            n_constraints += walk.n_constraints;
            n_crds += 1;
            wrong.append(&mut walk.wrong);
            exceptions.append(&mut walk.exceptions);
        }
    }
    eprintln!("{n_constraints} constraints of {n_crds} CRDs");
    assert!(
        wrong.is_empty(),
        "{} are not reported: {wrong:#?}",
        wrong.len()
    );
    assert_eq!(exceptions.len(), NOT_IN_CHECK.len(), "{exceptions:?}");
    assert!(n_constraints > 2000, "{n_constraints}");
}
