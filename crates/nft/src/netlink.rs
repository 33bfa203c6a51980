//! Netlink: writes and reads messages and attributes.
//!
//! Lengths, types and sequence numbers are in host byte order; netfilter's own numbers are in
//! network byte order.

/// The bytes of the header of a message, and of netfilter's header behind it.
pub(crate) const HEADER: usize = 16;
const NETFILTER_HEADER: usize = 4;

/// The largest value of an attribute that Palisade writes. Its length has 16 bits, and includes a
/// header.
pub(crate) const MOST_OF_AN_ATTRIBUTE: usize = 60_000;

/// Types of messages that are not netfilter's.
pub(crate) const ERROR: u16 = 2;
pub(crate) const DONE: u16 = 3;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

/// Flags of messages.
pub(crate) mod flag {
    pub(crate) const REQUEST: u16 = 0x1;
    pub(crate) const ACK: u16 = 0x4;
    pub(crate) const DUMP: u16 = 0x300;
    pub(crate) const DUMP_INTERRUPTED: u16 = 0x10;
    pub(crate) const EXCLUSIVE: u16 = 0x200;
    pub(crate) const CREATE: u16 = 0x400;
    pub(crate) const APPEND: u16 = 0x800;
    /// In an answer: it repeats only the header of the refused message.
    pub(crate) const CAPPED: u16 = 0x100;
    /// In an answer: attributes follow the repeated message.
    pub(crate) const ATTRIBUTES: u16 = 0x200;
}

const NESTED: u16 = 0x8000;
const ATTRIBUTE_TYPE: u16 = 0x3fff;

/// Writes attributes to the end of a message.
pub(crate) trait Put {
    /// Writes an attribute with these bytes.
    fn bytes(&mut self, kind: u16, value: &[u8]);
    /// Writes an attribute with a number of four bytes in network byte order.
    fn number(&mut self, kind: u16, value: u32);
    /// Writes an attribute with a text and its final zero.
    fn text(&mut self, kind: u16, value: &str);
    /// Writes an attribute that consists of attributes.
    fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Self));
}

impl Put for Vec<u8> {
    fn bytes(&mut self, kind: u16, value: &[u8]) {
        attribute_header(self, kind, value.len());
        self.extend_from_slice(value);
        align(self);
    }

    fn number(&mut self, kind: u16, value: u32) {
        attribute_header(self, kind, 4);
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn text(&mut self, kind: u16, value: &str) {
        attribute_header(self, kind, value.len() + 1);
        self.extend_from_slice(value.as_bytes());
        self.push(0);
        align(self);
    }

    fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Vec<u8>)) {
        let start = self.len();
        attribute_header(self, kind | NESTED, 0);
        inside(self);
        // The length is known only when the contents are written.
        let length = length16(self.len() - start);
        overwrite(self, start, &length.to_ne_bytes());
        // Bytes that were copied from a dump need not end at a multiple of four.
        align(self);
    }
}

fn attribute_header(bytes: &mut Vec<u8>, kind: u16, length: usize) {
    bytes.extend_from_slice(&length16(length + 4).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
}

/// Converts a length. Encoders keep attributes below [`MOST_OF_AN_ATTRIBUTE`].
fn length16(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + with.len()) {
        place.copy_from_slice(with);
    }
}

/// Writes a netfilter message.
pub(crate) fn message(
    bytes: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    family: u8,
    inside: impl FnOnce(&mut Vec<u8>),
) {
    let start = bytes.len();
    header(bytes, kind, flags, family, 0);
    inside(bytes);
    let length = u32::try_from(bytes.len() - start).unwrap_or(u32::MAX);
    overwrite(bytes, start, &length.to_ne_bytes());
}

fn header(bytes: &mut Vec<u8>, kind: u16, flags: u16, family: u8, resource: u16) {
    let length = (HEADER + NETFILTER_HEADER) as u32;
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&(flags | flag::REQUEST).to_ne_bytes());
    // Sequence number and port. The first is set when the batch is complete; the second may be 0,
    // since the kernel knows the sender.
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[family, 0]);
    // In the messages around a batch this is the subsystem, in all others it is 0.
    bytes.extend_from_slice(&resource.to_be_bytes());
}

/// Begins a batch: messages that the kernel carries out together, or not at all.
pub(crate) fn begin(bytes: &mut Vec<u8>, subsystem: u16) {
    header(bytes, BATCH_BEGIN, 0, 0, subsystem);
}

/// Ends a batch.
pub(crate) fn end(bytes: &mut Vec<u8>, subsystem: u16) {
    header(bytes, BATCH_END, 0, 0, subsystem);
}

/// The bytes of [`begin`] and [`end`] each.
pub(crate) const BRACKET: usize = HEADER + NETFILTER_HEADER;

/// Sets consecutive sequence numbers.
pub(crate) fn number_messages(bytes: &mut [u8], first: u32) {
    let (mut at, mut sequence) = (0, first);
    while let Some(length) = number_at(bytes, at).map(|length| length as usize) {
        // `nlmsg_seq`; before it are length, type and flags.
        overwrite(bytes, at + 8, &sequence.to_ne_bytes());
        sequence = sequence.wrapping_add(1);
        // At least a header: a broken length must not stop the progress.
        at += length.next_multiple_of(4).max(HEADER);
    }
}

/// Returns the offset of the last message.
pub(crate) fn last_message(bytes: &[u8]) -> usize {
    let (mut at, mut last) = (0, 0);
    while let Some(length) = number_at(bytes, at) {
        last = at;
        at += (length as usize).next_multiple_of(4).max(HEADER);
    }
    last
}

