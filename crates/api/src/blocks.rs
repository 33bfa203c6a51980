//! Address blocks as policies write them.

use palisade_core::net::{Cidr, CidrText};

use crate::decode::{Decode, Readable, Text, Unreadable};
use crate::fields::Fields;
use crate::path::At;
use crate::problem::Code;
use palisade_core::text::ticked;

/// An address block without some blocks inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpBlock {
    /// The block.
    pub cidr: Cidr,
    /// The blocks inside it that do not match.
    pub except: Vec<Cidr>,
}

/// Which old text forms are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CidrRule {
    /// Leading zeros are read, as the API server does for old NetworkPolicies (D124).
    Tolerant,
    /// The rules of `isCIDR`, and at most 43 characters.
    Strict,
}

/// Reads an address block.
pub(crate) fn cidr(d: &mut Decode<'_, '_>, at: &At<'_>, rule: CidrRule) -> Readable<Cidr> {
    let text = d.string(at)?;
    if rule == CidrRule::Strict && text.value.chars().count() > 43 {
        d.report(
            Code::TooLong,
            at,
            text.span,
            "the text is longer than 43 characters",
            "shorten the address with `::`",
        );
        return Err(Unreadable);
    }
    let parsed = match CidrText::parse(&text.value) {
        Ok(parsed) if parsed.leading_zeros && rule == CidrRule::Strict => {
            let help = format!("write it without leading zeros: `{}`", parsed.cidr);
            d.report(
                Code::CidrInvalid,
                at,
                text.span,
                format!("{} has leading zeros", ticked(&text.value)),
                help,
            );
            return Err(Unreadable);
        }
        Ok(parsed) => parsed,
        Err(error) => {
            let message = format!("{} is not an address block: {error}", ticked(&text.value));
            d.report(Code::CidrInvalid, at, text.span, message, cidr_help(&text));
            return Err(Unreadable);
        }
    };
    if parsed.leading_zeros {
        d.report(
            Code::CidrLeadingZeros,
            at,
            text.span,
            format!(
                "{} has leading zeros, which new objects must not have",
                ticked(&text.value)
            ),
            format!("they are read as decimal; write `{}`", parsed.cidr),
        );
    } else if parsed.host_bits {
        d.report(
            Code::CidrHostbits,
            at,
            text.span,
            format!(
                "{} has bits set after its prefix; it is read as `{}`",
                ticked(&text.value),
                parsed.cidr
            ),
            format!(
                "write `{}`; new API servers can refuse the other form",
                parsed.cidr
            ),
        );
    }
    Ok(parsed.cidr)
}

fn cidr_help(text: &Text<'_>) -> String {
    match text.value.parse::<std::net::IpAddr>() {
        Ok(address) => {
            format!(
                "for one address write `{address}/{}`",
                if address.is_ipv4() { 32 } else { 128 }
            )
        }
        Err(_) => "a block is written `192.0.2.0/24` or `2001:db8::/32`".to_owned(),
    }
}

const IP_BLOCK: Fields = Fields::strict(&["cidr", "except"]);

/// Reads `ipBlock`.
pub(crate) fn ip_block(d: &mut Decode<'_, '_>, at: &At<'_>) -> Readable<IpBlock> {
    d.hint_type("write `ipBlock: {cidr: 192.0.2.0/24}`");
    let mut block = Err(Unreadable);
    let mut except = Ok(Vec::new());
    let found_fields = d.object(at, IP_BLOCK, |d, name, at| match name {
        "cidr" => block = cidr(d, at, CidrRule::Tolerant),
        _ => {
            except = d.list(at, 0..=usize::MAX, |d, at| {
                let span = d.span();
                cidr(d, at, CidrRule::Tolerant).map(|cidr| (cidr, span))
            });
        }
    })?;
    d.require(
        at,
        &found_fields,
        "cidr",
        "add the block, like `cidr: 192.0.2.0/24`",
    );
    let cidr = block?;
    let mut excepted = Vec::new();
    let mut sound = found_fields.sound;
    for (index, entry) in except?.into_iter().enumerate() {
        let Ok((except, span)) = entry else {
            sound = false;
            continue;
        };
        if !cidr.strictly_contains(except) {
            sound = false;
            let list = at.field("except");
            d.report(
                Code::CidrExcept,
                &list.index(index),
                span,
                format!("`{except}` is not a smaller block inside `{cidr}`"),
                "an exception must lie inside its own block",
            );
        }
        excepted.push(except);
    }
    if sound {
        Ok(IpBlock {
            cidr,
            except: excepted,
        })
    } else {
        Err(Unreadable)
    }
}
