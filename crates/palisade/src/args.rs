//! The command line. Building these values opens no file and calls no server.

pub(crate) mod agent;
pub(crate) mod connectivity;
pub(crate) mod crds;
pub(crate) mod diff;
pub(crate) mod format;
pub(crate) mod lint;
pub(crate) mod live;
pub(crate) mod program_name;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use palisade_api::Severity;
use palisade_core::budget::Budget;

use self::agent::AgentArgs;
use self::connectivity::ConnectivityArgs;
use self::crds::CrdsArgs;
use self::diff::DiffArgs;
use self::format::OutputFormat;
use self::lint::LintArgs;
use self::live::{LiveArgs, NamespaceArgs};

/// Network policy for Kubernetes as one system: check, explain, test and enforce policies of every
/// API version.
#[derive(Debug, Parser)]
#[command(
    name = "palisade",
    version,
    max_term_width = 100,
    disable_help_subcommand = true
)]
#[command(after_help = "Exit codes: 0 clean, 1 findings, 2 could not answer.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,

    /// When to use colours
    #[arg(long, global = true, default_value = "auto", value_name = "WHEN")]
    pub(crate) color: Color,

    /// Print results only: no summary, no progress
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Print more
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// Applies the choice to all output.
    pub(crate) fn write_global(self) {
        let choice = match self {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        };
        choice.write_global();
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Validate manifests and report every problem
    Check(CheckArgs),
    /// Explain whether a flow is allowed, which rule decides, and what would allow it
    Explain(ExplainArgs),
    /// List the policies that select a pod, or the policies that a policy overrides
    Affecting(AffectingArgs),
    /// Show which endpoints reach which others, and on which ports
    Connectivity(ConnectivityArgs),
    /// Report the flows that a change newly allows or denies
    Diff(DiffArgs),
    /// Report valid policies with a likely mistake
    Lint(LintArgs),
    /// Print the ruleset of a node
    Compile(CompileArgs),
    /// Build the cluster from network namespaces, enforce its policies, and probe it with packets
    Lab(LabArgs),
    /// Enforce policies on this node, while they change
    Agent(AgentArgs),
    /// Print the CRDs of the policy APIs
    Crds(CrdsArgs),
    /// Print a completion script for a shell
    Completion(CompletionArgs),
    /// Print the manual page
    Man,
    /// Print the version
    Version,
}

/// Which objects to read.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct InputArgs {
    /// Manifests: a file, a directory, or `-` for standard input; repeatable. YAML or JSON, several
    /// documents or lists, each also gzipped. Without -f, the live cluster is read
    #[arg(long, short = 'f', value_name = "PATH")]
    pub(crate) filename: Vec<PathBuf>,

    /// Descend into directories
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,

    /// Read objects as an API server stores them: unknown fields are dropped silently
    #[arg(long)]
    pub(crate) as_pruned: bool,

    #[command(flatten)]
    pub(crate) live: LiveArgs,
}

impl InputArgs {
    /// Reports whether the live cluster is read.
    pub(crate) fn is_live(&self) -> bool {
        self.filename.is_empty() || self.live.with_cluster
    }
}

/// Which objects to read, and whether to continue past invalid ones.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ClusterArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Continue past invalid objects: unreadable rules fail closed. Also continue if the server
    /// refuses to list policies, namespaces or nodes
    #[arg(long)]
    pub(crate) lenient: bool,

    /// Addresses that domain names have resolved to: lines of `NAME ADDRESS`
    #[arg(long, value_name = "FILE")]
    pub(crate) dns: Option<PathBuf>,

    /// The most entries of all NetworkPolicies of a namespace [default: 100000]; 0: no limit; use
    /// the agents' value. A policy over the budget isolates its pods and allows nothing
    #[arg(long, value_name = "ENTRIES")]
    pub(crate) namespace_budget: Option<u64>,
}

impl ClusterArgs {
    /// Returns the budget for the NetworkPolicies of each namespace (D148).
    pub(crate) fn budget(&self) -> Budget {
        budget(self.namespace_budget)
    }
}

/// Converts the value of `--namespace-budget`.
pub(crate) fn budget(entries: Option<u64>) -> Budget {
    entries.map(Budget::new).unwrap_or_default()
}

const EXPLAIN_USAGE: &str = "palisade explain [OPTIONS] [-f PATH] <SRC> <DST> [PORT] [via ENDPOINT]\n       \
                             palisade explain [OPTIONS] [-f PATH] --flows FILE";

#[derive(Args, Debug)]
#[command(override_usage = EXPLAIN_USAGE)]
#[command(after_help = "\
Endpoints: NS/POD; NS/KIND/NAME (pod, deploy, sts, ds, rs, rc, job, cronjob, svc); POD and KIND/NAME
in the namespace `default`; SERVICE.NS.svc; node/NAME, a process in the network of that node; an IP
address; a block of addresses. A node's address with a nodePort means the Service. Ports: tcp/8080,
8080 (TCP), udp/53, sctp/9003, tcp/http (a port name of the destination), icmp, icmpv6, ip/47, any. Without a port, each set of ports that has
its own answer is shown.

