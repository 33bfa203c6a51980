//! Every limit, one-of, enumeration, required field, default and rule of the five API versions,
//! with documents at its edges: those that fit and those that do not. The expectations come from
//! the specification; the names have section and decision numbers. The samples of the source
//! documents are in `samples.rs`.

use std::collections::BTreeSet;

#[path = "limits/admin_ports.rs"]
mod admin_ports;
#[path = "limits/admin_shapes.rs"]
mod admin_shapes;
#[path = "limits/blocks.rs"]
mod blocks;
#[path = "limits/cluster.rs"]
mod cluster;
#[path = "limits/common.rs"]
mod common;
#[path = "limits/documents.rs"]
mod documents;
#[path = "limits/early.rs"]
mod early;
#[path = "limits/harness.rs"]
mod harness;
#[path = "limits/network_policy.rs"]
mod network_policy;
#[path = "limits/oldest.rs"]
mod oldest;
#[path = "limits/rules.rs"]
mod rules;
#[path = "limits/selectors.rs"]
mod selectors;
#[path = "limits/subjects.rs"]
mod subjects;

/// The number of limits, and of documents that fit and violate them. The documentation states these
/// figures.
const LIMITS: usize = 1129;
const FITTING: usize = 2754;
const VIOLATING: usize = 5172;

#[test]
fn the_stated_figures_are_true() {
    let limits = [
        selectors::all(),
        common::all(),
        blocks::all(),
        network_policy::all(),
        admin_shapes::all(),
        admin_ports::all(),
        subjects::all(),
        rules::all(),
        cluster::all(),
        early::all(),
        oldest::all(),
    ];
    let limits: Vec<harness::Limit> = limits.into_iter().flatten().collect();
    let mut names = BTreeSet::new();
    let (mut fitting, mut violating) = (0, 0);
    for limit in &limits {
        assert!(
            limit.name.starts_with(|c: char| c.is_ascii_digit()),
            "{} cites no section",
            limit.name
        );
        assert!(names.insert(&limit.name), "{} is defined twice", limit.name);
        let (fit, violate) = limit.count();
        fitting += fit;
        violating += violate;
    }
    println!(
        "{} limits, {fitting} fitting and {violating} violating documents",
        limits.len()
    );
    assert_eq!(
        (limits.len(), fitting, violating),
        (LIMITS, FITTING, VIOLATING)
    );
}
