//! Requests to an agent's HTTP server: its readiness, its health and its metrics.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// The address at which the agents of campaigns listen, in the network of their node.
pub const AGENT: &str = "127.0.0.1:9477";
/// How long a connection to an agent of this machine may take.
const CONNECTION: Duration = Duration::from_millis(700);
/// As long as a kubelet waits for an answer.
pub const ANSWER: Duration = Duration::from_secs(5);

/// The whole answer to a request for a path, from the network of the calling thread. A connection may take so long.
pub fn get(at: SocketAddr, path: &str, connection: Duration) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&at, connection)?;
    stream.set_read_timeout(Some(ANSWER))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Whether an answer is a yes.
pub fn is_ok(answer: &Result<String>) -> bool {
    answer
        .as_ref()
        .is_ok_and(|it| it.starts_with("HTTP/1.1 200"))
}

/// Returns the code and the text of `/readyz` of the agent in the network of the calling thread.
pub fn ready() -> Result<(u16, String)> {
    let at: SocketAddr = AGENT.parse()?;
    let text = get(at, "/readyz", CONNECTION)?;
    let code = text.split(' ').nth(1).and_then(|it| it.parse().ok());
    let (_, body) = text
        .split_once("\r\n\r\n")
        .context("an answer without a body")?;
    let code = code.context("an answer without a code")?;
    Ok((code, body.trim().to_owned()))
}
