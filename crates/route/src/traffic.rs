//! Messages of traffic control: which filters are at which interface. Statistics and options differ
//! between kernels and are not read: none of them can make a message unreadable.

use netlink_packet_core::{DecodeError, NetlinkDeserializable, NetlinkHeader, NlasIterator};

/// The length of `struct tcmsg`.
const HEAD: usize = 20;
const KIND: u16 = 1;
const INGRESS_BLOCK: u16 = 13;
const EGRESS_BLOCK: u16 = 14;

/// Types of attributes without their flags.
const TYPE: u16 = 0x3fff;

/// A queueing discipline, or a filter of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// The index of the interface.
    pub(crate) index: u32,
    /// Its own handle.
    pub(crate) handle: u32,
    /// Its kind.
    pub(crate) kind: String,
    /// The indexes of filter blocks that interfaces share.
    pub(crate) blocks: Vec<u32>,
}

/// The filters of a discipline are found by its parents.
impl Traffic {
    pub(crate) fn parents(&self) -> Vec<u32> {
        match self.kind.as_str() {
            // The minor numbers of ingress and egress.
            "clsact" => vec![0xffff_fff2, 0xffff_fff3],
            // A discipline without a handle is the interface's default, and has no filters.
            _ if self.handle == 0 => Vec::new(),
            _ => vec![self.handle],
        }
    }

    fn parse(bytes: &[u8]) -> Result<Traffic, DecodeError> {
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let short = || DecodeError::from("a message of traffic control is too short");
        let mut traffic = Traffic {
            index: number(4).ok_or_else(short)?,
            handle: number(8).ok_or_else(short)?,
            ..Traffic::default()
        };
        let rest = bytes.get(HEAD..).ok_or_else(short)?;
        for attribute in NlasIterator::new(rest) {
            let attribute = attribute?;
            let value = attribute.value();
            match attribute.kind() & TYPE {
                KIND => {
                    let text = value.split(|it| *it == 0).next().unwrap_or_default();
                    traffic.kind = String::from_utf8_lossy(text).into_owned();
                }
                INGRESS_BLOCK | EGRESS_BLOCK => {
                    let block = value.try_into().map(u32::from_ne_bytes);
                    traffic.blocks.extend(block.ok());
                }
                _ => {}
            }
        }
        Ok(traffic)
    }
}

impl NetlinkDeserializable for Traffic {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Traffic, DecodeError> {
        Traffic::parse(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        for number in [7_u32, 0xffff_0000, 0xffff_fff1, 0] {
            bytes.extend(number.to_ne_bytes());
        }
        for (kind, value) in attributes {
            let length = u16::try_from(value.len() + 4).unwrap_or_default();
            bytes.extend(length.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(*value);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn kinds_and_blocks_are_read_and_other_attributes_are_skipped() {
        let bytes = message(&[
            (1, b"clsact\0"),
            (2 | 0x8000, b"whatever"),
            (13, &5_u32.to_ne_bytes()),
        ]);
        let read = Traffic::parse(&bytes).ok();
        let expected = Traffic {
            index: 7,
            handle: 0xffff_0000,
            kind: "clsact".to_owned(),
            blocks: vec![5],
        };
        assert_eq!(expected.parents(), [0xffff_fff2, 0xffff_fff3]);
        assert_eq!(read, Some(expected));
        let read = Traffic::parse(&message(&[(1, b"ingress\0")])).ok();
        assert_eq!(read.map(|it| it.parents()), Some(vec![0xffff_0000]));
        assert!(Traffic::parse(&[0; 19]).is_err());
    }
}
