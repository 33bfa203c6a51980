//! Serves health and metrics as soon as the address is free.
//!
//! An address that another process has is no reason to enforce nothing: the agent retries until it
//! is free.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tracing::{error, info};

use crate::http::{Health, listen, serve};
use crate::throttle::Backoff;

/// Serves requests until the process ends.
pub(super) async fn answer(address: SocketAddr, health: Arc<Health>) {
    let mut backoff = Backoff::default();
    let mut reported = String::new();
    loop {
        let reason = match listen(address).await {
            Ok(listener) => {
                let bound = listener.local_addr().unwrap_or(address);
                info!(address = %bound, "serving health and metrics");
                backoff.succeed();
                reported.clear();
                match serve(listener, Arc::clone(&health)).await {
                    Ok(()) => return,
                    Err(error) => format!("cannot serve health and metrics: {error}"),
                }
            }
            Err(error) => format!("cannot serve health and metrics at {address}: {error}"),
        };
        health.metrics.count_listen_failure();
        // A taken port may stay taken for days: only a new reason is logged.
        if reported != reason {
            error!("{reason}; policies stay enforced; retrying");
            reported = reason;
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
    fn a_taken_address_is_retried_until_it_is_free() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let health = Arc::new(Health::new());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let serving = answer(address, Arc::clone(&health));
        std::thread::spawn(move || runtime.block_on(serving));
        let failed = || {
            let text = health.metrics.text();
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
