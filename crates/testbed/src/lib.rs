//! A real Kubernetes on one machine, for tests.
//!
//! [`Api::start`] starts a private API server for a test within seconds; [`Cluster::start`] starts
//! a whole cluster in network namespaces. The programs are built from pinned modules by
//! `palisade-testbed build`, never by a test: a test declares that it needs [`API_SERVER`] or
//! [`CLUSTER`].

mod api;
mod archive;
mod authority;
mod binaries;
mod build;
mod cluster;
mod error;
mod group;
mod guard;
mod home;
mod image;
mod instance;
mod kubeconfig;
mod process;
mod remove;
mod server;
mod upstream;

pub use api::{Api, Options};
pub use authority::Credentials;
pub use binaries::{Binaries, KUBERNETES, Missing, available, cache, cluster_available};
pub use build::{Extent, build};
pub use cluster::{Cluster, Plugin, Shape};
pub use error::{Error, Result};
pub use group::{API_SERVER, CLUSTER, UPSTREAM, group};
pub use image::program_image;
pub use instance::Instance;
pub use process::Identity;
pub use upstream::{bring_upstream, upstream};
