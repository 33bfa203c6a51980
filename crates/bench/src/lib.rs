//! Seeded Kubernetes manifests and flows for measurements and long test runs, and the fuzz targets.

mod agents;
pub mod agree;
pub mod allocated;
pub mod attack;
pub mod cells;
pub mod differ;
pub mod e2e;
pub mod faults;
pub mod flows;
pub mod fuzz;
pub mod generate;
mod health;
pub mod inside;
pub mod kernel_facts;
pub mod large;
pub mod lint;
pub mod live;
pub mod mutants;
pub mod packets;
pub mod reboot;
mod seeds;
pub mod served;
pub mod simulate;
pub mod spoof;
pub mod writer;
