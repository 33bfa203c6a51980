//! CIDR texts and addresses (D22, D27, D88, D124).

use crate::Family;
use crate::json::{Bad, Res};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The family of an address.
pub(crate) fn family(addr: IpAddr) -> Family {
    match addr {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

/// D22: IPv4-mapped addresses are IPv4 addresses.
pub(crate) fn fold(addr: IpAddr) -> IpAddr {
    addr.to_canonical()
}

/// An address as text, folded.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(fold)
}

/// D27 for `networks`: no leading zeros, no zone, no IPv4-mapped; host bits are masked.
pub(crate) fn strict(text: &str) -> Res<IpNet> {
    let (addr, len) = text.split_once('/').ok_or(Bad)?;
    let addr: IpAddr = addr.parse().map_err(|_| Bad)?;
    network(addr, len)
}

/// D124 for ipBlock: IPv4 parts may have leading zeros, read as decimal; the rest is as strict as
/// above.
pub(crate) fn legacy(text: &str) -> Res<IpNet> {
    let (addr, len) = text.split_once('/').ok_or(Bad)?;
    if addr.contains(':') {
        return strict(text);
    }
    let parts: Vec<&str> = addr.split('.').collect();
    let mut octets = [0u8; 4];
    if parts.len() != 4 {
        return Err(Bad);
    }
    for (o, p) in octets.iter_mut().zip(parts) {
        if p.is_empty() || p.len() > 3 || !p.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Bad);
        }
        *o = p.parse().map_err(|_| Bad)?;
    }
    network(IpAddr::V4(Ipv4Addr::from(octets)), len)
}

fn network(addr: IpAddr, len: &str) -> Res<IpNet> {
    let digits = !len.is_empty() && len.bytes().all(|b| b.is_ascii_digit());
    if !digits || (len.len() > 1 && len.starts_with('0')) {
        return Err(Bad);
    }
    if let IpAddr::V6(six) = addr
        && six.to_ipv4_mapped().is_some()
    {
        return Err(Bad);
    }
    let net = IpNet::new(addr, len.parse().map_err(|_| Bad)?).map_err(|_| Bad)?;
    Ok(net.trunc())
}

/// Is `inner` a strict part of `outer`? (2.1; D88: never of the other family.)
pub(crate) fn strictly_inside(inner: IpNet, outer: IpNet) -> bool {
    family(inner.addr()) == family(outer.addr())
        && inner.prefix_len() > outer.prefix_len()
        && outer.contains(&inner.addr())
}

/// Can a pod have this address (D136)?
pub(crate) fn unicast(addr: IpAddr) -> bool {
    if addr.is_unspecified() || addr.is_loopback() || addr.is_multicast() {
        return false;
    }
    match addr {
        IpAddr::V4(a) => !a.is_broadcast(),
        IpAddr::V6(a) => a.to_ipv4_mapped().is_none(),
    }
}

fn before(addr: IpAddr) -> Option<IpAddr> {
    match addr {
        IpAddr::V4(a) => a
            .to_bits()
            .checked_sub(1)
            .map(|b| Ipv4Addr::from_bits(b).into()),
        IpAddr::V6(a) => a
            .to_bits()
            .checked_sub(1)
            .map(|b| Ipv6Addr::from_bits(b).into()),
    }
}

fn after(addr: IpAddr) -> Option<IpAddr> {
    match addr {
        IpAddr::V4(a) => a
            .to_bits()
            .checked_add(1)
            .map(|b| Ipv4Addr::from_bits(b).into()),
        IpAddr::V6(a) => a
            .to_bits()
            .checked_add(1)
            .map(|b| Ipv6Addr::from_bits(b).into()),
    }
}

/// D136: at least one address out of every range that these blocks and addresses do not
/// distinguish.
pub(crate) fn representatives(nets: &[IpNet], singles: &[IpAddr]) -> Vec<IpAddr> {
    let mut edges: Vec<(IpAddr, IpAddr)> = singles.iter().map(|a| (*a, *a)).collect();
    edges.extend(nets.iter().map(|n| (n.network(), n.broadcast())));
    for n in [
        "0.0.0.0/32",
        "127.0.0.0/8",
        "224.0.0.0/4",
        "255.255.255.255/32",
        "::/127",
        "ff00::/8",
    ] {
        let n: IpNet = n.parse().unwrap();
        edges.push((n.network(), n.broadcast()));
    }
    let mapped: IpNet = "::ffff:0:0/96".parse().unwrap();
    edges.push((mapped.network(), mapped.broadcast()));
    let mut out = Vec::new();
    for (first, last) in edges {
        out.extend(
            [Some(first), Some(last), before(first), after(last)]
                .into_iter()
                .flatten(),
        );
    }
    out.retain(|a| unicast(*a));
    out.sort_unstable();
    out.dedup();
    out
}
