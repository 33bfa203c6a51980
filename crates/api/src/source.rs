//! Sources: input bytes as text with positions.

use std::io::Read;
use std::ops::Range;

use crate::kind::Kind;
use crate::problem::{Code, Problem, SourceId, Span};

/// The largest source that is read. Positions must fit 32 bits, and a compressed file must not fill
/// the memory.
pub const MAX_SOURCE_BYTES: usize = 1 << 30;

/// A named text. Bytes that are not UTF-8 were replaced one by one; positions do not change.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
    /// Where bytes were replaced.
    broken: Vec<Range<usize>>,
    /// The problem of the source as a whole.
    opening: Option<(Code, String, Option<String>)>,
    /// The kind and apiVersion of an object that a server sent.
    served: Option<(Kind, String)>,
}

impl Source {
    /// Creates a source from bytes, which are compressed if the name ends in `.gz`.
    pub fn new(name: impl Into<String>, bytes: Vec<u8>) -> Source {
        Source::with_limit(name, bytes, MAX_SOURCE_BYTES)
    }

    /// [`new`](Source::new) with another limit of size.
    pub fn with_limit(name: impl Into<String>, bytes: Vec<u8>, limit: usize) -> Source {
        let name = name.into();
        let too_large = || {
            let help = Some("split it into several files".to_owned());
            (
                Code::FileTooLarge,
                format!("the file has more than {limit} bytes"),
                help,
            )
        };
        if name.ends_with(".gz") {
            let mut text = Vec::new();
            let most = limit as u64 + 1;
            let read = flate2::read::MultiGzDecoder::new(bytes.as_slice())
                .take(most)
                .read_to_end(&mut text);
            return match read {
                Ok(_) if text.len() > limit => Source::opening(name, too_large()),
                Ok(_) => Source::from_bytes(name, text),
                Err(error) => {
                    let message = format!("the file cannot be decompressed: {error}");
                    let help = "check that it is a complete gzip file".to_owned();
                    Source::opening(name, (Code::BrokenGzip, message, Some(help)))
                }
            };
        }
        if bytes.len() > limit {
            return Source::opening(name, too_large());
        }
        Source::from_bytes(name, bytes)
    }

    /// An object as a server sent it, in JSON. Items of a list of a built-in kind have no type:
    /// they get this one. Bytes that are not UTF-8 may occur in unread fields and are replaced;
    /// every field that is read rejects the replacement.
    pub fn served(kind: Kind, api_version: String, object: Vec<u8>) -> Source {
        // The type is kept beside the text: wrapping the object in a list with its type would copy
        // every event of a watch.
        Source {
            broken: Vec::new(),
            served: Some((kind, api_version)),
            ..Source::from_bytes(kind.short().to_owned(), object)
        }
    }

    fn opening(name: String, flaw: (Code, String, Option<String>)) -> Source {
        Source {
            name,
            text: String::new(),
            broken: Vec::new(),
            opening: Some(flaw),
            served: None,
        }
    }

    fn from_bytes(name: String, bytes: Vec<u8>) -> Source {
        match String::from_utf8(bytes) {
            Ok(text) => Source {
                name,
                text,
                broken: Vec::new(),
                opening: None,
                served: None,
            },
            Err(error) => {
                let (text, broken) = replace_broken(error.into_bytes());
                Source {
                    name,
                    text,
                    broken,
                    opening: None,
                    served: None,
                }
            }
        }
    }

    /// The name, as the user wrote it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The kind and apiVersion of the one object of the source, if a server sent it.
    pub(crate) fn type_of_served(&self) -> Option<(Kind, &str)> {
        let (kind, api_version) = self.served.as_ref()?;
        Some((*kind, api_version))
    }

    /// The problem of the source as a whole.
    pub(crate) fn problem(&self, source: SourceId) -> Option<Problem> {
        let (code, message, help) = self.opening.clone()?;
        let span = Span::default();
        Some(Problem {
            code,
            source,
            span,
            object: None,
            path: None,
            message,
            help,
            related: None,
        })
    }

    /// The first bytes in a range that are not UTF-8.
    pub(crate) fn broken_in(&self, range: &Range<usize>) -> Option<Span> {
        let at = self.broken.partition_point(|it| it.end <= range.start);
        let broken = self.broken.get(at).filter(|it| it.start < range.end)?;
        Some(Span::new(broken.start, broken.end))
    }

