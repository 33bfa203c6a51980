//! The arguments of `palisade lint`.

use clap::Args;

use super::format::{self, OutputFormat};
use super::{ClusterArgs, FailOn};

#[derive(Args, Debug)]
#[command(after_help = "\
Findings are valid policies with a likely mistake: policies whose names decide their order, rules
that never decide a flow, selectors that match nothing, pods that are cut off from DNS. They need
more than one object, or an evaluation; `palisade check` reports the problems of each object by
itself. docs/reference/lint.md explains every code.

An annotation on the object suppresses a finding, with a reason:
  palisade.dev/lint-ignore: SELECTS-NOTHING,NO-DNS the pods come with the next release

--fix changes the files of -f where it proves that no verdict changes; every other byte of them
stays.

Examples:
  palisade lint                                     # the live cluster
  palisade lint -n shop                             # findings in one namespace
  palisade lint -f cluster/                         # the files of a directory
  palisade lint --with-cluster -f new.yaml          # with a new policy added
  palisade lint -f cluster/ --only TIE,TIE-OVERLAP,TIE-CONFLICT
  palisade lint -f cluster/ --fail-on error -o sarif > palisade.sarif
  palisade lint -f cluster/ --fix --dry-run         # what --fix would change

Exit codes: 0 no findings that count, 1 findings, 2 could not answer.")]
pub(crate) struct LintArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// Only findings in objects of this namespace; repeatable
    #[arg(long, short, value_name = "NS")]
    pub(crate) namespace: Vec<String>,

    /// Every namespace, which is the default
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,

    /// How to print the findings
    #[arg(long, short, default_value = "table", value_name = "FORMAT", value_parser = format::LINT)]
    pub(crate) output: OutputFormat,

    /// Only these codes; repeatable, or with commas
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub(crate) only: Vec<String>,

    /// Without these codes; repeatable, or with commas
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    pub(crate) ignore: Vec<String>,

    /// The lowest severity that makes the exit code 1
    #[arg(long, default_value = "warning", value_name = "SEVERITY")]
    pub(crate) fail_on: FailOn,

    /// Exit with 0 also if there are findings
    #[arg(long)]
    pub(crate) exit_zero: bool,

    /// Change the files of -f where that is safe, then report what is left
    #[arg(long, requires = "filename")]
    pub(crate) fix: bool,

    /// With --fix: print the changes as a diff, and change nothing
    #[arg(long, requires = "fix")]
    pub(crate) dry_run: bool,
}
