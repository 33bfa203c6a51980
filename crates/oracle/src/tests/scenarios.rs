//! The generator: the same seed gives the same scenario, and all required combinations occur.

use crate::generate::{marks_required, scenario};
use crate::{Oracle, Verdict};
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn deterministic() {
    for seed in [0, 1, 77, 3999, u64::MAX] {
        assert_eq!(scenario(seed, 30), scenario(seed, 30));
    }
    assert_ne!(scenario(1, 30).objects, scenario(2, 30).objects);
}

#[test]
fn all_marks() {
    let mut left: BTreeSet<_> = marks_required().into_iter().collect();
    let all = left.len();
    assert_eq!(all, marks_required().len(), "a mark is required twice");
    let mut last = 0;
    for seed in 0..4000 {
        let s = scenario(seed, 0);
        assert!(s.objects.iter().all(|o| o["metadata"]["name"].is_string()));
        for m in s.marks {
            if left.remove(&m) {
                last = seed;
            }
        }
    }
    println!("{all} marks, complete at seed {last}");
    assert!(
        left.is_empty(),
        "{} of {all} missing, {:?}",
        left.len(),
        left.first()
    );
    // The page on tests has this number.
    let page = include_str!("../../../../docs/internals/testing.md");
    let stated = format!("the next of {},{:03} combinations", all / 1000, all % 1000);
    assert!(
        page.contains(&stated),
        "docs/internals/testing.md: {stated}"
    );
}

/// Queries are useful: few errors, and every reason occurs.
#[test]
fn variety() {
    let mut verdicts: BTreeMap<String, usize> = BTreeMap::new();
    let (mut n, mut defective, mut policies) = (0, 0, 0);
    for seed in 0..400 {
        let s = scenario(seed, 50);
        let oracle = Oracle::new(&s.objects, &s.dns);
        policies += s
            .objects
            .iter()
            .filter(|o| o["kind"].as_str().is_some_and(|k| k.ends_with("Policy")))
            .count();
        defective += s.marks.iter().filter(|m| m.defect != "-").count();
        for q in &s.queries {
            let a = oracle.answer(q);
            n += 1;
            let mut count = |k: String| *verdicts.entry(k).or_default() += 1;
            if a.error {
                count("error".to_owned());
                continue;
            }
            count(format!("{:?}", a.verdict));
            for side in [&a.egress, &a.ingress].into_iter().flatten() {
                count(format!(
                    "side {:?} {:?} {:?}",
                    side.verdict, side.reason, side.detail
                ));
            }
        }
    }
    println!("{n} queries, {policies} policies, {defective} defects");
    for (k, v) in &verdicts {
        println!("{v:6} {k}");
    }
    let share = |k: &str| verdicts.get(k).copied().unwrap_or(0) * 100 / n;
    assert!(share("error") < 16, "too many errors");
    assert!(share("Deny") > 20 && share("Allow") > 20);
    assert!(verdicts.contains_key(&format!("{:?}", Verdict::Unknown)));
    assert!(verdicts.contains_key(&format!("{:?}", Verdict::Mixed)));
}
