//! How kubectl reads a plain YAML scalar.
//!
//! kubectl's YAML library follows YAML 1.1, not 1.2: a bare `y` or `off` is a boolean, `010` is
//! eight, `1_000` a thousand. A checker that reads them otherwise would check another object than
//! the one the API server receives. No Rust library reads scalars this way, so it is written here;
//! the test compares it with a table measured from that library.

use std::borrow::Cow;

use super::Scalar;

/// A plain scalar, as a value or a key.
enum Plain<'t> {
    Null,
    Bool(bool),
    Int(i64),
    /// A whole number that fits only an unsigned word.
    Large,
    Float(f64),
    Text(&'t str),
}

/// Resolves a plain (unquoted, untagged) scalar as a value.
pub(crate) fn resolve(text: &str) -> Scalar<'_> {
    match plain(text) {
        Plain::Null => Scalar::Null,
        Plain::Bool(value) => Scalar::Bool(value),
        Plain::Int(value) => Scalar::Int(value),
        // A float without a fraction is written to JSON as a whole number.
        Plain::Float(value) if value.fract() == 0.0 && value.abs() < 9.2e18 => {
            Scalar::Int(value as i64)
        }
        Plain::Large | Plain::Float(_) => Scalar::Number,
        Plain::Text(text) => Scalar::Str(Cow::Borrowed(text)),
    }
}

/// Resolves a plain scalar as a key, which kubectl converts back to text; `None` if it cannot be
/// one.
pub(crate) fn resolve_key(text: &str) -> Option<Cow<'_, str>> {
    match plain(text) {
        Plain::Null | Plain::Large => None,
        Plain::Bool(true) => Some(Cow::Borrowed("true")),
        Plain::Bool(false) => Some(Cow::Borrowed("false")),
        Plain::Int(value) => Some(Cow::Owned(value.to_string())),
        Plain::Float(value) => Some(Cow::Owned(float_key(value))),
        Plain::Text(text) => Some(Cow::Borrowed(text)),
    }
}

/// Whether the text is an integer, not only a float without a fraction.
pub(crate) fn is_integer(text: &str) -> bool {
    matches!(plain(text), Plain::Int(_) | Plain::Large)
}

/// Whether the text is an infinite number or NaN, which JSON does not have.
pub(crate) fn is_infinite_or_nan(text: &str) -> bool {
    matches!(plain(text), Plain::Float(value) if !value.is_finite())
}

fn plain(text: &str) -> Plain<'_> {
    // Most scalars are words longer than any with a special value.
    if text.len() > "false".len() && text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Plain::Text(text);
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Plain::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Plain::Bool(false);
        }
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Plain::Float(f64::INFINITY);
        }
        "-.inf" | "-.Inf" | "-.INF" => return Plain::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Plain::Float(f64::NAN),
        _ => {}
    }
    match text.as_bytes() {
        // After a leading point an underscore must be between digits.
        [b'.', rest @ ..] if !underscores_between_digits(rest) => Plain::Text(text),
        [b'0'..=b'9' | b'+' | b'-' | b'.', ..] => number(text),
        _ => Plain::Text(text),
    }
}

fn underscores_between_digits(bytes: &[u8]) -> bool {
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at))
            .is_some_and(u8::is_ascii_digit)
    };
    let mut underscores = bytes.iter().enumerate().filter(|(_, c)| **c == b'_');
    underscores.all(|(at, _)| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)))
}

fn number(text: &str) -> Plain<'_> {
    // Addresses and times start like numbers.
    let mut points = text.bytes().filter(|c| matches!(c, b'.' | b':'));
    if matches!(
        (points.next(), points.next()),
        (Some(b':'), _) | (_, Some(_))
    ) {
        return Plain::Text(text);
    }
    let without_underscores;
    let digits = if text.contains('_') {
        without_underscores = text.replace('_', "");
        without_underscores.as_str()
    } else {
        text
    };
    integer(digits)
        .or_else(|| float(digits).map(Plain::Float))
        .unwrap_or(Plain::Text(text))
}

fn integer(text: &str) -> Option<Plain<'static>> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (Some(true), text.get(1..)?),
        b'+' => (Some(false), text.get(1..)?),
        _ => (None, text),
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
    let magnitude = i128::from(u64::from_str_radix(digits, radix).ok()?);
    let value = if sign == Some(true) {
        -magnitude
    } else {
        magnitude
    };
    match i64::try_from(value) {
        Ok(value) => Some(Plain::Int(value)),
        Err(_) if sign.is_none() => Some(Plain::Large),
        Err(_) => None,
    }
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

/// A float as a key: through 32 bits, in the shortest form, with an exponent from a million on.
fn float_key(value: f64) -> String {
    let value = value as f32;
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { ".inf" } else { "-.inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        _ => value.to_string(),
    }
}
