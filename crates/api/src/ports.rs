//! Ports as policies write them, in all API versions.

use std::borrow::Cow;
use std::num::NonZeroU16;

use palisade_core::net::{PortRange, Protocol};

use crate::decode::{Decode, Readable, Unreadable};
use crate::fields::Fields;
use crate::input::ValueShape;
use crate::names::is_port_name;
use crate::path::At;
use crate::problem::{Code, Span};
use palisade_core::text::ticked;

/// One entry of a rule's list of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortMatch<'a> {
    /// Ports of one protocol.
    Numbers(Protocol, PortRange),
    /// The container port of this name, if it has this protocol.
    NamedWithProtocol(Protocol, Cow<'a, str>),
    /// The container port of this name, whatever its protocol.
    Named(Cow<'a, str>),
}

const PROTOCOLS: [(&str, Protocol); 3] = [
    ("TCP", Protocol::Tcp),
    ("UDP", Protocol::Udp),
    ("SCTP", Protocol::Sctp),
];

const PROTOCOL_HINTS: [(&str, &str); 2] = [
    (
        "ICMP",
        "only `TCP`, `UDP` and `SCTP` can be filtered; ICMP follows rules without ports",
    ),
    ("ANY", "remove the list of ports to match every protocol"),
];

/// Reads a protocol.
pub(crate) fn protocol(d: &mut Decode<'_, '_>, at: &At<'_>) -> Readable<Protocol> {
    d.word(at, &PROTOCOLS, &PROTOCOL_HINTS)
        .map(|(protocol, _)| protocol)
}

/// Reads a protocol where the empty text counts as TCP (D40).
pub(crate) fn protocol_or_empty(d: &mut Decode<'_, '_>, at: &At<'_>) -> Readable<Protocol> {
    let [tcp, udp, sctp] = PROTOCOLS;
    let words = [tcp, udp, sctp, ("", Protocol::Tcp)];
    d.word(at, &words, &PROTOCOL_HINTS)
        .map(|(protocol, _)| protocol)
}

/// Reads the number of a port.
pub(crate) fn port_number(d: &mut Decode<'_, '_>, at: &At<'_>) -> Readable<(NonZeroU16, Span)> {
    let (value, span) = d.integer_in(at, 1..=65535)?;
    match u16::try_from(value).ok().and_then(NonZeroU16::new) {
        Some(port) => Ok((port, span)),
        None => Err(Unreadable),
    }
}

/// Whether the start and end of a range may be the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SinglePort {
    Valid,
    Warning,
    Invalid,
}

/// Makes a range of two bounds that were read.
pub(crate) fn port_range(
    d: &mut Decode<'_, '_>,
    at: &At<'_>,
    start: (NonZeroU16, Span),
    end: (NonZeroU16, Span),
    single: SinglePort,
) -> Readable<PortRange> {
    let Some(range) = PortRange::new(start.0, end.0) else {
        d.report(
            Code::PortRange,
            at,
            end.1,
            format!(
                "the range ends at {} before it starts at {}",
                end.0, start.0
            ),
            "swap the two",
        );
        return Err(Unreadable);
    };
    if start.0 == end.0 {
        match single {
            SinglePort::Valid => {}
            SinglePort::Warning => d.report(
                Code::PortRangeSingle,
                at,
                end.1,
                format!("the range has only the port {}", start.0),
                "write it as one port: `portNumber`",
            ),
            SinglePort::Invalid => d.report(
                Code::PortRange,
                at,
                end.1,
                format!(
                    "the range starts and ends at {}; its start must be below its end",
                    start.0
                ),
                format!("write `number: {}` instead of the range", start.0),
            ),
        }
    }
    Ok(range)
}

const NETWORK_POLICY_PORT: Fields = Fields::strict(&["protocol", "port", "endPort"]).hints(&[
    (
        "portNumber",
        "in a NetworkPolicy, write `port` and `protocol` directly in the entry",
    ),
    (
        "portRange",
        "in a NetworkPolicy, write a range as `port` and `endPort`",
    ),
    (
        "targetPort",
        "policies see ports after address translation; write the container's port as `port`",
    ),
    ("number", "in a NetworkPolicy, write the number as `port`"),
]);

/// Reads an entry of a NetworkPolicy's `ports` (also the early cluster policies use it).
pub(crate) fn network_policy_port<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
) -> Readable<PortMatch<'a>> {
    port_entry(d, at, NETWORK_POLICY_PORT, protocol)
}

const PORT_2016: Fields = Fields::strict(&["protocol", "port"]).hints(&[(
    "endPort",
    "the 2016 API has only single ports; write `apiVersion: networking.k8s.io/v1`",
)]);

