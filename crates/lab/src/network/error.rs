//! Errors of a cluster of namespaces.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;

use crate::network::rtnl::RtnlError;
use crate::topology::{Location, TopologyError};

/// The time that the kernel may take to notice that both ends of a link are up.
pub(crate) const LINK_PATIENCE: Duration = Duration::from_secs(10);

/// Why a cluster could not be built, or its namespaces could not be used.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The topology is wrong.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// There are IPv6 addresses, and the kernel has no IPv6.
    #[error(
        "the topology has IPv6 addresses, but this kernel has no IPv6: boot without ipv6.disable=1, or leave them out"
    )]
    NoIpv6,
    /// A namespace could not be made or entered.
    #[error("cannot use the network namespace of {place}: {source}{}", hint(.source))]
    Namespace {
        /// The location of the namespace.
        place: Location,
        /// The error.
        source: io::Error,
    },
    /// The topology does not have the location.
    #[error("{0} not found")]
    NoSuchPlace(Location),
    /// A setting of the kernel was refused.
    #[error("cannot set {}: {source}; if /proc/sys is read-only (a container), make it writable", path.display())]
    Setting {
        /// The file of the setting.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The kernel refused interfaces, addresses or routes.
    #[error("{place}: {source}")]
    Network {
        /// The location.
        place: Location,
        /// The refusal.
        source: RtnlError,
    },
    /// A link did not come up.
    #[error("{place}: the interface {interface} did not come up within {} seconds", LINK_PATIENCE.as_secs())]
    LinkDown {
        /// The location of the interface.
        place: Location,
        /// The name of the interface.
        interface: String,
    },
}

/// Returns what to do about the two limits that a large cluster meets first.
fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOSPC) => "; raise sysctl user.max_net_namespaces",
        Some(Errno::EMFILE | Errno::ENFILE) => "; raise the limit of open files (ulimit -n)",
        _ => "",
    }
}
