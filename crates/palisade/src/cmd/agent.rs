//! `palisade agent`: enforces policies in the kernel of this node.

use anyhow::Context;
use palisade_agent::backend::Removed;
use palisade_agent::drive::{self, CloseOutcome, Source, World};
use palisade_agent::{BootPolicy, Config, Established, FalseSenders, Nft, Programs, UnknownPods};
use palisade_core::net::CidrText;
use palisade_core::text::ticked;
use palisade_kube::Access;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::Outcome;
use crate::args::agent::{
    AgentArgs, BootPolicyArg, BpfArg, EstablishedArg, FalseSenderArg, OwnNodeArg, UnknownPodArg,
};
use crate::args::{Cli, Color, budget};

/// Runs the agent until a signal ends it, or removes what agents have installed.
pub(crate) fn run(args: &AgentArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    if args.cleanup {
        return clean_up(cli);
    }
    let config = config(args)?;
    if args.close_only {
        return close(&config, cli);
    }
    let source = source(args)?;
    init_log(cli);
    return_freed_memory();
    let world = World {
        source,
        listen: args.listen,
    };
    drive::run(&Nft::default(), config, &world)?;
    Ok(Outcome::Clean)
}

/// Converts the flags.
fn config(args: &AgentArgs) -> anyhow::Result<Config> {
    let node = match &args.node {
        Some(node) => node.clone(),
        None => host_name().context("cannot read the name of this host; set --node NAME")?,
    };
    let mut config = Config::new(&node);
    config.established = match args.established {
        EstablishedArg::Evaluate => Established::Evaluate,
        EstablishedArg::Keep => Established::Keep,
    };
    config.unknown_pods = match args.unknown_pod {
        UnknownPodArg::Drop => UnknownPods::Drop,
        UnknownPodArg::Allow => UnknownPods::Allow,
    };
    config.boot = match args.boot_policy {
        BootPolicyArg::Closed => BootPolicy::Closed,
        BootPolicyArg::Open => BootPolicy::Open,
    };
    config.false_senders = match args.false_sender {
        FalseSenderArg::Drop => FalseSenders::Drop,
        FalseSenderArg::DropEvery => FalseSenders::DropEvery,
        FalseSenderArg::Allow => FalseSenders::Allow,
    };
    config.programs = match args.bpf {
        BpfArg::Refuse => Programs::Refuse,
        BpfArg::Allow => Programs::Allow,
    };
    config.budget = budget(args.namespace_budget);
    config.evaluate_own_node = args.own_node_egress == OwnNodeArg::Evaluate;
    for text in &args.pod_cidr {
        let block = CidrText::parse(text);
        let block = block.with_context(|| format!("--pod-cidr {}", ticked(text)))?;
        config.pod_blocks.push(block.cidr);
    }
    Ok(config)
}

fn close(config: &Config, cli: &Cli) -> anyhow::Result<Outcome> {
    let message = match drive::close(&Nft::default(), config)? {
        CloseOutcome::Closed => {
            "pods of this node are closed until an agent has synced all objects"
        }
        CloseOutcome::Enforced => "policies are already enforced; nothing changed",
        CloseOutcome::Busy => "an agent runs on this node; nothing changed",
    };
    if !cli.quiet {
        anstream::eprintln!("palisade: {message}");
    }
    Ok(Outcome::Clean)
}

/// Starts the thread of the allocator that returns freed memory while the agent is idle.
// Short commands do not start it: it would only take processor time from them.
fn return_freed_memory() {
    if let Err(error) = tikv_jemalloc_ctl::background_thread::write(true) {
        tracing::warn!(
            "cannot start the allocator's background thread; freed memory returns late: {error}"
        );
    }
}

/// Returns the source of objects: the directory of `--source`, otherwise the cluster.
fn source(args: &AgentArgs) -> anyhow::Result<Source> {
    let Some(path) = args.source.clone() else {
        return Ok(Source::Cluster {
            access: Access {
                kubeconfig: args.kubeconfig.clone(),
                context: args.context.clone(),
                ..Access::default()
            },
            with_legacy: args.legacy_apis,
        });
    };
    let metadata = std::fs::metadata(&path);
    let metadata = metadata.with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(metadata.is_dir(), "{} is not a directory", path.display());
    Ok(Source::Directory {
        path,
        recursive: args.recursive,
    })
}

fn clean_up(cli: &Cli) -> anyhow::Result<Outcome> {
    let Removed {
        tables,
        connections,
    } = drive::clean_up(&Nft::default())?;
    if !cli.quiet {
        let s = |count: usize| if count == 1 { "" } else { "s" };
        anstream::eprintln!(
            "palisade: removed {tables} table{} and the marks of {connections} connection{}; nothing is enforced",
            s(tables),
            s(connections)
        );
    }
    Ok(Outcome::Clean)
}

/// Reads the host name, which is the default name of a node.
fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().to_lowercase();
    (!name.is_empty()).then_some(name)
}

/// Sets up the log on standard error.
fn init_log(cli: &Cli) {
    use std::io::IsTerminal;

    let level = match (cli.quiet, cli.verbose) {
        (true, _) => LevelFilter::WARN,
        (_, true) => LevelFilter::DEBUG,
        _ => LevelFilter::INFO,
    };
    let has_colours = match cli.color {
        Color::Auto => std::io::stderr().is_terminal(),
        Color::Always => true,
        Color::Never => false,
    };
    // The agent logs a failure of the API server once; libraries would log every attempt.
    let filter = Targets::new()
        .with_default(LevelFilter::OFF)
        .with_target("palisade", level);
    let layer = tracing_subscriber::fmt::layer()
        .with_target(false)
        .with_ansi(has_colours)
        .with_writer(std::io::stderr);
    tracing_subscriber::registry()
        .with(layer.with_filter(filter))
        .init();
}
