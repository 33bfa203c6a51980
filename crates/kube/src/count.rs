//! Counts objects of kinds that are found by discovery, without reading them.

use futures_util::stream::{self, StreamExt as _};

use crate::access::Server;
use crate::get::{PAGE, encoded};
use crate::list_many::{AT_ONCE, SyncClient};
use crate::response::{group_versions, listable};

/// A kind of an API group, in any version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountRequest {
    /// The API group.
    pub group: &'static str,
    /// The kind.
    pub kind: &'static str,
}

/// Counts the objects of each kind; `None`: the server does not have the kind, or refuses to list
/// it.
// A server that refuses even discovery is no reason to fail: it says no more about these kinds than
// one that has none of them.
pub fn count_many(client: &SyncClient, wanted: &[CountRequest]) -> Vec<Option<usize>> {
    client.runtime.block_on(async {
        let paths = paths(&client.server, wanted).await;
        let counts = wanted.iter().zip(paths).map(|(it, path)| async move {
            let path = path?;
            count(&client.server, it.kind, &path).await
        });
        stream::iter(counts).buffered(AT_ONCE).collect().await
    })
}

/// Returns the path of each kind; `None`: discovery does not have it.
async fn paths(server: &Server, wanted: &[CountRequest]) -> Vec<Option<String>> {
    let mut paths = vec![None; wanted.len()];
    let groups = server.get("/apis").await;
    let groups = groups.ok().and_then(|text| group_versions(&text).ok());
    for (group, versions) in groups.unwrap_or_default() {
        let of_group = wanted.iter().zip(&mut paths);
        let mut missing: Vec<(&str, &mut Option<String>)> = of_group
            .filter(|(it, _)| it.group == group)
            .map(|(it, path)| (it.kind, path))
            .collect();
        // Kinds of one group may be in different versions; the preferred version comes first.
        for version in versions {
            if missing.is_empty() {
                break;
            }
            let at = format!("/apis/{version}");
            let Ok(resources) = server.get(&at).await else {
                continue;
            };
            let resources = listable(&resources, &version).unwrap_or_default();
            missing.retain_mut(|(wanted, path)| {
                let found = resources.iter().find(|(kind, _)| kind == wanted);
                **path = found.map(|(_, plural)| format!("{at}/{plural}"));
                path.is_none()
            });
        }
    }
    paths
}

/// Counts the objects at a path.
async fn count(server: &Server, kind: &'static str, path: &str) -> Option<usize> {
    let mut count = 0;
    // One object is enough if the server counts the others.
    let mut query = "?limit=1".to_owned();
    loop {
        let page = server.page_objects(kind, &format!("{path}{query}")).await;
        let mut objects = page.ok()?;
        while let Some(found) = objects.next().await.ok()? {
            count += found.len();
        }
        let page = objects.head().ok()?;
        match (page.remaining, page.more) {
            (Some(remaining), _) => return Some(count + remaining),
            (None, None) => return Some(count),
            (None, Some(more)) => query = format!("?limit={PAGE}&continue={}", encoded(&more)),
        }
    }
}
