//! F04: packets that are between two questions when the kernel flips. Rules change as a whole for each
//! packet, but contents of sets are read as they are at each question: a change of several memberships may look
//! to one packet like something that never was. Here all packets come from many ports, so that
//! nearly every one of them is judged, and what should become of them is the same before and after.

use std::net::SocketAddr;

use anyhow::Result;
use palisade_core::net::Family;
use palisade_lab::topology::Location;
use serde_json::{Value, json};

use super::ledger::{Expected, Settled, Timeline};
use super::objects::{Objects, Pod, admits, isolates, pod_address};
use super::outcome::Outcome;
use super::programming::Programming;
use super::test_node::{CLIENT, SERVER, STRANGER, TestNode};
use super::traffic::{Flow, SHORTEST, Traffic};

/// The port of the server.
const PORT: u16 = 5001;
/// So many ports of the stranger.
const PORTS: usize = 400;
/// So many changes are made before packets are counted up.
const PART: u64 = 200;

/// A change that makes no difference to the stranger's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nobody judges them, or somebody does who allows them.
    Judged,
    /// They are not allowed, or allowed by one policy and denied by a stronger one.
    DeniedAnyway,
    /// They are allowed by the second of two policies, or by the first.
    AllowedByAnother,
    /// They are denied by a policy for whoever is not admitted, or because nobody is known there.
    Gone,
}

/// All of them.
pub const CHANGES: [Change; 4] = [
    Change::Judged,
    Change::DeniedAnyway,
    Change::AllowedByAnother,
    Change::Gone,
];

impl Change {
    fn expected(self) -> Expected {
        match self {
            Change::Judged | Change::AllowedByAnother => Expected::Allowed,
            Change::DeniedAnyway | Change::Gone => Expected::Denied,
        }
    }

    /// The objects before and after.
    fn objects(self, is_after: bool) -> Objects {
        let mut objects = Objects::new();
        objects.put_pod(&Pod::at("client", "client", CLIENT));
        objects.put_pod(&Pod::at("server", "server", SERVER));
        let mut app = "stranger";
        match self {
            Change::Judged if is_after => {
                for (name, direction) in [("in", "Ingress"), ("out", "Egress")] {
                    let pod = if direction == "Ingress" {
                        "server"
                    } else {
                        app
                    };
                    let rules = direction.to_lowercase();
                    objects.put_policy(
                        name,
                        &json!({
                            "podSelector": {"matchLabels": {"app": pod}},
                            "policyTypes": [direction],
                            rules: [{}],
                        }),
                    );
                }
            }
            Change::Judged => {}
            Change::DeniedAnyway => {
                objects.put_policy("server", &admits("server", "client", &[PORT]));
                objects.put_policy("both", &admits("server", "quarantined", &[PORT]));
                objects.put("ClusterNetworkPolicy", "quarantine", quarantine());
                if is_after {
                    app = "quarantined";
                }
            }
            Change::AllowedByAnother => {
                // Rules of a pod stand in the order of their policies' names.
                objects.put_policy("a-client", &admits("server", "client", &[PORT]));
                objects.put_policy("b-first", &admits("server", "first", &[PORT]));
                objects.put_policy("c-second", &admits("server", "second", &[PORT]));
                app = if is_after { "first" } else { "second" };
            }
            Change::Gone => {
                objects.put_policy("stranger", &isolates("stranger"));
                objects.put_policy("server", &admits("server", "client", &[PORT]));
            }
        }
        if !(self == Change::Gone && is_after) {
            objects.put_pod(&Pod::at("stranger", app, STRANGER));
        }
        objects
    }
}

fn quarantine() -> Value {
    json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "quarantine"},
        "spec": {
            "tier": "Admin",
            "priority": 100,
            "subject": {"namespaces": {}},
            "ingress": [{
                "name": "quarantine",
                "action": "Deny",
                "from": [{"pods": {
                    "namespaceSelector": {},
                    "podSelector": {"matchLabels": {"app": "quarantined"}},
                }}],
            }],
        },
    })
}

/// Makes a change there and back so many times.
pub fn changes(
    stage: &TestNode,
    programming: &mut dyn Programming,
    change: Change,
    updates: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(&format!("F04/torn, {change:?}"));
    programming.apply(&change.objects(false))?;
    let mut traffic = Traffic::default();
    let ear = stage.socket(SERVER, Family::V4, PORT)?;
    traffic.hear(Location::Pod(SERVER), &ear)?;
    let to = SocketAddr::new(pod_address(SERVER, Family::V4), PORT);
    // One paced flow keeps the pace, and the others are the ones that count.
    for (pod, ports, expected) in [
        (CLIENT, 1, Expected::Allowed),
        (STRANGER, PORTS, change.expected()),
        (STRANGER, PORTS, change.expected()),
        (STRANGER, PORTS, change.expected()),
    ] {
        traffic.add(Flow {
            from: stage.sockets(pod, Family::V4, ports)?,
            to,
            length: SHORTEST,
            is_paced: expected == Expected::Allowed,
        });
    }
    let clock = stage.clock;
    let mut is_after = false;
    let mut left = updates;
    while left > 0 {
        let part = left.min(PART);
        left -= part;
        let ((), logs) = traffic.during(&stage.world, clock, || {
            for _ in 0..part {
                is_after = !is_after;
                programming.apply(&change.objects(is_after))?;
            }
            Ok(())
        })?;
        let settled = Settled::of(&logs);
        outcome.count("updates", part);
        for (place, log) in logs.iter().enumerate() {
            let expected = match place {
                0 => Expected::Allowed,
                _ => change.expected(),
            };
            let tally = log.judge(&Timeline::new(expected), &settled);
            let is_broken = tally.leaked + tally.lost > 0;
            let words = format!("{} leaked, {} lost", tally.leaked, tally.lost);
            outcome.add(tally, is_broken.then_some(words).into_iter().collect());
        }
    }
    Ok(outcome)
}
