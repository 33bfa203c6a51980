//! Faults on the real kernel while packets flow: policies change, agents are killed, the kernel
//! refuses, other programs interfere. Families are named after classes of failures.

pub mod campaign;
pub mod churn;
pub mod crafted;
pub mod deltas;
pub mod errno;
pub mod established;
pub mod families;
pub mod foreign;
pub mod foreign_program;
pub mod fragments;
pub mod kill;
pub mod ledger;
pub mod matrix;
pub mod mistakes;
pub mod objects;
pub mod outcome;
pub mod process;
pub mod programmer;
pub mod reuse;
pub mod script;
pub mod sockets;
pub mod start;
pub mod test_node;
pub mod torn;
pub mod traffic;
pub mod update;
