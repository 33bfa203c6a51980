//! Answers those who ask for health and metrics, as soon as the address can be had.
//!
//! An address that somebody else has is no reason to enforce nothing: it is asked for again until it is free.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tracing::{error, info};

use crate::http::{Health, listen, serve};
use crate::throttle::Backoff;

/// Answers until the process ends.
pub(super) async fn answer(address: SocketAddr, board: Arc<Health>) {
    let mut backoff = Backoff::default();
    let mut told = String::new();
    loop {
        let words = match listen(address).await {
            Ok(listener) => {
                let bound = listener.local_addr().unwrap_or(address);
                info!(address = %bound, "health and metrics can be asked for");
                backoff.succeed();
                told.clear();
                match serve(listener, Arc::clone(&board)).await {
                    Ok(()) => return,
                    Err(error) => format!("health and metrics cannot be asked for: {error}"),
                }
            }
            Err(error) => {
                format!("health and metrics cannot be asked for at {address}: {error}")
            }
        };
        board.metrics.count_listen_failure();
        if told != words {
            error!("{words}; policies are enforced all the same, and it is tried again");
            told = words;
        }
        tokio::time::sleep(backoff.fail(Duration::ZERO)).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;

    fn get(address: SocketAddr) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    #[test]
    fn an_address_that_is_taken_is_asked_for_until_it_is_free() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let board = Arc::new(Health::new());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let answering = answer(address, Arc::clone(&board));
        std::thread::spawn(move || runtime.block_on(answering));
        let failed = || {
            let text = board.metrics.text();
            let line = |it: &&str| it.starts_with("palisade_listen_failures_total");
            let line = text.lines().find(line).unwrap().to_owned();
            line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()
        };
        let started = Instant::now();
        let wait_for = |is: &dyn Fn() -> bool| {
            while !is() {
                assert!(started.elapsed() < Duration::from_secs(20));
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        wait_for(&|| failed() >= 3);
        drop(taken);
        wait_for(&|| get(address).is_ok_and(|it| it.contains("palisade_listen_failures_total")));
    }
}
