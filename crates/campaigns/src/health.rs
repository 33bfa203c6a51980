//! Requests to an agent's HTTP server: its readiness, its health and its metrics.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// The listen address of the agents of campaigns, in the network namespace of their node.
pub const AGENT: &str = "127.0.0.1:9477";
/// The timeout of a connection to an agent of this machine.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(700);
/// The timeout of a response, as long as a kubelet's.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the complete response to a request for a path, from the network namespace of the calling
/// thread.
pub fn get(at: SocketAddr, path: &str, connection: Duration) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&at, connection)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n"
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

/// Whether a response has status 200.
pub fn is_ok(response: &Result<String>) -> bool {
    response
        .as_ref()
        .is_ok_and(|it| it.starts_with("HTTP/1.1 200"))
}

/// Returns the status and the body of `/readyz` of the agent in the network namespace of the
/// calling thread.
pub fn ready() -> Result<(u16, String)> {
    let at: SocketAddr = AGENT.parse()?;
    let text = get(at, "/readyz", CONNECT_TIMEOUT)?;
    let code = text.split(' ').nth(1).and_then(|it| it.parse().ok());
    let (_, body) = text
        .split_once("\r\n\r\n")
        .context("a response without a body")?;
    let code = code.context("a response without a status")?;
    Ok((code, body.trim().to_owned()))
}
