//! Patterns of domain names: an exact name, or `*.` before one for the names below it.

use thiserror::Error;

/// A domain name, or every name below one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainPattern {
    /// Whether the pattern starts with `*.`.
    pub wildcard: bool,
    /// The name after the wildcard, in lower case and without a trailing dot.
    pub name: String,
}

/// Why a text is not a domain pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DomainError {
    /// The double wildcard of an early proposal.
    #[error("`**.` is not supported")]
    DoubleWildcard,
    /// A `*` that is not the whole first label.
    #[error("`*` must be the whole first label")]
    MisplacedWildcard,
    /// Fewer than two labels, not counting the wildcard.
    #[error("the name must have at least two labels, not counting `*`")]
    TooFewLabels,
    /// A scheme, a port or a path beside the name.
    #[error("it must not have a scheme, port or path")]
    NotOnlyAName,
    /// A label that is empty, or has a character in a place where the API forbids it.
    #[error(
        "a label must start and end with a letter or digit and contain only letters, digits, `-` and `_`"
    )]
    BadLabel,
}

impl DomainPattern {
    /// Parses a text by the published pattern of the API, with its oddities: the first character of
    /// a label may also be one of ``[ \ ] ^ _ ` ``; see [`is_odd`](Self::is_odd).
    pub fn parse(text: &str) -> Result<DomainPattern, DomainError> {
        // Without this check `*` would be a misplaced wildcard. A single label is the better
        // message.
        if text == "*" {
            return Err(DomainError::TooFewLabels);
        }
        if text.contains(['/', ':']) {
            return Err(DomainError::NotOnlyAName);
        }
        if text.starts_with("**.") {
            return Err(DomainError::DoubleWildcard);
        }
        let (wildcard, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if rest.contains('*') {
            return Err(DomainError::MisplacedWildcard);
        }
        // One trailing dot is the root of an absolute name and has no meaning here (D54).
        let rest = rest.strip_suffix('.').unwrap_or(rest);
        if !rest.split('.').all(is_label) {
            return Err(DomainError::BadLabel);
        }
        if !rest.contains('.') {
            return Err(DomainError::TooFewLabels);
        }
        Ok(DomainPattern {
            wildcard,
            name: rest.to_ascii_lowercase(),
        })
    }

    /// Returns whether the API accepts the name although it is hardly a host name: a label starts
    /// with a punctuation character, or the name is an IPv4 address.
    pub fn is_odd(&self) -> bool {
        let odd_start = |label: &str| !label.starts_with(|c: char| c.is_ascii_alphanumeric());
        self.name.split('.').any(odd_start) || self.name.parse::<std::net::Ipv4Addr>().is_ok()
    }

    /// Returns whether the pattern matches a name of a DNS query.
    pub fn matches(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if !self.wildcard {
            return name == self.name;
        }
        match name
            .strip_suffix(&self.name)
            .and_then(|below| below.strip_suffix('.'))
        {
            // A wildcard stands for one or more whole labels, not for the name itself (D54).
            Some(below) => below.split('.').all(|label| !label.is_empty()),
            None => false,
        }
    }
}

fn is_label(label: &str) -> bool {
    // The published pattern has `[a-zA-z0-9]`: the range from `A` to `z` includes six punctuation
    // characters. A stricter reader would refuse objects that the API server stores.
    let first = |c: u8| c.is_ascii_digit() || (b'A'..=b'z').contains(&c);
    let inner = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    match label.as_bytes() {
        [] => false,
        [only] => first(*only),
        [start, middle @ .., end] => {
            first(*start) && middle.iter().copied().all(inner) && end.is_ascii_alphanumeric()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_whole_labels_below_the_name() {
        let pattern = DomainPattern::parse("*.A.b.").unwrap();
        assert!(pattern.matches("x.a.b") && pattern.matches("y.X.a.b."));
        assert!(!pattern.matches("a.b") && !pattern.matches("xa.b") && !pattern.matches(".a.b"));
        let exact = DomainPattern::parse("a.b").unwrap();
        assert!(exact.matches("A.B.") && !exact.matches("x.a.b"));
    }

    #[test]
    fn unusual_names_are_read_and_flagged() {
        assert!(DomainPattern::parse("_x.example.com").unwrap().is_odd());
        assert!(DomainPattern::parse("10.0.0.1").unwrap().is_odd());
        assert!(!DomainPattern::parse("x.example.com").unwrap().is_odd());
    }
}
