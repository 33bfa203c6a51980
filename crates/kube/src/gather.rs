//! Lists of several kinds at a time, for whoever waits for all of them.

use futures_util::stream::{self, StreamExt as _};

use crate::access::{Access, Error, Server};
use crate::get::{Unread, encoded, unread};
use crate::resource::Resource;

/// So many lists are asked for at a time: enough to hide the way to the server, and no burden for it.
const AT_ONCE: usize = 4;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The kind.
    pub resource: Resource,
    /// Where.
    pub within: Within,
}

/// Where objects are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Within {
    /// In all namespaces, or wherever objects that have none are.
    Everywhere,
    /// In a namespace.
    Namespace(String),
    /// The one of this name, of a kind that has no namespaces.
    Named(String),
}

/// What came of it: the lists in JSON, or the object, or why there is nothing.
pub type Gathered = Result<Vec<String>, Unread>;

/// Asks for everything that is wanted and waits for all answers, which come in the order of what was wanted.
pub fn gather(server: &Asking, wanted: &[Wanted]) -> Vec<Gathered> {
    let asked = wanted.iter().map(|it| one(&server.server, it));
    let all = stream::iter(asked).buffered(AT_ONCE).collect();
    server.runtime.block_on(all)
}

async fn one(server: &Server, wanted: &Wanted) -> Gathered {
    match listed(server, wanted).await {
        // Whether somebody may read is judged before whether there is anything of that name.
        Err(Unread::Forbidden(_)) if is_absent(server, wanted.resource).await => {
            Err(Unread::Absent)
        }
        // Of one object this says that it is not there. That a whole kind is not there is believed only where it can be so.
        Err(Unread::Absent) if !matches!(wanted.within, Within::Named(_)) => {
            match is_absent(server, wanted.resource).await {
                true => Err(Unread::Absent),
                false => Err(Unread::Failed(
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

async fn listed(server: &Server, wanted: &Wanted) -> Gathered {
    let Wanted { resource, within } = wanted;
    match within {
        Within::Everywhere => server.list(*resource, None).await,
        Within::Namespace(namespace) => server.list(*resource, Some(namespace)).await,
        Within::Named(name) => {
            let path = format!("{}/{}", resource.path(), encoded(name));
            let text = server.get(&path).await.map_err(unread)?;
            Ok(vec![text])
        }
    }
}

/// A server that is asked by somebody who waits. Nothing goes on in between, and no thread is left when it is dropped.
#[derive(Debug)]
pub struct Asking {
    server: Server,
    runtime: tokio::runtime::Runtime,
}

impl Asking {
    /// Finds the server. Nothing is sent yet.
    pub fn new(access: &Access) -> Result<Asking, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Runtime)?;
        let server = runtime.block_on(access.server())?;
        Ok(Asking { server, runtime })
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        self.server.url()
    }
}
