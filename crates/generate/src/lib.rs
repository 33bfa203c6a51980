//! Seeded Kubernetes manifests, clusters of stated size and flows, for benchmarks and campaigns.

mod admin_network_policy;
mod cluster;
mod cluster_network_policy;
mod config_map;
mod deployment;
mod endpoint_slice;
pub mod flows;
mod namespace;
mod network_policy;
mod node;
mod pod;
pub mod point;
mod rng;
mod selector;
mod service;
mod world;
mod yaml;

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

pub use self::cluster::{Cluster, Kind, Mix, Object};
pub use self::rng::Rng;
pub use self::world::{World, learned, world};
pub use self::yaml::{Style, to_yaml};

/// How far a directory may fall behind its size before a file takes several documents.
const BACKLOG: u64 = 16_000;

/// The plan of a directory of manifests.
#[derive(Clone, Copy, Debug)]
pub struct Manifests {
    /// The seed that all choices follow from.
    pub seed: u64,
    /// The number of files.
    pub files: u64,
    /// The size of all files together, met to within a few documents.
    pub bytes: u64,
}

/// The plan of a JSON list.
#[derive(Clone, Copy, Debug)]
pub struct List {
    /// The seed that all choices follow from.
    pub seed: u64,
    /// The size of the file, met to within one object.
    pub bytes: u64,
}

/// The written objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The number of files.
    pub files: u64,
    /// The number of YAML or JSON documents in them.
    pub documents: u64,
    /// The number of objects, the items of lists counted singly.
    pub objects: u64,
    /// The size of all files together.
    pub bytes: u64,
}

/// Fills `dir`, which is created, with block-style manifests.
pub fn manifests(dir: &Path, plan: &Manifests) -> Result<Written> {
    fs::create_dir_all(dir).with_context(|| format!("cannot create `{}`", dir.display()))?;
    let mut cluster = Cluster::new(plan.seed);
    let mut written = Written::default();
    let mut text = String::new();
    for index in 0..plan.files {
        text.clear();
        // Single objects are smaller than a file should be on average, so a backlog builds up.
        // Files of several documents reduce it; real directories have such files as well.
        let due = plan.bytes.saturating_mul(index + 1) / plan.files;
        let behind = due.saturating_sub(written.bytes) > BACKLOG;
        let name = loop {
            let name = document(&mut cluster, &mut text, &mut written);
            if !behind || written.bytes + text.len() as u64 >= due {
                break name;
            }
        };
        let path = dir.join(format!("{index:05}-{name}.yaml"));
        fs::write(&path, &text).with_context(|| format!("cannot write `{}`", path.display()))?;
        written.files += 1;
        written.bytes += text.len() as u64;
    }
    Ok(written)
}

/// Writes `path` as one compact `List`, keys in the order in which kubectl prints them.
pub fn list(path: &Path, plan: &List) -> Result<Written> {
    write_list(path, plan).with_context(|| format!("cannot write `{}`", path.display()))
}

fn write_list(path: &Path, plan: &List) -> Result<Written> {
    const HEAD: &[u8] = br#"{"apiVersion":"v1","items":["#;
    const TAIL: &[u8] = br#"],"kind":"List","metadata":{"resourceVersion":""}}"#;
    let mut cluster = Cluster::new(plan.seed);
    let mut out = BufWriter::new(File::create(path)?);
    let mut written = Written {
        files: 1,
        documents: 1,
        ..Written::default()
    };
    let frame = (HEAD.len() + TAIL.len() + 1) as u64;
    out.write_all(HEAD)?;
    while written.bytes + frame < plan.bytes {
        if written.objects > 0 {
            out.write_all(b",")?;
            written.bytes += 1;
        }
        let text = serde_json::to_vec(&cluster.next_object(&Mix::LIST).value)?;
        out.write_all(&text)?;
        written.bytes += text.len() as u64;
        written.objects += 1;
    }
    out.write_all(TAIL)?;
    out.write_all(b"\n")?;
    out.flush()?;
    written.bytes += frame;
    Ok(written)
}

/// A whole cluster as one compact `List`.
pub fn world_list(plan: &World) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(&typed_list(&world(plan)))?)
}

/// Appends one document to `text` and returns a name for a file that starts with it.
fn document(cluster: &mut Cluster, text: &mut String, written: &mut Written) -> String {
    written.documents += 1;
    if cluster.rng().chance(1) {
        let n_items = cluster.rng().between(2, 4);
        let items: Vec<Value> = (0..n_items)
            .map(|_| cluster.next_object(&Mix::LIVE).value)
            .collect();
        written.objects += n_items;
        append(text, Style::Kubectl, &typed_list(&items), None);
        return "list".to_owned();
    }
    let object = cluster.next_object(&Mix::MANIFESTS);
    written.objects += 1;
    let kind = object.kind.name().to_lowercase();
    append(text, object.style, &object.value, Some(&kind));
    kind
}

fn typed_list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items, "metadata": {"resourceVersion": ""}})
}

fn append(text: &mut String, style: Style, value: &Value, template: Option<&str>) {
    if style == Style::Helm || !text.is_empty() {
        text.push_str("---\n");
    }
    if let (Style::Helm, Some(template)) = (style, template) {
        text.push_str("# Source: platform/templates/");
        text.push_str(template);
        text.push_str(".yaml\n");
    }
    to_yaml(text, value, style);
}

#[cfg(test)]
mod tests;
