//! Kernel settings of the lab's network namespaces.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::network::NetworkError;

/// The effect of a setting that the kernel does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    IsAnError,
    IsFine,
}

type Setting = (&'static str, &'static str, IfMissing);

/// The settings of every namespace.
// Redirects and source checks would change routes without notice. Limits on ICMP would suppress
// answers that a measurement waits for.
const EVERYWHERE: [Setting; 9] = [
    // The processor that sends a packet must also handle it: see `wire.rs`.
    ("core/rps_default_mask", "0", IfMissing::IsFine),
    ("ipv4/conf/all/rp_filter", "0", IfMissing::IsAnError),
    ("ipv4/conf/default/rp_filter", "0", IfMissing::IsAnError),
    ("ipv4/conf/all/send_redirects", "0", IfMissing::IsAnError),
    (
        "ipv4/conf/default/send_redirects",
        "0",
        IfMissing::IsAnError,
    ),
    ("ipv4/icmp_ratelimit", "0", IfMissing::IsAnError),
    ("ipv4/icmp_ratemask", "0", IfMissing::IsAnError),
    // Older kernels have these two for the whole machine only, and can do without them here.
    ("ipv4/icmp_msgs_per_sec", "100000000", IfMissing::IsFine),
    ("ipv4/icmp_msgs_burst", "100000000", IfMissing::IsFine),
];

/// The IPv6 settings of every namespace.
// As above. Without automatic addresses and messages, every packet on a link is a probe or an
// answer to one.
const EVERYWHERE_IPV6: [Setting; 9] = [
    ("ipv6/conf/all/disable_ipv6", "0", IfMissing::IsAnError),
    ("ipv6/conf/default/disable_ipv6", "0", IfMissing::IsAnError),
    ("ipv6/conf/all/accept_dad", "0", IfMissing::IsAnError),
    ("ipv6/conf/default/accept_dad", "0", IfMissing::IsAnError),
    ("ipv6/conf/default/accept_ra", "0", IfMissing::IsAnError),
    (
        "ipv6/conf/default/router_solicitations",
        "0",
        IfMissing::IsAnError,
    ),
    ("ipv6/conf/default/addr_gen_mode", "1", IfMissing::IsFine),
    ("ipv6/icmp/ratelimit", "0", IfMissing::IsAnError),
    // A list of the limited types. 255 is reserved: none is limited.
    ("ipv6/icmp/ratemask", "255", IfMissing::IsFine),
];

const ROUTER: [Setting; 2] = [
    ("ipv4/ip_forward", "1", IfMissing::IsAnError),
    // A packet from outside with an address of the node itself must reach the rules, which evaluate
    // it. Without this setting the kernel drops it before.
    ("ipv4/conf/all/accept_local", "1", IfMissing::IsAnError),
];

const ROUTER_IPV6: [Setting; 2] = [
    ("ipv6/conf/default/forwarding", "1", IfMissing::IsAnError),
    ("ipv6/conf/all/forwarding", "1", IfMissing::IsAnError),
];

/// The treatment of packets to other addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamespaceRole {
    /// Drops them.
    Host,
    /// Forwards them.
    Router,
}

/// Reports whether this kernel has IPv6.
pub(crate) fn has_ipv6() -> bool {
    fs::exists("/proc/sys/net/ipv6/conf").unwrap_or(false)
}

/// Applies the settings to the calling thread's namespace.
pub(crate) fn apply(role: NamespaceRole, ipv6: bool) -> Result<(), NetworkError> {
    // Before interfaces are made: they copy the defaults.
    set(&EVERYWHERE)?;
    if ipv6 {
        set(&EVERYWHERE_IPV6)?;
    }
    if role != NamespaceRole::Host {
        set(&ROUTER)?;
        if ipv6 {
            set(&ROUTER_IPV6)?;
        }
    }
    Ok(())
}

fn set(settings: &[Setting]) -> Result<(), NetworkError> {
    for (name, value, absent) in settings {
        let path = PathBuf::from("/proc/sys/net").join(name);
        match fs::write(&path, value) {
            Ok(()) => {}
            Err(error)
                if *absent == IfMissing::IsFine && error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(NetworkError::Setting { path, source }),
        }
    }
    Ok(())
}
