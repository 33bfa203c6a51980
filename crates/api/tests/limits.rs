//! Every limit, one-of, enumeration, required field, default and rule of the five generations, with
//! documents at its edges: those that fit and those that do not. The expectations come from the
//! specification; section and decision numbers stand in the names.

#[path = "limits/blocks.rs"]
mod blocks;
#[path = "limits/common.rs"]
mod common;
#[path = "limits/documents.rs"]
mod documents;
#[path = "limits/harness.rs"]
mod harness;
#[path = "limits/network_policy.rs"]
mod network_policy;
#[path = "limits/selectors.rs"]
mod selectors;