A flow is allowed if both directions allow it: egress at the source, ingress at the destination.
`via node/NAME`: traffic from outside that enters through this node. `via NS/svc/NAME`: the flow
went through this Service.

Without -f, the live cluster is read. With -f and --with-cluster, the files are laid over the
cluster: the verdict if they were applied.

Examples:
  palisade explain shop/web shop/db tcp/5432                        # in the live cluster
  palisade explain --with-cluster -f new.yaml shop/web shop/db tcp/5432
  palisade explain -f cluster/ shop/web shop/db tcp/5432
  palisade explain -f cluster/ shop/deploy/web shop/svc/db          # every port of the Service
  palisade explain -f cluster/ 203.0.113.7 shop/web tcp/443 via node/worker-1
  palisade explain -f cluster/ shop/web 198.51.100.4 tcp/443 --dns learned.txt
  palisade explain -f cluster/ --flows flows.txt -o jsonl           # one flow a line: SRC DST PORT
  palisade explain -f cluster/ shop/web shop/db tcp/5432 --fix --dry-run   # what would allow it

Exit codes: 0 every flow is allowed, 1 a flow is denied, mixed, or depends on an unknown address, 2
could not answer.")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    #[command(flatten)]
    pub(crate) within: NamespaceArgs,

    /// The flow: source, destination, port, and what it passes through
    #[arg(value_name = "FLOW", num_args = 0..=5, required_unless_present = "flows")]
    pub(crate) flow: Vec<String>,

    /// Many flows, one a line as `SRC DST PORT [via ENDPOINT]`; `#` starts a comment; `-` is
    /// standard input
    #[arg(long, value_name = "FILE", conflicts_with = "flow")]
    pub(crate) flows: Option<PathBuf>,

    /// How to print the answers
    #[arg(long, short, default_value = "table", value_name = "FORMAT", value_parser = format::ANSWER)]
    pub(crate) output: OutputFormat,

    /// Exit with 0 also if a flow is denied
    #[arg(long)]
    pub(crate) exit_zero: bool,

    /// Change the files of -f with the first proposal, which allows the flow
    #[arg(long, conflicts_with_all = ["flows", "exit_zero"])]
    pub(crate) fix: bool,

    /// With --fix: print the change as a diff, and change nothing
    #[arg(long, requires = "fix")]
    pub(crate) dry_run: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
A pod: every policy that selects it, in the order of evaluation, for each direction, with its rules
and whether they take effect. A policy is overridden if an earlier policy has the opposite result
for a flow that it would decide; such a flow is shown. A workload represents its pods; pods with
different answers are shown separately.

A policy: the pods that it selects, the policies that it overrides or that override it, and those
that decide the flows that its Pass rules match. For a policy of the Baseline tier also the
NetworkPolicies that isolate its pods, for which it is not evaluated.

Policies: netpol/NS/NAME, cnp/NAME, anp/NAME, banp/default; np0/NS/NAME, cnp0/NAME and dnp/NAME of
the drafts of 2016 and 2021. Pods: NS/POD, NS/KIND/NAME (pod, deploy, sts, ds, rs, rc, job,
cronjob), the address of a pod.

Examples:
  palisade affecting shop/web-0                                # in the live cluster
  palisade affecting --with-cluster -f new.yaml cnp/new        # what a new policy would override
  palisade affecting -f cluster/ shop/web-0
  palisade affecting -f cluster/ shop/deploy/web -o wide       # every rule on a line of its own
  palisade affecting -f cluster/ cnp/tenants                   # what it overrides, and what overrides it
  palisade affecting -f cluster/ netpol/shop/db -o json | jq '.overriddenBy[].witness'

Exit codes: 0 answered, 2 could not answer.")]
pub(crate) struct AffectingArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    #[command(flatten)]
    pub(crate) within: NamespaceArgs,

    /// A pod, a workload or a policy
    #[arg(value_name = "POD|POLICY")]
    pub(crate) what: String,

    /// How to print the answer
    #[arg(long, short, default_value = "table", value_name = "FORMAT", value_parser = format::ANSWER)]
    pub(crate) output: OutputFormat,
}

#[derive(Args, Debug)]
#[command(after_help = "\
The ruleset has every rule for the pods of the node, in the order in which the kernel evaluates
them. Each rule is followed by the policy rule that it comes from. docs/internals/dataplane.md explains it.

Examples:
  palisade compile --node worker-1                             # as the live cluster is
  palisade compile -f cluster/ --node worker-1
  palisade compile -f cluster/ --node worker-1 | grep netpol/shop/db

Exit codes: 0 printed, 2 could not answer.")]
pub(crate) struct CompileArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// The target to compile for
    #[arg(long, default_value = "nft", value_name = "TARGET")]
    pub(crate) target: Target,

    /// The node; required if there are several
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
}

