//! Ways to make a node's kernel enforce what objects say: by the real code, and by updates that are
//! wrong on purpose.

use anyhow::{Context as _, Result, bail};
use palisade_api::{Options, Source, lower, read};
use palisade_core::compile::compile;
use palisade_core::model::Cluster;
use palisade_core::net::CidrText;
use palisade_core::plan::{Plan, plan};
use palisade_lab::lab;
use palisade_nft::Kernel;
use palisade_nft::node::{Established, Generation, MarkBits, NodeOptions, Settings, ruleset};
use palisade_nft::ruleset::Ruleset;

use super::objects::{NODE, Objects, POD_BLOCKS};
use super::test_node::TestNode;

/// A way to make the kernel enforce what objects say.
pub trait Programming {
    /// Returns when the kernel does.
    fn apply(&mut self, objects: &Objects) -> Result<()>;

    /// What the kernel holds that is not what objects say, in words.
    fn differences(&mut self, objects: &Objects) -> Result<Vec<String>>;
}

/// Does something with what objects mean.
pub fn with_cluster<T>(objects: &Objects, work: impl FnOnce(&Cluster<'_>) -> T) -> Result<T> {
    let text = serde_json::to_vec(&objects.list())?;
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    if let Some(problem) = manifests.problems.iter().find(|it| it.is_error()) {
        bail!("the objects of a test are not valid: {}", problem.message);
    }
    let lowered = lower(&manifests.objects, Vec::new());
    Ok(work(&lowered.cluster))
}

/// What the node has to enforce.
fn node_plan(objects: &Objects) -> Result<Plan> {
    with_cluster(objects, |cluster| plan(cluster, &compile(cluster), NODE))
}

/// What an administrator who leaves everything as it is has chosen for the node: the blocks are those
/// that its Node object names.
fn node_options() -> Result<NodeOptions> {
    let blocks = POD_BLOCKS.iter().map(|it| Ok(CidrText::parse(it)?.cidr));
    Ok(NodeOptions {
        pod_blocks: blocks.collect::<Result<_>>()?,
        ..lab::node_options()
    })
}

/// The ruleset of the node.
pub fn node_ruleset(objects: &Objects, generation: Generation) -> Result<Ruleset> {
    chosen_ruleset(objects, generation, &node_options()?)
}

/// The same where an administrator has chosen something.
fn chosen_ruleset(
    objects: &Objects,
    generation: Generation,
    options: &NodeOptions,
) -> Result<Ruleset> {
    let settings = Settings::of_node(generation, options);
    Ok(ruleset(&node_plan(objects)?, &settings))
}

/// Another whole table for each change.
#[derive(Debug)]
pub struct Swap {
    /// The node's kernel.
    pub kernel: Kernel,
    /// What becomes of running connections that are not allowed any more.
    pub established: Established,
    generation: Generation,
}

impl Swap {
    /// Goes on from what the kernel has.
    pub fn open(stage: &TestNode) -> Result<Swap> {
        stage.on_node(|| Swap::with(Kernel::open()?))
    }

    /// Goes on from what a kernel has.
    pub fn with(mut kernel: Kernel) -> Result<Swap> {
        let generation = kernel.generation()?;
        let generation = generation.and_then(|it| Generation::new(u16::try_from(it).ok()?));
        Ok(Swap {
            kernel,
            established: Established::Judge,
            generation: generation.unwrap_or(Generation::FIRST),
        })
    }

    /// The generation of the table that it installed last.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The next generation.
    pub fn advance(&mut self) -> Generation {
        self.generation = self.generation.next(MarkBits::DEFAULT);
        self.generation
    }
}

impl Programming for Swap {
    fn apply(&mut self, objects: &Objects) -> Result<()> {
        let mut options = node_options()?;
        options.established = self.established;
        let ruleset = chosen_ruleset(objects, self.advance(), &options)?;
        let loaded = self.kernel.install(&ruleset);
        loaded.context("a table was refused").map(drop)
    }

    fn differences(&mut self, objects: &Objects) -> Result<Vec<String>> {
        let expected = node_ruleset(objects, self.generation)?;
        let differences = self.kernel.audit(&expected)?;
        Ok(differences.iter().map(ToString::to_string).collect())
    }
}

/// Updates that are wrong on purpose, to see that the tests see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The table is deleted, then made anew.
    DeleteThenAdd,
    /// First a table in which nobody is anybody's peer, then the right one.
    EmptyThenFill,
    /// The new table has the generation of the old one.
    SameGeneration,
    /// Pods that nobody knows are let through.
    OpenToUnknown,
    /// What a pod may do is done to whoever had its address before.
    LateByOne,
}

/// Such an update.
#[derive(Debug)]
pub struct Wrong {
    /// What is right about it.
    pub swap: Swap,
    /// What is wrong.
    pub mistake: Mistake,
    before: Option<Objects>,
}

impl Wrong {
    /// A way to make a mistake.
    pub fn new(swap: Swap, mistake: Mistake) -> Wrong {
        Wrong {
            swap,
            mistake,
            before: None,
        }
    }
}

impl Programming for Wrong {
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
            Mistake::OpenToUnknown => {
                let mut options = node_options()?;
                options.pod_blocks.clear();
                let open = chosen_ruleset(objects, self.swap.advance(), &options)?;
                self.swap.kernel.install(&open)?;
                Ok(())
            }
            Mistake::LateByOne => {
                let before = self.before.replace(objects.clone());
                self.swap.apply(&before.unwrap_or_else(|| objects.clone()))
            }
        }
    }

    fn differences(&mut self, objects: &Objects) -> Result<Vec<String>> {
        self.swap.differences(objects)
    }
}
