//! The kernel settings of the lab's network namespaces.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::network::WorldError;

/// Whether a kernel that does not have a setting can do without it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IfMissing {
    IsAnError,
    IsFine,
}

type Setting = (&'static str, &'static str, IfMissing);

/// Everywhere. Redirects and source checks would change routes behind our back; limits on ICMP
/// would suppress answers that a measurement waits for.
const EVERYWHERE: [Setting; 9] = [
    // Packets must be handled by the processor that sends them: see the wire.
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
    // Older kernels have these two for the whole machine only, with other ways around them.
    ("ipv4/icmp_msgs_per_sec", "100000000", IfMissing::IsFine),
    ("ipv4/icmp_msgs_burst", "100000000", IfMissing::IsFine),
];

/// The same for IPv6, and no addresses or messages that nobody asked for: every packet on a link
/// is then one of ours or an answer to it.
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
    // A list of the types that are limited; 255 is reserved, so that none is.
    ("ipv6/icmp/ratemask", "255", IfMissing::IsFine),
];

const ROUTER: [Setting; 2] = [
    ("ipv4/ip_forward", "1", IfMissing::IsAnError),
    // What comes from elsewhere with an own address is to be judged, and to arrive outside, not to be
    // lost before.
    ("ipv4/conf/all/accept_local", "1", IfMissing::IsAnError),
];

const ROUTER_IPV6: [Setting; 2] = [
    ("ipv6/conf/default/forwarding", "1", IfMissing::IsAnError),
    ("ipv6/conf/all/forwarding", "1", IfMissing::IsAnError),
];

/// What a namespace does with packets that are not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamespaceRole {
    /// It drops them.
    Host,
    /// It forwards them.
    Router,
}

/// Whether this kernel knows IPv6.
pub(crate) fn has_ipv6() -> bool {
    fs::exists("/proc/sys/net/ipv6/conf").unwrap_or(false)
}

/// Applies the settings to the calling thread's namespace. It comes before interfaces are made,
/// since they take their settings from the defaults.
pub(crate) fn apply(role: NamespaceRole, ipv6: bool) -> Result<(), WorldError> {
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

fn set(settings: &[Setting]) -> Result<(), WorldError> {
    for (name, value, absent) in settings {
        let path = PathBuf::from("/proc/sys/net").join(name);
        match fs::write(&path, value) {
            Ok(()) => {}
            Err(error)
                if *absent == IfMissing::IsFine && error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(WorldError::Setting { path, source }),
        }
    }
    Ok(())
}
