//! An API server that is unavailable at first, in one of several ways, and then responds.

use std::fmt;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use palisade_api::Kind;
use palisade_kube::Resource;
use palisade_lab::network::LabNetwork;
use serde_json::json;

use super::node::objects;

/// Its port, in the node's network namespace.
const PORT: u16 = 6_443;
/// The interval between two attempts to accept.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(2);
/// The timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// The way in which a server is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outage {
    /// No socket listens.
    Refuses,
    /// It accepts connections, and sends nothing.
    Silent,
    /// It responds with 503.
    Unavailable,
    /// It responds with 503 for NetworkPolicies only.
    Half,
}

/// All outages.
pub(super) const OUTAGES: [Outage; 4] = [
    Outage::Refuses,
    Outage::Silent,
    Outage::Unavailable,
    Outage::Half,
];

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Outage::Refuses => "refused connections",
            Outage::Silent => "was silent",
            Outage::Unavailable => "answered 503",
            Outage::Half => "answered 503 for NetworkPolicies",
        })
    }
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Response {
    /// None: the connection stays open.
    Nothing,
    /// The head of a watch without events.
    Watch,
    /// A status and a body.
    Text(&'static str, String),
}

/// A server, stopped on drop.
#[derive(Debug)]
pub(super) struct Server {
    is_recovered: Arc<AtomicBool>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts with an outage, in the network namespace of the node.
    pub(super) fn start(network: &LabNetwork, outage: Outage) -> Result<Server> {
        let listener = match outage {
            Outage::Refuses => None,
            Outage::Silent | Outage::Unavailable | Outage::Half => Some(listen(network)?),
        };
        let mut server = Server {
            is_recovered: Arc::default(),
            is_stopped: Arc::default(),
            thread: None,
        };
        let (is_recovered, is_stopped) = (
            Arc::clone(&server.is_recovered),
            Arc::clone(&server.is_stopped),
        );
        let network = network.clone();
        let thread = thread::spawn(move || {
            let mut server_loop = ServerLoop {
                listener,
                outage: Some(outage),
                open: Vec::new(),
            };
            while !is_stopped.load(Ordering::Acquire) {
                if server_loop.outage.is_some() && is_recovered.load(Ordering::Acquire) {
                    server_loop.recover(&network);
                }
                if !server_loop.accept() {
                    thread::sleep(ACCEPT_INTERVAL);
                }
            }
        });
        server.thread = Some(thread);
        Ok(server)
    }

    /// Ends the outage.
    pub(super) fn recover(&self) {
        self.is_recovered.store(true, Ordering::Release);
    }

    /// A kubeconfig for this server.
    pub(super) fn kubeconfig() -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{PORT}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Its result carries no information.
            let _ = thread.join();
        }
    }
}

fn listen(network: &LabNetwork) -> Result<TcpListener> {
    let listener = network.in_node(0, || TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)))?;
    let listener = listener.context("cannot listen")?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

struct ServerLoop {
    listener: Option<TcpListener>,
    outage: Option<Outage>,
    /// Connections without a response, and watches.
    open: Vec<TcpStream>,
}

impl ServerLoop {
    fn recover(&mut self, network: &LabNetwork) {
        // As after a restart, all connections are closed.
        self.open.clear();
        if self.listener.is_none() {
            self.listener = listen(network).ok();
        }
        if self.listener.is_some() {
            self.outage = None;
        }
    }

    /// Serves the next connection. Returns whether there was one.
    fn accept(&mut self) -> bool {
        let Some(Ok((stream, _))) = self.listener.as_ref().map(TcpListener::accept) else {
            return false;
        };
        // A client whose connection fails retries.
        let _ = self.serve(stream);
        true
    }

    fn serve(&mut self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        let target = request(&mut stream)?;
        match respond(self.outage, &target) {
            Response::Nothing => self.open.push(stream),
            Response::Watch => {
                stream.write_all(head("200 OK", None).as_bytes())?;
                self.open.push(stream);
            }
            Response::Text(status, body) => {
                let head = head(status, Some(body.len()));
                stream.write_all([head, body].concat().as_bytes())?;
            }
        }
        Ok(())
    }
}

fn head(status: &str, length: Option<usize>) -> String {
    let length = length.map_or(String::new(), |it| format!("Content-Length: {it}\r\n"));
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{length}Connection: close\r\n\r\n"
    )
}

/// Reads a request with its body. Returns its first line.
fn request(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut text = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        let length = stream.read(&mut buffer)?;
        text.extend(buffer.iter().take(length));
        let read = String::from_utf8_lossy(&text);
        if let Some((head, body)) = read.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let expected = lower
                .lines()
                .find_map(|it| it.strip_prefix("content-length:")?.trim().parse().ok());
            if body.len() >= expected.unwrap_or(0) {
                let first = head.lines().next().unwrap_or_default();
                return Ok(first.to_owned());
            }
        }
        if length == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
}

/// The response of a server to the first line of a request.
fn respond(outage: Option<Outage>, request: &str) -> Response {
    let mut words = request.split(' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let resources = Resource::of_agents(false);
    let resource = resources.iter().find(|it| it.path() == path);
    let unavailable = || {
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503,
            "reason": "ServiceUnavailable", "message": "not yet",
        });
        Response::Text("503 Service Unavailable", status.to_string())
    };
    match (outage, resource) {
        (Some(Outage::Refuses | Outage::Silent), _) => Response::Nothing,
        (Some(Outage::Unavailable), _) => unavailable(),
        (Some(Outage::Half), Some(it)) if it.kind == Kind::NetworkPolicy => unavailable(),
        _ if method == Some("POST") => Response::Text("201 Created", "{}".to_owned()),
        (_, Some(_)) if query.contains("watch=true") => Response::Watch,
        (_, Some(it)) => {
            let list = json!({
                "kind": format!("{}List", it.kind.name()),
                "apiVersion": it.group_version(),
                "metadata": {"resourceVersion": "10"},
                "items": objects(it.kind),
            });
            Response::Text("200 OK", list.to_string())
        }
        (_, None) => Response::Text("404 Not Found", "{}".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Outage, Response, respond};

    const POLICIES: &str = "GET /apis/networking.k8s.io/v1/networkpolicies?limit=500 HTTP/1.1";
    const PODS: &str = "GET /api/v1/pods?limit=500 HTTP/1.1";

    fn has(outage: Option<Outage>, request: &str, words: &str) -> bool {
        matches!(respond(outage, request), Response::Text(_, body) if body.contains(words))
    }

    #[test]
    fn a_server_is_away_in_its_own_way() {
        assert_eq!(respond(Some(Outage::Silent), PODS), Response::Nothing);
        assert!(has(Some(Outage::Unavailable), PODS, "ServiceUnavailable"));
        assert!(has(Some(Outage::Half), PODS, "PodList"));
        assert!(has(Some(Outage::Half), POLICIES, "ServiceUnavailable"));
    }

    #[test]
    fn a_server_that_is_back_lists_and_watches() {
        assert!(has(None, PODS, "isolated"));
        assert!(has(None, POLICIES, "NetworkPolicyList"));
        let watch = POLICIES.replace("limit=500", "watch=true&resourceVersion=10");
        assert_eq!(respond(None, &watch), Response::Watch);
    }
}
