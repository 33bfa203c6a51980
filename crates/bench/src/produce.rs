//! Writes one of the clusters with names, which benchmarks use.

use std::fs::File;
use std::io::{BufWriter, Write, stdout};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use palisade_generate::Written;
use palisade_generate::point::{Format, Plan, write};

use crate::compare::progress;

/// The arguments of the command.
#[derive(Debug, Args)]
#[command(after_help = "\
Points:
  S                    300 pods, 30 namespaces, 150 NetworkPolicies
  S20                  the same with 20 cluster-wide policies
  R                    5,413 pods, 604 namespaces, 13,678 NetworkPolicies, 20 cluster-wide
  L                    100,000 pods, 10,000 namespaces, 20,000 NetworkPolicies, 1,000 cluster-wide
  L1                   the same in 1,000 namespaces
  A                    100,000 pods, 25,000 namespaces, 75,000 NetworkPolicies
  X                    150,000 pods, 10,000 namespaces, 250,000 NetworkPolicies, 1,000 x 25 rules
  POINT-structured     cluster-wide policies as administrators write them, not at random
  own-class, one-namespace, policy-per-pod, one-priority, port-ranges, blocks, negative,
  namespace-selectors  10,000 pods with policies that are made to be expensive
  NAME-twin            an ordinary cluster of the same size, for any of the eight

Examples:
  palisade-bench generate S20 -o yaml | palisade check -f -
  palisade-bench generate L --seed 7 -o json --out l.json
  palisade-bench generate S --pods 1000 --network-policies 500 -o yaml --out cluster.yaml")]
pub(crate) struct ProduceArgs {
    /// The cluster, by name
    point: String,
    /// The seed that all choices follow from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How it is written
    #[arg(short, long, value_enum, default_value_t = Output::Json)]
    output: Output,
    /// The file to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Another number of pods
    #[arg(long)]
    pods: Option<u64>,
    /// Another number of namespaces
    #[arg(long)]
    namespaces: Option<u64>,
    /// Another number of NetworkPolicies
    #[arg(long)]
    network_policies: Option<u64>,
    /// Another number of cluster-wide policies
    #[arg(long)]
    admin_policies: Option<u64>,
    /// The average number of pods of a node; 0 for no nodes
    #[arg(long, default_value_t = 50)]
    pods_per_node: u64,
    /// The percentage of applications with a Service
    #[arg(long, default_value_t = 30, value_name = "PERCENT")]
    services: u64,
    /// The percentage of pods that also have an IPv6 address
    #[arg(long, default_value_t = 0, value_name = "PERCENT")]
    dual_stack: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// One compact List
    Json,
    /// Documents in block style, as kubectl prints them
    Yaml,
}

/// The plan of a name, or a message that lists the names.
pub(crate) fn named(name: &str) -> Result<Plan> {
    Plan::named(name).with_context(|| {
        let points = Plan::points().map(|(name, _)| name);
        let all = points.chain(Plan::adversaries().map(|(name, _)| name));
        let all: Vec<&str> = all.collect();
        format!("no cluster is named `{name}`; there are {}", all.join(", "))
    })
}

/// Writes the cluster, and prints its counts unless standard output has the cluster.
pub(crate) fn produce(args: &ProduceArgs) -> Result<()> {
    let mut plan = named(&args.point)?;
    plan.seed = args.seed;
    plan.pods = args.pods.unwrap_or(plan.pods);
    plan.namespaces = args.namespaces.unwrap_or(plan.namespaces);
    plan.network_policies = args.network_policies.unwrap_or(plan.network_policies);
    plan.admin_policies = args.admin_policies.unwrap_or(plan.admin_policies);
    plan.spread.pods_per_node = (args.pods_per_node > 0).then_some(args.pods_per_node);
    plan.spread.service_percent = args.services;
    plan.spread.dual_stack_percent = args.dual_stack;
    let format = match args.output {
        Output::Json => Format::Json,
        Output::Yaml => Format::Yaml,
    };
    let out: Box<dyn Write> = match &args.out {
        Some(path) => {
            let file = File::create(path);
            Box::new(file.with_context(|| format!("cannot write `{}`", path.display()))?)
        }
        None => Box::new(stdout()),
    };
    let written = write(&plan, format, &mut BufWriter::with_capacity(1 << 20, out))?;
    let Written { objects, bytes, .. } = written;
    progress(&format!("{objects} objects, {:.1} MB", bytes as f64 / 1e6))
}
