//! F04: policies change while packets flow at full rate. No packet may leak or be lost.

use anyhow::{Context as _, Result};

use super::churn::{ChurnFlows, ChurningCluster};
use super::ledger::Expected;
use super::outcome::Outcome;
use super::programmer::Programmer;
use super::test_node::TestNode;

/// Updates between two tallies, which bounds the memory for packets.
const BATCH: u64 = 200;

/// Makes changes of all kinds.
pub fn under_load(
    name: &str,
    node: &TestNode,
    programmer: &mut dyn Programmer,
    updates: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    let mut cluster = ChurningCluster::new(seed);
    programmer
        .apply(&cluster.objects)
        .context("the first table")?;
    let mut flows = ChurnFlows::open(node)?;
    let clock = node.clock;
    let mut left = updates;
    while left > 0 {
        let batch = left.min(BATCH);
        left -= batch;
        let mut commits = Vec::new();
        let ((), logs) = flows.traffic.during(&node.world, clock, || {
            for _ in 0..batch {
                cluster.change();
                let (applied, commit) = clock.time(|| programmer.apply(&cluster.objects));
                applied?;
                let expected = match cluster.is_open {
                    true => Expected::Allowed,
                    false => Expected::Denied,
                };
                commits.push((commit, expected));
            }
            Ok(())
        })?;
        for (commit, expected) in commits {
            outcome.record_time("update", commit.1 - commit.0);
            flows.expect(commit, expected);
        }
        let (tally, violations) = flows.tally(&logs);
        outcome.count("updates", batch);
        outcome.add(tally, violations);
    }
    Ok(outcome)
}
