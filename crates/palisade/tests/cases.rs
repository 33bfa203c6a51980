//! Runs `cases/`: manifests in, flow queries evaluated by the real binary, answers compared; and
//! once more with packets through the lab, whose kernel must give the same verdicts.
//! `CASE=worked/e07 cargo test -p palisade --test cases` runs one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};

use palisade_api::{Options, Source, read};
use palisade_need::{Need, run_in_turn, tests};
use serde_json::Value;

fn main() -> ExitCode {
    let explained = tests![every_case_is_answered_as_it_says];
    let measured = tests![needs [Need::NAMESPACES]: packets_show_what_every_case_says];
    run_in_turn(explained.into_iter().chain(measured))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../cases")
        .canonicalize()
        .unwrap()
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = path.read_dir().unwrap().map(|it| it.unwrap().path());
    let mut found: Vec<PathBuf> = entries.filter(|it| it.is_dir()).collect();
    found.sort();
    found
}

/// The objects of a step: the texts of documents, by identifier.
#[derive(Clone, Default)]
struct Objects {
    documents: Vec<(String, String)>,
}

impl Objects {
    fn lay_over(&mut self, file: &Path) {
        let text = std::fs::read_to_string(file).unwrap();
        for document in text.split("\n---") {
            let document = document.trim_start_matches("---");
            if document
                .lines()
                .all(|it| it.trim().is_empty() || it.starts_with('#'))
            {
                continue;
            }
            let sources = [Source::new("document.yaml", document.as_bytes().to_vec())];
            let manifests = read(&sources, Options::default(), &|_| {});
            let id = match manifests.objects.first() {
                Some(object) => object.id(),
                None => {
                    let mut objects = manifests.problems.iter().map(|it| it.object.clone());
                    let id = objects.next().flatten();
                    id.unwrap_or_else(|| panic!("{}: no object in {document}", file.display()))
                }
            };
            self.remove(&id);
            self.documents.push((id, document.to_owned()));
        }
    }

    fn remove(&mut self, id: &str) -> bool {
        let before = self.documents.len();
        self.documents.retain(|(its, _)| its != id);
        self.documents.len() < before
    }
}

/// One `flows.txt`.
#[derive(Default)]
struct Flows {
    lenient: bool,
    as_pruned: bool,
    dns: String,
    remove: Vec<String>,
    questions: Vec<(String, String)>,
}

fn flows(file: &Path) -> Flows {
    let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let mut flows = Flows::default();
    for line in text.lines() {
        let line = match line.find(" #") {
            Some(at) => &line[..at],
            None => line,
        };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some((question, expected)) = line.split_once(" : ") {
            let pair = (question.trim().to_owned(), expected.trim().to_owned());
            flows.questions.push(pair);
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["lenient"] => flows.lenient = true,
            ["as-pruned"] => flows.as_pruned = true,
            ["dns", name, address] => writeln!(flows.dns, "{name} {address}").unwrap(),
            ["remove", id] => flows.remove.push((*id).to_owned()),
            _ => panic!("{}: what is {line:?}?", file.display()),
        }
    }
    flows
}

/// How a step is run: what differs from what it says.
type Runner = fn(&Path, &Objects, &Flows) -> Vec<String>;

fn run_case(case: &Path, run: Runner) -> (usize, Vec<String>) {
    let mut objects = Objects::default();
    let world = case.parent().unwrap().join("world.yaml");
    if world.is_file() {
        objects.lay_over(&world);
    }
    let mut steps = vec![case.to_owned()];
    let numbered = |it: &PathBuf| {
        let name = it.file_name().unwrap().to_str().unwrap();
        name.split('-').next().unwrap().parse::<u32>().unwrap()
    };
    let mut more = directories(case);
    more.sort_by_key(numbered);
    steps.extend(more);
    let mut failures = Vec::new();
    let mut n_flows = 0;
    for step in steps {
        let entries = step.read_dir().unwrap().map(|it| it.unwrap().path());
        let mut files: Vec<PathBuf> = entries
            .filter(|it| it.extension().is_some_and(|it| it == "yaml"))
            .collect();
        files.sort();
        let flows = flows(&step.join("flows.txt"));
        for id in &flows.remove {
            assert!(objects.remove(id), "{}: no {id} to remove", step.display());
        }
        for file in files {
            objects.lay_over(&file);
        }
        assert!(
            !flows.questions.is_empty(),
            "{} asks nothing",
            step.display()
        );
        n_flows += flows.questions.len();
        failures.extend(run(&step, &objects, &flows));
    }
    (n_flows, failures)
}

/// The answers of a command to the questions of a step.
fn answers(
    step: &Path,
    objects: &Objects,
    flows: &Flows,
    command: &[&str],
) -> Result<Vec<Value>, String> {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let texts = objects.documents.iter();
    let texts: Vec<&str> = texts.map(|(_, text)| text.as_str()).collect();
    let manifests = write("objects.yaml", &texts.join("\n---\n"));
    let questions: Vec<&str> = flows.questions.iter().map(|it| it.0.as_str()).collect();
    let queries = write("flows.txt", &questions.join("\n"));
    let mut run = Command::new(env!("CARGO_BIN_EXE_palisade"));
    run.args(command).args(["-q", "-o", "jsonl", "-f"]);
    run.arg(&manifests).arg("--flows").arg(&queries);
    if flows.lenient {
        run.arg("--lenient");
    }
    if flows.as_pruned {
        run.arg("--as-pruned");
    }
    if !flows.dns.is_empty() {
        run.arg("--dns").arg(write("dns.txt", &flows.dns));
    }
    let output = run.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    if answers.len() != flows.questions.len() {
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!(
            "{}: {} answers: {printed}",
            name(step),
            answers.len()
        ));
    }
    Ok(answers)
}

