//! Ways to program a node's kernel: with the real code, and with deliberate mistakes.

use anyhow::{Context as _, Result, bail};
use palisade_api::{Options, Source, lower, read};
use palisade_core::compile::compile;
use palisade_core::model::Cluster;
use palisade_core::net::CidrText;
use palisade_core::plan::{Plan, plan};
use palisade_lab::lab;
use palisade_nft::Kernel;
use palisade_nft::node::{EstablishedFlows, Generation, MarkBits, NodeOptions, Settings, ruleset};
use palisade_nft::ruleset::Ruleset;

use super::objects::{NODE, Objects, POD_BLOCKS};
use super::test_node::TestNode;

/// A way to program the kernel.
pub trait Programmer {
    /// Returns when the kernel enforces the objects.
    fn apply(&mut self, objects: &Objects) -> Result<()>;

    /// The differences between the kernel's table and the objects.
    fn differences(&mut self, objects: &Objects) -> Result<Vec<String>>;
}

/// Lowers the objects, and passes the cluster to `work`.
pub fn with_cluster<T>(objects: &Objects, work: impl FnOnce(&Cluster<'_>) -> T) -> Result<T> {
    let text = serde_json::to_vec(&objects.list())?;
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    if let Some(problem) = manifests.problems.iter().find(|it| it.is_error()) {
        bail!("invalid objects in a test: {}", problem.message);
    }
    let lowered = lower(&manifests.objects, Vec::new());
    Ok(work(&lowered.cluster))
}

/// The plan of the node.
fn node_plan(objects: &Objects) -> Result<Plan> {
    with_cluster(objects, |cluster| plan(cluster, &compile(cluster), NODE))
}

/// The default options of the node, with the address blocks of its Node object.
fn node_options() -> Result<NodeOptions> {
    let blocks = POD_BLOCKS.iter().map(|it| Ok(CidrText::parse(it)?.cidr));
    Ok(NodeOptions {
        pod_blocks: blocks.collect::<Result<_>>()?,
        ..lab::node_options()
    })
}

/// The ruleset of the node.
pub fn node_ruleset(objects: &Objects, generation: Generation) -> Result<Ruleset> {
    ruleset_with(objects, generation, &node_options()?)
}

/// The ruleset of the node, with options.
fn ruleset_with(
    objects: &Objects,
    generation: Generation,
    options: &NodeOptions,
) -> Result<Ruleset> {
    let settings = Settings::of_node(generation, options);
    Ok(ruleset(&node_plan(objects)?, &settings))
}

/// Replaces the table with every change.
#[derive(Debug)]
pub struct Swap {
    /// The node's kernel.
    pub kernel: Kernel,
    /// The treatment of established connections.
    pub established: EstablishedFlows,
    generation: Generation,
}

impl Swap {
    /// Starts from the table of the node's kernel.
    pub fn open(node: &TestNode) -> Result<Swap> {
        node.on_node(|| Swap::with(Kernel::open()?))
    }

    /// Starts from the table of a kernel.
    pub fn with(mut kernel: Kernel) -> Result<Swap> {
        let generation = kernel.generation()?;
        let generation = generation.and_then(|it| Generation::new(u16::try_from(it).ok()?));
        Ok(Swap {
            kernel,
            established: EstablishedFlows::Evaluate,
            generation: generation.unwrap_or(Generation::FIRST),
        })
    }

    /// The generation of the installed table.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The next generation.
    pub fn advance(&mut self) -> Generation {
        self.generation = self.generation.next(MarkBits::DEFAULT.last_generation());
        self.generation
    }
}

impl Programmer for Swap {
    fn apply(&mut self, objects: &Objects) -> Result<()> {
        let mut options = node_options()?;
        options.established = self.established;
        let ruleset = ruleset_with(objects, self.advance(), &options)?;
        let loaded = self.kernel.install(&ruleset);
        loaded.context("the kernel refused a table").map(drop)
    }

    fn differences(&mut self, objects: &Objects) -> Result<Vec<String>> {
        let expected = node_ruleset(objects, self.generation)?;
        let differences = self.kernel.audit(&expected)?;
        Ok(differences.iter().map(ToString::to_string).collect())
    }
}

/// A deliberate mistake in updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Deletes the table before the installation of the next.
    DeleteThenAdd,
    /// Installs a table with empty groups before the right one.
    EmptyThenFill,
    /// Keeps the generation of the previous table.
    SameGeneration,
    /// Allows unknown pods.
    AllowUnknown,
    /// Applies the previous objects, with the previous owners of addresses.
    PreviousObjects,
}

/// A programmer that makes a mistake.
#[derive(Debug)]
pub struct FaultyProgrammer {
    /// The correct programmer.
    pub swap: Swap,
    /// The mistake.
    pub mistake: Mistake,
    before: Option<Objects>,
}

impl FaultyProgrammer {
    /// A programmer that makes a mistake.
    pub fn new(swap: Swap, mistake: Mistake) -> FaultyProgrammer {
        FaultyProgrammer {
            swap,
            mistake,
            before: None,
        }
    }
}

impl Programmer for FaultyProgrammer {
    fn apply(&mut self, objects: &Objects) -> Result<()> {
        match self.mistake {
            Mistake::DeleteThenAdd => {
                self.swap.kernel.remove()?;
                self.swap.apply(objects)
            }
            Mistake::EmptyThenFill => {
                let generation = self.swap.advance();
                let mut empty = node_ruleset(objects, generation)?;
                for set in &mut empty.sets {
                    if set.name.as_str().starts_with("members") {
                        set.keys.clear();
                    }
                }
                self.swap.kernel.install(&empty)?;
                self.swap.apply(objects)
            }
            Mistake::SameGeneration => {
                let ruleset = node_ruleset(objects, self.swap.generation)?;
                self.swap.kernel.install(&ruleset)?;
                Ok(())
            }
            Mistake::AllowUnknown => {
                let mut options = node_options()?;
                options.pod_blocks.clear();
                let open = ruleset_with(objects, self.swap.advance(), &options)?;
                self.swap.kernel.install(&open)?;
                Ok(())
            }
            Mistake::PreviousObjects => {
                let before = self.before.replace(objects.clone());
                self.swap.apply(&before.unwrap_or_else(|| objects.clone()))
            }
        }
    }

    fn differences(&mut self, objects: &Objects) -> Result<Vec<String>> {
        self.swap.differences(objects)
    }
}
