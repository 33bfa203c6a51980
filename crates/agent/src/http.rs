//! Health and metrics over HTTP, for whoever is told the address.

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

/// A loop that has not said anything for so long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(30);

/// What the loop says of itself, for those who ask.
#[derive(Debug)]
pub struct Health {
    /// What is counted.
    pub metrics: Metrics,
    state: Mutex<HealthState>,
}

#[derive(Debug)]
struct HealthState {
    alive: Instant,
    /// Why the kernel does not hold what the objects say; nothing: it does.
    missing: Vec<String>,
}

impl Health {
    /// A board of a loop that has just started.
    pub fn new() -> Health {
        Health {
            metrics: Metrics::new(),
            state: Mutex::new(HealthState {
                alive: Instant::now(),
                missing: vec!["the objects have not been read yet".to_owned()],
            }),
        }
    }

    /// That the loop goes round, and what is missing until the kernel holds what the objects say.
    pub fn say(&self, missing: Vec<String>) {
        let mut said = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *said = HealthState {
            alive: Instant::now(),
            missing,
        };
    }

    /// That the loop is at work, within something that takes long.
    pub fn is_busy(&self) {
        let mut said = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        said.alive = Instant::now();
    }

    fn is_alive(&self) -> bool {
        let said = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        said.alive.elapsed() < HANGS_AFTER
    }

    fn missing(&self) -> Vec<String> {
        let said = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        said.missing.clone()
    }
}

impl Default for Health {
    fn default() -> Health {
        Health::new()
    }
}

/// Answers until the process ends.
pub async fn serve(listener: tokio::net::TcpListener, board: Arc<Health>) -> std::io::Result<()> {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(board);
    axum::serve(listener, router).await
}

/// Opens the address that is listened at.
pub async fn listen(address: SocketAddr) -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::bind(address).await
}

async fn healthz(State(board): State<Arc<Health>>) -> Response {
    if board.is_alive() {
        "ok\n".into_response()
    } else {
        let words = "the loop has not gone round for too long\n";
        (StatusCode::SERVICE_UNAVAILABLE, words).into_response()
    }
}

async fn readyz(State(board): State<Arc<Health>>) -> Response {
    let missing = board.missing();
    if missing.is_empty() && board.is_alive() {
        "ok\n".into_response()
    } else {
        let words = format!("{}\n", missing.join("\n"));
        (StatusCode::SERVICE_UNAVAILABLE, words).into_response()
    }
}

async fn metrics(State(board): State<Arc<Health>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    board.metrics.note_usage(&Usage::read());
    ([(header::CONTENT_TYPE, kind)], board.metrics.text()).into_response()
}
