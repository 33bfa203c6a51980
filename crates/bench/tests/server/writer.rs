//! Writes random objects to a real API server, which takes some and refuses others.

use std::collections::BTreeSet;
use std::path::Path;

use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use palisade_api::Kind;
use palisade_kube::Resource;
use serde_json::{Value, json};

/// A client that writes.
pub(crate) struct Writer {
    client: Client,
    namespaces: BTreeSet<String>,
    /// What the server took, and what it refused.
    pub(crate) taken: usize,
    pub(crate) refused: usize,
}

impl Writer {
    pub(crate) async fn new(kubeconfig: &Path) -> Writer {
        let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        Writer {
            client: Client::try_from(config.unwrap()).unwrap(),
            namespaces: BTreeSet::new(),
            taken: 0,
            refused: 0,
        }
    }

    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, String> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(serde_json::to_vec(body).unwrap())
            .unwrap();
        match self.client.request_text(request).await {
            Ok(text) => Ok(serde_json::from_str(&text).unwrap_or(Value::Null)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Creates or replaces an object, with its status.
    pub(crate) async fn set(&mut self, object: &Value) {
        let Some((collection, own, kind)) = place(object) else {
            return;
        };
        let namespace = object["metadata"]["namespace"].as_str();
        if let Some(namespace) = namespace.map(str::to_owned)
            && self.namespaces.insert(namespace.clone())
        {
            let object =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            let _ = self.ask("POST", "/api/v1/namespaces", &object).await;
        }
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = Value::Null;
        object["metadata"]["creationTimestamp"] = Value::Null;
        if kind == Kind::Pod {
            complete(&mut object);
            // Little of a pod may be changed, and not where it runs.
            let _ = self
                .ask("DELETE", &own, &json!({"gracePeriodSeconds": 0}))
                .await;
        }
        let created = self.ask("POST", &collection, &object).await;
        let stored = match created {
            Ok(stored) => Ok(stored),
            Err(_) => match self.ask("GET", &own, &Value::Null).await {
                Ok(before) => {
                    object["metadata"]["resourceVersion"] =
                        before["metadata"]["resourceVersion"].clone();
                    self.ask("PUT", &own, &object).await
                }
                Err(error) => Err(error),
            },
        };
        match stored {
            Ok(mut stored) => {
                self.taken += 1;
                if matches!(kind, Kind::Pod | Kind::Node) && object["status"].is_object() {
                    stored["status"] = object["status"].clone();
                    let status = format!("{own}/status");
                    match self.ask("PUT", &status, &stored).await {
                        Ok(_) => self.taken += 1,
                        Err(_) => self.refused += 1,
                    }
                }
            }
            Err(_) => self.refused += 1,
        }
    }

    /// Deletes an object, but for namespaces, which need a controller to go.
    pub(crate) async fn delete(&mut self, object: &Value) {
        if let Some((_, own, kind)) = place(object)
            && kind != Kind::Namespace
        {
            let _ = self
                .ask("DELETE", &own, &json!({"gracePeriodSeconds": 0}))
                .await;
        }
    }

    /// All objects that the server has of some kinds.
    pub(crate) async fn all(&self, resources: &[Resource]) -> Vec<Value> {
        let mut all = Vec::new();
        for resource in resources {
            if let Ok(list) = self.ask("GET", &resource.path(), &Value::Null).await {
                all.push(list);
            }
        }
        all
    }
}

/// The paths of an object's collection and of itself.
fn place(object: &Value) -> Option<(String, String, Kind)> {
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
    let own = format!("{collection}/{name}");
    Some((collection, own, resource.kind))
}

/// What a server wants of a pod and policies do not care about.
fn complete(pod: &mut Value) {
    let containers = pod["spec"]["containers"].as_array().cloned();
    let mut containers = containers.unwrap_or_default();
    if containers.is_empty() {
        containers.push(json!({}));
    }
    for (place, container) in containers.iter_mut().enumerate() {
        container["name"] = json!(format!("c{place}"));
        container["image"] = json!("none");
    }
    pod["spec"]["containers"] = json!(containers);
}
