//! The start of etcd and the API server: their addresses and options.

use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::authority::{Authority, Credentials, signing_key, write};
use crate::binaries::Binaries;
use crate::error::{Result, at};
use crate::home::Home;
use crate::process::command;

/// The range of the addresses of Services.
pub(crate) const SERVICES: &str = "10.96.0.0/16";

/// Names that clients in and outside a cluster know the server by.
const NAMES: &[&str] = &[
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// The first address of the range of Services, which is the server's.
const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1));

/// Logs every request once, with its response.
const AUDIT: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
";

/// The addresses of the two servers, and their network namespace.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    pub(crate) namespace: Option<PathBuf>,
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    etcd: u16,
    etcd_peer: u16,
}

impl Location {
    /// On the loopback interface, with free ports from the kernel.
    pub(crate) fn loopback() -> Result<Location> {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        // All are bound until all are known, or the kernel could return one of them twice.
        let listeners = [0; 3].map(|port| TcpListener::bind((address, port)));
        let mut ports = [0; 3];
        for (port, listener) in ports.iter_mut().zip(listeners) {
            let bound = listener.and_then(|it| it.local_addr());
            *port = bound
                .map_err(at("listen on", Path::new("127.0.0.1")))?
                .port();
        }
        let [port, etcd, etcd_peer] = ports;
        Ok(Location {
            namespace: None,
            address,
            port,
            etcd,
            etcd_peer,
        })
    }

    /// In a network namespace without other servers.
    pub(crate) fn within(namespace: &Path, address: IpAddr) -> Location {
        Location {
            namespace: Some(namespace.to_owned()),
            address,
            port: 6443,
            etcd: 2379,
            etcd_peer: 2380,
        }
    }

    /// The address of the server for clients.
    pub(crate) fn url(&self) -> String {
        format!("https://{}:{}", self.address, self.port)
    }

    /// Whether the port is open; always true if it cannot be checked from outside a namespace.
    /// Cheaper than a program.
    pub(crate) fn is_open(&self) -> bool {
        self.namespace.is_some() || TcpStream::connect((self.address, self.port)).is_ok()
    }

    /// A program in a namespace from which the server is reachable.
    pub(crate) fn enter(&self, program: &Path) -> Command {
        match &self.namespace {
            None => Command::new(program),
            Some(namespace) => {
                let mut net = std::ffi::OsString::from("--net=");
                net.push(namespace);
                let mut entered = command("nsenter", [net.as_os_str(), "--".as_ref()]);
                entered.arg(program);
                entered
            }
        }
    }
}

/// The keys and certificates that the servers need.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) authority: Authority,
    server: Credentials,
    store: Credentials,
    pub(crate) service_accounts: PathBuf,
    tokens: PathBuf,
    kubelet_client: Credentials,
    audit_policy: PathBuf,
}

impl Keys {
    /// Creates all of them.
    pub(crate) fn make(home: &Home, address: IpAddr) -> Result<Keys> {
        let directory = home.subdirectory("pki")?;
        let authority = Authority::make("ca", &directory)?;
        // A certificate of etcd's authority grants full access: users must not have one.
        let store = Authority::make("etcd-ca", &directory)?;
        let addresses = [address, SERVICE];
        let keys = Keys {
            server: authority.server("server", ("kube-apiserver", &[]), NAMES, &addresses)?,
            store: store.server("etcd", ("etcd", &[]), &["localhost"], &[address])?,
            kubelet_client: authority.client(
                "kubelet-client",
                "kube-apiserver-kubelet-client",
                &["system:masters"],
            )?,
            service_accounts: directory.join("service-accounts.key"),
            tokens: directory.join("service-accounts.pub"),
            audit_policy: home.file("audit-policy.yaml"),
            authority,
        };
        signing_key(&keys.service_accounts, &keys.tokens)?;
        write(&keys.audit_policy, AUDIT)?;
        Ok(keys)
    }
}

/// A path as the value of an option.
fn option(name: &str, value: impl AsRef<Path>) -> String {
    format!("--{name}={}", value.as_ref().display())
}

/// The store.
pub(crate) fn etcd(home: &Home, binaries: &Binaries, location: &Location, keys: &Keys) -> Command {
    let clients = format!("https://{}:{}", location.address, location.etcd);
    let peers = format!("http://{}:{}", location.address, location.etcd_peer);
    let mut command = location.enter(&binaries.path("etcd"));
    command.args([
        "--name=testbed".to_owned(),
        option("data-dir", home.file("etcd")),
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster=testbed={peers}"),
        option("cert-file", &keys.store.certificate),
        option("key-file", &keys.store.key),
        option("trusted-ca-file", &keys.store.authority),
        "--client-cert-auth".to_owned(),
        // The data of a test need not survive the machine.
        "--unsafe-no-fsync".to_owned(),
        // A hundred thousand pods, with their history, exceed the default limit of 2 GB.
        "--quota-backend-bytes=8589934592".to_owned(),
        "--log-level=warn".to_owned(),
    ]);
    command
}

/// The API server.
pub(crate) fn api_server(
    home: &Home,
    binaries: &Binaries,
    location: &Location,
    keys: &Keys,
    more: &[String],
) -> Command {
    let mut command = location.enter(&binaries.path("kube-apiserver"));
    command.args([
        format!(
            "--etcd-servers=https://{}:{}",
            location.address, location.etcd
        ),
        option("etcd-cafile", &keys.store.authority),
        option("etcd-certfile", &keys.store.certificate),
        option("etcd-keyfile", &keys.store.key),
        format!("--bind-address={}", location.address),
        format!("--advertise-address={}", location.address),
        format!("--secure-port={}", location.port),
        option("tls-cert-file", &keys.server.certificate),
        option("tls-private-key-file", &keys.server.key),
        option("client-ca-file", keys.authority.certificate()),
        option("service-account-key-file", &keys.tokens),
        option("service-account-signing-key-file", &keys.service_accounts),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        option(
            "kubelet-certificate-authority",
            keys.authority.certificate(),
        ),
        option(
            "kubelet-client-certificate",
            &keys.kubelet_client.certificate,
        ),
        option("kubelet-client-key", &keys.kubelet_client.key),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--service-cluster-ip-range={SERVICES}"),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        option("audit-policy-file", &keys.audit_policy),
        option("audit-log-path", home.file("audit.log")),
        "--profiling=false".to_owned(),
        "--shutdown-send-retry-after=false".to_owned(),
    ]);
    command.args(more);
    command
}
