//! Network policy as plain data: what every generation of the API speaks of, without Kubernetes.
//!
//! This crate knows nothing of the outside world: no files, no clock, no API server, no kernel.
//! It holds the words that the readers of manifests, the explanations and the dataplane share,
//! so that one idea has one type everywhere:
//!
//! * [`policy`]: tiers, actions and directions;
//! * [`labels`]: label selectors and what they match;
//! * [`net`]: protocols, ports and address blocks;
//! * [`domain`]: patterns of domain names.

pub mod domain;
pub mod labels;
pub mod net;
pub mod policy;
