//! The programs of a testbed, the directory of their builds, and what is missing here.

use std::env;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

/// The release of Kubernetes.
pub const KUBERNETES: &str = "v1.35.4";

/// A module that pins programs, with its files, which are part of this crate.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) name: &'static str,
    pub(crate) files: &'static [(&'static str, &'static str)],
}

pub(crate) const ETCD: Module = Module {
    name: "etcd",
    files: &[
        ("go.mod", include_str!("../go/etcd/go.mod")),
        ("go.sum", include_str!("../go/etcd/go.sum")),
    ],
};

pub(crate) const KUBE: Module = Module {
    name: "kubernetes",
    files: &[
        ("go.mod", include_str!("../go/kubernetes/go.mod")),
        ("go.sum", include_str!("../go/kubernetes/go.sum")),
    ],
};

pub(crate) const PAUSE: Module = Module {
    name: "pause",
    files: &[
        ("go.mod", include_str!("../go/pause/go.mod")),
        ("main.go", include_str!("../go/pause/main.go")),
    ],
};

/// One program: its name, the module that pins it and its package.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) module: &'static Module,
    pub(crate) package: &'static str,
}

const fn program(name: &'static str, module: &'static Module, package: &'static str) -> Program {
    Program {
        name,
        module,
        package,
    }
}

/// The programs of an API server.
pub(crate) const API: &[Program] = &[
    program("etcd", &ETCD, "go.etcd.io/etcd/server/v3"),
    program(
        "kube-apiserver",
        &KUBE,
        "k8s.io/kubernetes/cmd/kube-apiserver",
    ),
    program("kubectl", &KUBE, "k8s.io/kubernetes/cmd/kubectl"),
];

/// The other programs of a whole cluster.
pub(crate) const REST: &[Program] = &[
    program(
        "kube-controller-manager",
        &KUBE,
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    program(
        "kube-scheduler",
        &KUBE,
        "k8s.io/kubernetes/cmd/kube-scheduler",
    ),
    program("kubelet", &KUBE, "k8s.io/kubernetes/cmd/kubelet"),
    program("agnhost", &KUBE, "k8s.io/kubernetes/test/images/agnhost"),
    program("kube-proxy", &KUBE, "k8s.io/kubernetes/cmd/kube-proxy"),
    program("pause", &PAUSE, "."),
];

/// The images that a cluster needs, as archives beside the programs.
pub(crate) const IMAGES: &[&str] = &["pause.tar", "agnhost.tar"];

/// Programs of the machine that a cluster needs, with their Debian packages.
const FROM_THE_SYSTEM: &[(&str, &str)] = &[
    ("containerd", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("unshare", "util-linux"),
    ("mount", "mount"),
    ("umount", "mount"),
    ("nft", "nftables"),
    ("iptables", "iptables"),
];

/// The directory of the CNI plugins.
pub(crate) const PLUGINS: &str = "/usr/lib/cni";

/// The directory of the pinned programs, which is complete.
#[derive(Debug, Clone)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    pub(crate) fn at(directory: PathBuf) -> Binaries {
        Binaries { directory }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// One of the programs or images.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// A missing program, and the command that installs it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct Missing {
    /// What is missing.
    pub what: String,
    /// The command that installs it.
    pub remedy: String,
}

/// The directory of the programs of these versions: `$PALISADE_TESTBED_BIN`, or a directory of the
/// user's cache. Its name has a hash of everything that is pinned: other versions have another
/// directory.
pub fn cache() -> PathBuf {
    if let Some(directory) = env::var_os("PALISADE_TESTBED_BIN") {
        return directory.into();
    }
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    let cache = env::var_os("XDG_CACHE_HOME").filter(|it| !it.is_empty());
    let cache = cache.map_or_else(|| home().join(".cache"), PathBuf::from);
    cache.join("palisade/testbed").join(fingerprint())
}

/// A hash of all pinned versions and the recipe of images.
fn fingerprint() -> String {
    let mut text = String::from("1\n");
    for module in [&ETCD, &KUBE, &PAUSE] {
        for (name, content) in module.files {
            text.push_str(name);
            text.push_str(content);
        }
    }
    let hash = digest(&SHA256, text.as_bytes());
    let mut letters = String::new();
    for byte in hash.as_ref().iter().take(6) {
        // Writing to a string cannot fail.
        let _ = write!(letters, "{byte:02x}");
    }
    letters
}

/// The programs for an API server, if they have been built.
pub fn available() -> Result<Binaries, Missing> {
    let names: Vec<&str> = API.iter().map(|it| it.name).collect();
    find(&names, "build --only api")
}

/// The programs and images for a whole cluster, if they have been built, and if this machine has
/// the rest.
pub fn cluster_available() -> Result<Binaries, Missing> {
    let programs = API.iter().chain(REST).map(|it| it.name);
    let names: Vec<&str> = programs.chain(IMAGES.iter().copied()).collect();
    let binaries = find(&names, "build")?;
    let path = env::var_os("PATH").unwrap_or_default();
    for (program, package) in FROM_THE_SYSTEM {
        if !env::split_paths(&path).any(|it| it.join(program).is_file()) {
            return Err(from_debian(program, package));
        }
    }
    if !Path::new(PLUGINS).join("host-local").is_file() {
        let what = format!("{PLUGINS}/host-local");
        return Err(from_debian(&what, "containernetworking-plugins"));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Missing {
            what: "a cluster needs root, for namespaces and containers".to_owned(),
            remedy: "run this as root".to_owned(),
        });
    }
    Ok(binaries)
}

/// Programs of the cache by name.
fn find(names: &[&str], command: &str) -> Result<Binaries, Missing> {
    let directory = cache();
    let absent = names.iter().filter(|it| !directory.join(it).is_file());
    let absent: Vec<&str> = absent.copied().collect();
    if absent.is_empty() {
        return Ok(Binaries { directory });
    }
    Err(Missing {
        what: format!("not built yet: {}", absent.join(", ")),
        remedy: format!(
            "`cargo run -p palisade-testbed -- {command}` does it, with Go, in some minutes"
        ),
    })
}

/// The error for a missing file, with the package of the distribution that has it.
pub(crate) fn from_debian(what: &str, package: &str) -> Missing {
    Missing {
        what: format!("{what} not found"),
        remedy: format!("on Debian, run `apt-get install {package}`"),
    }
}
