//! Writes JSON in which no text commands a terminal.

use std::io::{self, Write};

use serde::Serialize;

/// Writes a value in one line, without an end of line.
pub(crate) fn write<T: Serialize + ?Sized>(
    out: &mut impl Write,
    value: &T,
) -> serde_json::Result<()> {
    serde_json::to_writer(Inert(out), value)
}

/// Writes a value in indented lines, without an end of line.
pub(crate) fn write_pretty<T: Serialize + ?Sized>(
    out: &mut impl Write,
    value: &T,
) -> serde_json::Result<()> {
    serde_json::to_writer_pretty(Inert(out), value)
}

/// Escapes the control characters that JSON permits unescaped: U+007F to U+009F. Terminals obey
/// some of them. They occur inside strings only, where an escape means the same.
struct Inert<W>(W);

/// The first byte of U+0080 to U+00BF in UTF-8.
const FIRST: u8 = 0xc2;

impl<W: Write> Write for Inert<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    /// A character is never split between two calls: the serializer cuts strings at escapes only.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|it| matches!(*it, FIRST | 0x7f)) {
            let (before, found) = rest.split_at(at);
            self.0.write_all(before)?;
            rest = match found {
                [0x7f, after @ ..] => {
                    self.0.write_all(b"\\u007f")?;
                    after
                }
                [FIRST, low @ 0x80..=0x9f, after @ ..] => {
                    write!(self.0, "\\u{low:04x}")?;
                    after
                }
                [first, after @ ..] => {
                    self.0.write_all(&[*first])?;
                    after
                }
                [] => &[],
            };
        }
        self.0.write_all(rest)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::{write, write_pretty};

    #[test]
    fn control_characters_are_escaped_and_come_back() {
        let texts = [
            "\u{1b}[31m",
            "\u{9b}31m",
            "a\u{7f}\u{80}\u{9f}\u{a0}\u{bf}é",
            "\"\\\u{85}\n",
        ];
        for writer in [write::<[&str]>, write_pretty::<[&str]>] {
            let mut out = Vec::new();
            writer(&mut out, &texts).unwrap();
            let json = String::from_utf8(out).unwrap();
            let is_command = |it: char| it.is_control() && it != '\n';
            assert!(!json.contains(is_command), "{json:?}");
            assert!(json.contains("\u{a0}\u{bf}é"), "{json}");
            let back: Vec<String> = serde_json::from_str(&json).unwrap();
            assert_eq!(back, texts);
        }
    }
}
