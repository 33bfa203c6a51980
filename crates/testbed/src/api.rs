//! An API server of one's own: etcd and kube-apiserver, and everything that belongs to them.

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
use crate::server::{Keys, Seat, api_server, etcd};

/// How long a server may take until it answers, on a busy machine.
const READY: Duration = Duration::from_secs(120);

/// How an API server is to be.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// More options of kube-apiserver, such as `--runtime-config=…`; the last of a name counts.
    pub server: Vec<String>,
}

/// An API server that runs. When it is dropped it ends and leaves nothing; if its process is killed, it ends as well.
///
/// There are no controllers: namespaces that are deleted stay, nothing is collected, and pods are what one writes. Service accounts
/// are not asked for when pods are made.
#[derive(Debug)]
pub struct Api {
    // Fields are dropped in this order: the guard removes what is left when all have ended.
    server: Option<Process>,
    etcd: Process,
    guard: Option<Guard>,
    home: Home,
    binaries: Binaries,
    seat: Seat,
    keys: Keys,
    admin: Credentials,
    options: Vec<String>,
    is_owned: bool,
}

impl Api {
    /// Starts one in a directory for a while, on ports of the loopback interface, and waits until it is ready.
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
                // Somebody took a port between our asking for it and the server's.
                Err(Error::Ended { log, .. }) if log.contains("address already in use") => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::Refused(
            "every port that was free was taken before the server started".to_owned(),
        ))
    }

    /// Starts one in a directory that must not exist yet, which goes on when this process ends.
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
            // Nobody would make the accounts.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            // A loopback address cannot be the endpoint of a Service.
            "--endpoint-reconciler-type=none".to_owned(),
        ];
        more.extend(options.server.iter().cloned());
        Api::at(home, binaries, Seat::loopback()?, more)
    }

    /// Starts one at a seat.
    pub(crate) fn at(
        home: &Home,
        binaries: &Binaries,
        seat: Seat,
        options: Vec<String>,
    ) -> Result<Api> {
        let keys = Keys::make(home, seat.address)?;
        let admin = keys
            .authority
            .client("admin", "admin", &["system:masters"])?;
        kubeconfig(&home.file("admin.kubeconfig"), &seat.url(), "admin", &admin)?;
        write(&home.file("url"), &seat.url())?;
        let etcd = home.start("etcd", etcd(home, binaries, &seat, &keys))?;
        let mut api = Api {
            server: None,
            etcd,
            guard: None,
            home: home.clone(),
            binaries: binaries.clone(),
            seat,
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
            &self.seat,
            &self.keys,
            &self.options,
        );
        let server = self.home.start("kube-apiserver", command)?;
        let server = self.server.insert(server);
        let end = Instant::now() + READY;
        loop {
            self.etcd.check()?;
            server.check()?;
            if !self.seat.is_open() && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            let mut ask = self.seat.enter(&self.binaries.path("kubectl"));
            ask.arg("--kubeconfig")
                .arg(self.home.file("admin.kubeconfig"));
            ask.args(["get", "--raw=/readyz", "--request-timeout=2s"]);
            match run(ask, Duration::from_secs(5)) {
                Ok(_) => return Ok(()),
                Err(_) if Instant::now() < end => std::thread::sleep(Duration::from_millis(50)),
                Err(error) => {
                    return Err(Error::Late {
                        what: format!("the API server at {}", self.seat.url()),
                        seconds: READY.as_secs(),
                        said: format!("{error}\n{}", server.said()),
                    });
                }
            }
        }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        self.seat.url()
    }

    /// A kubeconfig for somebody who may do everything.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.file("admin.kubeconfig")
    }

    /// The certificate of somebody who may do everything, and that of the authority.
    pub fn admin(&self) -> &Credentials {
        &self.admin
    }

    /// A kubeconfig for any user, who may do what roles say. There is room for two groups.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        user_kubeconfig(
            &self.home,
            &self.keys.authority,
            &self.seat.url(),
            user,
            groups,
        )
    }

    /// The file in which every request is written down, one JSON object a line.
    pub fn audit_log(&self) -> PathBuf {
        self.home.file("audit.log")
    }

    /// The directory of everything.
    pub fn directory(&self) -> &Path {
        &self.home.directory
    }

    /// The pinned kubectl, as somebody who may do everything.
    pub fn kubectl(&self) -> Command {
        let mut command = self.seat.enter(&self.binaries.path("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig());
        command
    }

    /// Ends the API server at once; the store goes on. Connections break, and new ones are refused.
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

    /// Stops the API server in its tracks: connections stay open, and nobody answers.
    pub fn pause(&self) {
        if let Some(server) = &self.server {
            server.identity.signal(Signal::STOP);
        }
    }

    /// Lets a paused API server go on.
    pub fn resume(&self) {
        if let Some(server) = &self.server {
            server.identity.signal(Signal::CONT);
        }
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// What it leaves when it is dropped is somebody else's to remove.
    pub(crate) fn disown(&mut self) {
        self.is_owned = false;
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        if self.is_owned {
            self.stop_server();
            self.etcd.kill();
            // What could not be removed is the guard's to try once more; nobody could be told here.
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

/// A name that nobody else has: this process, and how many were asked for before.
pub(crate) fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let process = crate::home::myself();
    let asked = ASKED.fetch_add(1, Ordering::Relaxed);
    format!("{}-{}-{asked}", process.pid, process.start)
}
