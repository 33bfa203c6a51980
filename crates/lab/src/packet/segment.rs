//! TCP segments with any flags and numbers, for connections that are already under way.

use std::net::SocketAddr;

use etherparse::TcpHeader;

use crate::packet::{PacketError, ip};

/// The sender is done.
pub const FIN: u8 = 1;
/// The first segment of a direction.
pub const SYN: u8 = 2;
/// The connection is no more.
pub const RST: u8 = 4;
/// Data to hand on at once.
pub const PSH: u8 = 8;
/// The acknowledgment number counts.
pub const ACK: u8 = 16;

/// One segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// The sender's address and port.
    pub source: SocketAddr,
    /// The receiver's address and port.
    pub destination: SocketAddr,
    /// The flags, from the constants of this module.
    pub flags: u8,
    /// The sequence number; it is what a reader reports as the probe's number.
    pub sequence: u32,
    /// The acknowledgment number.
    pub acknowledgment: u32,
    /// The data.
    pub data: &'a [u8],
}

impl Segment<'_> {
    /// Its bytes, from the IP header on.
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
