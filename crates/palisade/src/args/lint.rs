//! What was typed after `palisade lint`.

use clap::{Args, ValueEnum};

use super::{ClusterArgs, FailOn};

#[derive(Args, Debug)]
#[command(after_help = "\
Findings are about what is valid and probably not what was meant: policies that only their names put
in order, rules that never decide anything, selectors that match nobody, pods that are cut off from DNS.
They need more than one object, or an evaluation; `palisade check` says what is wrong with each object by
itself. docs/lint.md explains every code.

An annotation on the object keeps a finding back, and says why:
  palisade.dev/lint-ignore: SELECTS-NOTHING,NO-DNS the pods come with the next release

--fix changes the files of -f where it is proven that no verdict changes; everything else in them stays as
it is, byte by byte.

Examples:
  palisade lint                                     # the live cluster
  palisade lint -n shop                             # what concerns one namespace
  palisade lint -f cluster/                         # the files of a directory
  palisade lint --with-cluster -f new.yaml          # as it would be with a new policy
  palisade lint -f cluster/ --only TIE,TIE-OVERLAP,TIE-CONFLICT
  palisade lint -f cluster/ --fail-on error -o sarif > palisade.sarif
  palisade lint -f cluster/ --fix --dry-run         # what --fix would change

Exit codes: 0 no findings that count, 1 findings, 2 could not answer.")]
pub(crate) struct LintArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// Only findings about objects of this namespace; repeatable
    #[arg(long, short, value_name = "NS")]
    pub(crate) namespace: Vec<String>,

    /// Every namespace, which is the default
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,

    /// How to print the findings
    #[arg(long, short, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: LintOutput,

    /// Only these codes; repeatable, or with commas
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Without these codes; repeatable, or with commas
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub(crate) ignore: Vec<String>,

    /// The least severity that makes the exit code 1
    #[arg(long, default_value = "warning", value_name = "SEVERITY")]
    pub(crate) fail_on: FailOn,

    /// Exit with 0 also when there are findings
    #[arg(long)]
    pub(crate) exit_zero: bool,

    /// Change the files of -f where that is safe, then say what is left
    #[arg(long, requires = "filename")]
    pub(crate) fix: bool,

    /// With --fix: print the changes as a diff, and change nothing
    #[arg(long, requires = "fix")]
    pub(crate) dry_run: bool,
}

/// How `lint` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LintOutput {
    /// For people: the line, the place and the help
    Table,
    /// One line a finding
    Wide,
    /// One document
    Json,
    /// One finding a line
    Jsonl,
    /// The same document as json
    Yaml,
    /// SARIF 2.1.0, for code scanning
    Sarif,
}
