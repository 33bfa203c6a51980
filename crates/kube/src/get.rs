//! Complete lists of objects, without a watch.

use std::fmt::Write as _;
use std::pin::Pin;
use std::time::Duration;

use futures_util::io::{AsyncBufRead, AsyncBufReadExt as _};

use crate::access::{RequestFailure, Server, innermost};
use crate::resource::Resource;
use crate::response::{Page, page_of};
use crate::split::{ObjectLocation, SplitObject, Splitter};

/// The number of objects on a page, as `kubectl` requests them.
pub const PAGE: usize = 500;

/// The number of attempts at a list whose continue token expires.
const ATTEMPTS: usize = 3;

/// Why a kind could not be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListError {
    /// The server does not have the kind.
    Absent,
    /// The server forbids it, with its message.
    Forbidden(String),
    /// The server rejected the credentials, with its message.
    Unauthenticated(String),
    /// Another failure.
    Failed(String),
}

impl Server {
    /// Lists all objects of a kind, in all namespaces or in one. Returns the pages as JSON.
    pub async fn list(
        &self,
        resource: Resource,
        namespace: Option<&str>,
    ) -> Result<Vec<String>, ListError> {
        for _ in 0..ATTEMPTS {
            let mut pages = Vec::new();
            let mut after = None;
            loop {
                match self.page(resource, namespace, after.as_deref()).await {
                    Ok((page, text)) => {
                        pages.push(text);
                        after = page.more;
                    }
                    // Pages of two resource versions do not fit together: the whole list restarts.
                    Err(RequestFailure::Refused(it)) if it.is_too_old() => break,
                    Err(error) => return Err(unread(error)),
                }
                if after.is_none() {
                    return Ok(pages);
                }
            }
        }
        Err(ListError::Failed(
            "the list expired several times before its last page".to_owned(),
        ))
    }

    /// Requests a page of a list. Returns its metadata and text. Invalid UTF-8, which can only be
    /// in parts that are not read, is replaced.
    async fn page(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        after: Option<&str>,
    ) -> Result<(Page, String), RequestFailure> {
        let mut bytes = Vec::new();
        let path = page_path(resource, namespace, after);
        let page = self.objects(resource, &path).await?.all(&mut bytes).await;
        let page = page.map_err(RequestFailure::Failed)?;
        let text = String::from_utf8(bytes);
        let text = text.unwrap_or_else(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
        Ok((page, text))
    }

    /// Starts to read a page of a list.
    pub(crate) async fn objects(
        &self,
        resource: Resource,
        path: &str,
    ) -> Result<PageObjects<impl AsyncBufRead + use<>>, RequestFailure> {
        self.page_objects(resource.kind.name(), path).await
    }

    /// Starts to read a page of a list of a kind.
    pub(crate) async fn page_objects(
        &self,
        kind: &'static str,
        path: &str,
    ) -> Result<PageObjects<impl AsyncBufRead + use<>>, RequestFailure> {
        Ok(PageObjects {
            kind,
            bytes: Box::pin(self.stream(path).await?),
            splitter: Splitter::new(ObjectLocation::Items),
            patience: self.patience(),
        })
    }
}

/// Returns the path of the first page of a list, or of the one after this continue token.
pub(crate) fn page_path(
    resource: Resource,
    namespace: Option<&str>,
    after: Option<&str>,
) -> String {
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
    path
}

/// The objects of a page, as they arrive.
pub(crate) struct PageObjects<B> {
    kind: &'static str,
    bytes: Pin<Box<B>>,
    splitter: Splitter,
    /// The time limit of the next bytes.
    patience: Duration,
}

impl<B: AsyncBufRead> PageObjects<B> {
    /// Returns the next objects that have arrived; `None`: the page is complete.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<SplitObject>>, String> {
        self.next_with(|_| {}).await
    }

    async fn next_with(
        &mut self,
        inspect: impl FnOnce(&[u8]),
    ) -> Result<Option<Vec<SplitObject>>, String> {
        // The limit is for each part: a large page over a slow connection may take longer as a
        // whole.
        let arrived = tokio::time::timeout(self.patience, self.bytes.fill_buf()).await;
        let arrived = arrived.map_err(|_| "the server stopped sending the list".to_owned())?;
        let arrived = arrived.map_err(|error| innermost(&error))?;
        if arrived.is_empty() {
            return Ok(None);
        }
        inspect(arrived);
        let length = arrived.len();
        let found = self.splitter.push(arrived)?;
        self.bytes.consume_unpin(length);
        Ok(Some(found))
    }

