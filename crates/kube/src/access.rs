//! Access to a server: its address and credentials, and single requests.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::io::AsyncBufRead;
use http::{HeaderName, HeaderValue, Request, header};
use kube::Client;
use kube::config::{Config, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::resource::Resource;
use crate::response::{StatusError, has_group, has_resource};

/// The choice of a cluster and a user, with the options of `kubectl`.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The kubeconfig file; `None`: the usual ones, or the cluster in which the process runs.
    pub kubeconfig: Option<PathBuf>,
    /// The context of that file.
    pub context: Option<String>,
    /// The cluster, if not the context's.
    pub cluster: Option<String>,
    /// The user, if not the context's.
    pub user: Option<String>,
    /// The user to impersonate.
    pub act_as: Option<String>,
    /// The groups to impersonate.
    pub act_as_groups: Vec<String>,
    /// The time limit of a response.
    pub timeout: Option<Duration>,
}

/// Why a server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig has no usable cluster.
    #[error("cannot find a cluster in the kubeconfig")]
    Kubeconfig(#[source] Box<KubeconfigError>),
    /// The kubeconfig has no such user.
    #[error("the kubeconfig has no user `{0}`")]
    User(String),
    /// There is no kubeconfig, and the process runs outside of a cluster.
    #[error("no kubeconfig found, and not running in a cluster")]
    Nowhere(#[source] Box<InClusterError>),
    /// The system refused what a client needs.
    #[error("cannot start the async runtime")]
    Runtime(#[source] std::io::Error),
    /// The settings for the cluster cannot be used.
    #[error("cannot set up a client for the cluster at {url}")]
    Client {
        /// The configured URL.
        url: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
}

/// The default time limit of a response.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time limit of a connection attempt.
const CONNECT: Duration = Duration::from_secs(10);

/// A client of one server.
#[derive(Clone)]
pub struct Server {
    client: Client,
    url: String,
    namespace: String,
    timeout: Duration,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("url", &self.url).finish()
    }
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// The server answered with an error.
    Refused(StatusError),
    /// There is no valid response, for this reason.
    Failed(String),
}

impl Access {
    /// Returns the namespace of the context. Sends nothing.
    pub fn namespace(&self) -> Result<String, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Runtime)?;
        Ok(runtime.block_on(self.config())?.default_namespace)
    }

    /// Creates a client. Sends nothing yet.
    pub async fn server(&self) -> Result<Server, Error> {
        let mut config = self.config().await?;
        config.connect_timeout = Some(CONNECT);
        // The callers have their own backoff, which knows what a response means.
        config.default_retry = false;
        let agent = concat!("palisade/", env!("CARGO_PKG_VERSION"));
        let agent = HeaderValue::from_static(agent);
        config
            .headers
            .push((HeaderName::from_static("user-agent"), agent));
        if self.act_as.is_some() {
            config.auth_info.impersonate.clone_from(&self.act_as);
        }
        if !self.act_as_groups.is_empty() {
            config.auth_info.impersonate_groups = Some(self.act_as_groups.clone());
        }
        let url = config.cluster_url.to_string();
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|source| Error::Client {
            url: url.clone(),
            source: Box::new(source),
        })?;
        Ok(Server {
            client,
            url,
            namespace,
            timeout: self.timeout.unwrap_or(PATIENCE),
        })
    }

    async fn config(&self) -> Result<Config, Error> {
        let broken = |error| Error::Kubeconfig(Box::new(error));
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        };
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path).map_err(broken)?,
            None => match Kubeconfig::read() {
                Ok(kubeconfig) => kubeconfig,
                // Without a kubeconfig, a pod uses its service account. An explicit context or
                // cluster must not be ignored, though.
                Err(KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath)
                    if self.context.is_none() && self.cluster.is_none() =>
                {
                    return Config::incluster().map_err(|error| Error::Nowhere(Box::new(error)));
                }
                Err(error) => return Err(broken(error)),
            },
        };
        // `kube` would send no credentials for a misspelt user.
        if let Some(user) = &self.user
            && !kubeconfig.auth_infos.iter().any(|it| it.name == *user)
        {
            return Err(Error::User(user.clone()));
        }
        let config = Config::from_custom_kubeconfig(kubeconfig, &options);
        config.await.map_err(broken)
    }
}

