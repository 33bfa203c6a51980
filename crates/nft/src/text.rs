//! Writes a ruleset in the syntax of `nft list`, for people and tests.
//!
//! Where nft has no syntax, such as for a number among the fields of a key, the text is written for
//! readers. The `nft` program does not read it.

use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use palisade_core::net::Family;
use palisade_core::plan::PortBlock;
use palisade_core::program::RuleId;
use palisade_core::text::name as harmless;

use crate::encode::set_size;
use crate::ruleset::{
    AH, Chain, Field, Hook, ICMP, ICMP6, Key, Match, PacketEnd, Point, Rule, Ruleset, Set,
    Statement, Values, Verdict, state,
};

/// The longest line of elements, unless one element is longer.
const LINE: usize = 96;

impl Ruleset {
    /// Returns the ruleset as text. `name` returns the name of a policy rule, which is written
    /// behind the rules that come from it.
    pub fn text(&self, name: &dyn Fn(RuleId) -> String) -> String {
        let mut text = format!("table inet {} {{\n", self.table);
        let mut is_first = true;
        let mut gap = |text: &mut String| {
            if !std::mem::take(&mut is_first) {
                text.push('\n');
            }
        };
        for set in &self.sets {
            gap(&mut text);
            write_set(set, &mut text);
        }
        for chain in &self.chains {
            gap(&mut text);
            write_chain(chain, name, &mut text);
        }
        text.push_str("}\n");
        text
    }
}

fn write_set(set: &Set, text: &mut String) {
    let (word, data) = match set.values {
        Values::Verdicts(_) => ("map", " : verdict"),
        Values::Numbers(_) => ("map", " : mark"),
        Values::Nothing | Values::Ranges => ("set", ""),
    };
    let types: Vec<&str> = set.fields.iter().map(|field| type_name(*field)).collect();
    let types = types.join(" . ");
    text.push_str(&format!("\t{word} {} {{\n", set.name));
    text.push_str(&format!("\t\ttype {types}{data}\n"));
    text.push_str(&format!("\t\tsize {}\n", set_size(set)));
    if set.values == Values::Ranges {
        text.push_str("\t\tflags interval\n");
    }
    if !set.is_empty() {
        write_elements(set, text);
    }
    text.push_str("\t}\n");
}

fn write_elements(set: &Set, text: &mut String) {
    text.push_str("\t\telements = { ");
    let mut column = 0;
    let step = set.values.together();
    let keys: Vec<&[u8]> = set.iter().collect();
    for (place, keys) in keys.chunks(step).enumerate() {
        let mut element = keys
            .first()
            .map_or(String::new(), |key| key_text(&set.fields, key));
        // The second key of a range is written as a part of the first one.
        if let Some(behind) = keys.get(1) {
            element.push_str(&range_text(&set.fields, behind));
        }
        element.push_str(&value_text(&set.values, place));
        if place > 0 && column + element.len() > LINE {
            text.push_str(",\n\t\t\t     ");
            column = 0;
        } else if place > 0 {
            text.push_str(", ");
        }
        column += element.len() + 2;
        text.push_str(&element);
    }
    text.push_str(" }\n");
}

/// Returns the end of a range as text: its last address.
fn range_text(fields: &[Field], behind: &[u8]) -> String {
    // The last key is the one before `behind`: subtract one with borrow. All fields but the last
    // are those of the first key, and are not repeated.
    let mut last = behind.to_vec();
    for byte in last.iter_mut().rev() {
        *byte = byte.wrapping_sub(1);
        if *byte != u8::MAX {
            break;
        }
    }
    let field = fields.last().copied();
    let begin = last.len().saturating_sub(field.map_or(0, Field::padded));
    let bytes = last.get(begin..).unwrap_or_default();
    let text = field.and_then(|field| field_text(field, bytes));
    format!("-{}", text.unwrap_or_else(|| "?".to_owned()))
}