/// Adds flags to the message that begins at an offset.
pub(crate) fn add_flags(bytes: &mut [u8], at: usize, flags: u16) {
    // `nlmsg_flags` is behind length and type.
    let old = half_at(bytes, at + 6).unwrap_or(0);
    overwrite(bytes, at + 6, &(old | flags).to_ne_bytes());
}

fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_ne_bytes(*four))
}

fn half_at(bytes: &[u8], at: usize) -> Option<u16> {
    let two = bytes.get(at..)?.first_chunk::<2>()?;
    Some(u16::from_ne_bytes(*two))
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received<'b> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    /// The port of the socket whose request the message answers, or whose change it reports.
    pub(crate) port: u32,
    pub(crate) body: &'b [u8],
}

impl<'b> Received<'b> {
    /// Returns the attributes of a netfilter message.
    pub(crate) fn attributes(&self) -> Attributes<'b> {
        Attributes(self.body.get(NETFILTER_HEADER..).unwrap_or_default())
    }

    /// Returns the error number of an answer, or 0.
    pub(crate) fn error(&self) -> i32 {
        // The kernel writes errors as negative numbers.
        let four = self.body.first_chunk::<4>().copied().unwrap_or_default();
        i32::from_ne_bytes(four).wrapping_neg()
    }

    /// Returns the kernel's own message in an answer, if there is one.
    pub(crate) fn words(&self) -> Option<String> {
        const MESSAGE: u16 = 1;
        if self.kind != ERROR || self.flags & flag::ATTRIBUTES == 0 {
            return None;
        }
        // The answer repeats the refused message: in full, unless it is marked as capped.
        let repeated = match self.flags & flag::CAPPED {
            0 => number_at(self.body, 4)? as usize,
            _ => HEADER,
        };
        let rest = self.body.get(4 + repeated.next_multiple_of(4)..)?;
        let message = Attributes(rest).find(MESSAGE)?;
        Some(text(message))
    }
}

/// The messages in received bytes. The iterator ends at a malformed one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Messages<'b>(pub(crate) &'b [u8]);

impl<'b> Iterator for Messages<'b> {
    type Item = Received<'b>;

    fn next(&mut self) -> Option<Received<'b>> {
        let length = number_at(self.0, 0)? as usize;
        let message = self.0.get(..length)?;
        let received = Received {
            kind: half_at(message, 4)?,
            flags: half_at(message, 6)?,
            sequence: number_at(message, 8)?,
            port: number_at(message, 12)?,
            body: message.get(HEADER..)?,
        };
        // The last message may lack its padding.
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(received)
    }
}

/// The attributes in some bytes. The iterator ends at a malformed one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'b>(pub(crate) &'b [u8]);

impl<'b> Attributes<'b> {
    /// Returns the value of the first attribute of a type.
    pub(crate) fn find(mut self, kind: u16) -> Option<&'b [u8]> {
        self.find_map(|(found, value)| (found == kind).then_some(value))
    }

    /// Returns the attributes inside an attribute; none if it is missing.
    pub(crate) fn inside(self, kind: u16) -> Attributes<'b> {
        Attributes(self.find(kind).unwrap_or_default())
    }
}

impl<'b> Iterator for Attributes<'b> {
    type Item = (u16, &'b [u8]);

    fn next(&mut self) -> Option<(u16, &'b [u8])> {
        let length = usize::from(half_at(self.0, 0)?);
        let kind = half_at(self.0, 2)? & ATTRIBUTE_TYPE;
        // A length below 4 is malformed as well: `4..length` is then no range.
        let value = self.0.get(4..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// Reads a number of four bytes in network byte order.
pub(crate) fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.first_chunk()?))
}

/// Reads a number of eight bytes in network byte order.
pub(crate) fn long(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.first_chunk()?))
}

/// Reads a text up to its final zero.
pub(crate) fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn encoded_messages_can_be_decoded() {
        let mut bytes = Vec::new();
        begin(&mut bytes, 10);
        message(&mut bytes, 0xa00, flag::CREATE, 1, |bytes| {
            bytes.text(1, "abc");
            bytes.nest(2, |bytes| bytes.number(7, 9));
            bytes.bytes(3, &[1, 2, 3]);
        });
        end(&mut bytes, 10);
        number_messages(&mut bytes, 40);
        add_flags(&mut bytes, BRACKET, flag::ACK);
        assert_eq!(bytes.len() % 4, 0);

        let read: Vec<Received<'_>> = Messages(&bytes).collect();
        let kinds: Vec<(u16, u16, u32)> = read
            .iter()
            .map(|read| (read.kind, read.flags, read.sequence))
            .collect();
        assert_eq!(kinds, [(0x10, 1, 40), (0xa00, 0x405, 41), (0x11, 1, 42)]);
        let attributes = read.get(1).unwrap().attributes();
        assert_eq!(text(attributes.find(1).unwrap()), "abc");
        assert_eq!(number(attributes.inside(2).find(7).unwrap()), Some(9));
        assert_eq!(attributes.find(3), Some([1, 2, 3].as_slice()));
        assert_eq!(attributes.find(4), None);
    }

    #[test]
    fn broken_bytes_end_the_list() {
        assert_eq!(Messages(&[1, 2, 3]).count(), 0);
        assert_eq!(Messages(&[200; 64]).count(), 0);
        assert_eq!(Messages(&[0; 64]).count(), 0);
        assert_eq!(Attributes(&[0; 8]).count(), 0);
        assert_eq!(Attributes(&[3, 0, 1, 0, 9]).count(), 0);
        assert_eq!(Attributes(&[9, 0, 1, 0, 9]).count(), 0);
    }
}