/// Reads an entry of a 2016 policy's `ports`, which have neither ranges nor SCTP (D72).
pub(crate) fn port_2016<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<PortMatch<'a>> {
    port_entry(d, at, PORT_2016, |d, at| {
        let [tcp, udp, _] = PROTOCOLS;
        let hints = [("SCTP", "the 2016 API has only `TCP` and `UDP`")];
        d.word(at, &[tcp, udp], &hints)
            .map(|(protocol, _)| protocol)
    })
}

fn port_entry<'a>(
    d: &mut Decode<'a, '_>,
    at: &At<'_>,
    fields: Fields,
    protocol: impl Fn(&mut Decode<'a, '_>, &At<'_>) -> Readable<Protocol>,
) -> Readable<PortMatch<'a>> {
    d.hint_type("write `- port: 80`");
    let mut protocol_read = Ok(Protocol::Tcp);
    let mut port = None;
    let mut end_port = None;
    let found_fields = d.object(at, fields, |d, name, at| match name {
        "protocol" => protocol_read = protocol(d, at),
        "port" => port = Some(port_or_name(d, at)),
        _ => end_port = Some((d.anchor(), port_number(d, at))),
    })?;
    if found_fields.sound && found_fields.present == 0 {
        d.report(
            Code::PortEmptyTcp,
            at,
            found_fields.anchor,
            "the entry is empty; it matches every TCP port, and no UDP, SCTP or ICMP",
            "for every protocol remove the list of ports; for all of TCP write `protocol: TCP`",
        );
    }
    let protocol = protocol_read?;
    let matched = match (port, end_port) {
        (None, None) => PortMatch::Numbers(protocol, PortRange::ALL),
        (Some(port), None) => match port? {
            PortOrName::Port(port, _) => PortMatch::Numbers(protocol, PortRange::single(port)),
            PortOrName::Name(name) => PortMatch::NamedWithProtocol(protocol, name),
        },
        (Some(Ok(PortOrName::Port(port, span))), Some((_, end))) => {
            let range = port_range(
                d,
                &at.field("endPort"),
                (port, span),
                end?,
                SinglePort::Valid,
            )?;
            PortMatch::Numbers(protocol, range)
        }
        (Some(Err(Unreadable)), Some(_)) => return Err(Unreadable),
        (Some(Ok(PortOrName::Name(_))) | None, Some((span, _))) => {
            d.report(
                Code::PortRange,
                &at.field("endPort"),
                span,
                "`endPort` needs a numeric `port`",
                "write the first port of the range as a number in `port`",
            );
            return Err(Unreadable);
        }
    };
    if found_fields.sound {
        Ok(matched)
    } else {
        Err(Unreadable)
    }
}

enum PortOrName<'a> {
    Port(NonZeroU16, Span),
    Name(Cow<'a, str>),
}

fn port_or_name<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<PortOrName<'a>> {
    if d.shape() != ValueShape::Str {
        d.hint_type("a port is a number, or the name of a container port");
        return port_number(d, at).map(|(port, span)| PortOrName::Port(port, span));
    }
    let text = d.string(at)?;
    if is_port_name(&text.value) {
        return Ok(PortOrName::Name(text.value));
    }
    let help = port_name_help(&text.value);
    let message = format!("{} is not a port name", ticked(&text.value));
    d.report(Code::PortName, at, text.span, message, help);
    Err(Unreadable)
}

/// The help for a text that is not a port name.
pub(crate) fn port_name_help(text: &str) -> String {
    if let Ok(number) = text.parse::<u32>() {
        return match number {
            1..=65535 => {
                format!("a number in quotes is read as a name; write `{number}` without quotes")
            }
            _ => "a port is a number from 1 to 65535, without quotes".to_owned(),
        };
    }
    let range = text
        .split_once(['-', ':'])
        .map(|(start, end)| (start.parse::<u16>(), end.parse::<u16>()));
    if let Some((Ok(start), Ok(end))) = range {
        return format!("write a range as `port: {start}` and `endPort: {end}`");
    }
    PORT_NAME_HELP.to_owned()
}

const PORT_NAME_HELP: &str =
    "a port name has at most 15 lower-case letters, digits and `-`, and at least one letter";

/// Reads a port name where the schema takes any text but the empty one.
pub(crate) fn free_port_name<'a>(d: &mut Decode<'a, '_>, at: &At<'_>) -> Readable<Cow<'a, str>> {
    let text = d.string(at)?;
    if text.value.is_empty() {
        d.report(
            Code::PortName,
            at,
            text.span,
            "the name of the port is empty",
            PORT_NAME_HELP,
        );
        return Err(Unreadable);
    }
    if !is_port_name(&text.value) {
        d.report(
            Code::PortNameOdd,
            at,
            text.span,
            format!(
                "no container port can have the name {}",
                ticked(&text.value)
            ),
            PORT_NAME_HELP,
        );
    }
    Ok(text.value)
}
