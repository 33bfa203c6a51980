//! `palisade compile`: prints the ruleset of a node.

use std::io::Write;

use anyhow::bail;
use palisade_core::model::Cluster;
use palisade_core::plan::plan;
use palisade_core::program::Program;
use palisade_core::text::{nearest, ticked};
use palisade_nft::node::{Generation, NodeOptions, Settings, ruleset};

use crate::Outcome;
use crate::args::{Cli, CompileArgs, Target};
use crate::live::{RelevantKinds, Scope};

/// Prints the ruleset of a node.
pub(crate) fn run(args: &CompileArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    let (scope, relevant) = (Scope::Enforced, RelevantKinds::everything());
    let inputs = crate::cluster::inputs(&args.cluster, cli, scope, &relevant, &[])?;
    let Some(manifests) = crate::cluster::objects(&args.cluster, cli, &inputs) else {
        return Ok(Outcome::Unanswered);
    };
    let lowered = crate::cluster::lowered(&args.cluster, cli, &inputs, &manifests)?;
    crate::cluster::reported_other_policies(cli, &inputs, &manifests);
    let node = node(&lowered.cluster, args.node.as_deref())?;
    let program = crate::cluster::compiled(cli, &lowered.cluster);
    let text = match args.target {
        Target::Nft => nft(&lowered.cluster, &program, node),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Outcome::Clean)
}

/// Returns the node of `--node`, or the only node.
fn node<'c>(cluster: &'c Cluster<'_>, requested: Option<&str>) -> anyhow::Result<&'c str> {
    let names: Vec<&str> = cluster.nodes.iter().map(|node| node.name).collect();
    match (requested, names.as_slice()) {
        (Some(requested), names) => match names.iter().find(|name| **name == requested) {
            Some(name) => Ok(name),
            None => {
                let help = match nearest(requested, names) {
                    Some(name) => format!("; did you mean {}?", ticked(name)),
                    None => String::new(),
                };
                bail!("node {} not found{help}", ticked(requested));
            }
        },
        (None, [only]) => Ok(only),
        (None, []) => bail!("no node in the input; add a Node object"),
        (None, names) => {
            let names: Vec<String> = names.iter().map(|name| ticked(name)).collect();
            bail!("several nodes; choose with --node: {}", names.join(", "));
        }
    }
}

fn nft(cluster: &Cluster<'_>, program: &Program, node: &str) -> String {
    let plan = plan(cluster, program, node);
    // The text is not installed: any generation would do.
    let settings = Settings::of_node(Generation::FIRST, &NodeOptions::default());
    let name = |rule| match program.place(rule) {
        Some(place) => cluster.rule_name(place),
        None => String::new(),
    };
    ruleset(&plan, &settings).text(&name)
}
