//! How a server is reached, and as whom.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::io::AsyncBufRead;
use http::{HeaderName, HeaderValue, Request, header};
use kube::Client;
use kube::config::{Config, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use crate::resource::Resource;
use crate::response::{StatusError, has_group, has_resource};

/// What was said about the cluster to use, as to `kubectl`.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The file that says where clusters are; `None`: the usual ones, or the cluster that this runs in.
    pub kubeconfig: Option<PathBuf>,
    /// The context of that file.
    pub context: Option<String>,
    /// The cluster, if not the context's.
    pub cluster: Option<String>,
    /// The user, if not the context's.
    pub user: Option<String>,
    /// Who to act as.
    pub act_as: Option<String>,
    /// The groups to act as a member of.
    pub act_as_groups: Vec<String>,
    /// How long an answer may take.
    pub timeout: Option<Duration>,
}

/// Why there is no server to ask.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not say where a cluster is.
    #[error("the kubeconfig does not say which cluster to ask")]
    Kubeconfig(#[source] Box<KubeconfigError>),
    /// The file has no such user.
    #[error("the kubeconfig has no user `{0}`")]
    User(String),
    /// No file, and not in a cluster.
    #[error("there is no kubeconfig, and this does not run in a cluster")]
    Nowhere(#[source] Box<InClusterError>),
    /// This machine does not give what asking takes.
    #[error("no server can be asked from here")]
    Runtime(#[source] std::io::Error),
    /// What is said about the cluster cannot be used.
    #[error("the cluster at {url} cannot be asked")]
    Client {
        /// Where it is said to be.
        url: String,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
}

/// An answer may take so long, unless something else was said.
const PATIENCE: Duration = Duration::from_secs(60);
/// A connection may take so long.
const CONNECT: Duration = Duration::from_secs(10);

/// A server that can be asked.
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

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// The server refused.
    Refused(StatusError),
    /// Something broke on the way, in words.
    Failed(String),
}

impl Access {
    /// Finds the server. Nothing is sent yet.
    pub async fn server(&self) -> Result<Server, Error> {
        let mut config = self.config().await?;
        config.connect_timeout = Some(CONNECT);
        // Who asks knows when to ask again.
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
                // Without any file, whatever runs in a cluster asks that.
                Err(KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath)
                    if self.context.is_none() && self.cluster.is_none() =>
                {
                    return Config::incluster().map_err(|error| Error::Nowhere(Box::new(error)));
                }
                Err(error) => return Err(broken(error)),
            },
        };
        // Nobody means to be anonymous by a name that is spelt wrong.
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
    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The namespace of the context.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Whether the server has a kind, by what it says of the kind's group, or, where it has no such group, of all groups.
    pub async fn has(&self, resource: Resource) -> Result<bool, RequestFailure> {
        let group_version = resource.group_version();
        match self.get(&resource.group_path()).await {
            Ok(text) => {
                let has = has_resource(&text, &group_version, resource.plural);
                return has.map_err(RequestFailure::Failed);
            }
            Err(RequestFailure::Refused(refusal)) if refusal.is_missing() => {}
            Err(error) => return Err(error),
        }
        let groups = self.get("/apis").await?;
        match has_group(&groups, &group_version) {
            Ok(false) => Ok(false),
            Ok(true) => Err(RequestFailure::Failed(format!(
                "the server says that it has {group_version}, and has not"
            ))),
            Err(words) => Err(RequestFailure::Failed(words)),
        }
    }

    /// The text at a path.
    pub async fn get(&self, path: &str) -> Result<String, RequestFailure> {
        let request = request(path)?;
        let answer = tokio::time::timeout(self.timeout, self.client.request_text(request));
        match answer.await {
            Ok(answer) => answer.map_err(|it| unanswered(&it)),
            Err(_) => Err(self.late()),
        }
    }

    /// Puts something new at a path, in JSON; the text of the answer.
    pub(crate) async fn post(&self, path: &str, object: String) -> Result<String, RequestFailure> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(object.into_bytes())
            .map_err(|error| RequestFailure::Failed(error.to_string()))?;
        let answer = tokio::time::timeout(self.timeout, self.client.request_text(request));
        match answer.await {
            Ok(answer) => answer.map_err(|it| unanswered(&it)),
            Err(_) => Err(self.late()),
        }
    }

    /// What comes from a path for as long as it comes.
    pub async fn stream(&self, path: &str) -> Result<impl AsyncBufRead + use<>, RequestFailure> {
        let request = request(path)?;
        let answer = tokio::time::timeout(self.timeout, self.client.request_stream(request));
        match answer.await {
            Ok(answer) => answer.map_err(|it| unanswered(&it)),
            Err(_) => Err(self.late()),
        }
    }

    /// How long an answer may take.
    pub(crate) fn patience(&self) -> Duration {
        self.timeout
    }

    fn late(&self) -> RequestFailure {
        let seconds = self.timeout.as_secs_f64();
        RequestFailure::Failed(format!("no answer from {} in {seconds} s", self.url))
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
            retry_after: seconds.filter(|it| *it > 0).map(u64::from),
        });
    }
    RequestFailure::Failed(innermost(error))
}

/// The innermost reason, which is what a person needs: `Connection refused`, not `ServiceError`.
pub(crate) fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(inner) = error.source() {
        error = inner;
    }
    error.to_string()
}
