//! Archives in the format of `tar`: files, directories and links, owned by root, with the time
//! zero.

/// An archive under construction.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
}

impl Archive {
    /// Adds a file.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.header(path, mode, content.len(), b'0', "");
        self.bytes.extend_from_slice(content);
        self.fill();
    }

    /// Adds a directory.
    pub(crate) fn directory(&mut self, path: &str, mode: u32) {
        self.header(&format!("{path}/"), mode, 0, b'5', "");
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, path: &str, to: &str) {
        self.header(path, 0o777, 0, b'2', to);
    }

    /// Its bytes, with the end that readers expect.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.bytes.extend_from_slice(&[0; 1024]);
        self.bytes
    }

    fn header(&mut self, path: &str, mode: u32, size: usize, kind: u8, link: &str) {
        let mut header = Vec::with_capacity(512);
        field(&mut header, path.as_bytes(), 100);
        field(&mut header, format!("{mode:07o}").as_bytes(), 8);
        field(&mut header, b"0000000", 8);
        field(&mut header, b"0000000", 8);
        field(&mut header, format!("{size:011o}").as_bytes(), 12);
        field(&mut header, b"00000000000", 12);
        // The checksum counts its own field as spaces.
        let (before, after) = (header, {
            let mut after = vec![kind];
            field(&mut after, link.as_bytes(), 100);
            field(&mut after, b"ustar\x0000", 8);
            after.resize(512 - 148 - 8, 0);
            after
        });
        let all = before.iter().chain(b"        ").chain(&after);
        let sum: u32 = all.map(|it| u32::from(*it)).sum();
        self.bytes.extend_from_slice(&before);
        self.bytes
            .extend_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&after);
    }

    /// Pads the last block.
    fn fill(&mut self) {
        let length = self.bytes.len().next_multiple_of(512);
        self.bytes.resize(length, 0);
    }
}

/// Appends a text in a field of fixed width.
fn field(header: &mut Vec<u8>, text: &[u8], width: usize) {
    let end = header.len() + width;
    header.extend(text.iter().take(width));
    header.resize(end, 0);
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn blocks_are_whole_and_sums_are_right() {
        let mut archive = Archive::default();
        archive.directory("etc", 0o755);
        archive.file("etc/name", 0o644, b"palisade");
        archive.link("etc/link", "name");
        let bytes = archive.finish();
        assert_eq!(bytes.len(), 512 * (1 + 2 + 1 + 2));
        let header = bytes.get(..512).unwrap_or_default();
        let sum: u32 = header
            .iter()
            .enumerate()
            .map(|(at, byte)| {
                if (148..156).contains(&at) {
                    32
                } else {
                    u32::from(*byte)
                }
            })
            .sum();
        assert_eq!(header.get(148..154), Some(format!("{sum:06o}").as_bytes()));
    }
}
