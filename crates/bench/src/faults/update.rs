//! F04: the policies change while packets flow at full rate. None may leak, none may be lost.

use anyhow::{Context as _, Result};

use super::established;
use super::ledger::Expected;
use super::outcome::Outcome;
use super::programming::{Mistake, Programming, Swap, Wrong};
use super::stage::Stage;
use super::town::{Streets, Town};

/// So many updates are made before packets are counted up, so that little has to be remembered.
const PART: u64 = 200;

/// Makes so many changes of all kinds, each in the way that is given.
pub fn under_load(
    name: &'static str,
    stage: &Stage,
    programming: &mut dyn Programming,
    updates: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    let mut town = Town::new(seed);
    programming
        .apply(&town.objects)
        .context("the first table")?;
    let mut streets = Streets::open(stage)?;
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

/// That the tests see updates that are wrong on purpose.
pub fn mistakes(seed: u64) -> Result<Outcome> {
    let mut outcome = Outcome::new("harness");
    for (mistake, leaks, updates) in [
        (Mistake::DeleteThenAdd, true, 40),
        (Mistake::EmptyThenFill, false, 40),
        (Mistake::SameGeneration, true, 40),
    ] {
        let stage = Stage::build()?;
        let swap = Swap::open(&stage)?;
        let mut wrong = Wrong { swap, mistake };
        let found = under_load("wrong", &stage, &mut wrong, updates, seed)?;
        outcome.count("mistakes", 1);
        outcome.count("leaks seen", found.get("leaked"));
        outcome.count("losses seen", found.get("lost"));
        let is_seen = match leaks {
            true => found.get("leaked") > 0,
            false => found.get("lost") > 0,
        };
        outcome.check(is_seen, || format!("{mistake:?} was not noticed"));
    }
    let stage = Stage::build()?;
    let mut wrong = Wrong {
        swap: Swap::open(&stage)?,
        mistake: Mistake::SameGeneration,
    };
    let found = established::cuts("wrong", &stage, &mut wrong, 2)?;
    outcome.check(found.get("leaked") > 0, || {
        "connections that are not judged anew were not noticed".to_owned()
    });
    Ok(outcome)
}
