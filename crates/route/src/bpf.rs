//! Queries the kernel for eBPF programs, by the one system call without a safe wrapper: one of two
//! shipped files with `unsafe` code.

use nix::errno::Errno;
use nix::libc;

/// The attach points of eBPF links at an interface, by the kernel's numbers (`bpf_attach_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachPoint {
    /// Packets that the interface receives.
    TcxIngress = 46,
    /// Packets that the interface sends.
    TcxEgress = 47,
    /// Packets that the node's end of a netkit pair sends to the pod.
    NetkitPrimary = 54,
    /// Packets that the pod's end sends.
    NetkitPeer = 55,
}

/// Returns the number of programs at an attach point of an interface, in the network namespace of
/// the calling thread.
pub(crate) fn count(interface: u32, point: AttachPoint) -> Result<u32, Errno> {
    const PROG_QUERY: libc::c_int = 16;
    const SIZE: libc::c_uint = 64;
    // `target_ifindex`, `attach_type`, two words of flags, the address of a list (none, so only the
    // number of programs is returned), its length, and unused words.
    let mut query = [0_u32; 16];
    let [target, attach_type, ..] = &mut query;
    (*target, *attach_type) = (interface, point as u32);
    #[allow(
        unsafe_code,
        reason = "no safe function returns which programs are attached"
    )]
    // SAFETY: the kernel reads and writes the 64 bytes of `query` and nothing else: all addresses
    // in them are zero. Any bytes are numbers.
    let result = unsafe { libc::syscall(libc::SYS_bpf, PROG_QUERY, query.as_mut_ptr(), SIZE) };
    Errno::result(result)?;
    let [_, _, _, _, _, _, count, ..] = query;
    Ok(count)
}
