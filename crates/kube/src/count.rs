//! Counts the policies of other vendors that a server has.

use std::collections::HashMap;

use futures_util::stream::{self, StreamExt as _};
use palisade_api::OtherPolicyKind;

use crate::access::Server;
use crate::get::{PAGE, encoded};
use crate::list_many::{AT_ONCE, SyncClient};
use crate::response::{group_versions, listable};

/// Counts the objects of each kind; `None`: the server does not have the kind, or refuses to list
/// it.
// An answer does not depend on these objects. A server that refuses even discovery is no reason to
// fail, and says no more than one that has none of the kinds.
pub fn count_many(client: &SyncClient, wanted: &[OtherPolicyKind]) -> Vec<Option<usize>> {
    client.runtime.block_on(async {
        let paths = paths(&client.server, wanted).await.unwrap_or_default();
        let counts = wanted.iter().map(|kind| {
            let path = paths.get(kind);
            async move { count(&client.server, kind.kind, path?).await }
        });
        stream::iter(counts).buffered(AT_ONCE).collect().await
    })
}

/// Returns the path of each kind that discovery has.
async fn paths(
    server: &Server,
    wanted: &[OtherPolicyKind],
) -> Option<HashMap<OtherPolicyKind, String>> {
    let groups = server.get("/apis").await.ok()?;
    let mut paths = HashMap::new();
    for (group, versions) in group_versions(&groups).ok()? {
        let kinds = wanted.iter().filter(|it| it.group == group);
        let mut missing: Vec<OtherPolicyKind> = kinds.copied().collect();
        // Kinds of one group may be in different versions; the preferred version comes first.
        for version in versions {
            if missing.is_empty() {
                break;
            }
            let path = format!("/apis/{version}");
            let Ok(resources) = server.get(&path).await else {
                continue;
            };
            let resources = listable(&resources, &version).unwrap_or_default();
            missing.retain(|wanted| {
                let plural = resources.iter().find(|(kind, _)| kind == wanted.kind);
                if let Some((_, plural)) = plural {
                    paths.insert(*wanted, format!("{path}/{plural}"));
                }
                plural.is_none()
            });
        }
    }
    Some(paths)
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