fn name(step: &Path) -> String {
    step.strip_prefix(root()).unwrap().display().to_string()
}

fn explained(step: &Path, objects: &Objects, flows: &Flows) -> Vec<String> {
    let answers = match answers(step, objects, flows, &["explain"]) {
        Ok(answers) => answers,
        Err(error) => return vec![error],
    };
    let pairs = flows.questions.iter().zip(&answers);
    let failures = pairs.filter_map(|((question, expected), answer)| {
        let problem = compare(expected, answer)?;
        let name = name(step);
        Some(format!(
            "{name}: {question} : {expected}\n    {problem}\n    {answer}"
        ))
    });
    failures.collect()
}

/// Packets must show the verdict that the case says, wherever they can show anything.
fn measured(step: &Path, objects: &Objects, flows: &Flows) -> Vec<String> {
    let answers = match answers(step, objects, flows, &["lab"]) {
        Ok(answers) => answers,
        Err(error) => return vec![error],
    };
    let mut failures = Vec::new();
    for ((question, expected), answer) in flows.questions.iter().zip(&answers) {
        let verdict = expected.split(" ; ").next().unwrap().trim();
        let measured = answer["measured"].as_str();
        let is_stated = matches!(verdict, "Allow" | "Deny" | "Mixed");
        if is_stated && measured.is_some_and(|measured| measured != verdict) {
            let name = name(step);
            failures.push(format!("{name}: {question} : {verdict}\n    {answer}"));
        }
        if measured.is_some() {
            MEASURED.fetch_add(1, Ordering::Relaxed);
        }
    }
    failures
}

/// How many verdicts packets have shown.
static MEASURED: AtomicUsize = AtomicUsize::new(0);

fn compare(expected: &str, answer: &Value) -> Option<String> {
    let mut parts = expected.split(" ; ");
    let verdict = parts.next().unwrap().trim();
    if verdict == "error" {
        return answer["error"].is_null().then(|| "no error".to_owned());
    }
    if !answer["error"].is_null() || answer["verdict"] != *verdict {
        return Some(format!("the verdict is {}", answer["verdict"]));
    }
    for part in parts {
        let words: Vec<&str> = part.split_whitespace().collect();
        let (direction, words) = words.split_first().unwrap();
        assert!(matches!(*direction, "egress" | "ingress"), "{expected}");
        let side = &answer[*direction];
        let mut checks: Vec<(&str, Value, String)> = Vec::new();
        checks.push(("verdict", side["verdict"].clone(), words[0].to_owned()));
        if let Some(word) = words.get(1) {
            let exempt = matches!(words[0], "Exempt" | "NotApplicable");
            let key = if exempt { "detail" } else { "reason" };
            checks.push((key, side[key].clone(), (*word).to_owned()));
        }
        if let Some(ids) = words.get(2) {
            if words[1].ends_with("Isolation") {
                let policies = side["policies"].as_array().cloned().unwrap_or_default();
                let policies: Vec<&str> = policies.iter().map(|it| it.as_str().unwrap()).collect();
                checks.push(("policies", policies.join(",").into(), (*ids).to_owned()));
            } else {
                checks.push(("rule", side["rule"]["id"].clone(), (*ids).to_owned()));
            }
        }
        assert!(words.len() <= 3, "{expected}");
        for (what, found, wanted) in checks {
            if found != *wanted {
                return Some(format!("{direction} {what} is {found}, not {wanted}"));
            }
        }
    }
    None
}

/// Runs the selected cases, in two threads.
fn run_cases(run: Runner) -> usize {
    let only = std::env::var("CASE").ok();
    let groups = directories(&root());
    let cases = groups.iter().flat_map(|group| directories(group));
    let cases: Vec<PathBuf> = cases
        .filter(|case| {
            let only = only.as_ref();
            only.is_none_or(|only| name(case).starts_with(only.as_str()))
        })
        .collect();
    assert!(!cases.is_empty(), "no such case");
    let run_all = |cases: &[PathBuf]| {
        let results = cases.iter().map(|case| run_case(case, run));
        results.fold((0, Vec::new()), |(n, mut all), (n_flows, failures)| {
            all.extend(failures);
            (n + n_flows, all)
        })
    };
    let (left, right) = cases.split_at(cases.len() / 2);
    let (n_flows, failures) = std::thread::scope(|scope| {
        let left = scope.spawn(|| run_all(left));
        let (n, mut failures) = run_all(right);
        let (m, more) = left.join().unwrap();
        failures.extend(more);
        (n + m, failures)
    });
    println!("{} cases, {n_flows} flows", cases.len());
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
    n_flows
}

fn every_case_is_answered_as_it_says() {
    run_cases(explained);
}

fn packets_show_what_every_case_says() {
    let n_flows = run_cases(measured);
    let n_measured = MEASURED.load(Ordering::Relaxed);
    println!("{n_measured} of {n_flows} verdicts were measured");
    // What packets cannot show: both ends outside, addresses that nothing is routed to, questions
    // without an answer.
    let is_whole = std::env::var_os("CASE").is_none();
    assert!(!is_whole || n_measured >= LEAST_MEASURED, "{n_measured}");
}

/// So many verdicts of all cases packets could show when they were last counted.
const LEAST_MEASURED: usize = 2_593;
