//! eBPF programs that are attached by links (tcx, netkit). The routing socket does not list them.

use std::collections::BTreeSet;

use nix::errno::Errno;

use crate::bpf::{self, AttachPoint};
use crate::bypass::LinkKind;
use crate::elsewhere::NodeInterface;
use crate::kernel::Routes;

/// The interfaces with eBPF programs that are attached by links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachedPrograms {
    /// The indexes of the interfaces with a program, as far as the kernel reports them.
    pub at: BTreeSet<u32>,
    /// Why the kernel does not report all of them.
    pub refused: Option<String>,
}

impl AttachedPrograms {
    /// Returns what cannot be checked and what to do, as text.
    pub fn words(&self) -> Option<String> {
        let why = self.refused.as_ref()?;
        Some(format!(
            "cannot check for eBPF programs attached by tcx ({why}); they may send packets past all policies: grant CAP_BPF, or set --bpf=allow if there are none"
        ))
    }
}

impl Routes {
    /// Returns the interfaces with eBPF programs that are attached by links.
    pub fn attached(&self, interfaces: &[NodeInterface]) -> AttachedPrograms {
        attached(interfaces, bpf::count)
    }
}

fn attached(
    interfaces: &[NodeInterface],
    mut count: impl FnMut(u32, AttachPoint) -> Result<u32, Errno>,
) -> AttachedPrograms {
    let mut found = AttachedPrograms::default();
    for point in [
        AttachPoint::TcxIngress,
        AttachPoint::TcxEgress,
        AttachPoint::NetkitPrimary,
        AttachPoint::NetkitPeer,
    ] {
        let is_netkit = matches!(point, AttachPoint::NetkitPrimary | AttachPoint::NetkitPeer);
        for it in interfaces {
            // Netkit pairs are among the interfaces of kind `Part`.
            if is_netkit && it.link != LinkKind::Part {
                continue;
            }
            match count(it.index, point) {
                Ok(0) => {}
                Ok(_) => drop(found.at.insert(it.index)),
                // The kernel does not know this attach point, so it has no programs there.
                Err(Errno::EINVAL) => break,
                // The interface is gone, or never had a program.
                Err(Errno::ENODEV | Errno::ENOENT) => {}
                // It is no netkit pair, or the end without this attach point.
                Err(Errno::ENXIO | Errno::EACCES) if is_netkit => {}
                // A seccomp filter may return any error, also "no such system call". The remaining
                // queries would fail in the same way.
                Err(errno) => {
                    found.refused = Some(errno.desc().to_owned());
                    return found;
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, link: LinkKind) -> NodeInterface {
        NodeInterface {
            index,
            name: format!("i{index}"),
            link,
            controller: None,
            has_xdp: false,
        }
    }

    fn at(numbers: &[u32]) -> AttachedPrograms {
        AttachedPrograms {
            at: numbers.iter().copied().collect(),
            refused: None,
        }
    }

    #[test]
    fn one_program_in_either_direction_suffices() {
        let all = [2, 3, 4, 5].map(|it| interface(it, LinkKind::Pair));
        let found = attached(&all, |index, point| {
            Ok(match (index, point) {
                (2, AttachPoint::TcxIngress) => 1,
                (4, AttachPoint::TcxEgress) => 7,
                // No netkit pair, so it is not queried.
                (5, AttachPoint::NetkitPrimary | AttachPoint::NetkitPeer) => 1,
                _ => 0,
            })
        });
        assert_eq!(found, at(&[2, 4]));
        assert_eq!(found.words(), None);
    }

    #[test]
    fn netkit_is_queried_at_the_end_that_has_the_attach_point() {
        let all = [2, 3, 4].map(|it| interface(it, LinkKind::Part));
        let found = attached(&all, |index, point| match (index, point) {
            (_, AttachPoint::TcxIngress | AttachPoint::TcxEgress) => Ok(0),
            (2, _) => Err(Errno::ENXIO),
            (3, _) => Err(Errno::EACCES),
            _ => Ok(1),
        });
        assert_eq!(found, at(&[4]));
    }

    #[test]
    fn a_kernel_without_flowtables_has_none_and_interfaces_can_disappear() {
        let all = [2, 3].map(|it| interface(it, LinkKind::Pair));
        for errno in [Errno::EINVAL, Errno::ENODEV, Errno::ENOENT] {
            assert_eq!(attached(&all, |_, _| Err(errno)), at(&[]));
        }
        let found = attached(&all, |index, _| match index {
            2 => Err(Errno::ENODEV),
            _ => Ok(1),
        });
        assert_eq!(found, at(&[3]));
    }

    #[test]
    fn a_refused_query_is_reported() {
        let all = [2, 3].map(|it| interface(it, LinkKind::Pair));
        for errno in [Errno::EPERM, Errno::EACCES, Errno::ENOSYS, Errno::ENOMEM] {
            let found = attached(&all, |index, _| match index {
                2 => Ok(1),
                _ => Err(errno),
            });
            assert_eq!(found.at, BTreeSet::from([2]));
            let words = found.words().unwrap_or_default();
            assert!(words.contains(errno.desc()), "{words}");
            assert!(words.contains("--bpf=allow"), "{words}");
        }
    }
}
