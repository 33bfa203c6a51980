//! Lists of several kinds at a time, for whoever waits for all of them.

use futures_util::stream::{self, StreamExt as _};

use crate::access::{Access, Error, Server};
use crate::get::{ListError, encoded, unread};
use crate::resource::Resource;

/// So many lists are asked for at a time: enough to hide the way to the server, and no burden for it.
const AT_ONCE: usize = 4;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// The kind.
    pub resource: Resource,
    /// Where.
    pub within: ListScope,
}

/// Where objects are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListScope {
    /// In all namespaces, or wherever objects that have none are.
    Everywhere,
    /// In a namespace.
    Namespace(String),
    /// The one of this name, of a kind that has no namespaces.
    Named(String),
}

/// What came of it: the lists in JSON, or the object, or why there is nothing.
pub type ListResult = Result<Vec<String>, ListError>;

/// Asks for everything that is wanted and waits for all answers, which come in the order of what was wanted.
pub fn gather(server: &SyncClient, wanted: &[ListRequest]) -> Vec<ListResult> {
    let asked = wanted.iter().map(|it| one(&server.server, it));
    let all = stream::iter(asked).buffered(AT_ONCE).collect();
    server.runtime.block_on(all)
}

async fn one(server: &Server, wanted: &ListRequest) -> ListResult {
    match listed(server, wanted).await {
        // Whether somebody may read is judged before whether there is anything of that name.
        Err(ListError::Forbidden(_)) if is_absent(server, wanted.resource).await => {
            Err(ListError::Absent)
        }
        // Of one object this says that it is not there. That a whole kind is not there is believed only where it can be so.
        Err(ListError::Absent) if !matches!(wanted.within, ListScope::Named(_)) => {
            match is_absent(server, wanted.resource).await {
                true => Err(ListError::Absent),
                false => Err(ListError::Failed(
                    "the server says that there is no such kind".to_owned(),
                )),
            }
        }
        answer => answer,
    }
}

/// Whether the server says that it has no such kind.
async fn is_absent(server: &Server, resource: Resource) -> bool {
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

/// A server that is asked by somebody who waits. Nothing goes on in between, and no thread is left when it is dropped.
#[derive(Debug)]
pub struct SyncClient {
    server: Server,
    runtime: tokio::runtime::Runtime,
}

impl SyncClient {
    /// Finds the server. Nothing is sent yet.
    pub fn new(access: &Access) -> Result<SyncClient, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Runtime)?;
        let server = runtime.block_on(access.server())?;
        Ok(SyncClient { server, runtime })
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        self.server.url()
    }
}