    /// Whether the name is that of a JSON file.
    pub(crate) fn is_json_by_name(&self) -> bool {
        let name = self.name.strip_suffix(".gz").unwrap_or(&self.name);
        name.ends_with(".json")
    }
}

/// Replaces what is not UTF-8 by question marks of the same length.
fn replace_broken(mut bytes: Vec<u8>) -> (String, Vec<Range<usize>>) {
    let mut broken: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    while let Some(Err(error)) = bytes.get(at..).map(std::str::from_utf8) {
        let start = at + error.valid_up_to();
        let end = error.error_len().map_or(bytes.len(), |len| start + len);
        if let Some(wrong) = bytes.get_mut(start..end) {
            wrong.fill(b'?');
        }
        broken.push(start..end);
        at = end;
    }
    // INVARIANT: every invalid sequence was replaced by ASCII; nothing is lost here.
    (String::from_utf8_lossy(&bytes).into_owned(), broken)
}

/// Lines and columns of a text, counted from one; columns count characters.
#[derive(Debug)]
pub struct Lines<'s> {
    text: &'s str,
    starts: Vec<usize>,
    /// The number of characters before every block of bytes: a column in a long line is found
    /// without counting from its start.
    characters: Vec<usize>,
}

/// The size of those blocks.
const BLOCK: usize = 1024;

impl<'s> Lines<'s> {
    /// Finds where the lines start.
    pub fn new(text: &'s str) -> Lines<'s> {
        let newlines = memchr::memchr_iter(b'\n', text.as_bytes());
        let starts = std::iter::once(0).chain(newlines.map(|at| at + 1));
        let mut characters = Vec::with_capacity(text.len() / BLOCK + 1);
        let mut count = 0;
        for block in text.as_bytes().chunks(BLOCK) {
            characters.push(count);
            count += n_characters(block);
        }
        characters.push(count);
        Lines {
            text,
            starts: starts.collect(),
            characters,
        }
    }

    /// The line and column of an offset.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.start(line);
        let mark = usize::from(start == 0 && offset > 0 && self.text.starts_with('\u{feff}'));
        (line, self.before(offset) - self.before(start) - mark + 1)
    }

    /// The line of an offset, counted from one.
    pub fn line_of(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }

    /// The bytes of a line, counted from one, without its end.
    pub fn line(&self, line: usize) -> Range<usize> {
        let end = self
            .starts
            .get(line)
            .map_or(self.text.len(), |next| next - 1);
        self.start(line)..end
    }

    fn start(&self, line: usize) -> usize {
        line.checked_sub(1)
            .and_then(|it| self.starts.get(it))
            .copied()
            .unwrap_or(0)
    }

    /// The number of characters before an offset.
    fn before(&self, offset: usize) -> usize {
        let block = offset / BLOCK;
        let rest = self
            .text
            .as_bytes()
            .get(block * BLOCK..offset)
            .unwrap_or_default();
        self.characters.get(block).copied().unwrap_or(0) + n_characters(rest)
    }
}

/// Counts the bytes that start a character.
fn n_characters(bytes: &[u8]) -> usize {
    // Nearly all text is ASCII, which is checked many bytes at a time.
    if bytes.is_ascii() {
        return bytes.len();
    }
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// The documents of a YAML text: `---` at the start of a line begins one, `...` ends one.
pub(crate) fn documents(text: &str, start: usize) -> Vec<Range<usize>> {
    let mut documents = Vec::new();
    let mut from = start;
    for marker in markers(text, start) {
        if text.get(marker..).unwrap_or_default().starts_with('.') {
            let rest = text.as_bytes().get(marker..).unwrap_or_default();
            let end = marker + memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
            documents.push(from..end);
            from = end;
        } else if !is_prologue(text.get(from..marker).unwrap_or_default()) {
            documents.push(from..marker);
            from = marker;
        }
    }
    documents.push(from..text.len());
    documents
}

/// Where lines are markers of documents.
fn markers(text: &str, start: usize) -> impl Iterator<Item = usize> {
    let bytes = text.as_bytes();
    let lines = |marker: &'static [u8]| {
        let rest = bytes.get(start..).unwrap_or_default();
        memchr::memmem::find_iter(rest, marker).map(move |at| start + at + 1)
    };
    let mut begins = lines(b"\n---").peekable();
    let mut ends = lines(b"\n...").peekable();
    let rest = move || match (begins.peek(), ends.peek()) {
        (Some(begin), Some(end)) if end < begin => ends.next(),
        (Some(_), _) => begins.next(),
        (None, _) => ends.next(),
    };
    let is_marker = move |at: &usize| {
        let rest = bytes.get(*at..).unwrap_or_default();
        let (sign, after) = rest.split_at_checked(3).unwrap_or_default();
        matches!(sign, b"---" | b"...")
            && matches!(after.first(), None | Some(b' ' | b'\t' | b'\r' | b'\n'))
    };
    std::iter::once(start)
        .chain(std::iter::from_fn(rest))
        .filter(is_marker)
}

