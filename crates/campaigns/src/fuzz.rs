//! Fuzz targets: invariants of reading arbitrary bytes.
//!
//! Two targets take bytes as a file. One target for each policy kind takes bytes as decisions: it
//! starts from a valid object and changes, drops, renames and repeats parts of it, which reaches
//! deeper than broken syntax does. Others take bytes as the input of an agent: lists and watches of
//! an API server, all its responses (again decisions), and messages of the kernel. The `fuzz`
//! directory runs them under a coverage-guided fuzzer; the tests replay its corpus on any
//! toolchain.

mod cluster;
mod kernel;
mod mutate;
mod objects;
mod responses;
mod seeds;

use palisade_api::reference::{compare_documents, read_in_pieces, read_plainly};
use palisade_api::{Kind, Lines, Options, Problem, Source, read};
use peak_alloc::PeakAlloc;
use serde_json::Value;

pub use cluster::cluster;
pub use kernel::{conntrack, netfilter, route};
pub use mutate::mutated;
pub use responses::{list, watch};
pub use seeds::{TARGETS, Target};

/// The memory limit for an input of a size: a constant, a multiple of the input, and more for
/// collections in brackets, which the YAML parser keeps up to a limit.
pub fn memory_limit(bytes: usize) -> usize {
    (16 << 20) + 64 * bytes + 256 * bytes.min(1 << 19)
}

/// Runs a target, and checks its memory limit. The allocator must be the program's.
pub fn within_memory(allocator: &PeakAlloc, bytes: &[u8], target: impl Fn(&[u8])) -> usize {
    allocator.reset_peak_usage();
    let before = allocator.current_usage();
    target(bytes);
    let used = allocator.peak_usage().saturating_sub(before);
    let limit = memory_limit(bytes.len());
    assert!(
        used <= limit,
        "{used} bytes of memory for {} bytes of input",
        bytes.len()
    );
    used
}

/// The bytes are a YAML file.
pub fn yaml(bytes: &[u8]) {
    check("fuzz.yaml", bytes);
}

/// The bytes are YAML or JSON. The reader of block style agrees with the full parser, unless it
/// falls back to it, and a list read in pieces equals the list read at once.
pub fn block(bytes: &[u8]) {
    let sources = [Source::new("fuzz.yaml", bytes.to_vec())];
    for source in &sources {
        let difference = compare_documents(source.text()).difference;
        assert_eq!(difference, None, "the readers of YAML differ");
    }
    let plain = read_plainly(&sources, Options::default());
    let in_pieces = read_in_pieces(&sources, Options::default(), SMALL_PIECE);
    assert_eq!(
        format!("{plain:?}"),
        format!("{in_pieces:?}"),
        "the result in pieces differs"
    );
}

/// The size of a piece, small enough for a fuzzer's texts.
const SMALL_PIECE: usize = 48;

/// The bytes are a JSON file. The reader accepts it as JSON exactly if serde does.
pub fn json(bytes: &[u8]) {
    let problems = check("fuzz.json", bytes);
    let Some(is_json) = by_serde(bytes) else {
        return;
    };
    let refused = problems.iter().any(|(code, _)| *code == "JSON-SYNTAX");
    assert_eq!(is_json, !refused, "serde: {is_json}, ours: {problems:?}");
}

/// Whether serde accepts the bytes as JSON values; `None` where the two readers differ on purpose.
fn by_serde(bytes: &[u8]) -> Option<bool> {
    let text = std::str::from_utf8(bytes).ok()?;
    let start = text.trim_start();
    let ours = start.starts_with(['{', '[']) && !start.starts_with("{{") && !text.contains("---");
    if !ours {
        return None;
    }
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        if let Err(error) = value {
            // Limits of depth and of numbers are no syntax errors.
            let message = error.to_string();
            let limit = message.contains("recursion") || message.contains("out of range");
            return (!limit).then_some(false);
        }
    }
    Some(true)
}

/// The bytes are decisions on how to change an object of a kind. Written as JSON and as YAML it
/// must have the same problems.
pub fn kind(kind: Kind, bytes: &[u8]) {
    let Some(target) = TARGETS.iter().find(|target| target.kind == kind) else {
        return;
    };
    let object = mutated(target, bytes);
    let json = object.to_string();
    let mut yaml = String::new();
    mutate::write_yaml(&mut yaml, &object, 0);
    let in_json = check("fuzz.json", json.as_bytes());
    let in_yaml = check("fuzz.yaml", yaml.as_bytes());
    assert_eq!(in_json, in_yaml, "JSON and YAML differ for {json}");
}

/// Reads the bytes, and checks the invariants of every result. Returns the problems without
/// positions.
fn check(name: &str, bytes: &[u8]) -> Vec<(&'static str, Option<String>)> {
    let sources = [Source::new(name, bytes.to_vec())];
    let manifests = read(&sources, Options::default(), &|_| {});
    let text = sources.iter().map(Source::text).collect::<String>();
    let lines = Lines::new(&text);
    for problem in &manifests.problems {
        well_placed(problem, &text, &lines);
        printable(problem);
    }
    let errors = manifests
        .problems
        .iter()
        .filter(|problem| problem.is_error())
        .count();
    let invalid: usize = manifests.invalid.values().sum();
    assert!(
        invalid == 0 || errors > 0,
        "an object is invalid without a problem"
    );
    for object in &manifests.objects {
        assert!(
            object.valid || errors > 0,
            "an object is invalid without a problem"
        );
    }
    let mut problems: Vec<(&'static str, Option<String>)> = manifests
        .problems
        .iter()
        .map(|it| (it.code.name(), it.path.clone()))
        .collect();
    problems.sort();
    problems
}

fn well_placed(problem: &Problem, text: &str, lines: &Lines<'_>) {
    let range = problem.span.range();
    assert!(
        range.start <= range.end && range.end <= text.len() + 1,
        "outside the text: {problem:?}"
    );
    assert!(
        text.is_char_boundary(range.start.min(text.len())),
        "inside a character: {problem:?}"
    );
    let (line, column) = lines.position(range.start);
    assert!(line >= 1 && column >= 1, "no position: {problem:?}");
}

fn printable(problem: &Problem) {
    let texts = [
        Some(&problem.message),
        problem.help.as_ref(),
        problem.path.as_ref(),
        problem.object.as_ref(),
    ];
    for text in texts.into_iter().flatten() {
        assert!(
            !text.chars().any(char::is_control),
            "a control character: {problem:?}"
        );
    }
}

/// The dictionary of [`mutated`].
fn dictionary() -> &'static [Value] {
    static DICTIONARY: std::sync::OnceLock<Vec<Value>> = std::sync::OnceLock::new();
    DICTIONARY.get_or_init(seeds::dictionary)
}
