//! Writes objects to a real API server, which takes some and refuses others.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use palisade_api::Kind;
use palisade_kube::Resource;
use serde_json::{Value, json};

/// A client that writes.
#[derive(Clone)]
pub struct Writer {
    client: Client,
}

/// Where a server keeps an object.
#[derive(Debug)]
pub struct Place {
    /// The path of all objects beside it.
    pub collection: String,
    /// Its own path.
    pub own: String,
    /// Its kind.
    pub kind: Kind,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// With the user of a kubeconfig.
    pub async fn new(kubeconfig: &Path) -> Result<Writer> {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
        let client = Client::try_from(config)?;
        Ok(Writer { client })
    }

    /// What the server answers to a request.
    pub async fn request(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        self.send(method, path, serde_json::to_vec(body)?).await
    }

    /// What the server answers to a request of any bytes.
    pub async fn send(&self, method: &str, path: &str, body: Vec<u8>) -> Result<Value> {
        let content = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content)
            .body(body)?;
        let text = self.client.request_text(request).await;
        let text = text.with_context(|| format!("{method} {path}"))?;
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// Creates an object, with its status.
    pub async fn create(&self, object: &Value) -> Result<()> {
        let Some(place) = place(object) else {
            bail!("servers have no such objects: {}", object["kind"]);
        };
        let new = presentable(object, place.kind);
        match self.request("POST", &place.collection, &new).await {
            Ok(_) => {}
            // Servers make some themselves.
            Err(error)
                if place.kind == Kind::Namespace
                    && format!("{error:#}").contains("AlreadyExists") =>
            {
                self.request("PATCH", &place.own, &new).await?;
            }
            Err(error) => return Err(error),
        }
        self.set_status(&place, object).await.map(|_| ())
    }

    /// Writes the status of pods and nodes, if there is any. Returns whether there was.
    pub async fn set_status(&self, place: &Place, object: &Value) -> Result<bool> {
        if !matches!(place.kind, Kind::Pod | Kind::Node) || !object["status"].is_object() {
            return Ok(false);
        }
        let path = format!("{}/status", place.own);
        let status = json!({"status": object["status"]});
        self.request("PATCH", &path, &status).await.map(|_| true)
    }

    /// Deletes the object at a path immediately.
    pub async fn delete(&self, path: &str) -> Result<()> {
        let now = json!({"gracePeriodSeconds": 0});
        self.request("DELETE", path, &now).await.map(|_| ())
    }
}

/// Where a server keeps an object; `None`: nowhere.
pub fn place(object: &Value) -> Option<Place> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let resource = Kind::ALL.into_iter().filter_map(Resource::of).find(|it| {
        let own = match it.group {
            "" => it.version.to_owned(),
            group => format!("{group}/{}", it.version),
        };
        it.kind.name() == kind && own == version
    })?;
    let namespace = text(&object["metadata"]["namespace"]);
    let name = text(&object["metadata"]["name"]);
    let collection = match namespace.as_str() {
        "" => resource.path(),
        namespace => format!(
            "{}/namespaces/{namespace}/{}",
            resource.group_path(),
            resource.plural
        ),
    };
    Some(Place {
        own: format!("{collection}/{name}"),
        collection,
        kind: resource.kind,
    })
}

/// An object without server-side fields, and with required fields that no policy reads.
pub fn presentable(object: &Value, kind: Kind) -> Value {
    let mut object = object.clone();
    for key in ["resourceVersion", "creationTimestamp", "uid"] {
        object["metadata"][key] = Value::Null;
    }
    if kind == Kind::Pod {
        let containers = object["spec"]["containers"].as_array().cloned();
        let mut containers = containers.unwrap_or_default();
        if containers.is_empty() {
            containers.push(json!({}));
        }
        for (place, container) in containers.iter_mut().enumerate() {
            if !container["name"].is_string() {
                container["name"] = json!(format!("c{place}"));
            }
            if !container["image"].is_string() {
                container["image"] = json!("none");
            }
        }
        object["spec"]["containers"] = json!(containers);
    }
    object
}
