//! TCP segments with any flags and numbers, for connections in mid-stream.

use std::net::SocketAddr;

use etherparse::TcpHeader;

use crate::packet::{PacketError, ip};

/// The sender has no more data.
pub const FIN: u8 = 1;
/// The first segment of a direction.
pub const SYN: u8 = 2;
/// The connection is reset.
pub const RST: u8 = 4;
/// The data must be delivered at once.
pub const PSH: u8 = 8;
/// The acknowledgment number is valid.
pub const ACK: u8 = 16;

/// A TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The sender's address and port.
    pub source: SocketAddr,
    /// The receiver's address and port.
    pub destination: SocketAddr,
    /// The flags, from the constants of this module.
    pub flags: u8,
    /// The sequence number, which a reader reports as the probe's number.
    pub sequence: u32,
    /// The acknowledgment number.
    pub acknowledgment: u32,
    /// The data.
    pub data: &'a [u8],
}

impl Segment<'_> {
    /// Returns its bytes, from the IP header on.
    pub fn build(&self) -> Result<Vec<u8>, PacketError> {
        let mut header = TcpHeader::new(
            self.source.port(),
            self.destination.port(),
            self.sequence,
            64_240,
        );
        header.acknowledgment_number = self.acknowledgment;
        header.fin = self.flags & FIN != 0;
        header.syn = self.flags & SYN != 0;
        header.rst = self.flags & RST != 0;
        header.psh = self.flags & PSH != 0;
        header.ack = self.flags & ACK != 0;
        let mut out = Vec::new();
        ip(self.source.ip(), self.destination.ip(), self.sequence)?
            .tcp_header(header)
            .write(&mut out, self.data)?;
        Ok(out)
    }
}
