//! The length of functions, and the share of comments that say why.

use super::rust_files;

const SHIPPED: [&str; 10] = [
    "agent", "api", "core", "crds", "kube", "lab", "nft", "palisade", "route", "watch",
];

/// A function has at most so many lines.
const LINES: usize = 80;

/// The shipped sources of a crate, without their tests.
fn sources(name: &str) -> Vec<(String, String)> {
    let below = format!("crates/{name}/src");
    let files = rust_files().into_iter();
    let shipped = files.filter(|(path, _)| path.starts_with(&below) && !super::is_test(path));
    let shipped = shipped.map(|(path, text)| {
        let code = text.split("\nmod tests {").next().unwrap_or_default();
        (path.display().to_string(), code.to_owned())
    });
    shipped.collect()
}

/// The functions with a body: the line of each, and how many lines it has.
fn functions(code: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = code.lines().collect();
    let mut functions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_function = words.contains(&"fn") && !line.trim_start().starts_with("//");
        let signature = lines[at..]
            .iter()
            .position(|it| it.ends_with(['{', ';', '}']));
        let has_body = signature.is_some_and(|it| lines[at + it].ends_with('{'));
        if is_function && has_body {
            let indent = line.len() - line.trim_start().len();
            let end = format!("{}}}", " ".repeat(indent));
            if let Some(length) = lines[at..].iter().position(|it| **it == end) {
                functions.push((at + 1, length + 1));
            }
        }
    }
    functions
}

#[test]
fn no_shipped_function_is_long() {
    let mut long = Vec::new();
    let mut count = 0;
    for (path, code) in SHIPPED.into_iter().flat_map(sources) {
        for (line, length) in functions(&code) {
            count += 1;
            if length > LINES {
                long.push(format!("{path}:{line} has {length} lines"));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
    assert!(count > 4_000, "{count}");
}

#[test]
fn the_length_of_a_function_is_seen() {
    let code =
        "trait T {\n    fn a(\n        &self,\n    );\n    fn b(&self) {\n        c();\n    }\n}\n";
    assert_eq!(functions(code), [(5, 3)]);
}

#[test]
fn comments_of_shipped_sources_wrap_at_100_columns() {
    for (path, text) in SHIPPED.into_iter().flat_map(sources) {
        let mut comments = text.lines().filter(|it| it.trim_start().starts_with("//"));
        let long = comments.find(|it| it.chars().count() > 100);
        assert_eq!(long, None, "{path}");
    }
}

/// `//` says why: at least 2.5 % of the lines of code, where an algorithm or a kernel needs reasons.
#[test]
fn comments_say_why() {
    for name in ["core", "nft", "agent", "kube"] {
        let (mut code, mut reasons) = (0, 0);
        for (_, text) in sources(name) {
            for line in text.lines().map(str::trim).filter(|it| !it.is_empty()) {
                if !line.starts_with("//") {
                    code += 1;
                } else if !line.starts_with("///") && !line.starts_with("//!") {
                    reasons += 1;
                }
            }
        }
        assert!(
            reasons * 1000 >= code * 25,
            "{name}: {reasons} of {code} lines"
        );
    }
}
