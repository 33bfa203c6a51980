//! Connectivity of whole clusters equals single answers and the oracle's, for every pair and port.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use palisade_campaigns::cells::{Compared, compare};

/// Random clusters of this test; `palisade-campaigns cells` runs more.
const SEEDS: u64 = 240;

/// Clusters that have shown a mistake.
const FOUND: [u64; 2] = [1001, 1026];

#[test]
fn the_fold_equals_single_decisions_and_the_oracle() {
    let run = |seeds: &mut dyn Iterator<Item = u64>| {
        let mut all = Compared::default();
        for seed in seeds {
            let compared = compare(seed);
            all.cells += compared.cells;
            all.oracle_cells += compared.oracle_cells;
            all.differences.extend(compared.differences);
        }
        all
    };
    let (left, right) = std::thread::scope(|scope| {
        let left = scope.spawn(|| run(&mut (0..SEEDS / 2).chain(FOUND)));
        let right = run(&mut (SEEDS / 2..SEEDS));
        (left.join().unwrap(), right)
    });
    let differences = [left.differences, right.differences].concat();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let cells = left.cells + right.cells;
    assert_eq!(cells, left.oracle_cells + right.oracle_cells);
    println!("{cells} cells agree");
    assert!(cells >= 300_000, "{cells}");
}
