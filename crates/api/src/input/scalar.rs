//! How kubectl reads a plain YAML scalar.
//!
//! kubectl's YAML library follows YAML 1.1, not 1.2: a bare `y` or `off` is a boolean, `010` is
//! eight, `1_000` a thousand. A checker that reads them otherwise would judge another object than
//! the one the API server gets. No Rust library reads scalars this way, so it is written here; the
//! test compares it with a table measured from that library.

use std::borrow::Cow;

use super::Scalar;

/// Resolves a plain (unquoted, untagged) scalar.
pub(crate) fn resolve(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Scalar::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        _ => {}
    }
    match text.as_bytes().first() {
        Some(b'0'..=b'9' | b'+' | b'-' | b'.') => number(text),
        _ => Scalar::Str(Cow::Borrowed(text)),
    }
}

fn number(text: &str) -> Scalar<'_> {
    let without_underscores;
    let plain = if text.contains('_') {
        without_underscores = text.replace('_', "");
        without_underscores.as_str()
    } else {
        text
    };
    match integer(plain) {
        Some(Integer::Fits(value)) => return Scalar::Int(value),
        Some(Integer::TooLarge) => return Scalar::Number,
        None => {}
    }
    if is_special_float(text) {
        return Scalar::Number;
    }
    match float(plain) {
        // A float without a fraction is written to JSON as a whole number.
        Some(value) if value.fract() == 0.0 && value.abs() < 1e15 => Scalar::Int(value as i64),
        Some(_) => Scalar::Number,
        None => Scalar::Str(Cow::Borrowed(text)),
    }
}

enum Integer {
    Fits(i64),
    TooLarge,
}

fn integer(text: &str) -> Option<Integer> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, digits.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, digits.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let magnitude = match u64::from_str_radix(digits, radix) {
        Ok(magnitude) => i128::from(magnitude),
        // Too large for 64 bits: a decimal one becomes a float, others stay text.
        Err(_) if radix == 10 => return Some(Integer::TooLarge),
        Err(_) => return None,
    };
    let value = if negative { -magnitude } else { magnitude };
    Some(i64::try_from(value).map_or(Integer::TooLarge, Integer::Fits))
}

fn is_special_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN")
}

/// A decimal float: digits with at most one point, and an exponent if need be.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let all_digits = |part: &str| part.bytes().all(|c| c.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digit = !whole.is_empty() || !fraction.is_empty();
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    if !has_digit || !all_digits(whole) || !all_digits(fraction) || !exponent_fits {
        return None;
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}
