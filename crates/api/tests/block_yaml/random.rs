//! Random documents in the styles that people and programs write, and damage done to them.

use std::fmt::Write as _;

/// A small generator of numbers; the seed replays everything.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit.max(1)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }
}

const KEYS: &[&str] = &[
    "name",
    "app",
    "kind",
    "a",
    "b",
    "spec",
    "app.kubernetes.io/name",
    "\"80\"",
    "'a b'",
    "x y",
    "on",
    "123",
    "null",
    "ключ",
    "k#1",
    "a:b",
    "-x",
    "~",
    "\"q\"",
    "y",
    "n",
    "1e3",
    ".5",
    "é",
    "<<",
    "?",
    "a ",
    "\"a\"",
    "true",
    "long-key-of-many-letters",
    "long-key-of-many-letterz",
];

const SCALARS: &[&str] = &[
    "a",
    "web",
    "80",
    "0x1F",
    "010",
    "1_000",
    "true",
    "yes",
    "off",
    "null",
    "~",
    "\"\"",
    "''",
    "\"80\"",
    "'it''s'",
    "\"a\\tb\"",
    "\"\\u00e9\"",
    "\"\\x41\"",
    "a b c",
    "http://x/y:80",
    "a#b",
    "a: b",
    "a:",
    "é",
    "-1",
    "- 1",
    "-",
    "--flag",
    "---",
    "...",
    "{}",
    "[]",
    "{a: b}",
    "[a, \"b\", 1]",
    "[a, b: c]",
    "{a: [b, {c: d}], e: 'f'}",
    "{a: b",
    "*x",
    "&x a",
    "!!str 1",
    "@a",
    "%a",
    "`a`",
    "?a",
    ":a",
    "a,b",
    "[a",
    "a]",
    "a\tb",
    "\"a\" #c",
    "a #c",
    "a# c",
    "\"#\"",
    ".inf",
    "-.inf",
    ".nan",
    "1.5",
    "1e3",
    "10.0.0.0/8",
    "fd00::/64",
    "[10.0.0.0/8, fd00::/64]",
    "\"a",
    "'a",
    "|",
    ">",
    "|-",
    ">+",
    "|2",
    "=",
    "<",
    "<<",
    "{a : b}",
    "{\"a\": b}",
    "{\"a\":b}",
    "[ ]",
    "{ }",
    "[a ,b]",
    "[a, ]",
    "{a: }",
    "{a}",
    "[-1, -a]",
    "[a b]",
    "  a",
    "a  ",
    "\u{a0}",
    "\u{2028}",
    "2001-01-01",
    "12:30:45",
    "\\a",
    "(a)",
    "$(A)",
    "\"a\\\n  b\"",
    "\"a\n   b\"",
    "'a\n  b'",
    "a\n   b",
    "a\n   b c\n    d",
    "\"a\\/b\"",
    "\"\\ a\"",
    "[[a], [b, [c]]]",
];

const BLOCKS: &[&str] = &["|", "|-", "|+", ">", ">-", ">+"];

/// A document in a random style.
pub(crate) fn document(random: &mut Random) -> String {
    let mut out = String::new();
    if random.one_in(4) {
        out.push_str(random.pick(&[
            "---\n",
            "# c\n---\n",
            "--- # c\n",
            "---  \n",
            "\n",
            "%YAML 1.1\n---\n",
        ]));
    }
    let step = random.below(3) * 2;
    let indent = if random.one_in(10) { 2 } else { 0 };
    if random.one_in(6) {
        sequence(&mut out, random, indent, 4, step, false);
    } else {
        mapping(&mut out, random, indent, 5, step, false);
    }
    if random.one_in(10) {
        out.push_str(random.pick(&["...\n", "...", "# end", "\n\n", "   ", "\t\n", "--- \n"]));
    }
    if random.one_in(8) {
        out.pop();
    }
    out
}

fn pad(out: &mut String, n: usize) {
    out.extend(std::iter::repeat_n(' ', n));
}

fn noise(out: &mut String, random: &mut Random, indent: usize) {
    if random.one_in(12) {
        match random.below(4) {
            0 => out.push('\n'),
            1 => {
                let _ = writeln!(out, "# a: b");
            }
            2 => {
                pad(out, indent + random.below(4));
                out.push_str("# comment: \"x\n");
            }
            _ => {
                pad(out, random.below(6));
                out.push('\n');
            }
        }
    }
}

