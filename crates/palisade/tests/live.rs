//! The commands on a live cluster: a real API server with the shipped examples in it. What is
//! answered there is what is answered from the same objects in files.
//!
//! Where the programs of the testbed are missing, everything is ignored, with the reason.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it left out"
)]

#[path = "live/bed.rs"]
mod bed;
#[path = "live/docs.rs"]
mod docs;
#[path = "live/rights.rs"]
mod rights;
#[path = "live/same.rs"]
mod same;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use palisade_need::{Need, run_in_turn};
use palisade_testbed::API_SERVER;

use bed::Bed;

type Test = (&'static str, fn(&Bed));

const TESTS: &[Test] = &[
    ("explain is what it is for files", same::explain),
    (
        "connectivity, compile and affecting are what they are for files",
        same::others,
    ),
    ("files over the cluster are both as files", same::overlay),
    ("a change of the cluster is one of its files", same::diff),
    (
        "an object of a file takes the place of the cluster's",
        same::replaced,
    ),
    ("a rule of the cluster is shown", same::shown),
    ("check reads the policies", same::check),
    ("kubectl runs it as its plugin", same::plugin),
    ("a user without rights gets no answer", rights::no_rights),
    (
        "a user who may not read admin policies gets a warning",
        rights::without_admin_policies,
    ),
    ("a user who may read one namespace", rights::one_namespace),
    (
        "Services that may not be read matter if named",
        rights::without_services,
    ),
    ("impersonation of a user", rights::impersonation),
    ("a server that cannot be reached", rights::broken),
    ("the tutorial is true", docs::tutorial),
];

fn main() -> ExitCode {
    // One server for all, made for the first that needs it.
    let bed: Arc<Mutex<Option<Bed>>> = Arc::default();
    let shop = |(name, test): &Test| {
        let (bed, test) = (Arc::clone(&bed), *test);
        palisade_need::Test::new(format!("live: {name}"), move || {
            // A test that failed has not changed anything.
            let mut bed = bed
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            test(bed.get_or_insert_with(|| Bed::new("shop")));
        })
        .needs(&[API_SERVER])
    };
    let lab = shop(&("a lab of the cluster", same::lab)).needs(&[Need::NAMESPACES]);
    let tenants =
        palisade_need::Test::new("live: admin policies are what they are in files", || {
            same::tenants(&Bed::new("tenants"));
        });
    let last = [lab, tenants.needs(&[API_SERVER])];
    let code = run_in_turn(TESTS.iter().map(shop).chain(last));
    drop(bed);
    code
}