/// Whether there are only comments and directives, which belong to the document of the `---` after
/// them.
fn is_prologue(text: &str) -> bool {
    text.split_inclusive('\n').all(|line| {
        let content = line.trim_start();
        content.is_empty() || content.starts_with(['#', '%'])
    })
}

/// The first character that YAML does not allow.
pub(crate) fn unprintable(text: &str) -> Option<(usize, char)> {
    let suspicious = |c: u8| (c < 0x20 && !matches!(c, b'\t' | b'\n' | b'\r')) || c == 0x7f;
    let allowed = |c: char| match c {
        '\t' | '\n' | '\r' | '\u{85}' => true,
        '\u{fffe}' | '\u{ffff}' => false,
        c => !c.is_control(),
    };
    // Most texts pass this check at once.
    let harmless = |c: &u8| matches!(c, b' '..=b'~' | b'\t' | b'\n' | b'\r');
    let all_harmless = |block: &[u8]| block.iter().fold(true, |all, c| all & harmless(c));
    if text.as_bytes().chunks(BLOCK).all(all_harmless) {
        return None;
    }
    if text.is_ascii() {
        let at = text.bytes().position(suspicious)?;
        return text.get(at..)?.chars().next().map(|c| (at, c));
    }
    text.char_indices().find(|(_, c)| !allowed(*c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_split_at_markers_only() {
        let text = "# head\n%YAML 1.1\n---\na: 1\n---x: 2\n--- # two\nb: |\n  ---\n...\n# end\n";
        let parts: Vec<&str> = documents(text, 0).into_iter().map(|it| &text[it]).collect();
        assert_eq!(
            parts,
            [
                "# head\n%YAML 1.1\n---\na: 1\n---x: 2\n",
                "--- # two\nb: |\n  ---\n...\n",
                "# end\n"
            ]
        );
    }

    #[test]
    fn broken_bytes_keep_positions_and_are_remembered() {
        let source = Source::new("a.yaml", b"a: \xff\xfe\n---\nb: \xc3\xa9\n".to_vec());
        assert_eq!(source.text(), "a: ??\n---\nb: é\n");
        assert_eq!(source.broken_in(&(0..6)), Some(Span::new(3, 4)));
        assert_eq!(source.broken_in(&(6..source.text().len())), None);
    }

    #[test]
    fn positions_count_characters_from_one() {
        let lines = Lines::new("ab\né: x\n");
        assert_eq!(lines.position(0), (1, 1));
        assert_eq!(lines.position(3), (2, 1));
        assert_eq!(lines.position(7), (2, 4));
        assert_eq!(lines.position(999), (3, 1));
    }

    #[test]
    fn a_compressed_source_is_bounded_and_a_broken_one_is_reported() {
        use std::io::Write;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&vec![b'#'; 100_000]).unwrap();
        let bytes = gzip.finish().unwrap();
        let read = Source::with_limit("a.yaml.gz", bytes.clone(), 100_000);
        assert_eq!(read.text().len(), 100_000);
        let code = |source: Source| source.problem(SourceId(0)).map(|problem| problem.code);
        assert_eq!(
            code(Source::with_limit("a.yaml.gz", bytes.clone(), 99_999)),
            Some(Code::FileTooLarge)
        );
        assert_eq!(
            code(Source::new("a.yaml.gz", bytes[..50].to_vec())),
            Some(Code::BrokenGzip)
        );
        assert_eq!(
            code(Source::with_limit("a.yaml", vec![b'#'; 11], 10)),
            Some(Code::FileTooLarge)
        );
    }
}