impl Server {
    /// Returns the URL of the server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the namespace of the context.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns whether the server has a kind: by the resources of its group and version, or, if the
    /// server does not have those, by the list of all groups.
    pub async fn has(&self, resource: Resource) -> Result<bool, RequestFailure> {
        let group_version = resource.group_version();
        match self.get(&resource.group_path()).await {
            Ok(text) => {
                let has = has_resource(&text, &group_version, resource.plural);
                return has.map_err(RequestFailure::Failed);
            }
            // A 404 alone proves nothing: proxies send it, too (D150).
            Err(RequestFailure::Refused(status)) if status.is_missing() => {}
            Err(error) => return Err(error),
        }
        let groups = self.get("/apis").await?;
        match has_group(&groups, &group_version) {
            Ok(false) => Ok(false),
            Ok(true) => Err(RequestFailure::Failed(format!(
                "the server lists {group_version} but does not serve it"
            ))),
            Err(cause) => Err(RequestFailure::Failed(cause)),
        }
    }

    /// Requests the text at a path.
    pub async fn get(&self, path: &str) -> Result<String, RequestFailure> {
        let request = request(path)?;
        let response = tokio::time::timeout(self.timeout, self.client.request_text(request));
        match response.await {
            Ok(response) => response.map_err(|it| unanswered(&it)),
            Err(_) => Err(self.late()),
        }
    }

    /// Creates an object at a path, in JSON. Returns the text of the response.
    pub(crate) async fn post(&self, path: &str, object: String) -> Result<String, RequestFailure> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(object.into_bytes())
            .map_err(|error| RequestFailure::Failed(error.to_string()))?;
        let response = tokio::time::timeout(self.timeout, self.client.request_text(request));
        match response.await {
            Ok(response) => response.map_err(|it| unanswered(&it)),
            Err(_) => Err(self.late()),
        }
    }

    /// Requests a path and returns the bytes of the response as they arrive. The time limit applies
    /// to the beginning of the response only.
    pub async fn stream(&self, path: &str) -> Result<impl AsyncBufRead + use<>, RequestFailure> {
        let request = request(path)?;
        let response = tokio::time::timeout(self.timeout, self.client.request_stream(request));
        match response.await {
            Ok(response) => response.map_err(|it| unanswered(&it)),
            Err(_) => Err(self.late()),
        }
    }

    /// Returns the time limit of a response.
    pub(crate) fn patience(&self) -> Duration {
        self.timeout
    }

    fn late(&self) -> RequestFailure {
        let seconds = self.timeout.as_secs_f64();
        RequestFailure::Failed(format!("no response from {} in {seconds} s", self.url))
    }
}

fn request(path: &str) -> Result<Request<Vec<u8>>, RequestFailure> {
    let request = Request::get(path).body(Vec::new());
    request.map_err(|error| RequestFailure::Failed(error.to_string()))
}

fn unanswered(error: &kube::Error) -> RequestFailure {
    if let kube::Error::Api(status) = error {
        let seconds = status.details.as_ref().map(|it| it.retry_after_seconds);
        return RequestFailure::Refused(StatusError {
            code: status.code,
            reason: status.reason.clone(),
            message: status.message.clone(),
            // Zero stands for an absent value.
            retry_after: seconds.filter(|it| *it > 0).map(u64::from),
        });
    }
    RequestFailure::Failed(innermost(error))
}

/// Returns the innermost cause, which is the useful one: `Connection refused`, not `ServiceError`.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(inner) = error.source() {
        error = inner;
    }
    error.to_string()
}
