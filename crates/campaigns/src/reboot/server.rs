//! An API server that is away at first, each in its own way, and then answers.

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

/// Where it is, in the node's network.
const PORT: u16 = 6_443;
/// How long it waits between two looks.
const REST: Duration = Duration::from_millis(2);
/// How long a request may take to arrive.
const PATIENCE: Duration = Duration::from_millis(500);

/// How a server is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outage {
    /// Nothing listens.
    Refuses,
    /// It takes connections, and says nothing.
    Silent,
    /// It answers 503.
    Unavailable,
    /// It has everything but the NetworkPolicies, for which it answers 503.
    Half,
}

/// All ways.
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

/// What follows from a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reply {
    /// Nothing is said, and the connection stays open.
    Nothing,
    /// The head of a watch, in which nothing ever happens.
    Watch,
    /// An answer.
    Text(&'static str, String),
}

/// A server; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    is_back: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to be away, in the network of the world's node.
    pub(super) fn start(world: &LabNetwork, away: Outage) -> Result<Server> {
        let listener = match away {
            Outage::Refuses => None,
            Outage::Silent | Outage::Unavailable | Outage::Half => Some(listen(world)?),
        };
        let mut server = Server {
            is_back: Arc::default(),
            is_over: Arc::default(),
            thread: None,
        };
        let (is_back, is_over) = (Arc::clone(&server.is_back), Arc::clone(&server.is_over));
        let world = world.clone();
        let thread = thread::spawn(move || {
            let mut serving = Serving {
                listener,
                away: Some(away),
                open: Vec::new(),
            };
            while !is_over.load(Ordering::Acquire) {
                if serving.away.is_some() && is_back.load(Ordering::Acquire) {
                    serving.come_back(&world);
                }
                if !serving.accept() {
                    thread::sleep(REST);
                }
            }
        });
        server.thread = Some(thread);
        Ok(server)
    }

    /// Answers from now on.
    pub(super) fn come_back(&self) {
        self.is_back.store(true, Ordering::Release);
    }

    /// The text of a kubeconfig that leads here.
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
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say about how it ended.
            let _ = thread.join();
        }
    }
}

fn listen(world: &LabNetwork) -> Result<TcpListener> {
    let listener = world.in_node(0, || TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)))?;
    let listener = listener.context("the server cannot listen")?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

struct Serving {
    listener: Option<TcpListener>,
    away: Option<Outage>,
    /// Connections that wait, and watches.
    open: Vec<TcpStream>,
}

impl Serving {
    fn come_back(&mut self, world: &LabNetwork) {
        // As after a restart: what was open is not any more.
        self.open.clear();
        if self.listener.is_none() {
            self.listener = listen(world).ok();
        }
        if self.listener.is_some() {
            self.away = None;
        }
    }

    /// Answers the next that asks; whether there was one.
    fn accept(&mut self) -> bool {
        let Some(Ok((stream, _))) = self.listener.as_ref().map(TcpListener::accept) else {
            return false;
        };
        // Who goes away while it is answered asks again.
        let _ = self.serve(stream);
        true
    }

    fn serve(&mut self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let target = request(&mut stream)?;
        match reply(self.away, &target) {
            Reply::Nothing => self.open.push(stream),
            Reply::Watch => {
                stream.write_all(head("200 OK", None).as_bytes())?;
                self.open.push(stream);
            }
            Reply::Text(status, body) => {
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

/// Reads a request with its body; the method and the target.
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

/// What a server that is away, or not any more, says to the first line of a request.
fn reply(away: Option<Outage>, request: &str) -> Reply {
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
        Reply::Text("503 Service Unavailable", status.to_string())
    };
    match (away, resource) {
        (Some(Outage::Refuses | Outage::Silent), _) => Reply::Nothing,
        (Some(Outage::Unavailable), _) => unavailable(),
        (Some(Outage::Half), Some(it)) if it.kind == Kind::NetworkPolicy => unavailable(),
        _ if method == Some("POST") => Reply::Text("201 Created", "{}".to_owned()),
        (_, Some(_)) if query.contains("watch=true") => Reply::Watch,
        (_, Some(it)) => {
            let list = json!({
                "kind": format!("{}List", it.kind.name()),
                "apiVersion": it.group_version(),
                "metadata": {"resourceVersion": "10"},
                "items": objects(it.kind),
            });
            Reply::Text("200 OK", list.to_string())
        }
        (_, None) => Reply::Text("404 Not Found", "{}".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Outage, Reply, reply};

    const POLICIES: &str = "GET /apis/networking.k8s.io/v1/networkpolicies?limit=500 HTTP/1.1";
    const PODS: &str = "GET /api/v1/pods?limit=500 HTTP/1.1";

    fn has(away: Option<Outage>, request: &str, words: &str) -> bool {
        matches!(reply(away, request), Reply::Text(_, body) if body.contains(words))
    }

    #[test]
    fn a_server_is_away_in_its_own_way() {
        assert_eq!(reply(Some(Outage::Silent), PODS), Reply::Nothing);
        assert!(has(Some(Outage::Unavailable), PODS, "ServiceUnavailable"));
        assert!(has(Some(Outage::Half), PODS, "PodList"));
        assert!(has(Some(Outage::Half), POLICIES, "ServiceUnavailable"));
    }

    #[test]
    fn a_server_that_is_back_lists_and_watches() {
        assert!(has(None, PODS, "stranger"));
        assert!(has(None, POLICIES, "NetworkPolicyList"));
        let watch = POLICIES.replace("limit=500", "watch=true&resourceVersion=10");
        assert_eq!(reply(None, &watch), Reply::Watch);
    }
}
