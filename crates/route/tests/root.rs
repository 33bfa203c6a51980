//! What only root of the machine may do, in network namespaces of these tests' own: attach programs
//! of eBPF by tcx, and make virtual services.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::process::{Command, ExitCode};

use nix::libc;
use palisade_need::{Need, Test, own_network, run_in_turn};
use palisade_route::{
    Bypass, HookPoint, NodeInterface, Routes, VirtualServices, elsewhere, on_path, programs,
    services,
};

/// The kernel attaches programs by tcx.
const TCX: Need = Need {
    word: "tcx",
    what: "Linux 6.6 or newer with CONFIG_BPF_SYSCALL and CONFIG_NET_XGRESS",
    how: "boot such a kernel",
    look: || {
        let loaded = load().map_err(|error| error.to_string())?;
        // A kernel that could attach it misses the interface.
        match attach(&loaded, u32::MAX >> 1, TCX_INGRESS) {
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            other => Err(format!("it cannot be attached: {other:?}")),
        }
    },
};

const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;

fn main() -> ExitCode {
    let found = Test::new("programs that are attached by tcx are seen", tcx);
    let services = Test::new("services of IPVS are seen without an interface", ipvs);
    run_in_turn([
        found.needs(&[Need::ROOT, Need::IP, TCX]),
        services.needs(&[Need::ROOT]),
    ])
}

/// A call of `bpf(2)`. `attributes` are what the command wants, and may hold addresses of what
/// lives as long.
fn bpf(command: libc::c_int, attributes: &mut [u64]) -> io::Result<RawFd> {
    let size = size_of_val(attributes);
    #[allow(unsafe_code, reason = "no safe function loads a program")]
    // SAFETY: the kernel reads `size` bytes that are there, and at the addresses that the callers
    // below put into them, of values that they borrow.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), size) };
    match RawFd::try_from(done) {
        Ok(number) if number >= 0 => Ok(number),
        _ => Err(io::Error::last_os_error()),
    }
}

fn file(number: RawFd) -> File {
    #[allow(unsafe_code, reason = "the kernel returns it as a number")]
    // SAFETY: the kernel has just opened it, and no other code has it.
    unsafe {
        File::from_raw_fd(number)
    }
}

/// A program of two instructions, which leaves every packet to whatever comes next: r0 = -1
/// (TCX_NEXT); exit.
fn load() -> io::Result<File> {
    const PROG_LOAD: libc::c_int = 5;
    const SCHED_CLS: u64 = 3;
    let instructions: [u64; 2] = [0xffff_ffff_0000_00b7, 0x95];
    let license = c"GPL";
    let count = 2_u64;
    let mut attributes = [
        SCHED_CLS | count << 32,
        instructions.as_ptr() as u64,
        license.as_ptr() as u64,
    ];
    bpf(PROG_LOAD, &mut attributes).map(file)
}

/// Attaches a program to an interface for as long as the link is open.
fn attach(program: &File, interface: u32, attach_type: u32) -> io::Result<File> {
    const LINK_CREATE: libc::c_int = 28;
    let program = u64::from(program.as_raw_fd().unsigned_abs());
    let mut attributes = [
        program | u64::from(interface) << 32,
        u64::from(attach_type),
        0,
        0,
    ];
    bpf(LINK_CREATE, &mut attributes).map(file)
}

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).output().unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {words}: {error}");
}

fn index(interfaces: &[NodeInterface], name: &str) -> u32 {
    interfaces.iter().find(|it| it.name == name).unwrap().index
}

/// At a pod, at an uplink, in either direction, and where no packet of a pod passes.
fn tcx() {
    own_network().unwrap();
    for words in [
        "link add veth1 type veth peer name pod1",
        "link set veth1 up",
        "link set pod1 up",
        "route add 10.1.0.1/32 dev veth1",
        "link add up1 type veth peer name world1",
        "link set up1 up",
        "link set world1 up",
        "addr add 203.0.113.1/24 dev up1",
        "route add 10.88.0.0/16 via 203.0.113.254",
        "link add docker1 type veth peer name container1",
    ] {
        ip(words);
    }
    let pod: IpAddr = "10.1.0.1".parse().unwrap();
    let found = || {
        let mut routes = Routes::open().unwrap();
        let ways = routes.pod_routes([pod].into_iter()).unwrap();
        let (interfaces, gateways) = routes.interfaces().unwrap();
        let elsewhere = elsewhere(&interfaces, &gateways, &ways);
        let way = on_path(&interfaces, &elsewhere, &ways);
        let attached = routes.attached(&interfaces);
        assert_eq!(attached.refused, None);
        let filtered = routes.filtered().unwrap();
        assert_eq!(filtered, BTreeSet::new(), "tcx is no filter");
        programs(&interfaces, &way, &filtered, &attached.at)
    };
    let program = |interface: &str| Bypass::Program {
        interface: interface.to_owned(),
        point: HookPoint::Tcx,
    };
    assert_eq!(found(), []);
    let (interfaces, _) = Routes::open().unwrap().interfaces().unwrap();
    let loaded = load().unwrap();
    let attach = |name, attach_type| {
        attach(&loaded, index(&interfaces, name), attach_type).expect("a kernel with tcx")
    };
    let of_another = attach("docker1", TCX_INGRESS);
    assert_eq!(found(), []);
    let egress = attach("veth1", TCX_EGRESS);
    assert_eq!(found(), [program("veth1")]);
    let ingress = attach("up1", TCX_INGRESS);
    assert_eq!(found(), [program("up1"), program("veth1")]);
    drop(egress);
    assert_eq!(found(), [program("up1")]);
    drop(ingress);
    assert_eq!(found(), []);
    drop(of_another);
}

fn ipvs() {
    own_network().unwrap();
    let found = || {
        let mut routes = Routes::open().unwrap();
        let (interfaces, _) = routes.interfaces().unwrap();
        let listed = routes.virtual_services().unwrap();
        (services(&interfaces, &listed), listed)
    };
    let (is_found, listed) = found();
    assert!(!is_found, "{listed:?}");
    let service = ["-A", "-t", "192.0.2.1:443", "-s", "rr"];
    let made = Command::new("ipvsadm").args(service).output();
    // Not every kernel has IPVS, and not every machine the program.
    if let (VirtualServices::Listed(_), Ok(made)) = (listed, made) {
        assert!(made.status.success(), "{made:?}");
        assert!(found().0);
    }
}
