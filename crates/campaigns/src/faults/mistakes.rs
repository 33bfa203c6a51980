//! That the tests see what they are there for: updates that are wrong on purpose.

use anyhow::Result;

use super::outcome::Outcome;
use super::programming::{Mistake, Swap, Wrong};
use super::test_node::TestNode;
use super::{established, reuse, start, update};

/// What shows a mistake, and what it must show.
type Case = (
    Mistake,
    &'static str,
    fn(&TestNode, &mut Wrong, u64) -> Result<Outcome>,
);

const CASES: [Case; 7] = [
    (Mistake::DeleteThenAdd, "leaked", under_load),
    (Mistake::EmptyThenFill, "lost", under_load),
    (Mistake::SameGeneration, "leaked", under_load),
    (Mistake::SameGeneration, "leaked", |stage, wrong, _| {
        established::cuts("wrong", stage, wrong, 2)
    }),
    (Mistake::OpenToUnknown, "leaked", |stage, wrong, seed| {
        start::starts("wrong", stage, wrong, 10, seed)
    }),
    (Mistake::SameGeneration, "leaked", histories),
    (Mistake::LateByOne, "leaked", histories),
];

fn under_load(stage: &TestNode, wrong: &mut Wrong, seed: u64) -> Result<Outcome> {
    update::under_load("wrong", stage, wrong, 40, seed)
}

fn histories(stage: &TestNode, wrong: &mut Wrong, seed: u64) -> Result<Outcome> {
    reuse::histories("wrong", stage, wrong, 1, seed)
}

/// Makes each mistake and sees whether it shows.
pub fn mistakes(seed: u64) -> Result<Outcome> {
    let mut outcome = Outcome::new("harness");
    for (mistake, what, show) in CASES {
        let stage = TestNode::build()?;
        let mut wrong = Wrong::new(Swap::open(&stage)?, mistake);
        let found = show(&stage, &mut wrong, seed)?;
        outcome.count("mistakes", 1);
        outcome.count("leaks seen", found.get("leaked"));
        outcome.count("losses seen", found.get("lost"));
        outcome.check(found.get(what) > 0, || {
            format!("{mistake:?} was not noticed")
        });
    }
    Ok(outcome)
}
