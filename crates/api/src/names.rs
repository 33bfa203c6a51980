//! The text rules of Kubernetes for names, labels and ports.

/// Names of most objects: lower-case letters, digits, `-` and `.`; at most 253.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    !text.is_empty() && text.len() <= 253 && text.split('.').all(is_dns_word)
}

/// Names of namespaces and services: one word of at most 63 characters.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_dns_word(text)
}

/// A word of lower-case letters, digits and inner `-`.
fn is_dns_word(text: &str) -> bool {
    let edge = |c: &u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(edge)
        && bytes.last().is_some_and(edge)
        && bytes.iter().all(|c| edge(c) || *c == b'-')
}

/// A label key: a name of at most 63 characters, with an optional DNS prefix and `/`.
pub(crate) fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_label_name(name),
        None => is_label_name(text),
    }
}

/// A label value: empty, or as the name part of a key.
pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_label_name(text)
}

fn is_label_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |c: &u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    bytes.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(inner)
}

/// The name of a port: at most 15 lower-case letters, digits and single inner `-`, one letter at
/// least.
pub(crate) fn is_port_name(text: &str) -> bool {
    text.len() <= 15
        && is_dns_word(text)
        && text.bytes().any(|c| c.is_ascii_lowercase())
        && !text.contains("--")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a*3/b` is short for `aaa/b`: a token `C*N` is a character and how often it is repeated.
    fn expand(written: &str) -> String {
        let token = |token: &str| match token.split_once('*') {
            Some((c, count)) if c.chars().count() == 1 => match count.parse() {
                Ok(count) => c.repeat(count),
                Err(_) => token.to_owned(),
            },
            _ => token.to_owned(),
        };
        let slashes = written
            .split('/')
            .map(|part| part.split('.').map(token).collect::<Vec<_>>().join("."));
        slashes.collect::<Vec<_>>().join("/")
    }

    #[test]
    fn names_are_checked_by_the_rules_of_kubernetes() {
        let table = include_str!("../tests/data/names.tsv");
        let mut rows = 0;
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let columns: Vec<&str> = line.split('\t').collect();
            let [check, written, verdict] = columns[..] else {
                panic!("{line:?}")
            };
            let text = written
                .replace("\\\\", "\u{0}")
                .replace("\\t", "\t")
                .replace("\\n", "\n")
                .replace('\u{0}', "\\");
            let text = expand(&text);
            let ours = match check {
                "label-key" => is_label_key(&text),
                "label-value" => is_label_value(&text),
                "dns-subdomain" => is_dns_subdomain(&text),
                "dns-label" => is_dns_label(&text),
                "port-name" => is_port_name(&text),
                other => panic!("{other}"),
            };
            assert_eq!(ours, verdict == "ok", "{check} {written:?}");
            rows += 1;
        }
        assert!(rows > 1500);
    }
}
