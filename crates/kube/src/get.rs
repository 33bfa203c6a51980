//! Everything that a server holds of some kinds, once.

use std::fmt::Write as _;

use crate::access::{Server, Unanswered};
use crate::answer::{Page, page};
use crate::resource::Resource;

/// So many objects are asked for at a time.
pub const PAGE: usize = 500;

/// So often a list is begun anew when the server has forgotten its beginning.
const ATTEMPTS: usize = 3;

/// Why objects of a kind could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The server has no such kind.
    Absent,
    /// The server does not let us, in its words.
    Forbidden(String),
    /// The server does not believe who we are, in its words.
    Unauthenticated(String),
    /// Something else, in words.
    Failed(String),
}

impl Server {
    /// All objects of a kind, in all namespaces or in one, as lists in JSON.
    pub async fn list(
        &self,
        resource: Resource,
        namespace: Option<&str>,
    ) -> Result<Vec<String>, Unread> {
        for _ in 0..ATTEMPTS {
            let mut pages = Vec::new();
            let mut after = None;
            loop {
                match self.page(resource, namespace, after.as_deref()).await {
                    Ok((page, text)) => {
                        pages.push(text);
                        after = page.more;
                    }
                    Err(Unanswered::Refused(it)) if it.is_too_old() => break,
                    Err(error) => return Err(unread(error)),
                }
                if after.is_none() {
                    return Ok(pages);
                }
            }
        }
        Err(Unread::Failed(
            "the list is too long for what the server remembers".to_owned(),
        ))
    }

    /// A page of a list.
    pub(crate) async fn page(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        after: Option<&str>,
    ) -> Result<(Page, String), Unanswered> {
        let mut path = match namespace {
            None => resource.path(),
            Some(namespace) => {
                let group = resource.group_path();
                let namespace = encoded(namespace);
                format!("{group}/namespaces/{namespace}/{}", resource.plural)
            }
        };
        let _ = write!(path, "?limit={PAGE}");
        if let Some(after) = after {
            let _ = write!(path, "&continue={}", encoded(after));
        }
        let text = self.get(&path).await?;
        let page = page(&text).map_err(Unanswered::Failed)?;
        Ok((page, text))
    }
}

pub(crate) fn unread(error: Unanswered) -> Unread {
    match error {
        Unanswered::Refused(refusal) if refusal.is_missing() => Unread::Absent,
        Unanswered::Refused(refusal) if refusal.code == 401 => {
            Unread::Unauthenticated(refusal.message)
        }
        Unanswered::Refused(refusal) if refusal.is_forbidden() => {
            Unread::Forbidden(refusal.message)
        }
        Unanswered::Refused(refusal) => Unread::Failed(refusal.message),
        Unanswered::Failed(words) => Unread::Failed(words),
    }
}

/// A text as a part of a path or of a query.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::encoded;

    #[test]
    fn nothing_in_a_text_changes_the_path_around_it() {
        assert_eq!(encoded("kube-system"), "kube-system");
        assert_eq!(encoded("a/../b?c=d&e"), "a%2F..%2Fb%3Fc%3Dd%26e");
        assert_eq!(encoded("é\n"), "%C3%A9%0A");
    }
}
