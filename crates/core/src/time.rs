//! Times as API servers write them, without a calendar.

/// The form of a time that every API server writes.
pub const FORM: &str = "0000-00-00T00:00:00Z";

/// Returns the digits of a time in [`FORM`] as a number, which sorts as the times do; `None`:
/// another form.
pub fn digits(text: &str) -> Option<u64> {
    if text.len() != FORM.len() {
        return None;
    }
    // 14 digits fit into 64 bits. Invalid dates are accepted: only the order is needed, and an API
    // server writes none.
    let mut digits = 0;
    for (byte, form) in text.bytes().zip(FORM.bytes()) {
        if form == b'0' && byte.is_ascii_digit() {
            digits = digits * 10 + u64::from(byte - b'0');
        } else if form == b'0' || byte != form {
            return None;
        }
    }
    Some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_the_order_of_times() {
        assert_eq!(digits("2026-11-18T19:53:01Z"), Some(20_261_118_195_301));
        assert!(digits("2025-12-31T23:59:59Z") < digits("2026-01-01T00:00:00Z"));
        for other in [
            "",
            "2026-11-18",
            "2026-11-18T19:53:01+01",
            "2026-11-18 19:53:01Z",
        ] {
            assert_eq!(digits(other), None, "{other}");
        }
    }
}
