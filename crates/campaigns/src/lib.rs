//! Campaigns: random clusters, histories and faults, generated from seeds, that compare the engine,
//! the oracle and the kernel; the seeded mistakes; and the fuzz targets.

pub mod advice;
mod agents;
pub mod agree;
pub mod canonical;
pub mod cells;
pub mod differ;
pub mod faults;
pub mod fuzz;
pub mod health;
pub mod history;
mod ip;
pub mod kernel_facts;
pub mod lint;
pub mod mutants;
pub mod packets;
pub mod plan_reader;
pub mod reboot;
mod seeds;
pub mod simulate;
pub mod spoof;
