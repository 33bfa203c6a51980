//! `palisade compile`: what would be programmed on a node, as text.

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
    let (scope, matters) = (Scope::Enforced, RelevantKinds::everything());
    let inputs = crate::cluster::inputs(&args.cluster, cli, scope, &matters, &[])?;
    let Some(manifests) = crate::cluster::objects(&args.cluster, cli, &inputs) else {
        return Ok(Outcome::Unanswered);
    };
    let lowered = crate::cluster::lowered(&args.cluster, cli, &inputs, &manifests)?;
    let node = node(&lowered.cluster, args.node.as_deref())?;
    let program = crate::cluster::compiled(cli, &lowered.cluster);
    let text = match args.target {
        Target::Nft => nft(&lowered.cluster, &program, node),
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Outcome::Clean)
}

/// The node that is meant; there is no need to say so if there is only one.
fn node<'c>(cluster: &'c Cluster<'_>, asked: Option<&str>) -> anyhow::Result<&'c str> {
    let names: Vec<&str> = cluster.nodes.iter().map(|node| node.name).collect();
    match (asked, names.as_slice()) {
        (Some(asked), names) => match names.iter().find(|name| **name == asked) {
            Some(name) => Ok(name),
            None => {
                let help = match nearest(asked, names) {
                    Some(name) => format!("; did you mean {}?", ticked(name)),
                    None => String::new(),
                };
                bail!("there is no node {}{help}", ticked(asked));
            }
        },
        (None, [only]) => Ok(only),
        (None, []) => bail!("no node is given, and no pod names one: a ruleset is a node's"),
        (None, names) => {
            let names: Vec<String> = names.iter().map(|name| ticked(name)).collect();
            bail!("say which node with --node: {}", names.join(", "));
        }
    }
}

fn nft(cluster: &Cluster<'_>, program: &Program, node: &str) -> String {
    let plan = plan(cluster, program, node);
    let settings = Settings::of_node(Generation::FIRST, &NodeOptions::default());
    let name = |rule| match program.place(rule) {
        Some(place) => {
            let policy = cluster.policy_name(place.policy);
            format!("{policy}#{}[{}]", place.direction.key(), place.index)
        }
        None => String::new(),
    };
    ruleset(&plan, &settings).text(&name)
}
