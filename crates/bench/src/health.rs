//! What an agent answers where it listens: whether it is well, and what it counts.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Result;

/// As long as a kubelet waits for an answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// The whole answer to a request for a path, from the network of the calling thread. A connection may take so long.
pub(crate) fn get(at: SocketAddr, path: &str, connection: Duration) -> Result<String> {
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
pub(crate) fn is_ok(answer: &Result<String>) -> bool {
    answer
        .as_ref()
        .is_ok_and(|it| it.starts_with("HTTP/1.1 200"))
}
