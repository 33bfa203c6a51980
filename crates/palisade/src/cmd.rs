//! The commands, one file each.

pub(crate) mod affecting;
pub(crate) mod agent;
pub(crate) mod check;
pub(crate) mod compile;
pub(crate) mod completion;
pub(crate) mod connectivity;
pub(crate) mod crds;
pub(crate) mod diff;
pub(crate) mod explain;
pub(crate) mod lab;
pub(crate) mod lint;
pub(crate) mod man;
pub(crate) mod version;
