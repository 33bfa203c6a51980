//! The arguments of `palisade diff`.

use std::path::PathBuf;

use clap::Args;

use super::format::{self, OutputFormat};
use super::live::LiveArgs;

pub(crate) const DIFF_USAGE: &str = "palisade diff [OPTIONS] <OLD> <NEW>\n       \
                          palisade diff [OPTIONS] <BASE> -f <OVER>";

#[derive(Args, Debug)]
#[command(override_usage = DIFF_USAGE)]
#[command(after_help = "\
OLD, NEW and BASE are each a file or directory of manifests, `git:REV:PATH` (the files of a
revision), `cluster` (the live cluster), or `-` for standard input. With -f the files are laid over
BASE: an object of the same kind, namespace and name replaces that of BASE, others are added.

The report has the flows that are newly allowed or denied, as blocks: every endpoint of the group on
the left to every endpoint of the group on the right, on these ports, with the decider before and
now. Blocks are below the changed object that causes them. An object that changes no flow is not
shown; -v lists it. A changed policy whose pods or peers are not in the input is undecided: it is
shown with what it selects. Pods, nodes and networks that only one side has are listed; their flows are
shown separately. Flows to Services are flows to their backends.

Examples:
  palisade diff git:main:deploy/ deploy/ -R               # what this branch does to flows
  palisade diff git:HEAD~1:policies/ git:HEAD:policies/
  palisade diff cluster -f new.yaml                       # what applying a file would do
  palisade diff cluster deploy/ -R                        # where the cluster differs from the files
  palisade diff old/ new/ -o md > comment.md              # for a pull request
  palisade diff old/ new/ --fail-on-wider                 # 1 if a flow is or may be newly allowed
  palisade diff old/ new/ -o json | jq '.gained[] | {from, to, ports, newRule, causedBy}'

Exit codes: 0 the same, 1 different (with --fail-on-wider: a flow is newly allowed, or a change
affects what is not in the input), 2 could not answer.")]
pub(crate) struct DiffArgs {
    /// The old and the new side, or one side with -f
    #[arg(value_name = "OLD|NEW", num_args = 1..=2, required = true)]
    pub(crate) sides: Vec<String>,

    /// Manifests to lay over the only side: a file, a directory, or `-`; repeatable
    #[arg(long, short = 'f', value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,

    /// Descend into directories
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,

    /// Read objects as an API server stores them: unknown fields are dropped silently
    #[arg(long)]
    pub(crate) as_pruned: bool,

    /// Continue past invalid objects: unreadable rules fail closed. Also continue if the server
    /// refuses to list policies, namespaces or nodes
    #[arg(long)]
    pub(crate) lenient: bool,

    /// Addresses that domain names have resolved to, on both sides: lines of `NAME ADDRESS`
    #[arg(long, value_name = "FILE")]
    pub(crate) dns: Option<PathBuf>,

    /// The most entries of all NetworkPolicies of a namespace [default: 100000]; 0: no limit; use
    /// the agents' value. A policy over the budget isolates its pods and allows nothing
    #[arg(long, value_name = "ENTRIES")]
    pub(crate) namespace_budget: Option<u64>,

    /// How to print the difference
    #[arg(long, short, default_value = "table", value_name = "FORMAT", value_parser = format::DIFF)]
    pub(crate) output: OutputFormat,

    /// Exit with 1 only if a flow is newly allowed between endpoints that both sides have, or if a
    /// change affects what is not in the input
    #[arg(long)]
    pub(crate) fail_on_wider: bool,

    /// With --fail-on-wider: count also the flows of endpoints that only the new side has
    #[arg(long, requires = "fail_on_wider")]
    pub(crate) include_new: bool,

    /// Exit with 0 also if there is a difference
    #[arg(long, conflicts_with = "fail_on_wider")]
    pub(crate) exit_zero: bool,

    /// Fail if there are more blocks than this
    #[arg(long, value_name = "N", default_value = "1000000")]
    pub(crate) max_blocks: usize,

    #[command(flatten)]
    pub(crate) live: LiveArgs,
}
