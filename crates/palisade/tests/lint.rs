//! `palisade lint` as people and scripts run it. Every code has a directory in `tests/lint/`:
//! `triggers.yaml` says in its first lines what is found in it, and nothing of the kind is found in
//! `quiet.yaml`. Codes of reading have theirs with the tests of `palisade-api`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says what it left out"
)]

#[path = "lint/fix.rs"]
mod fix;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use palisade_api::{Code, Severity};
use serde_json::{Value, json};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lint")
}

fn palisade(directory: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(args)
        .current_dir(directory)
        .output()
        .unwrap()
}

fn with_input(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_palisade"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A command may end before it reads everything.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn document(output: &Output) -> Value {
    let printed = || format!("{}{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", printed()))
}

/// `CODE OBJECT PATH` of all findings.
fn found(directory: &Path, file: &str, more: &[&str]) -> Vec<String> {
    let args = [&["lint", "-q", "-o", "json", "-f", file], more].concat();
    let output = palisade(directory, &args);
    let findings = document(&output)["findings"].clone();
    let word = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
    let findings = findings.as_array().unwrap().iter();
    let findings = findings.map(|it| {
        let words = ["code", "object", "path"].map(|key| word(it, key));
        words.join(" ").trim_end().to_owned()
    });
    findings.collect()
}

/// The comments of a fixture after a word.
fn comments(file: &Path, word: &str) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let lines = text.lines().take_while(|line| line.starts_with('#'));
    let comments = lines.filter_map(|line| line.strip_prefix(&format!("# {word}: ")));
    comments.map(str::to_owned).collect()
}

fn codes_with_fixtures() -> Vec<&'static str> {
    let engine = palisade_core::analysis::lint::Code::ALL.iter();
    let mut codes: Vec<&str> = engine.map(|code| code.name()).collect();
    codes.extend([
        "LINT-IGNORE-REASON",
        "LINT-IGNORE-UNKNOWN",
        "LINT-IGNORE-UNUSED",
    ]);
    codes
}