/// The program that a node gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// nftables
    Nft,
}

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "\
Every pod and every node gets its own network namespace, without a route out; the policies are
installed in the kernel as on a real node. Then every ordered pair is probed with TCP, UDP, SCTP and
ICMP packets on every declared port and some others, and the predictions of explain are compared
with the packets that arrive. Pods without a node or address get one; workloads without pods get up
to two; Services are translated.

The lab needs Linux and the right to create user namespaces, or root. It leaves nothing behind.

Examples:
  palisade lab -f examples/shop
  palisade lab                                             # of the live cluster's objects
  palisade lab --with-cluster -f new.yaml                  # and with a new policy
  palisade lab -f cluster/ --flows flows.txt               # one flow a line: SRC DST PORT [via ENDPOINT]
  palisade lab -f cluster/ -o json | jq '.differences'
  palisade lab -f cluster/ --keep                          # stays up, for `lab shell` and `lab exec`
  palisade lab -f cluster/ --watch                         # shows the effect of every change of a file
  palisade lab -f cluster/ --watch -o jsonl | jq -c '.change'

Exit codes: 0 all predictions match the packets, 1 a prediction does not match, 2 could not answer.")]
pub(crate) struct LabArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// Probe these flows instead, one a line as `SRC DST PORT [via ENDPOINT]`; `#` starts a
    /// comment; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) flows: Option<PathBuf>,

    /// How to print the report
    #[arg(long, short, default_value = "table", value_name = "FORMAT", value_parser = format::LAB)]
    pub(crate) output: OutputFormat,

    /// Exit with 0 also if a prediction does not match the packets
    #[arg(long)]
    pub(crate) exit_zero: bool,

    /// Keep the lab running until Ctrl-C, for `lab shell` and `lab exec`
    #[arg(long)]
    pub(crate) keep: bool,

    /// Keep running until Ctrl-C, follow the files, and measure again whenever one changes; with -o
    /// jsonl a whole report a line
    #[arg(long)]
    pub(crate) watch: bool,

    #[command(subcommand)]
    pub(crate) visit: Option<LabVisit>,
}

/// Commands that enter a running lab.
#[derive(Debug, Subcommand)]
pub(crate) enum LabVisit {
    /// Run a command in a pod or node of a running lab
    #[command(after_help = "\
Example:
  palisade lab exec shop/web-0 -- ping -c 1 10.20.1.11

The exit code is that of the command, or 2 if it could not be run.")]
    Exec {
        /// The pod or node: NS/POD or node/NAME
        #[arg(value_name = "NS/POD")]
        place: String,
        /// The process that runs the lab, if there are several
        #[arg(long, value_name = "PID")]
        lab: Option<u32>,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Open a shell in a pod or node of a running lab
    Shell {
        /// The pod or node: NS/POD or node/NAME
        #[arg(value_name = "NS/POD")]
        place: String,
        /// The process that runs the lab, if there are several
        #[arg(long, value_name = "PID")]
        lab: Option<u32>,
    },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Shows each problem with its position, the line, and what to do. Reports all problems of all files: a
broken document does not stop the others. Objects of other kinds are skipped; -v lists them.

Examples:
  palisade check                                  # the policies of the live cluster
  palisade check -n shop                          # those of a namespace
  palisade check -f policies/                     # the files of a directory
  palisade check -R -f .                          # and of those below it
  helm template chart/ | palisade check -f -      # what Helm renders
  kubectl get netpol -A -o json | palisade check -f -
  palisade check -f policies/ -o sarif > palisade.sarif

Exit codes: 0 no errors, 1 errors, 2 a file could not be opened, a kind could not be read, or wrong
usage.")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,

    /// Only this namespace of the live cluster, without cluster-wide objects; repeatable
    #[arg(long, short, value_name = "NS", help_heading = "Live cluster")]
    pub(crate) namespace: Vec<String>,

    /// How to print the problems
    #[arg(long, short, default_value = "table", value_name = "FORMAT", value_parser = format::CHECK)]
    pub(crate) output: OutputFormat,

    /// The lowest severity that makes the exit code 1
    #[arg(long, default_value = "error", value_name = "SEVERITY")]
    pub(crate) fail_on: FailOn,

    /// Exit with 0 also if there are problems
    #[arg(long)]
    pub(crate) exit_zero: bool,
}

/// The lowest severity that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    Error,
    Warning,
    Info,
}

impl FailOn {
    /// Returns the severity.
    pub(crate) fn severity(self) -> Severity {
        match self {
            FailOn::Error => Severity::Error,
            FailOn::Warning => Severity::Warning,
            FailOn::Info => Severity::Info,
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  source <(palisade completion bash)
  palisade completion zsh > \"${fpath[1]}/_palisade\"
  palisade completion fish > ~/.config/fish/completions/palisade.fish")]
pub(crate) struct CompletionArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}
