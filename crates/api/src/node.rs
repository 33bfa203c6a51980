//! Nodes: the addresses that policies match.

use std::net::IpAddr;

use palisade_core::net::Cidr;

use crate::blocks::{CidrRule, cidr};
use crate::decode::{Decode, Readable};
use crate::fields::Fields;
use crate::path::At;

/// The fields of a node that policies see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its internal and external addresses, in the order of the object (D106).
    pub addresses: Vec<NodeAddress>,
    /// The blocks of its pods' addresses.
    pub pod_cidrs: Vec<Cidr>,
}

/// An address of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// The address.
    pub address: IpAddr,
    /// Whether it is an `InternalIP`.
    pub internal: bool,
}

const SPEC: Fields = Fields::open(&["podCIDR", "podCIDRs"]);
const STATUS: Fields = Fields::open(&["addresses"]);
const ADDRESS: Fields = Fields::open(&["type", "address"]);

/// Reads `spec`.
pub(crate) fn spec(d: &mut Decode<'_, '_>, at: &At<'_>, node: &mut Node) {
    let mut first = None;
    drop(d.object(at, SPEC, |d, name, at| match name {
        "podCIDR" => {
            let span = d.span();
            // The zero value, which programs write.
            if matches!(d.written(span), "\"\"" | "''") {
                d.skip();
            } else {
                first = cidr(d, at, CidrRule::Tolerant).ok();
            }
        }
        _ => {
            let blocks = d.list(at, 0..=usize::MAX, |d, at| cidr(d, at, CidrRule::Tolerant));
            node.pod_cidrs = blocks.unwrap_or_default().into_iter().flatten().collect();
        }
    }));
    if node.pod_cidrs.is_empty() {
        node.pod_cidrs.extend(first);
    }
}

/// Reads `status`.
pub(crate) fn status(d: &mut Decode<'_, '_>, at: &At<'_>, node: &mut Node) -> Readable<()> {
    d.object(at, STATUS, |d, _, at| {
        let addresses = d.list(at, 0..=usize::MAX, address).unwrap_or_default();
        node.addresses = addresses.into_iter().flatten().collect();
    })?;
    Ok(())
}

/// An address of the two kinds that count; host names and others do not.
fn address(d: &mut Decode<'_, '_>, at: &At<'_>) -> Option<NodeAddress> {
    let mut kind = None;
    let mut address = None;
    drop(d.object(at, ADDRESS, |d, name, at| match name {
        "type" => kind = d.string(at).ok(),
        _ => address = d.string(at).ok(),
    }));
    let internal = match &*kind?.value {
        "InternalIP" => true,
        "ExternalIP" => false,
        _ => return None,
    };
    let address: IpAddr = address?.value.parse().ok()?;
    Some(NodeAddress {
        address: address.to_canonical(),
        internal,
    })
}