#[test]
fn every_code_is_found_where_it_is_and_nowhere_else() {
    let mut failures = Vec::new();
    for code in codes_with_fixtures() {
        let directory = fixtures().join(code);
        for file in ["triggers.yaml", "quiet.yaml"] {
            let path = directory.join(file);
            assert!(path.exists(), "{code} has no {file}");
            let with = comments(&path, "with").concat();
            let mut more: Vec<&str> = with.split_whitespace().collect();
            more.extend(["--only", code]);
            let expected = comments(&path, "finds");
            let has_some = !expected.is_empty();
            assert_eq!(has_some, file == "triggers.yaml", "{}", path.display());
            let found = found(&directory, file, &more);
            if found != expected {
                failures.push(format!("{code}/{file}: {found:?}, not {expected:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_code_of_reading_below_an_error_is_a_finding() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/problems");
    let codes = Code::ALL.iter();
    for code in codes.filter(|it| it.severity() < Severity::Error) {
        let directory = examples.join(code.name());
        let only = ["--only", code.name()];
        let bad = found(&directory, "bad.yaml", &only);
        assert!(!bad.is_empty(), "{code}");
        let good = found(&directory, "good.yaml", &only);
        assert_eq!(good, Vec::<String>::new(), "{code}");
    }
}

#[test]
fn there_are_no_fixtures_of_codes_that_do_not_exist() {
    let codes = codes_with_fixtures();
    for entry in fixtures().read_dir().unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        assert!(
            !entry.path().is_dir() || codes.contains(&name.as_str()),
            "{name}"
        );
    }
}

/// A policy with a note, and one with a warning, which is suppressed.
const TWO: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: db
  namespace: shop
spec:
  podSelector: {}
  ingress:
  - from:
    - ipBlock: {cidr: 192.0.2.7/24}
---
apiVersion: policy.networking.k8s.io/v1alpha1
kind: AdminNetworkPolicy
metadata:
  name: ssh
  annotations:
    palisade.dev/lint-ignore: PORT-RANGE-SINGLE the tool that writes it knows ranges only
spec:
  priority: 25
  subject: {namespaces: {matchLabels: {managed: \"true\"}}}
  ingress:
  - action: Allow
    from:
    - namespaces: {matchLabels: {kubernetes.io/metadata.name: bastion}}
    ports:
    - portRange: {protocol: TCP, start: 22, end: 22}
";

#[test]
fn json_has_the_keys_of_the_contract() {
    let output = with_input(&["lint", "-o", "json", "-f", "-"], TWO);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let expected = json!({
        "apiVersion": "palisade.dev/v1alpha1",
        "kind": "Lint",
        "findings": [{
            "severity": "info",
            "code": "CIDR-HOSTBITS",
            "object": "netpol/shop/db",
            "path": "spec.ingress[0].from[0].ipBlock.cidr",
            "file": "-",
            "line": 10,
            "column": 23,
            "endLine": 10,
            "endColumn": 35,
            "message": "`192.0.2.7/24` has bits set after its prefix; it is read as `192.0.2.0/24`",
            "help": "write `192.0.2.0/24`; new API servers can refuse the other form",
        }],
        "suppressed": [{
            "severity": "warning",
            "code": "PORT-RANGE-SINGLE",
            "object": "anp/ssh",
            "path": "spec.ingress[0].ports[0].portRange",
            "file": "-",
            "line": 26,
            "column": 50,
            "endLine": 26,
            "endColumn": 52,
            "message": "the range has only the port 22",
            "help": "write it as one port: `portNumber`",
            "justification": "the tool that writes it knows ranges only",
        }],
    });
    assert_eq!(document(&output), expected);
}

#[test]
fn the_table_counts_suppressed_findings() {
    let output = with_input(&["lint", "-f", "-"], TWO);
    let expected = "\
info[CIDR-HOSTBITS]: `192.0.2.7/24` has bits set after its prefix; it is read as `192.0.2.0/24`
  --> -:10:23
   |
10 |     - ipBlock: {cidr: 192.0.2.7/24}
   |                       ^^^^^^^^^^^^
   |
   = in: netpol/shop/db spec.ingress[0].from[0].ipBlock.cidr
   = help: write `192.0.2.0/24`; new API servers can refuse the other form

2 policies in 1 file: 1 note; 1 suppressed (-v shows them)
";
    assert_eq!(text(&output.stdout), expected);
    let wide = with_input(&["lint", "-o", "wide", "-v", "-f", "-"], TWO);
    let wide = text(&wide.stdout);
    assert!(
        wide.contains("suppressed: the tool that writes it knows ranges only\n"),
        "{wide}"
    );
    assert!(wide.ends_with("1 note; 1 suppressed\n"), "{wide}");
}

#[test]
fn an_annotation_suppresses_with_a_reason_and_for_its_own_object() {
    let found = |input: &str, list: &str| -> Vec<(String, String)> {
        let output = with_input(&["lint", "-o", "json", "-f", "-"], input);
        let document = document(&output);
        let word = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
        // A list that would be empty is left out.
        let list = document[list].as_array().into_iter().flatten();
        list.map(|it| (word(it, "object"), word(it, "code")))
            .collect()
    };
    let printed = |object: &str, code: &str| (object.to_owned(), code.to_owned());
    let note = printed("netpol/shop/db", "CIDR-HOSTBITS");
    let range = |object| printed(object, "PORT-RANGE-SINGLE");
    // Without a reason.
    let silent = TWO.replace(" the tool that writes it knows ranges only", "");
    let reason = printed("anp/ssh", "LINT-IGNORE-REASON");
    assert_eq!(
        found(&silent, "findings"),
        [note.clone(), reason, range("anp/ssh")]
    );
    assert_eq!(found(&silent, "suppressed"), []);
    // Another object has the same finding.
    let (_, ssh) = TWO.split_once("---\n").unwrap();
    let other = ssh.replace("name: ssh", "name: telnet");
    let other = other.replace("start: 22, end: 22", "start: 23, end: 23");
    let other = other.replace("palisade.dev/lint-ignore", "palisade.dev/other");
    let both = format!("{TWO}---\n{other}");
    let findings = found(&both, "findings");
    assert!(findings.contains(&range("anp/telnet")), "{findings:?}");
    assert_eq!(found(&both, "suppressed"), [range("anp/ssh")]);
}

#[test]
fn the_exit_code_says_what_counts() {
    let code = |more: &[&str], input: &str| {
        let args = [&["lint", "-q", "-f", "-"], more].concat();
        let output = with_input(&args, input);
        output.status.code().unwrap()
    };
    assert_eq!(code(&[], TWO), 0);
    assert_eq!(code(&["--fail-on", "info"], TWO), 1);
    assert_eq!(code(&["--fail-on", "info", "--exit-zero"], TWO), 0);
    assert_eq!(
        code(&["--fail-on", "info", "--ignore", "CIDR-HOSTBITS"], TWO),
        0
    );
    assert_eq!(code(&["--fail-on", "info", "-n", "shop"], TWO), 1);
    assert_eq!(code(&["--fail-on", "info", "-n", "other"], TWO), 2);
    let other = format!("{TWO}---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: other}}\n");
    assert_eq!(code(&["--fail-on", "info", "-n", "other"], &other), 0);
    let loud = TWO.replace("palisade.dev/lint-ignore", "palisade.dev/audit");
    assert_eq!(code(&[], &loud), 1);
    assert_eq!(code(&["--fail-on", "error"], &loud), 0);
    assert_eq!(
        code(&["--only", "cidr-hostbits,port-range-single"], &loud),
        1
    );
    let broken = TWO.replace("podSelector", "podselector");
    assert_eq!(code(&[], &broken), 2);
    assert_eq!(code(&["--lenient"], &broken), 0);
    assert_eq!(code(&["--only", "NO-SUCH-CODE"], TWO), 2);
}

#[test]
fn what_newer_clusters_would_widen_is_an_error_here() {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/problems/ANP-PRUNED-WIDE");
    let args = ["lint", "-o", "json", "--fail-on", "error", "-f", "bad.yaml"];
    let output = palisade(&directory, &args);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(document(&output)["findings"][0]["severity"], "error");
}

#[test]
fn an_unknown_code_is_reported_with_a_known_one() {
    let output = with_input(&["lint", "--ignore", "TIE-CONFLCT", "-f", "-"], TWO);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "palisade: code `TIE-CONFLCT` not found; did you mean `TIE-CONFLICT`?\n"
    );
}

#[test]
fn sarif_has_rules_suppressions_and_fixes() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("two.yaml"), TWO).unwrap();
    let output = palisade(directory.path(), &["lint", "-o", "sarif", "-f", "two.yaml"]);
    let log = document(&output);
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let rules = run["tool"]["driver"]["rules"].as_array().unwrap();
    let results = run["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    for result in results {
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
    }
    let region = |from: u32, to: u32| {
        json!({
            "startLine": 10, "startColumn": from, "endLine": 10, "endColumn": to,
        })
    };
    let change = &results[0]["fixes"][0]["artifactChanges"][0];
    assert_eq!(change["artifactLocation"]["uri"], "two.yaml");
    assert_eq!(
        change["replacements"],
        json!([{
            "deletedRegion": region(23, 35),
            "insertedContent": {"text": "192.0.2.0/24"},
        }])
    );
    assert_eq!(
        results[1]["suppressions"],
        json!([{
            "kind": "inSource",
            "justification": "the tool that writes it knows ranges only",
        }])
    );
}

/// What `--fix` can do about a code.
const FIXES: &[(&str, &str)] = &[
    (
        "SHADOWED",
        "removes the rule, if it holds for all possible pods",
    ),
    (
        "NEVER-MATCHES",
        "removes the peer, or the rule if it has no other",
    ),
];

/// The documents of a manifest that are policies.
fn policies(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let documents = text.split("---\n");
    let is_policy = |it: &&str| it.contains("Policy\n") || it.contains("externalTrafficPolicy");
    let policies: Vec<&str> = documents.filter(is_policy).collect();
    policies.join("---\n")
}

/// The sections of all codes, as the fixtures have them.
fn sections() -> String {
    let mut page = "The examples show policies; where a finding needs pods, they are in `crates/palisade/tests/lint/`.\n\n\
                    | code | severity | |\n|---|---|---|\n"
        .to_owned();
    let all = || {
        let engine = palisade_core::analysis::lint::Code::ALL.iter();
        let engine = engine.map(|it| (it.name(), it.severity().name(), it.summary()));
        let own = [
            (
                "LINT-IGNORE-REASON",
                "warning",
                "An annotation has no reason.",
            ),
            (
                "LINT-IGNORE-UNKNOWN",
                "warning",
                "An annotation names a code that does not exist.",
            ),
            (
                "LINT-IGNORE-UNUSED",
                "info",
                "An annotation names a code that has no finding.",
            ),
        ];
        engine.chain(own)
    };
    for (code, severity, summary) in all() {
        let anchor = code.to_lowercase();
        page += &format!("| [{code}](#{anchor}) | {severity} | {summary} |\n");
    }
    let reading = Code::ALL.iter();
    for code in reading.filter(|it| it.severity() < Severity::Error) {
        let anchor = code.name().to_lowercase();
        let severity = if *code == Code::AnpPrunedWide {
            Severity::Error
        } else {
            code.severity()
        };
        let summary = code.summary();
        page += &format!("| [{code}](problems.md#{anchor}) | {severity} | {summary} |\n");
    }
    for (code, severity, _) in all() {
        let directory = fixtures().join(code);
        let why = std::fs::read_to_string(directory.join("why.md")).unwrap();
        let triggers = directory.join("triggers.yaml");
        let example = policies(&triggers);
        page += &format!("\n### {code}\n\nSeverity: {severity}.");
        if let Some((_, fix)) = FIXES.iter().find(|it| it.0 == code) {
            page += &format!(" `--fix` {fix}.");
        }
        page += &format!("\n\n{why}\n```yaml\n{example}```\n");
        let with = comments(&triggers, "with").concat();
        let more = with.split_whitespace();
        let args = [
            "lint",
            "-q",
            "-o",
            "json",
            "-f",
            "triggers.yaml",
            "--only",
            code,
        ];
        let args: Vec<&str> = args.into_iter().chain(more).collect();
        let found = document(&palisade(&directory, &args));
        let found = found["findings"].as_array().unwrap();
        for it in found {
            let word = |key: &str| it[key].as_str().unwrap_or_default();
            page += &format!("\n> {}\n>\n> help: {}\n", word("message"), word("help"));
        }
    }
    page
}

#[test]
fn the_documentation_has_every_code_with_its_text() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/lint.md");
    let page = std::fs::read_to_string(&file).unwrap();
    let (before, _) = page.split_once("\n## Codes\n").unwrap();
    let made = format!("{before}\n## Codes\n\n{}", sections());
    if std::env::var_os("UPDATE_DOCS").is_some() && page != made {
        std::fs::write(&file, &made).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(
        written == made,
        "docs/reference/lint.md is stale: run with UPDATE_DOCS=1 and read the difference"
    );
}
