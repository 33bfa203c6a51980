//! Health and metrics over HTTP.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::metrics::Metrics;
use crate::process::Usage;

/// The main loop counts as stalled after this time without a sign of life.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// The state of the main loop, as HTTP clients see it.
#[derive(Debug)]
pub struct Health {
    /// The counters and gauges.
    pub metrics: Metrics,
    state: Mutex<HealthState>,
}

#[derive(Debug)]
struct HealthState {
    alive: Instant,
    /// Why the agent is not ready; empty: it is ready.
    missing: Vec<String>,
}

impl Health {
    /// Creates the state of a loop that has just started.
    pub fn new() -> Health {
        Health {
            metrics: Metrics::new(),
            state: Mutex::new(HealthState {
                alive: Instant::now(),
                missing: vec!["the objects are not synced yet".to_owned()],
            }),
        }
    }

    /// Records that the loop runs, and why the agent is not ready.
    pub fn set_missing(&self, missing: Vec<String>) {
        // A poisoned lock is as good: each writer replaces whole values, and health must answer on.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = HealthState {
            alive: Instant::now(),
            missing,
        };
    }

    /// Records that the loop runs, in the middle of a long step.
    pub fn is_busy(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.alive = Instant::now();
    }

    fn is_alive(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.alive.elapsed() < HANGS_AFTER
    }

    fn missing(&self) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.missing.clone()
    }
}

impl Default for Health {
    fn default() -> Health {
        Health::new()
    }
}

/// Serves requests until the process ends.
pub async fn serve(listener: tokio::net::TcpListener, health: Arc<Health>) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(health);
    axum::serve(listener, router).await
}

/// Binds the address.
pub async fn listen(address: SocketAddr) -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::bind(address).await
}

/// The reason for a loop that has not run for too long.
const STALLED: &str = "the main loop is stalled";

async fn healthz(State(health): State<Arc<Health>>) -> Response {
    if health.is_alive() {
        "ok\n".into_response()
    } else {
        unavailable(&[STALLED.to_owned()])
    }
}

async fn readyz(State(health): State<Arc<Health>>) -> Response {
    let missing = not_ready(&health);
    if missing.is_empty() {
        "ok\n".into_response()
    } else {
        unavailable(&missing)
    }
}

/// Returns why the agent is not ready; nothing if it is.
fn not_ready(health: &Health) -> Vec<String> {
    let mut missing = health.missing();
    // A stalled loop no longer updates the reasons, and would look ready for ever.
    if !health.is_alive() {
        missing.push(STALLED.to_owned());
    }
    missing
}

/// Answers that the agent is not well, with a reason on each line.
fn unavailable(reasons: &[String]) -> Response {
    let reasons = format!("{}\n", reasons.join("\n"));
    (StatusCode::SERVICE_UNAVAILABLE, reasons).into_response()
}

async fn metrics(State(health): State<Arc<Health>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    // Read here and not in the loop: only a scrape needs it.
    health.metrics.note_usage(&Usage::read());
    ([(header::CONTENT_TYPE, kind)], health.metrics.text()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stalled_loop_is_not_ready_and_is_named_as_the_reason() {
        let health = Health::new();
        health.set_missing(Vec::new());
        assert_eq!(not_ready(&health), Vec::<String>::new());
        health.state.lock().unwrap().alive = Instant::now().checked_sub(HANGS_AFTER).unwrap();
        assert_eq!(not_ready(&health), [STALLED]);
    }
}
