//! Source ports: connection tracking must never take one probe for another.

use std::collections::HashMap;
use std::net::IpAddr;

use rustc_hash::FxHashSet;

const FIRST: u16 = 32_768;
const LAST: u16 = 60_999;

/// Chooses source ports. Between two addresses, a port is reused only after all others of the
/// range.
#[derive(Debug)]
pub(crate) struct Ports {
    /// The next port between two addresses.
    // The default hasher, not the fast one: pairs of IPv6 addresses that differ in their last bits
    // collide in that by the hundred.
    next: HashMap<(IpAddr, IpAddr), u16>,
    /// The first port of the next pair of addresses.
    // Pairs begin at different ports, and so rarely meet where translation makes their addresses
    // equal.
    start: u16,
}

impl Ports {
    pub(crate) fn new() -> Ports {
        Ports {
            next: HashMap::new(),
            start: FIRST,
        }
    }

    /// Returns a port between two addresses that is none of those to avoid.
    pub(crate) fn take(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        avoid: &FxHashSet<u16>,
    ) -> u16 {
        // Destination ports of probes are avoided: a probe in the other direction would look like a
        // reply.
        let next = self.next.entry((source, destination)).or_insert_with(|| {
            self.start = after(self.start);
            self.start
        });
        // If every port of the range is to be avoided, none is better than another.
        for _ in FIRST..=LAST {
            *next = after(*next);
            if !avoid.contains(next) {
                break;
            }
        }
        *next
    }
}

fn after(port: u16) -> u16 {
    if port >= LAST { FIRST } else { port + 1 }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use rustc_hash::FxHashSet;

    use super::{FIRST, LAST, Ports};

    #[test]
    fn a_port_is_reused_only_after_all_others() {
        let mut ports = Ports::new();
        let [one, two] = [1, 2].map(|last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)));
        let avoid: FxHashSet<u16> = [40_000].into_iter().collect();
        let mut taken = FxHashSet::default();
        for _ in FIRST..LAST {
            let port = ports.take(one, two, &avoid);
            assert!((FIRST..=LAST).contains(&port) && port != 40_000);
            assert!(taken.insert(port), "{port} came twice");
        }
        assert!(taken.contains(&ports.take(one, two, &avoid)));
    }
}
