//! Measures facts of a whole cluster that `docs/internals/facts.md` states. Facts of the kernel
//! alone are in `palisade-campaigns facts`.

pub mod bridged;
pub mod hairpin;
pub mod own_node;
pub mod seen;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use palisade_campaigns::kernel_facts::Findings;
use palisade_testbed::Plugin;

use self::seen::{ground, show_bridged};

/// The program and the manifests.
#[derive(Args, Debug)]
pub struct FactsArgs {
    /// The program to install [default: the one beside this]
    #[arg(long, value_name = "PATH")]
    pub palisade: Option<PathBuf>,
    /// The directory of the manifests
    #[arg(long, value_name = "DIR", default_value = "deploy")]
    pub deploy: PathBuf,
}

/// Measures on a cluster with routed pods, and on one with pods on a bridge. Returns whether all
/// facts hold.
pub fn facts(args: &FactsArgs) -> Result<bool> {
    let palisade = match &args.palisade {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name("palisade"),
    };
    let mut holds = true;
    for (plugin, name) in [(Plugin::Ptp, "routed"), (Plugin::Bridge, "bridge")] {
        let whole = ground(&palisade, &args.deploy, plugin)?;
        for shown in [true, false] {
            let place = Place {
                name: format!("{name}, bridge-nf-call {}", u8::from(shown)),
                plugin,
                is_bypassed: plugin == Plugin::Bridge && !shown,
            };
            show_bridged(&whole, shown)?;
            for measure in [bridged::bridged, hairpin::hairpin, own_node::own_node] {
                let mut findings = Findings::default();
                measure(&whole, &place, &mut findings)?;
                holds &= findings.differs.is_empty();
                writeln!(std::io::stdout(), "{findings}")?;
            }
        }
    }
    Ok(holds)
}

/// Where facts are measured.
#[derive(Clone, Debug)]
pub struct Place {
    /// In words.
    pub name: String,
    /// How pods are connected.
    pub plugin: Plugin,
    /// Whether packets between pods of the node pass netfilter by.
    pub is_bypassed: bool,
}
