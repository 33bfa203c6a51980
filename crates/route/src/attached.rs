//! Programs of eBPF that are attached by links (tcx, netkit). The routing socket does not list them.

use std::collections::BTreeSet;

use nix::errno::Errno;

use crate::bpf::{self, AttachPoint};
use crate::bypass::LinkKind;
use crate::elsewhere::NodeInterface;
use crate::kernel::Routes;

/// What the kernel says of programs that are attached by links of eBPF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachedPrograms {
    /// The numbers of the interfaces that have one, as far as the kernel says so.
    pub at: BTreeSet<u32>,
    /// Why it does not say so of all of them.
    pub refused: Option<String>,
}

impl AttachedPrograms {
    /// What is not checked, for people.
    pub fn words(&self) -> Option<String> {
        let why = self.refused.as_ref()?;
        Some(format!(
            "programs of eBPF that are attached by tcx may send packets past all policies, and whether there are any cannot be checked ({why}): let the agent make the system call bpf (capability BPF), or say --bpf=allow if there are none"
        ))
    }
}

impl Routes {
    /// Which interfaces have programs that are attached by links of eBPF.
    pub fn attached(&self, interfaces: &[NodeInterface]) -> AttachedPrograms {
        attached(interfaces, bpf::count)
    }
}

fn attached(
    interfaces: &[NodeInterface],
    mut count: impl FnMut(u32, AttachPoint) -> Result<u32, Errno>,
) -> AttachedPrograms {
    let mut found = AttachedPrograms::default();
    for place in [
        AttachPoint::TcxIngress,
        AttachPoint::TcxEgress,
        AttachPoint::NetkitPrimary,
        AttachPoint::NetkitPeer,
    ] {
        let is_netkit = matches!(place, AttachPoint::NetkitPrimary | AttachPoint::NetkitPeer);
        for it in interfaces {
            // Pairs of netkit are among what takes part in another interface.
            if is_netkit && it.link != LinkKind::Part {
                continue;
            }
            match count(it.index, place) {
                Ok(0) => {}
                Ok(_) => drop(found.at.insert(it.index)),
                // The kernel knows no such place: then there are none.
                Err(Errno::EINVAL) => break,
                // The interface is gone, or has never had any.
                Err(Errno::ENODEV | Errno::ENOENT) => {}
                // It is no pair of netkit, or the end that is not asked.
                Err(Errno::ENXIO | Errno::EACCES) if is_netkit => {}
                // A filter of system calls may say anything, also that there is no such call.
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
    fn one_program_in_either_direction_is_enough() {
        let all = [2, 3, 4, 5].map(|it| interface(it, LinkKind::Pair));
        let found = attached(&all, |index, place| {
            Ok(match (index, place) {
                (2, AttachPoint::TcxIngress) => 1,
                (4, AttachPoint::TcxEgress) => 7,
                // It is no pair of netkit, and is not asked.
                (5, AttachPoint::NetkitPrimary | AttachPoint::NetkitPeer) => 1,
                _ => 0,
            })
        });
        assert_eq!(found, at(&[2, 4]));
        assert_eq!(found.words(), None);
    }

    #[test]
    fn netkit_is_asked_at_the_end_that_may_be_asked() {
        let all = [2, 3, 4].map(|it| interface(it, LinkKind::Part));
        let found = attached(&all, |index, place| match (index, place) {
            (_, AttachPoint::TcxIngress | AttachPoint::TcxEgress) => Ok(0),
            (2, _) => Err(Errno::ENXIO),
            (3, _) => Err(Errno::EACCES),
            _ => Ok(1),
        });
        assert_eq!(found, at(&[4]));
    }

    #[test]
    fn a_kernel_without_them_has_none_and_an_interface_can_go() {
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
    fn who_may_not_ask_says_so() {
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
