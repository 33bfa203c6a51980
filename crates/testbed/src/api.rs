//! A private API server: etcd and kube-apiserver, with their certificates and files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::authority::{Credentials, write};
use crate::binaries::{Binaries, available};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::home::Home;
use crate::kubeconfig::kubeconfig;
use crate::process::{Process, run};
use crate::remove::remove;
use crate::server::{Keys, Location, api_server, etcd};

/// The timeout for the start of a server, on a busy machine.
const READY: Duration = Duration::from_secs(120);

/// The options of an API server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// More options of kube-apiserver, such as `--runtime-config=…`; the last of a name counts.
    pub server: Vec<String>,
}

/// A running API server. Dropping it ends and removes everything; if its process is killed, it ends
/// as well.
///
/// There are no controllers: deleted namespaces stay, there is no garbage collection, and pods are
/// created by hand. Pods need no service account.
#[derive(Debug)]
pub struct Api {
    // Fields are dropped in this order: the guard removes what is left when all have ended.
    server: Option<Process>,
    etcd: Process,
    guard: Option<Guard>,
    home: Home,
    binaries: Binaries,
    location: Location,
    keys: Keys,
    admin: Credentials,
    options: Vec<String>,
    is_owned: bool,
}

impl Api {
    /// Starts one in a temporary directory, on ports of the loopback interface, and waits until it
    /// is ready.
    pub fn start(options: &Options) -> Result<Api> {
        let binaries = available()?;
        for _ in 0..3 {
            let directory = std::env::temp_dir().join(format!("palisade-api-{}", unique()));
            let home = Home::make(&directory)?;
            let guard = Guard::over(&home)?;
            match Api::loopback(&home, &binaries, options) {
                Ok(mut api) => {
                    api.guard = Some(guard);
                    return Ok(api);
                }
                // Another process took a port before the server bound it.
                Err(Error::Ended { log, .. }) if log.contains("address already in use") => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Refused(
            "other processes took every free port before the server started".to_owned(),
        ))
    }

    /// Starts one in a directory that must not exist yet; it keeps running when this process ends.
    pub fn detached(directory: &Path, options: &Options) -> Result<()> {
        let binaries = available()?;
        let home = Home::make(directory)?;
        match Api::loopback(&home, &binaries, options) {
            Ok(mut api) => {
                api.is_owned = false;
                Ok(())
            }
            Err(error) => {
                remove(&home)?;
                Err(error)
            }
        }
    }

    fn loopback(home: &Home, binaries: &Binaries, options: &Options) -> Result<Api> {
        let mut more = vec![
            // No controller would create the accounts.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            // A loopback address cannot be the endpoint of a Service.
            "--endpoint-reconciler-type=none".to_owned(),
        ];
        more.extend(options.server.iter().cloned());
        Api::at(home, binaries, Location::loopback()?, more)
    }

    /// Starts one at an address.
    pub(crate) fn at(
        home: &Home,
        binaries: &Binaries,
        location: Location,
        options: Vec<String>,
    ) -> Result<Api> {
        let keys = Keys::make(home, location.address)?;
        let admin = keys
            .authority
            .client("admin", "admin", &["system:masters"])?;
        kubeconfig(
            &home.file("admin.kubeconfig"),
            &location.url(),
            "admin",
            &admin,
        )?;
        write(&home.file("url"), &location.url())?;
        let etcd = home.start("etcd", etcd(home, binaries, &location, &keys))?;
        let mut api = Api {
            server: None,
            etcd,
            guard: None,
            home: home.clone(),
            binaries: binaries.clone(),
            location,
            keys,
            admin,
            options,
            is_owned: true,
        };
        api.launch()?;
        Ok(api)
    }

    /// Starts the server and waits until it is ready.
    fn launch(&mut self) -> Result<()> {
        let command = api_server(
            &self.home,
            &self.binaries,
            &self.location,
            &self.keys,
            &self.options,
        );
        let server = self.home.start("kube-apiserver", command)?;
        let server = self.server.insert(server);
        let end = Instant::now() + READY;
        loop {
            self.etcd.check()?;
            server.check()?;
            if !self.location.is_open() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            let mut ask = self.location.enter(&self.binaries.path("kubectl"));
            ask.arg("--kubeconfig")
                .arg(self.home.file("admin.kubeconfig"));
            ask.args(["get", "--raw=/readyz", "--request-timeout=2s"]);
            match run(ask, Duration::from_secs(5)) {
                Ok(_) => return Ok(()),
                Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(50)),
                Err(error) => {
                    return Err(Error::Timeout {
                        what: format!("the API server at {}", self.location.url()),
                        seconds: READY.as_secs(),
                        output: format!("{error}\n{}", server.output()),
                    });
                }
            }
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        self.location.url()
    }

    /// A kubeconfig of a cluster administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.file("admin.kubeconfig")
    }

    /// The certificate of a cluster administrator, and that of the authority.
    pub fn admin(&self) -> &Credentials {
        &self.admin
    }

    /// A kubeconfig for any user, with the rights of its roles and at most two groups.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        user_kubeconfig(
            &self.home,
            &self.keys.authority,
            &self.location.url(),
            user,
            groups,
        )
    }

    /// The audit log: one JSON object a line for every request.
    pub fn audit_log(&self) -> PathBuf {
        self.home.file("audit.log")
    }

    /// The directory of all its files.
    pub fn directory(&self) -> &Path {
        &self.home.directory
    }

    /// The pinned kubectl, as a cluster administrator.
    pub fn kubectl(&self) -> Command {
        let mut command = self.location.enter(&self.binaries.path("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command
    }

    /// Kills the API server; etcd keeps running. Connections break, and new ones are refused.
    pub fn stop_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill();
        }
    }

    /// Starts the API server again, on the same port and data, and waits until it is ready.
    pub fn start_server(&mut self) -> Result<()> {
        self.stop_server();
        self.launch()
    }

    /// Ends the API server and starts it again.
    pub fn restart(&mut self) -> Result<()> {
        self.start_server()
    }

    /// Pauses the API server: connections stay open, and requests get no response.
    pub fn pause(&self) {
        if let Some(server) = &self.server {
            server.identity.signal(Signal::STOP);
        }
    }

    /// Resumes a paused API server.
    pub fn resume(&self) {
        if let Some(server) = &self.server {
            server.identity.signal(Signal::CONT);
        }
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Leaves the removal to another owner when it is dropped.
    pub(crate) fn disown(&mut self) {
        self.is_owned = false;
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        if self.is_owned {
            self.stop_server();
            self.etcd.kill();
            // The guard tries once more to remove the rest; `drop` cannot report an error.
            let _ = remove(&self.home);
        }
    }
}

/// Writes a certificate and a kubeconfig for a user.
pub(crate) fn user_kubeconfig(
    home: &Home,
    authority: &crate::authority::Authority,
    url: &str,
    user: &str,
    groups: &[&str],
) -> Result<PathBuf> {
    home.subdirectory("pki/users")?;
    let file = format!("users/{}", unique());
    let credentials = authority.client(&file, user, groups)?;
    let path = home.file(&format!("pki/{file}.kubeconfig"));
    kubeconfig(&path, url, user, &credentials)?;
    Ok(path)
}

/// A unique name: this process, and a counter.
pub(crate) fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let process = crate::home::myself();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{}-{count}", process.pid, process.start)
}