fn mapping(
    out: &mut String,
    random: &mut Random,
    indent: usize,
    depth: usize,
    step: usize,
    inline: bool,
) {
    let mut inline = inline;
    for index in 0..1 + random.below(4) {
        if !inline {
            noise(out, random, indent);
            pad(out, indent + usize::from(random.one_in(200)));
        }
        inline = false;
        let key = random.pick(KEYS);
        if !random.one_in(6) {
            let _ = write!(out, "k{index}:");
        } else {
            let _ = write!(out, "{key}:");
        }
        value(out, random, indent, depth, step);
    }
}

fn value(out: &mut String, random: &mut Random, indent: usize, depth: usize, step: usize) {
    match random.below(if depth == 0 { 5 } else { 9 }) {
        0..3 => {
            pad(out, 1 + random.below(8) / 7);
            scalar(out, random);
        }
        3 => {
            out.push_str(random.pick(&["", "", " ", "  # c", " #c", " # c: d"]));
            out.push('\n');
        }
        4 => block(out, random, indent),
        5..7 => {
            out.push_str(random.pick(&["\n", "\n", "\n", " # c\n", "   \n", "\n\n"]));
            mapping(out, random, indent + 2, depth - 1, step, false);
        }
        _ => {
            out.push('\n');
            sequence(out, random, indent + step, depth - 1, step, false);
        }
    }
}

fn scalar(out: &mut String, random: &mut Random) {
    let word = random.pick(SCALARS);
    // Mostly valid pieces, or hardly any document would be valid.
    out.push_str(if !random.one_in(8) { "abc" } else { word });
    if random.one_in(20) {
        out.push_str(random.pick(&["  ", " # c", " #", "#c", "\t", " : c", " - d"]));
    }
    out.push('\n');
}

fn sequence(
    out: &mut String,
    random: &mut Random,
    indent: usize,
    depth: usize,
    step: usize,
    inline: bool,
) {
    let mut inline = inline;
    for _ in 0..1 + random.below(3) {
        if !inline {
            noise(out, random, indent);
            pad(out, indent);
        }
        inline = false;
        let gap = if random.one_in(8) { 3 } else { 1 };
        out.push('-');
        pad(out, gap);
        match random.below(if depth == 0 { 3 } else { 6 }) {
            0..2 => scalar(out, random),
            2 => block(out, random, indent),
            3 => sequence(out, random, indent + 1 + gap, depth - 1, step, true),
            _ => mapping(out, random, indent + 1 + gap, depth - 1, step, true),
        }
    }
}

fn block(out: &mut String, random: &mut Random, indent: usize) {
    out.push(' ');
    out.push_str(random.pick(BLOCKS));
    out.push_str(random.pick(&["\n", "\n", "\n", "\n", " \n", " # c\n"]));
    let inner = indent + 1 + random.below(3);
    for index in 0..random.below(12) / 2 {
        match if index == 0 { 7 } else { random.below(8) } {
            0 => out.push('\n'),
            1 => {
                pad(out, random.below(inner + 3));
                out.push('\n');
            }
            2 => {
                pad(out, inner + 2);
                out.push_str("more\n");
            }
            3 => {
                pad(out, inner);
                out.push_str("\tx: y\n");
            }
            _ => {
                pad(out, inner);
                out.push_str("text: # [a, b\n");
            }
        }
    }
}

/// Changes a text in one place, as a typing error would.
pub(crate) fn damaged(text: &str, random: &mut Random) -> String {
    let mut characters: Vec<char> = text.chars().collect();
    let at = random.below(characters.len());
    let signs: Vec<char> = " \n\t:#-'\"[]{},&*!|>%@`?\r\\~.\u{feff}é\0"
        .chars()
        .collect();
    let sign = signs[random.below(signs.len())];
    match random.below(4) {
        _ if characters.is_empty() => characters.push(sign),
        0 => characters.insert(at, sign),
        1 => characters[at] = sign,
        2 => {
            characters.remove(at);
        }
        _ => {
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            let (from, to) = (random.below(lines.len()), random.below(lines.len()));
            let mut lines = lines;
            let line = lines[from];
            lines.insert(to, line);
            return lines.concat();
        }
    }
    characters.into_iter().collect()
}
