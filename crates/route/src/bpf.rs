//! Asks the kernel for programs of eBPF by the one system call that no safe function makes: one of two shipped files with
//! `unsafe` code.

use nix::errno::Errno;
use nix::libc;

/// Where an interface has programs that are attached by links of eBPF, by the kernel's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachPoint {
    /// What the interface receives.
    TcxIngress = 46,
    /// What it sends.
    TcxEgress = 47,
    /// What the node's end of a netkit pair sends to the pod.
    NetkitPrimary = 54,
    /// What the pod's end sends.
    NetkitPeer = 55,
}

/// How many programs an interface of the calling thread's network namespace has in a place.
pub(crate) fn count(interface: u32, place: AttachPoint) -> Result<u32, Errno> {
    const PROG_QUERY: libc::c_int = 16;
    const SIZE: libc::c_uint = 64;
    // The interface, the place, flags twice, the address of a list (none), its length, and what is not used.
    let mut query = [0_u32; 16];
    let [target, attach_type, ..] = &mut query;
    (*target, *attach_type) = (interface, place as u32);
    #[allow(
        unsafe_code,
        reason = "no safe function asks which programs are attached"
    )]
    // SAFETY: the kernel reads and writes the 64 bytes of `query` and nothing else: all addresses in them are zero. Any
    // bytes are numbers.
    let done = unsafe { libc::syscall(libc::SYS_bpf, PROG_QUERY, query.as_mut_ptr(), SIZE) };
    Errno::result(done)?;
    let [_, _, _, _, _, _, count, ..] = query;
    Ok(count)
}