/// Returns the value of the key at an index as text.
pub(crate) fn value_text(values: &Values, place: usize) -> String {
    match values {
        Values::Nothing | Values::Ranges => String::new(),
        Values::Verdicts(verdicts) => verdicts
            .get(place)
            .map_or(String::new(), |verdict| format!(" : {verdict}")),
        Values::Numbers(numbers) => numbers
            .get(place)
            .map_or(String::new(), |number| format!(" : 0x{number:08x}")),
    }
}

fn write_chain(chain: &Chain, name: &dyn Fn(RuleId) -> String, text: &mut String) {
    text.push_str(&format!("\tchain {} {{\n", chain.name));
    if let Some(hook) = chain.hook {
        text.push_str(&format!("\t\t{hook}\n"));
    }
    for rule in &chain.rules {
        text.push_str(&format!("\t\t{rule}"));
        // A policy's name is text of a user: control characters are escaped.
        if let Some(origin) = rule.origin {
            text.push_str(&format!(" # {}", harmless(&name(origin))));
        }
        text.push('\n');
    }
    text.push_str("\t}\n");
}

fn type_name(field: Field) -> &'static str {
    match field {
        Field::Number => "mark",
        Field::V4 => "ipv4_addr",
        Field::V6 => "ipv6_addr",
        Field::L4 => "inet_proto",
        Field::Port => "inet_service",
        Field::Interface => "ifname",
    }
}

/// Returns a key as text, field by field.
fn key_text(fields: &[Field], key: &[u8]) -> String {
    let mut rest = key;
    let mut parts = Vec::with_capacity(fields.len());
    for field in fields {
        let (bytes, others) = rest.split_at_checked(field.padded()).unwrap_or((rest, &[]));
        rest = others;
        parts.push(field_text(*field, bytes).unwrap_or_else(|| "?".to_owned()));
    }
    parts.join(" . ")
}

fn field_text(field: Field, bytes: &[u8]) -> Option<String> {
    Some(match field {
        Field::Number => format!("0x{:08x}", u32::from_ne_bytes(*bytes.first_chunk()?)),
        Field::V4 => Ipv4Addr::from(*bytes.first_chunk::<4>()?).to_string(),
        Field::V6 => Ipv6Addr::from(*bytes.first_chunk::<16>()?).to_string(),
        Field::L4 => protocol_name(*bytes.first()?),
        Field::Port => u16::from_be_bytes(*bytes.first_chunk()?).to_string(),
        Field::Interface => {
            let name = bytes.split(|byte| *byte == 0).next()?;
            format!("\"{}\"", harmless(&String::from_utf8_lossy(name)))
        }
    })
}

fn protocol_name(number: u8) -> String {
    let name = match number {
        ICMP => "icmp",
        6 => "tcp",
        17 => "udp",
        ICMP6 => "ipv6-icmp",
        AH => "ah",
        132 => "sctp",
        _ => return number.to_string(),
    };
    name.to_owned()
}

impl Display for Hook {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = if self.nat { "nat" } else { "filter" };
        let point = match self.point {
            Point::Prerouting => "prerouting",
            Point::Input => "input",
            Point::Forward => "forward",
            Point::Output => "output",
            Point::Postrouting => "postrouting",
        };
        let priority = priority_text(self.point, self.priority);
        write!(
            f,
            "type {kind} hook {point} priority {priority}; policy accept;"
        )
    }
}

/// Returns a priority as text, relative to a name if one is near.
fn priority_text(point: Point, priority: i32) -> String {
    // As nft does: two names exist at one hook only, and a name counts up to a distance of ten.
    let names = [
        ("raw", -300, true),
        ("mangle", -150, true),
        ("dstnat", -100, point == Point::Prerouting),
        ("filter", 0, true),
        ("security", 50, true),
        ("srcnat", 100, point == Point::Postrouting),
    ];
    let near = |(name, of, exists): (&'static str, i32, bool)| {
        let difference = priority.checked_sub(of)?;
        (exists && (-10..=10).contains(&difference)).then_some((name, difference))
    };
    match names.into_iter().find_map(near) {
        Some((name, 0)) => name.to_owned(),
        Some((name, more)) if more > 0 => format!("{name} + {more}"),
        Some((name, less)) => format!("{name} - {}", less.abs()),
        None => priority.to_string(),
    }
}

