//! Ports of AdminNetworkPolicy rules.

use palisade_core::net::{PortRange, Protocol};

use crate::cluster_policy::RuleNotes;
use crate::decode::{Decode, Readable, Unreadable};
use crate::fields::{Fields, OneOfHelp};
use crate::path::At;
use crate::ports::{
    PortMatch, SinglePort, free_port_name, port_number, port_range, protocol_or_empty,
};
use crate::problem::Code;

/// Reads `ports`; `None` is no filter.
pub(super) fn ports<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    notes: &mut RuleNotes,
) -> Option<Readable<Vec<Readable<PortMatch<'a>>>>> {
    let ports = d.list(at, 0..=100, |d, at| {
        let span = d.span();
        let port = port(d, at);
        notes.port(span, &port);
        port
    });
    // An empty list is no filter (D39).
    (ports != Ok(Vec::new())).then_some(ports)
}

const PORT: Fields = Fields::strict(&["portNumber", "namedPort", "portRange"]).hints(&[
    ("port", "write `portNumber: {protocol: TCP, port: ...}`"),
    ("protocol", "write `portNumber: {protocol: ..., port: ...}`"),
    ("number", "write `portNumber: {protocol: TCP, port: ...}`"),
    (
        "endPort",
        "write `portRange: {protocol: TCP, start: ..., end: ...}`",
    ),
    (
        "tcp",
        "in v1alpha1 write `portNumber: {protocol: TCP, port: ...}`",
    ),
    (
        "udp",
        "in v1alpha1 write `portNumber: {protocol: UDP, port: ...}`",
    ),
    (
        "sctp",
        "in v1alpha1 write `portNumber: {protocol: SCTP, port: ...}`",
    ),
]);

fn port<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<PortMatch<'a>> {
    let mut port = Err(Unreadable);
    let found_fields = d.object(at, PORT, |d, name, at| {
        port = match name {
            "portNumber" => numbered(d, at),
            "portRange" => ranged(d, at),
            _ => free_port_name(d, at).map(PortMatch::Named),
        };
    })?;
    let names = ["portNumber", "namedPort", "portRange"];
    let help = OneOfHelp {
        none: "write `portNumber: {protocol: TCP, port: 80}`",
        several: "write one port per entry, each with its own `- `",
    };
    d.one_of(at, &found_fields, &names, Code::OneOf, help)?;
    if found_fields.sound {
        port
    } else {
        Err(Unreadable)
    }
}

const PORT_NUMBER: Fields =
    Fields::strict(&["protocol", "port"]).hints(&[("number", "the field is `port`")]);

fn numbered<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<PortMatch<'a>> {
    let mut protocol = Ok(Protocol::Tcp);
    let mut port = Err(Unreadable);
    let found_fields = d.object(at, PORT_NUMBER, |d, name, at| match name {
        "protocol" => protocol = protocol_or_empty(d, at),
        _ => port = port_number(d, at),
    })?;
    d.require(at, &found_fields, "port", "");
    let (port, _) = port?;
    let protocol = protocol?;
    if found_fields.sound {
        Ok(PortMatch::Numbers(protocol, PortRange::single(port)))
    } else {
        Err(Unreadable)
    }
}

const PORT_RANGE: Fields = Fields::strict(&["protocol", "start", "end"]);

fn ranged<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<PortMatch<'a>> {
    let mut protocol = Ok(Protocol::Tcp);
    let mut start = Err(Unreadable);
    let mut end = Err(Unreadable);
    let found_fields = d.object(at, PORT_RANGE, |d, name, at| match name {
        "protocol" => protocol = protocol_or_empty(d, at),
        "start" => start = port_number(d, at),
        _ => end = port_number(d, at),
    })?;
    d.require(at, &found_fields, "start", "");
    d.require(at, &found_fields, "end", "");
    let range = port_range(d, at, start?, end?, SinglePort::Warning)?;
    let protocol = protocol?;
    if found_fields.sound {
        Ok(PortMatch::Numbers(protocol, range))
    } else {
        Err(Unreadable)
    }
}
