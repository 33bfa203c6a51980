//! F03 with real sockets: a cut TCP connection stalls, and continues when it is allowed again.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use palisade_core::net::Family;

use super::objects::{Objects, Pod, admits, isolates, pod_address};
use super::outcome::Outcome;
use super::programmer::{Programmer, Swap};
use super::test_node::{CLIENT, SERVER, TestNode};

const PORT: u16 = 8080;
/// Data that does not arrive within this time is dropped.
const SILENCE: Duration = Duration::from_millis(60);
/// TCP retransmits within a second or two.
const PATIENCE: Duration = Duration::from_secs(20);

fn objects(is_open: bool) -> Objects {
    let mut objects = Objects::new();
    objects.put_pod(&Pod::at("client", "client", CLIENT));
    objects.put_pod(&Pod::at("server", "server", SERVER));
    objects.put_policy("server", &isolates("server"));
    if is_open {
        objects.put_policy("open", &admits("server", "client", &[PORT]));
    }
    objects
}

/// Cuts real connections.
pub fn streams(name: &str, cuts: u64) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    let node = TestNode::build()?;
    let mut swap = Swap::open(&node)?;
    swap.apply(&objects(true))?;
    let mut pairs = Vec::new();
    for family in Family::BOTH {
        let at = SocketAddr::new(pod_address(SERVER, family), PORT);
        let listener = node.world.in_pod(SERVER, || TcpListener::bind(at))??;
        let client = node.world.in_pod(CLIENT, || TcpStream::connect(at))??;
        let (server, _) = listener.accept()?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        pairs.push([client, server]);
    }
    for number in 0..cuts {
        let word = number.to_be_bytes();
        for pair in &mut pairs {
            let [client, server] = pair;
            client.write_all(&word)?;
            expect(server, &word, PATIENCE).context("before the cut")?;
            server.write_all(&word)?;
            expect(client, &word, PATIENCE).context("before the cut")?;
        }
        swap.apply(&objects(false))?;
        for pair in &mut pairs {
            for (from, to) in [(0, 1), (1, 0)] {
                if let Some(from) = pair.get_mut(from) {
                    from.write_all(&word)?;
                }
                if let Some(to) = pair.get_mut(to) {
                    let heard = expect(to, &word, SILENCE).is_ok();
                    outcome.count("leaked", heard.into());
                    outcome.check(!heard, || "a connection continued after a cut".to_owned());
                }
            }
        }
        let allowed = Instant::now();
        swap.apply(&objects(true))?;
        for to in pairs.iter_mut().flatten() {
            let heard = expect(to, &word, PATIENCE).is_ok();
            outcome.count("lost", (!heard).into());
            outcome.check(heard, || "a connection did not continue".to_owned());
            let record_time = u64::try_from(allowed.elapsed().as_nanos()).unwrap_or(u64::MAX);
            outcome.record_time("continuation", record_time);
        }
        outcome.count("cuts", 1);
    }
    Ok(outcome)
}

/// Reads the expected bytes.
fn expect(stream: &mut TcpStream, word: &[u8; 8], patience: Duration) -> Result<()> {
    stream.set_read_timeout(Some(patience))?;
    let mut heard = [0; 8];
    let mut length = 0;
    while let Some(rest) = heard.get_mut(length..).filter(|it| !it.is_empty()) {
        match stream.read(rest) {
            Ok(0) => anyhow::bail!("the connection ended"),
            Ok(more) => length += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    anyhow::ensure!(heard == *word, "other bytes arrived");
    Ok(())
}
