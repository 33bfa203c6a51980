//! Protocols, port ranges and address blocks, with the exact text rules of the API.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use thiserror::Error;

/// A transport protocol that policies can filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// All protocols, in the order of the API.
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        }
    }

    /// Parses the name in the API, which is upper case.
    pub fn from_name(name: &str) -> Option<Protocol> {
        Protocol::ALL
            .into_iter()
            .find(|protocol| protocol.name() == name)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families, in the order of output.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];

    /// Returns the number of bits of an address.
    pub fn bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    /// Returns the family of an address.
    pub fn of(address: IpAddr) -> Family {
        // An IPv4-mapped IPv6 address counts as IPv4 (D22).
        match address.to_canonical() {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

/// Ports from `start` to `end`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    start: NonZeroU16,
    end: NonZeroU16,
}

impl PortRange {
    /// Every port.
    pub const ALL: PortRange = PortRange {
        start: NonZeroU16::MIN,
        end: NonZeroU16::MAX,
    };

    /// Creates a range; `None`: `end` is before `start`.
    pub fn new(start: NonZeroU16, end: NonZeroU16) -> Option<PortRange> {
        (start <= end).then_some(PortRange { start, end })
    }

    /// Creates the range of one port.
    pub fn single(port: NonZeroU16) -> PortRange {
        PortRange {
            start: port,
            end: port,
        }
    }

    /// Returns the first port.
    pub fn start(self) -> NonZeroU16 {
        self.start
    }

    /// Returns the last port.
    pub fn end(self) -> NonZeroU16 {
        self.end
    }

    /// Returns whether the port is in the range.
    pub fn contains(self, port: NonZeroU16) -> bool {
        self.start <= port && port <= self.end
    }
}

/// A block of addresses; bits after the prefix are always zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr(IpNet);

impl Cidr {
    /// Returns the block as a masked network.
    pub fn net(self) -> IpNet {
        self.0
    }

    /// Returns the first address.
    pub fn first(self) -> IpAddr {
        self.0.network()
    }

    /// Returns the last address.
    pub fn last(self) -> IpAddr {
        self.0.broadcast()
    }

    /// Creates the block of all addresses that share the first `length` bits; `None`: too many
    /// bits.
    pub fn new(address: IpAddr, length: u8) -> Option<Cidr> {
        let net = IpNet::new(address.to_canonical(), length).ok()?;
        Some(Cidr(net.trunc()))
    }

    /// Creates the block of one address.
    pub fn single(address: IpAddr) -> Cidr {
        Cidr(IpNet::from(address.to_canonical()))
    }

    /// Returns the two halves; `None`: the block is a single address.
    pub fn halves(self) -> Option<[Cidr; 2]> {
        let length = self.0.prefix_len().checked_add(1)?;
        let first = Cidr::new(self.first(), length)?;
        let second = Cidr::new(self.last(), length)?;
        Some([first, second])
    }

    /// Returns whether the address is in the block. Families never mix; an IPv4-mapped IPv6 address
    /// counts as IPv4 (D22).
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Returns whether `other` is inside this block and smaller.
    pub fn strictly_contains(self, other: Cidr) -> bool {
        self.0 != other.0 && self.0.contains(&other.0)
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A block from a text, and the oddities of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CidrText {
    /// The block, masked.
    pub cidr: Cidr,
    /// Whether bits after the prefix were set in the text.
    pub host_bits: bool,
    /// Whether an octet has leading zeros, which only old objects may have.
    pub leading_zeros: bool,
}

/// Why a text is not a block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CidrError {
    /// The text has no `/length`.
    #[error("it has no prefix length")]
    NoLength,
    /// The length is not a plain decimal number.
    #[error("the prefix length is not a plain decimal number")]
    BadLength,
    /// The length is larger than the family's.
    #[error("the prefix length is larger than {0}")]
    LongLength(u8),
    /// The address is not IPv4 or IPv6.
    #[error("the address is invalid")]
    BadAddress,
    /// The address has a zone.
    #[error("the address has a zone")]
    Zone,
    /// The address is IPv4-mapped IPv6.
    #[error("it is an IPv4-mapped IPv6 address")]
    Mapped,
}

impl CidrText {
    /// Parses `address/length`. Leading zeros in IPv4 octets are read as decimal and reported,
    /// since one API version still accepts them (D27); everything else is strict.
    pub fn parse(text: &str) -> Result<CidrText, CidrError> {
        let (address_text, length) = text.rsplit_once('/').ok_or(CidrError::NoLength)?;
        if address_text.contains('%') {
            return Err(CidrError::Zone);
        }
        let (address, leading_zeros) = parse_address(address_text).ok_or(CidrError::BadAddress)?;
        // `str::parse` would accept `+8` and `08`, which the API refuses.
        let plain = !length.is_empty()
            && length.len() <= 3
            && length.bytes().all(|c| c.is_ascii_digit())
            && (length == "0" || !length.starts_with('0'));
        if !plain {
            return Err(CidrError::BadLength);
        }
        let length: u16 = length.parse().map_err(|_| CidrError::BadLength)?;
        let net = match address {
            IpAddr::V4(address) => {
                let length = u8::try_from(length).map_err(|_| CidrError::LongLength(32))?;
                IpNet::V4(Ipv4Net::new(address, length).map_err(|_| CidrError::LongLength(32))?)
            }
            IpAddr::V6(address) => {
                let length = u8::try_from(length).map_err(|_| CidrError::LongLength(128))?;
                // Such a block would match nothing: addresses are compared in their IPv4 form.
                if address.to_ipv4_mapped().is_some() {
                    return Err(CidrError::Mapped);
                }
                IpNet::V6(Ipv6Net::new(address, length).map_err(|_| CidrError::LongLength(128))?)
            }
        };
        let masked = net.trunc();
        Ok(CidrText {
            cidr: Cidr(masked),
            host_bits: masked != net,
            leading_zeros,
        })
    }
}

/// Parses an address, and returns whether an octet has leading zeros.
fn parse_address(text: &str) -> Option<(IpAddr, bool)> {
    if let Ok(address) = text.parse::<Ipv4Addr>() {
        return Some((IpAddr::V4(address), false));
    }
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some((IpAddr::V6(address), false));
    }
    // Only an IPv4 address with leading zeros can still be valid. `Ipv4Addr` refuses them, because
    // some programs read them as octal.
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || part.len() > 8 || !part.bytes().all(|c| c.is_ascii_digit()) {
            return None;
        }
        *octet = part
            .parse::<u32>()
            .ok()
            .and_then(|value| u8::try_from(value).ok())?;
    }
    parts
        .next()
        .is_none()
        .then_some((IpAddr::V4(Ipv4Addr::from(octets)), true))
}
