//! Random objects on a real API server, with counts of accepted and refused ones.

use std::collections::BTreeSet;
use std::path::Path;

use palisade_api::Kind;
use palisade_e2e::writer::{Writer as Client, place, presentable};
use palisade_kube::Resource;
use serde_json::{Value, json};

/// A client that writes.
pub(crate) struct Writer {
    client: Client,
    namespaces: BTreeSet<String>,
    /// The accepted and the refused objects.
    pub(crate) taken: usize,
    pub(crate) refused: usize,
}

impl Writer {
    pub(crate) async fn new(kubeconfig: &Path) -> Writer {
        Writer {
            client: Client::new(kubeconfig).await.unwrap(),
            namespaces: BTreeSet::new(),
            taken: 0,
            refused: 0,
        }
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, String> {
        let answer = self.client.request(method, path, body).await;
        answer.map_err(|error| format!("{error:#}"))
    }

    /// Creates or replaces an object, with its status.
    pub(crate) async fn set(&mut self, object: &Value) {
        let Some(place) = place(object) else {
            return;
        };
        let namespace = object["metadata"]["namespace"].as_str();
        if let Some(namespace) = namespace.map(str::to_owned)
            && self.namespaces.insert(namespace.clone())
        {
            let object =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            let _ = self.request("POST", "/api/v1/namespaces", &object).await;
        }
        let mut new = presentable(object, place.kind);
        if place.kind == Kind::Pod {
            // Little of a pod may be changed, and not where it runs.
            let _ = self.client.delete(&place.own).await;
        }
        let stored = match self.request("POST", &place.collection, &new).await {
            Ok(stored) => Ok(stored),
            Err(_) => match self.request("GET", &place.own, &Value::Null).await {
                Ok(before) => {
                    new["metadata"]["resourceVersion"] =
                        before["metadata"]["resourceVersion"].clone();
                    self.request("PUT", &place.own, &new).await
                }
                Err(error) => Err(error),
            },
        };
        match stored {
            Ok(_) => {
                self.taken += 1;
                match self.client.set_status(&place, object).await {
                    Ok(true) => self.taken += 1,
                    Ok(false) => {}
                    Err(_) => self.refused += 1,
                }
            }
            Err(_) => self.refused += 1,
        }
    }

    /// Deletes an object, but for namespaces, which need a controller to go.
    pub(crate) async fn delete(&mut self, object: &Value) {
        if let Some(place) = place(object)
            && place.kind != Kind::Namespace
        {
            let _ = self.client.delete(&place.own).await;
        }
    }

    /// All objects that the server has of some kinds.
    pub(crate) async fn all(&self, resources: &[Resource]) -> Vec<Value> {
        let mut all = Vec::new();
        for resource in resources {
            if let Ok(list) = self.request("GET", &resource.path(), &Value::Null).await {
                all.push(list);
            }
        }
        all
    }
}