impl Display for Rule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut gap = "";
        let mut l4 = None;
        for condition in &self.matches {
            f.write_str(gap)?;
            write_match(condition, l4, f)?;
            if let Match::L4(protocol) = condition {
                l4 = Some(*protocol);
            }
            gap = " ";
        }
        for statement in &self.statements {
            write!(f, "{gap}{statement}")?;
            gap = " ";
        }
        Ok(())
    }
}

/// Writes a condition. `l4` is the protocol that an earlier condition has matched.
fn write_match(condition: &Match, l4: Option<u8>, f: &mut Formatter<'_>) -> fmt::Result {
    match condition {
        Match::CtMark { mask, equal, value } => {
            let masked = *mask != u32::MAX;
            f.write_str("ct mark ")?;
            if masked {
                write!(f, "& 0x{mask:08x} ")?;
            }
            match (equal, masked) {
                (true, true) => f.write_str("== ")?,
                (true, false) => {}
                (false, _) => f.write_str("!= ")?,
            }
            write!(f, "0x{value:08x}")
        }
        Match::CtState(bits) => write!(f, "ct state {}", states(*bits)),
        Match::CtIsReply(is_reply) => {
            let way = if *is_reply { "reply" } else { "original" };
            write!(f, "ct direction {way}")
        }
        Match::L4(protocol) => write!(f, "meta l4proto {}", protocol_name(*protocol)),
        Match::CtL4(protocol) => write!(f, "ct protocol {}", protocol_name(*protocol)),
        Match::HopLimit(hops) => write!(f, "ip6 hoplimit {hops}"),
        Match::Family(Family::V4) => f.write_str("meta nfproto ipv4"),
        Match::Family(Family::V6) => f.write_str("meta nfproto ipv6"),
        Match::CtPort(start, end) => write!(f, "{} {}", Key::CtPort, span(*start, *end)),
        Match::HeaderPort(start, end) => write!(f, "{} {}", Key::HeaderPort, span(*start, *end)),
        Match::IcmpType(start, end) => {
            let header = match l4 {
                Some(ICMP) => "icmp type",
                Some(ICMP6) => "icmpv6 type",
                // `icmp type` would imply a condition on the protocol, which the rule may not have.
                _ => "@th,0,8",
            };
            write!(f, "{header} {}", span(u16::from(*start), u16::from(*end)))
        }
        Match::ReverseRoute => f.write_str("fib saddr . iif oif exists"),
        Match::TcpNotOpening => f.write_str("tcp flags & (fin | syn | rst | ack) != syn"),
        Match::Lookup { set, key, missing } => {
            write_key(key, f)?;
            write!(f, "{} @{set}", if *missing { " !=" } else { "" })
        }
        Match::LookupNumber { map, of, set, rest } => {
            write_key(of, f)?;
            write!(f, " map @{map}")?;
            for part in rest {
                write!(f, " . {part}")?;
            }
            write!(f, " @{set}")
        }
        Match::Within {
            end,
            block,
            outside,
        } => {
            let family = match block.first() {
                IpAddr::V4(_) => Family::V4,
                IpAddr::V6(_) => Family::V6,
            };
            let not = if *outside { "!= " } else { "" };
            write!(f, "{} {not}", words(*end, family))?;
            let net = block.net();
            if net.prefix_len() == net.max_prefix_len() {
                write!(f, "{}", block.first())
            } else {
                write!(f, "{net}")
            }
        }
    }
}

fn states(bits: u32) -> String {
    let names = [
        (state::INVALID, "invalid"),
        (state::ESTABLISHED, "established"),
        (state::RELATED, "related"),
        (state::NEW, "new"),
        (state::UNTRACKED, "untracked"),
    ];
    let mut rest = bits;
    let mut words = Vec::new();
    for (bit, name) in names {
        if bits & bit != 0 {
            rest &= !bit;
            words.push(name.to_owned());
        }
    }
    if rest != 0 || bits == 0 {
        words.push(format!("0x{rest:x}"));
    }
    words.join(",")
}

