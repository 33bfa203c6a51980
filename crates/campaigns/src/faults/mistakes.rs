//! Updates with deliberate mistakes, which the tests must detect.

use anyhow::Result;

use super::outcome::Outcome;
use super::programmer::{FaultyProgrammer, Mistake, Swap};
use super::test_node::TestNode;
use super::{established, reuse, start, update};

/// A mistake, the count that detects it, and the test.
type Case = (
    Mistake,
    &'static str,
    fn(&TestNode, &mut FaultyProgrammer, u64) -> Result<Outcome>,
);

const CASES: [Case; 7] = [
    (Mistake::DeleteThenAdd, "leaked", under_load),
    (Mistake::EmptyThenFill, "lost", under_load),
    (Mistake::SameGeneration, "leaked", under_load),
    (Mistake::SameGeneration, "leaked", |node, faulty, _| {
        established::cuts("wrong", node, faulty, 2)
    }),
    (Mistake::AllowUnknown, "leaked", |node, faulty, seed| {
        start::starts("wrong", node, faulty, 10, seed)
    }),
    (Mistake::SameGeneration, "leaked", histories),
    (Mistake::PreviousObjects, "leaked", histories),
];

fn under_load(node: &TestNode, faulty: &mut FaultyProgrammer, seed: u64) -> Result<Outcome> {
    update::under_load("wrong", node, faulty, 40, seed)
}

fn histories(node: &TestNode, faulty: &mut FaultyProgrammer, seed: u64) -> Result<Outcome> {
    reuse::histories("wrong", node, faulty, 1, seed)
}

/// Makes each mistake, and checks that it is detected.
pub fn mistakes(seed: u64) -> Result<Outcome> {
    let mut outcome = Outcome::new("harness");
    for (mistake, what, test) in CASES {
        let node = TestNode::build()?;
        let mut faulty = FaultyProgrammer::new(Swap::open(&node)?, mistake);
        let found = test(&node, &mut faulty, seed)?;
        outcome.count("mistakes", 1);
        outcome.count("leaks detected", found.get("leaked"));
        outcome.count("losses detected", found.get("lost"));
        outcome.check(found.get(what) > 0, || {
            format!("{mistake:?} was not detected")
        });
    }
    Ok(outcome)
}
