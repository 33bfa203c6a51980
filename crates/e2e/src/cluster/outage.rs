//! An outage of the API server while packets flow: no packet may be lost or leak, and later changes
//! must take effect.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::json;

use super::E2eCluster;
use super::campaign::{closed, of, one_way};
use super::packets::{differences, measured};
use super::pods::Pod;
use super::traffic::{Stream, during};
use super::until;

/// What became of packets and changes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outage {
    /// The length of the outage.
    pub lasted: Duration,
    /// Packets that are allowed all along, and that are denied.
    pub allowed: Stream,
    /// The denied ones.
    pub denied: Stream,
    /// The time from the server's first response until packets follow a later change, including a
    /// round of packets.
    pub caught_up: Duration,
}

impl Outage {
    /// Whether everything was as it must be.
    pub fn is_right(&self) -> bool {
        let has_flowed = self.allowed.sent > 100 && self.denied.sent > 100;
        has_flowed && self.allowed.sent == self.allowed.arrived && self.denied.arrived == 0
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0?} without an API server: {} of {} allowed packets lost, {} of {} denied packets leaked; a change made after it was in force {:.1?} after the server's first answer",
            self.lasted,
            self.allowed.sent.saturating_sub(self.allowed.arrived),
            self.allowed.sent,
            self.denied.arrived,
            self.denied.sent,
            self.caught_up
        )
    }
}

/// Stops the API server for so long, and starts it again.
pub fn outage(whole: &mut E2eCluster, pods: &[Pod], length: Duration) -> Result<Outage> {
    let mut policy = one_way("x");
    whole.apply(&policy)?;
    closed(pods)?;
    let [web, db, client] = ["web", "db", "client"].map(|app| of(pods, "x", app));
    let (web, db, client) = (web?, db?, client?);
    let api = whole.cluster.api_mut();
    let ((began, answers), streams) = during(&[(db, web), (client, web)], || {
        let began = Instant::now();
        api.stop_server();
        thread::sleep(length);
        api.start_server()?;
        Ok((began, Instant::now()))
    })?;
    // Exchanges the verdicts of two flows.
    policy["spec"]["ingress"] =
        json!([{"from": [{"podSelector": {"matchLabels": {"app": "client"}}}]}]);
    until("the change is written", || {
        whole.apply(&policy).map(|()| true)
    })?;
    until("the change is caught up with", || {
        let explained = whole.explained(pods)?;
        Ok(differences(&explained, &measured(pods)?).is_empty())
    })?;
    let caught_up = answers.elapsed();
    whole.delete(&policy)?;
    let [allowed, denied] = [0, 1].map(|it| streams.get(it).copied().unwrap_or_default());
    Ok(Outage {
        lasted: answers.duration_since(began),
        allowed,
        denied,
        caught_up,
    })
}
