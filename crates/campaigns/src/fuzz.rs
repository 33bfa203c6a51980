//! Fuzz targets: what must hold for whatever bytes the reader is given.
//!
//! Two targets take bytes as a file. One target for each policy kind takes bytes as decisions: it
//! starts from a valid object and changes, drops, renames and repeats parts of it, which reaches
//! deeper than broken syntax does. Others take bytes as what an agent is told: lists and watches of
//! an API server, all that one answers (again decisions), and messages of the kernel. The `fuzz`
//! directory runs them under a coverage-guided fuzzer; the tests replay its corpus on any
//! toolchain.

mod answers;
mod cluster;
mod kernel;
mod mutate;
mod objects;
mod seeds;

use palisade_api::reference::{compare_documents, read_in_pieces, read_plainly};
use palisade_api::{Kind, Lines, Options, Problem, Source, read};
use peak_alloc::PeakAlloc;
use serde_json::Value;

pub use answers::{list, watch};
pub use cluster::cluster;
pub use kernel::{conntrack, netfilter, route};
pub use mutate::mutated;
pub use seeds::{TARGETS, Target};

/// The memory that an input of a size may take: a constant, a multiple of the input, and more for
/// what the YAML parser must keep of collections in brackets, of which it reads only so much.
pub fn memory_limit(bytes: usize) -> usize {
    (16 << 20) + 64 * bytes + 256 * bytes.min(1 << 19)
}

/// Runs a target and checks that it stays within its memory. The allocator must be the program's.
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

/// The bytes are YAML or JSON. What the reader of block style does not give up, it reads as the
/// full parser does, and lists in pieces say what they say in one go.
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
        "another answer in pieces"
    );
}

/// A piece of a list for texts as small as a fuzzer's.
const SMALL_PIECE: usize = 48;

/// The bytes are a JSON file. It is called JSON exactly if serde's reader calls it so.
pub fn json(bytes: &[u8]) {
    let problems = check("fuzz.json", bytes);
    let Some(is_json) = by_serde(bytes) else {
        return;
    };
    let refused = problems.iter().any(|(code, _)| *code == "JSON-SYNTAX");
    assert_eq!(is_json, !refused, "serde: {is_json}, ours: {problems:?}");
}

/// Whether serde reads the bytes as JSON values; `None` where the two readers differ on purpose.
fn by_serde(bytes: &[u8]) -> Option<bool> {
    let text = std::str::from_utf8(bytes).ok()?;
    let start = text.trim_start();
    let ours = start.starts_with(['{', '[']) && !start.starts_with("{{") && !text.contains("---");
    if !ours {
        return None;
    }
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        if let Err(error) = value {
            // Limits of depth and of numbers are no matter of syntax.
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

/// Reads the bytes and checks what every answer promises. Returns the problems without positions.
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
        "an object is invalid and nothing says why"
    );
    for object in &manifests.objects {
        assert!(
            object.valid || errors > 0,
            "an object is invalid and nothing says why"
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

/// A value of our own choosing, for [`mutated`].
fn words() -> &'static [Value] {
    static WORDS: std::sync::OnceLock<Vec<Value>> = std::sync::OnceLock::new();
    WORDS.get_or_init(seeds::words)
}
