//! Source ports, so that connection tracking never takes one probe for another.

use std::collections::HashMap;
use std::net::IpAddr;

use rustc_hash::FxHashSet;

const FIRST: u16 = 32_768;
const LAST: u16 = 60_999;

/// Hands out source ports. Between the same two addresses, none comes again before all others of
/// the range have been used.
#[derive(Debug)]
pub(crate) struct Ports {
    /// The next port between two addresses. The fast hasher used elsewhere is no good here: pairs of
    /// IPv6 addresses that differ in their last bits collide in it by the hundred.
    next: HashMap<(IpAddr, IpAddr), u16>,
    /// Where the next pair of addresses begins. Pairs begin at different ports, so that they rarely
    /// meet when translation makes their addresses the same.
    start: u16,
}

impl Ports {
    pub(crate) fn new() -> Ports {
        Ports {
            next: HashMap::new(),
            start: FIRST,
        }
    }

    /// A port between two addresses that is none of those to avoid. A port that is somebody's
    /// destination is avoided because a probe the other way round would look like an answer.
    pub(crate) fn take(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        avoid: &FxHashSet<u16>,
    ) -> u16 {
        let next = self.next.entry((source, destination)).or_insert_with(|| {
            self.start = after(self.start);
            self.start
        });
        // Should every port of the range be avoided, there is nothing better than any of them.
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
    fn a_port_comes_again_only_after_all_others() {
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