fn span(start: u16, end: u16) -> String {
    if start == end {
        start.to_string()
    } else {
        format!("{start}-{end}")
    }
}

fn write_key(key: &[Key], f: &mut Formatter<'_>) -> fmt::Result {
    let mut gap = "";
    for part in key {
        write!(f, "{gap}{part}")?;
        gap = " . ";
    }
    Ok(())
}

fn words(end: PacketEnd, family: Family) -> &'static str {
    match (end, family) {
        (PacketEnd::CtClient, Family::V4) => "ct original ip saddr",
        (PacketEnd::CtClient, Family::V6) => "ct original ip6 saddr",
        (PacketEnd::CtServer, Family::V4) => "ct reply ip saddr",
        (PacketEnd::CtServer, Family::V6) => "ct reply ip6 saddr",
        (PacketEnd::Source, Family::V4) => "ip saddr",
        (PacketEnd::Source, Family::V6) => "ip6 saddr",
        (PacketEnd::Destination, Family::V4) => "ip daddr",
        (PacketEnd::Destination, Family::V6) => "ip6 daddr",
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Key::Number(number) => write!(f, "0x{number:08x}"),
            Key::Address(end, family, prefix) => {
                let all = u32::from(*prefix);
                f.write_str(words(*end, *family))?;
                match family {
                    Family::V4 if all < 32 => {
                        let mask = !u32::MAX.checked_shr(all).unwrap_or(0);
                        write!(f, " & {}", Ipv4Addr::from(mask))
                    }
                    Family::V6 if all < 128 => {
                        let mask = !u128::MAX.checked_shr(all).unwrap_or(0);
                        write!(f, " & {}", Ipv6Addr::from(mask))
                    }
                    Family::V4 | Family::V6 => Ok(()),
                }
            }
            Key::L4 => f.write_str("meta l4proto"),
            Key::CtL4 => f.write_str("ct protocol"),
            Key::CtPort => f.write_str("ct reply proto-src"),
            Key::CtPortBits(bits) => {
                let mask = PortBlock::mask(*bits);
                write!(f, "ct reply proto-src & 0x{mask:04x}")
            }
            Key::HeaderPort => f.write_str("th dport"),
            Key::SourcePortBits(bits) => write!(f, "th sport & 0x{bits:04x}"),
            Key::InterfaceIn => f.write_str("iifname"),
        }
    }
}

impl Display for Statement {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Statement::Counter => f.write_str("counter"),
            Statement::SetCtMark { mask, value } => {
                let ours = value & mask;
                match (*mask, ours) {
                    (u32::MAX, _) => write!(f, "ct mark set 0x{ours:08x}"),
                    (mask, 0) => write!(f, "ct mark set ct mark & 0x{:08x}", !mask),
                    (mask, _) => {
                        write!(f, "ct mark set ct mark & 0x{:08x} | 0x{ours:08x}", !mask)
                    }
                }
            }
            Statement::Dispatch { map, key } => {
                write_key(key, f)?;
                write!(f, " vmap @{map}")
            }
            Statement::Verdict(verdict) => write!(f, "{verdict}"),
            Statement::Dnat(IpAddr::V4(address), port) => write!(f, "dnat ip to {address}:{port}"),
            Statement::Dnat(IpAddr::V6(address), port) => {
                write!(f, "dnat ip6 to [{address}]:{port}")
            }
            Statement::Masquerade => f.write_str("masquerade"),
            Statement::Notrack => f.write_str("notrack"),
        }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Accept => f.write_str("accept"),
            Verdict::Drop => f.write_str("drop"),
            Verdict::Jump(chain) => write!(f, "jump {chain}"),
            Verdict::Goto(chain) => write!(f, "goto {chain}"),
            Verdict::Return => f.write_str("return"),
        }
    }
}

#[cfg(test)]
mod tests;
