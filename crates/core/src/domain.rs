//! Patterns of domain names: an exact name, or `*.` before one for the names below it.

use thiserror::Error;

/// A domain name, or every name below one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainPattern {
    /// Whether the pattern was written with a leading `*.`.
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
    /// A `*` anywhere but as the whole first label.
    #[error("`*` can only stand alone as the first label")]
    MisplacedWildcard,
    /// Fewer than two labels (after the wildcard, if there is one).
    #[error("the name needs at least two labels, not counting `*`")]
    TooFewLabels,
    /// More than a name: a scheme, a port or a path.
    #[error("it is more than a host name")]
    NotOnlyAName,
    /// A label is empty or has a character where it may not stand.
    #[error(
        "a label must start and end with a letter or digit and hold only letters, digits, `-` and `_`"
    )]
    BadLabel,
}

impl DomainPattern {
    /// Reads a pattern by the published pattern of the API, its odd corners included: the first
    /// character of a label may also be one of ``[ \ ] ^ _ ` ``; see [`is_odd`](Self::is_odd).
    pub fn parse(text: &str) -> Result<DomainPattern, DomainError> {
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

    /// Whether the API admits the name although it is hardly the name of a host: a label starts with
    /// a punctuation character, or it is an IPv4 address.
    pub fn is_odd(&self) -> bool {
        let odd_start = |label: &str| !label.starts_with(|c: char| c.is_ascii_alphanumeric());
        self.name.split('.').any(odd_start) || self.name.parse::<std::net::Ipv4Addr>().is_ok()
    }

    /// Whether a name, as it stands in a DNS question, is meant by the pattern.
    pub fn matches(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        if !self.wildcard {
            return name == self.name;
        }
        match name
            .strip_suffix(&self.name)
            .and_then(|below| below.strip_suffix('.'))
        {
            Some(below) => below.split('.').all(|label| !label.is_empty()),
            None => false,
        }
    }
}

fn is_label(label: &str) -> bool {
    // The published pattern writes `[a-zA-z0-9]`, whose middle range spans six signs of ASCII.
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
    fn odd_names_are_read_and_known_as_odd() {
        assert!(DomainPattern::parse("_x.example.com").unwrap().is_odd());
        assert!(DomainPattern::parse("10.0.0.1").unwrap().is_odd());
        assert!(!DomainPattern::parse("x.example.com").unwrap().is_odd());
    }
}
