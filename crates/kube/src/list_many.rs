//! Lists of several kinds at a time, for synchronous callers.

use futures_util::stream::{self, StreamExt as _};

use crate::access::{Access, Error, Server};
use crate::get::{ListError, encoded, unread};
use crate::resource::Resource;

/// The number of concurrent lists: enough to hide the latency of the server without loading it.
pub(crate) const AT_ONCE: usize = 4;

/// A request for objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// The kind.
    pub resource: Resource,
    /// The scope.
    pub within: ListScope,
}

/// The scope of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListScope {
    /// All namespaces, or a cluster-scoped kind.
    Everywhere,
    /// One namespace.
    Namespace(String),
    /// The one object of this name, of a cluster-scoped kind.
    Named(String),
}

/// The pages of the list or the object, as JSON; or why there are none.
pub type ListResult = Result<Vec<String>, ListError>;

/// Sends all requests and waits for the results, which are in the order of the requests.
pub fn list_many(server: &SyncClient, wanted: &[ListRequest]) -> Vec<ListResult> {
    let results = wanted.iter().map(|it| one(&server.server, it));
    let all = stream::iter(results).buffered(AT_ONCE).collect();
    server.runtime.block_on(all)
}

async fn one(server: &Server, wanted: &ListRequest) -> ListResult {
    match listed(server, wanted).await {
        // Servers check permissions before existence: a forbidden kind may be an absent one.
        Err(ListError::Forbidden(_)) if is_absent(server, wanted.resource).await => {
            Err(ListError::Absent)
        }
        // For one object, 404 means that it does not exist. For a whole kind, discovery must
        // confirm it.
        Err(ListError::Absent) if !matches!(wanted.within, ListScope::Named(_)) => {
            match is_absent(server, wanted.resource).await {
                true => Err(ListError::Absent),
                false => Err(ListError::Failed(
                    "the server reports no such kind".to_owned(),
                )),
            }
        }
        result => result,
    }
}

/// Returns whether discovery confirms that the server does not have a kind.
async fn is_absent(server: &Server, resource: Resource) -> bool {
    // Every server has these, whatever a proxy answers (D150).
    if resource.is_built_in {
        return false;
    }
    matches!(server.has(resource).await, Ok(false))
}

async fn listed(server: &Server, wanted: &ListRequest) -> ListResult {
    let ListRequest { resource, within } = wanted;
    match within {
        ListScope::Everywhere => server.list(*resource, None).await,
        ListScope::Namespace(namespace) => server.list(*resource, Some(namespace)).await,
        ListScope::Named(name) => {
            let path = format!("{}/{}", resource.path(), encoded(name));
            let text = server.get(&path).await.map_err(unread)?;
            Ok(vec![text])
        }
    }
}

/// A client for synchronous callers. It works only during calls, and leaves no thread behind.
#[derive(Debug)]
pub struct SyncClient {
    pub(crate) server: Server,
    pub(crate) runtime: tokio::runtime::Runtime,
}

impl SyncClient {
    /// Creates a client. Sends nothing yet.
    pub fn new(access: &Access) -> Result<SyncClient, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Runtime)?;
        let server = runtime.block_on(access.server())?;
        Ok(SyncClient { server, runtime })
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> &str {
        self.server.url()
    }
}
