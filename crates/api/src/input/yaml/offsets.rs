//! Positions of the parser, which counts characters, as positions of bytes.

/// Byte offsets of character positions. The parser counts characters.
pub(super) struct Offsets<'a> {
    document: &'a str,
    base: usize,
    /// The byte offset of every 64th character; empty when all are ASCII.
    marks: Vec<u32>,
}

impl<'a> Offsets<'a> {
    pub(super) fn new(document: &'a str, base: usize) -> Offsets<'a> {
        let mut marks = Vec::new();
        if !document.is_ascii() {
            let every = document.char_indices().step_by(64);
            marks.extend(every.map(|(at, _)| u32::try_from(at).unwrap_or(u32::MAX)));
        }
        Offsets {
            document,
            base,
            marks,
        }
    }

    pub(super) fn byte(&self, index: usize) -> usize {
        if self.marks.is_empty() {
            return self.base + index.min(self.document.len());
        }
        let Some(&mark) = self.marks.get(index / 64) else {
            return self.base + self.document.len();
        };
        let rest = self.document.get(mark as usize..).unwrap_or_default();
        let within = rest
            .char_indices()
            .nth(index % 64)
            .map_or(rest.len(), |(at, _)| at);
        self.base + mark as usize + within
    }
}
