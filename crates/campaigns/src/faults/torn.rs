//! F04: packets in flight during a commit. A packet sees one version of the rules, but reads the
//! elements of sets at each lookup: a change of several memberships may show one packet a
//! combination that never existed. Here packets have many source ports, which makes the kernel
//! evaluate nearly all of them, and their verdict is the same before and after the change.

use std::net::SocketAddr;

use anyhow::Result;
use palisade_core::net::Family;
use palisade_lab::topology::Location;
use serde_json::{Value, json};

use super::ledger::{DecisionTimes, Expected, Timeline};
use super::objects::{Objects, Pod, admits, isolates, pod_address};
use super::outcome::Outcome;
use super::programmer::Programmer;
use super::test_node::{CLIENT, OTHER_CLIENT, SERVER, TestNode};
use super::traffic::{Flow, MIN_PAYLOAD, Traffic};

/// The port of the server.
const PORT: u16 = 5001;
/// Source ports of the other client.
const SOURCE_PORTS: usize = 400;
/// Changes between two tallies.
const BATCH: u64 = 200;

/// A change that keeps the verdict of the other client's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TornChange {
    /// No policy isolates their pods, or policies that allow them do.
    Isolation,
    /// No rule allows them, or one does and an earlier rule denies them.
    DeniedTwice,
    /// The second of two policies allows them, or the first.
    AllowedByOther,
    /// No rule admits their pod, or their pod is deleted.
    Deleted,
}

/// All changes.
pub const CHANGES: [TornChange; 4] = [
    TornChange::Isolation,
    TornChange::DeniedTwice,
    TornChange::AllowedByOther,
    TornChange::Deleted,
];

impl TornChange {
    fn expected(self) -> Expected {
        match self {
            TornChange::Isolation | TornChange::AllowedByOther => Expected::Allowed,
            TornChange::DeniedTwice | TornChange::Deleted => Expected::Denied,
        }
    }

    /// The objects before and after.
    fn objects(self, is_after: bool) -> Objects {
        let mut objects = Objects::new();
        objects.put_pod(&Pod::at("client", "client", CLIENT));
        objects.put_pod(&Pod::at("server", "server", SERVER));
        let mut app = "other-client";
        match self {
            TornChange::Isolation if is_after => {
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
            TornChange::Isolation => {}
            TornChange::DeniedTwice => {
                objects.put_policy("server", &admits("server", "client", &[PORT]));
                objects.put_policy("both", &admits("server", "quarantined", &[PORT]));
                objects.put("ClusterNetworkPolicy", "quarantine", quarantine());
                if is_after {
                    app = "quarantined";
                }
            }
            TornChange::AllowedByOther => {
                // The rules of a pod are in the order of their policies' names.
                objects.put_policy("a-client", &admits("server", "client", &[PORT]));
                objects.put_policy("b-first", &admits("server", "first", &[PORT]));
                objects.put_policy("c-second", &admits("server", "second", &[PORT]));
                app = if is_after { "first" } else { "second" };
            }
            TornChange::Deleted => {
                objects.put_policy("other-client", &isolates("other-client"));
                objects.put_policy("server", &admits("server", "client", &[PORT]));
            }
        }
        if !(self == TornChange::Deleted && is_after) {
            objects.put_pod(&Pod::at("other-client", app, OTHER_CLIENT));
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

/// Makes a change and reverts it, `updates` times in all.
pub fn changes(
    node: &TestNode,
    programmer: &mut dyn Programmer,
    change: TornChange,
    updates: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(&format!("F04/torn, {change:?}"));
    programmer.apply(&change.objects(false))?;
    let mut traffic = Traffic::default();
    let receiver = node.socket(SERVER, Family::V4, PORT)?;
    traffic.add_receiver(Location::Pod(SERVER), &receiver)?;
    let to = SocketAddr::new(pod_address(SERVER, Family::V4), PORT);
    // One allowed flow paces the sender; the others are under test.
    for (pod, ports, expected) in [
        (CLIENT, 1, Expected::Allowed),
        (OTHER_CLIENT, SOURCE_PORTS, change.expected()),
        (OTHER_CLIENT, SOURCE_PORTS, change.expected()),
        (OTHER_CLIENT, SOURCE_PORTS, change.expected()),
    ] {
        traffic.add(Flow {
            from: node.sockets(pod, Family::V4, ports)?,
            to,
            length: MIN_PAYLOAD,
            is_paced: expected == Expected::Allowed,
        });
    }
    let clock = node.clock;
    let mut is_after = false;
    let mut left = updates;
    while left > 0 {
        let batch = left.min(BATCH);
        left -= batch;
        let ((), logs) = traffic.during(&node.world, clock, || {
            for _ in 0..batch {
                is_after = !is_after;
                programmer.apply(&change.objects(is_after))?;
            }
            Ok(())
        })?;
        let decided = DecisionTimes::of(&logs);
        outcome.count("updates", batch);
        for (place, log) in logs.iter().enumerate() {
            let expected = match place {
                0 => Expected::Allowed,
                _ => change.expected(),
            };
            let tally = log.tally(&Timeline::new(expected), &decided);
            let is_violated = tally.leaked + tally.lost > 0;
            let message = format!("{} leaked, {} lost", tally.leaked, tally.lost);
            outcome.add(tally, is_violated.then_some(message).into_iter().collect());
        }
    }
    Ok(outcome)
}