    /// Ends the page. Returns its metadata.
    pub(crate) fn head(self) -> Result<Page, String> {
        let (rest, taken) = self.splitter.finish()?;
        page_of(self.kind, &rest, taken)
    }

    /// Reads all of it into a buffer.
    async fn all(mut self, buffer: &mut Vec<u8>) -> Result<Page, String> {
        while self
            .next_with(|it| buffer.extend_from_slice(it))
            .await?
            .is_some()
        {}
        self.head()
    }
}

pub(crate) fn unread(error: RequestFailure) -> ListError {
    match error {
        RequestFailure::Refused(status) if status.is_missing() => ListError::Absent,
        RequestFailure::Refused(status) if status.code == 401 => {
            ListError::Unauthenticated(status.message)
        }
        RequestFailure::Refused(status) if status.is_forbidden() => {
            ListError::Forbidden(status.message)
        }
        RequestFailure::Refused(status) => ListError::Failed(status.message),
        RequestFailure::Failed(cause) => ListError::Failed(cause),
    }
}

/// Percent-encodes a text for a path or a query.
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
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;

    use palisade_api::Kind;

    use super::encoded;
    use crate::access::Access;
    use crate::resource::Resource;

    #[test]
    fn nothing_in_a_text_changes_the_path_around_it() {
        assert_eq!(encoded("kube-system"), "kube-system");
        assert_eq!(encoded("a/../b?c=d&e"), "a%2F..%2Fb%3Fc%3Dd%26e");
        assert_eq!(encoded("é\n"), "%C3%A9%0A");
    }

    /// Serves one request for each page, one connection each. Returns the requested paths.
    fn serve(listener: &TcpListener, pages: &[String]) -> Vec<String> {
        let respond = |page: &String| {
            let (mut stream, _) = listener.accept().expect("a client");
            let patience = Some(Duration::from_secs(20));
            stream.set_read_timeout(patience).expect("a timeout");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).expect("a request");
                request.extend(byte);
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
            let response = format!("{head}\r\nContent-Length: {}\r\n\r\n{page}", page.len());
            stream.write_all(response.as_bytes()).expect("to answer");
            let request = String::from_utf8(request).expect("a text");
            let path = request.split(' ').nth(1).unwrap_or_default();
            path.to_owned()
        };
        pages.iter().map(respond).collect()
    }

    #[test]
    fn all_pages_of_a_list_are_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let directory = std::env::temp_dir().join(format!("palisade-kube-pages-{port}"));
        std::fs::create_dir_all(&directory).expect("a directory");
        let kubeconfig = directory.join("config");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"http://127.0.0.1:{port}\"}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).expect("a file");
        let page = |more: &str, name: &str| {
            format!(
                r#"{{"kind":"PodList","metadata":{{"resourceVersion":"7","continue":"{more}"}},"items":[{{"metadata":{{"name":"{name}"}}}}]}}"#
            )
        };
        let pages = [page("2/3", "a"), page("3/3", "b"), page("", "c")];
        let served = std::thread::spawn({
            let pages = pages.clone();
            move || serve(&listener, &pages)
        });
        let access = Access {
            kubeconfig: Some(kubeconfig),
            timeout: Some(Duration::from_secs(20)),
            ..Access::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let read = runtime.block_on(async {
            let server = access.server().await.expect("a server");
            let pods = Resource::of(Kind::Pod).expect("pods are on servers");
            server.list(pods, None).await
        });
        std::fs::remove_dir_all(&directory).expect("to remove it");
        assert_eq!(read.as_deref(), Ok(&pages[..]));
        let requested = served.join().expect("a server that served");
        assert_eq!(
            requested,
            [
                "/api/v1/pods?limit=500",
                "/api/v1/pods?limit=500&continue=2%2F3",
                "/api/v1/pods?limit=500&continue=3%2F3",
            ]
        );
    }
}
