//! Files with the address of a server and the identity of a client.

use std::fmt::Write as _;
use std::path::Path;

use crate::authority::{Credentials, write};
use crate::error::Result;

/// Writes a kubeconfig that names the files of a certificate.
pub(crate) fn kubeconfig(
    path: &Path,
    url: &str,
    user: &str,
    credentials: &Credentials,
) -> Result<()> {
    let Credentials {
        certificate,
        key,
        authority,
    } = credentials;
    let text = format!(
        "apiVersion: v1
kind: Config
clusters:
- name: testbed
  cluster:
    server: {}
    certificate-authority: {}
users:
- name: {user}
  user:
    client-certificate: {}
    client-key: {}
contexts:
- name: testbed
  context:
    cluster: testbed
    user: {user}
current-context: testbed
",
        quoted(url),
        quoted(&authority.to_string_lossy()),
        quoted(&certificate.to_string_lossy()),
        quoted(&key.to_string_lossy()),
        user = quoted(user),
    );
    write(path, &text)
}

/// A text as a scalar in double quotes, with escapes.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            other if other.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\u{:04x}", u32::from(other));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        assert_eq!(quoted("system:node:n1"), r#""system:node:n1""#);
        assert_eq!(quoted("a\"b\\c\nd"), "\"a\\\"b\\\\c\\u000ad\"");
    }
}
