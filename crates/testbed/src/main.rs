//! A real Kubernetes on one machine, from the command line.

use std::env;
use std::fs;
use std::io::{Write as _, stderr, stdout};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use palisade_testbed::{
    Api, Cluster, Error, Extent, Instance, Options, Plugin, Result, Shape, bring_upstream, build,
};

/// A real Kubernetes on one machine, for tests
#[derive(Debug, Parser)]
struct Arguments {
    /// The directory of the testbed
    #[arg(
        long,
        global = true,
        env = "PALISADE_TESTBED_STATE",
        value_name = "DIRECTORY"
    )]
    state: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build missing programs and images; needs Go
    Build {
        /// What to build
        #[arg(long, value_enum, default_value = "all")]
        only: Only,
    },
    /// Start etcd and an API server on the loopback interface
    Api {
        /// Return when it is ready; `down` ends it
        #[arg(long)]
        detach: bool,
        /// More options of kube-apiserver
        #[arg(last = true)]
        server: Vec<String>,
    },
    /// Start a cluster in network namespaces and return when its nodes are ready; `down` ends it
    Up(UpArguments),
    /// Print the processes of a testbed
    Status,
    /// Print a log, or the names of all
    Logs {
        /// The process
        name: Option<String>,
    },
    /// Print the path of a kubeconfig
    Kubeconfig {
        /// The user; a cluster administrator by default
        #[arg(long)]
        user: Option<String>,
        /// The groups of the user, two at most
        #[arg(long, requires = "user")]
        group: Vec<String>,
    },
    /// Run kubectl in a namespace from which the API server is reachable
    Kubectl {
        /// The arguments of kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
    /// Load an archive of images into all nodes
    LoadImage {
        /// The archive, as `docker save` writes it
        archive: PathBuf,
    },
    /// End a testbed and remove all of it
    Down,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Only {
    Api,
    Upstream,
    All,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Cni {
    Ptp,
    Bridge,
}

#[derive(Debug, Args)]
struct UpArguments {
    /// How many nodes
    #[arg(long, default_value_t = 2)]
    nodes: u8,
    /// Run kube-proxy on every node
    #[arg(long)]
    proxy: bool,
    /// How pods are connected
    #[arg(long, value_enum, default_value = "ptp")]
    cni: Cni,
    /// More options of kube-apiserver
    #[arg(last = true)]
    server: Vec<String>,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            let mut text = format!("palisade-testbed: {error}");
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                text.push_str(&format!(": {cause}"));
                source = cause.source();
            }
            let _ = writeln!(stderr(), "{text}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let directory = arguments.state.unwrap_or_else(state);
    let open = || Instance::open(&directory);
    match arguments.command {
        Command::Build { only } => {
            let extent = match only {
                Only::Api => Extent::Api,
                Only::Upstream => return bring_upstream().map(|()| ExitCode::SUCCESS),
                Only::All => Extent::Cluster,
            };
            let binaries = build(extent, &mut stderr())?;
            if extent == Extent::Cluster {
                bring_upstream()?;
            }
            print_line(&binaries.directory().display().to_string());
        }
        Command::Api { detach, server } => {
            let options = Options { server };
            if detach {
                Api::detached(&directory, &options)?;
                print_line(&open()?.kubeconfig().display().to_string());
            } else {
                let api = Api::start(&options)?;
                print_line(&api.kubeconfig().display().to_string());
                wait_for_signal()?;
            }
        }
        Command::Up(up) => {
            let shape = Shape {
                nodes: up.nodes,
                proxy: up.proxy,
                plugin: match up.cni {
                    Cni::Ptp => Plugin::Ptp,
                    Cni::Bridge => Plugin::Bridge,
                },
                server: up.server,
            };
            Cluster::detached(&directory, &shape)?;
            print_line(&open()?.kubeconfig().display().to_string());
        }
        Command::Status => return status(&open()?),
        Command::Logs { name } => logs(&open()?, name.as_deref())?,
        Command::Kubeconfig { user: None, .. } => {
            print_line(&open()?.kubeconfig().display().to_string())
        }
        Command::Kubeconfig {
            user: Some(user),
            group,
        } => {
            let groups: Vec<&str> = group.iter().map(String::as_str).collect();
            let path = open()?.kubeconfig_for(&user, &groups)?;
            print_line(&path.display().to_string());
        }
        Command::Kubectl { words } => {
            let mut kubectl = open()?.kubectl()?;
            let source = kubectl.args(words).exec();
            let program = "kubectl".to_owned();
            return Err(Error::Run { program, source });
        }
        Command::LoadImage { archive } => open()?.load_image(&archive)?,
        // Nothing to remove is a success.
        Command::Down if !directory.exists() => {}
        Command::Down => open()?.down()?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The default directory of a testbed.
fn state() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    let state = env::var_os("XDG_STATE_HOME").filter(|it| !it.is_empty());
    let state = state.map_or_else(|| home().join(".local/state"), PathBuf::from);
    state.join("palisade/testbed")
}

/// Prints a line; an error of the output is ignored.
fn print_line(text: &str) {
    let _ = writeln!(stdout(), "{text}");
}

/// Prints all processes; 1 if one has ended.
fn status(instance: &Instance) -> Result<ExitCode> {
    let mut is_whole = true;
    for (name, pid, is_alive) in instance.processes() {
        let word = if is_alive { "running" } else { "ended" };
        print_line(&format!("{name:<28} {pid:>8} {word}"));
        is_whole &= is_alive;
    }
    Ok(ExitCode::from(u8::from(!is_whole)))
}

fn logs(instance: &Instance, name: Option<&str>) -> Result<()> {
    let Some(name) = name else {
        for (name, ..) in instance.processes() {
            print_line(&name);
        }
        return Ok(());
    };
    let path = instance.log(name)?;
    let text = fs::read(&path).map_err(|source| Error::File {
        verb: "read",
        path,
        source,
    })?;
    let _ = stdout().write_all(&text);
    Ok(())
}

/// Waits for a signal to end.
fn wait_for_signal() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let failed = |source| Error::Run {
        program: "the wait for a signal".to_owned(),
        source,
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.map_err(failed)?.block_on(async {
        let mut end = signal(SignalKind::terminate()).map_err(failed)?;
        let mut hang_up = signal(SignalKind::hangup()).map_err(failed)?;
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = end.recv() => {}
            _ = hang_up.recv() => {}
        }
        Ok(())
    })
}
