//! Faults on the real kernel: policies change, agents die, the kernel refuses, others interfere, all
//! while packets flow. Families are named after the classes of failures that they look for.

pub mod campaign;
pub mod churn;
pub mod crafted;
pub mod deltas;
pub mod errno;
pub mod established;
pub mod families;
pub mod foreign;
pub mod fragments;
pub mod intruder;
pub mod kill;
pub mod ledger;
pub mod matrix;
pub mod mistakes;
pub mod objects;
pub mod outcome;
pub mod process;
pub mod programming;
pub mod reuse;
pub mod script;
pub mod sockets;
pub mod start;
pub mod test_node;
pub mod torn;
pub mod traffic;
pub mod update;
