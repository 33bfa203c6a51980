//! F04: the policies change while packets flow at full rate. None may leak, none may be lost.

use anyhow::{Context as _, Result};

use super::churn::{ChurnFlows, ChurningCluster};
use super::ledger::Expected;
use super::outcome::Outcome;
use super::programming::Programming;
use super::test_node::TestNode;

/// So many updates are made before packets are counted up, so that little has to be remembered.
const PART: u64 = 200;

/// Makes so many changes of all kinds, each in the way that is given.
pub fn under_load(
    name: &str,
    stage: &TestNode,
    programming: &mut dyn Programming,
    updates: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    let mut town = ChurningCluster::new(seed);
    programming
        .apply(&town.objects)
        .context("the first table")?;
    let mut streets = ChurnFlows::open(stage)?;
    let clock = stage.clock;
    let mut left = updates;
    while left > 0 {
        let part = left.min(PART);
        left -= part;
        let mut commits = Vec::new();
        let ((), logs) = streets.traffic.during(&stage.world, clock, || {
            for _ in 0..part {
                town.change();
                let (applied, commit) = clock.time(|| programming.apply(&town.objects));
                applied?;
                let door = match town.is_open {
                    true => Expected::Allowed,
                    false => Expected::Denied,
                };
                commits.push((commit, door));
            }
            Ok(())
        })?;
        for (commit, door) in commits {
            outcome.took("update", commit.1 - commit.0);
            streets.expect(commit, door);
        }
        let (tally, broken) = streets.judge(&logs);
        outcome.count("updates", part);
        outcome.add(tally, broken);
    }
    Ok(outcome)
}
