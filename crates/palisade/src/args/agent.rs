//! The arguments of `palisade agent`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Args, Debug)]
#[command(after_help = "\
Enforces policies in the kernel of this node, in the network namespace that it starts in, and keeps
them up to date. The objects come from the cluster, or from a directory with --source. The agent
watches them, and writes only the differences to the kernel, within moments of a change. Connections
that are no longer allowed stop with the change. The agent needs CAP_NET_ADMIN, and the right to
list and watch policies, pods, namespaces and nodes.

While the API server is away, the known state stays enforced. Every 15 seconds the agent looks for
kinds that the cluster does not have.

SIGTERM ends the agent, SIGHUP reinstalls the table. However the agent ends, the kernel keeps the
installed table, and the next agent takes it over; --cleanup removes it.

Where nothing is enforced when the agent starts, as after a reboot, the pods of this node are closed
until every object is known (--boot-policy), if --pod-cidr or the Node object has their addresses.
To close them before any other program runs, use --close-only: it closes them and exits, and the
agent takes over.

At --listen, /healthz reports whether the main loop runs, /readyz whether the kernel holds the state
of the objects (and if not, why), and /metrics is for Prometheus.

Examples:
  palisade agent --listen 127.0.0.1:9477                                # for the cluster that it runs in
  palisade agent --kubeconfig admin.conf --node n1                      # for another one
  palisade agent --source manifests/ --node n1                          # enforce the manifests of a directory
  palisade agent --source manifests/ --listen 127.0.0.1:9477            # with health and metrics
  palisade agent --source manifests/ --pod-cidr 10.1.1.0/24             # unknown pods of this block are closed
  palisade agent --close-only --pod-cidr 10.1.1.0/24                    # before the kubelet starts, at boot
  palisade agent --cleanup                                              # stop enforcing

Exit codes: 0 ended by a signal, closed or cleaned up; 2 could not start.")]
pub(crate) struct AgentArgs {
    /// The node to enforce for
    #[arg(
        long,
        value_name = "NAME",
        env = "NODE_NAME",
        hide_env = true,
        help = "The node to enforce for [default: $NODE_NAME, or the name of this host]"
    )]
    pub(crate) node: Option<String>,

    /// A directory of manifests to read instead of the cluster; it is watched
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context", "legacy_apis"])]
    pub(crate) source: Option<PathBuf>,

    /// The kubeconfig file
    #[arg(
        long,
        value_name = "FILE",
        help = "The kubeconfig file [default: the usual files, or the cluster that the agent runs in]"
    )]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// Also follow the policy kinds of 2021, where the cluster has them
    #[arg(long)]
    pub(crate) legacy_apis: bool,

    /// Also read the directories below --source
    #[arg(long, short = 'R', requires = "source")]
    pub(crate) recursive: bool,

    /// What to do with connections that the policies no longer allow
    #[arg(long, default_value = "judge", value_name = "WHAT")]
    pub(crate) established: EstablishedArg,

    /// What to do with packets of this node's addresses that no known pod has
    #[arg(long, default_value = "drop", value_name = "WHAT")]
    pub(crate) unknown_pod: UnknownPodArg,

    /// What to do with packets of this node's pods where no table is installed, until all objects
    /// are synced
    #[arg(long, default_value = "closed", value_name = "WHAT")]
    pub(crate) boot_policy: BootPolicyArg,

    /// What to do with packets whose source address is not that of their sender
    #[arg(long, default_value = "drop", value_name = "WHAT")]
    pub(crate) false_sender: FalseSenderArg,

    /// What to do about eBPF programs on the path to pods, which may bypass all policies
    #[arg(long, default_value = "refuse", value_name = "WHAT")]
    pub(crate) bpf: BpfArg,

    /// The most entries of all NetworkPolicies of a namespace; 0: no limit
    #[arg(
        long,
        value_name = "ENTRIES",
        help = "The most entries of all NetworkPolicies of a namespace [default: 100000]; 0: no limit. A policy over the budget isolates its pods and allows nothing"
    )]
    pub(crate) namespace_budget: Option<u64>,

    /// A block of addresses that only pods of this node have; repeatable
    #[arg(
        long,
        value_name = "CIDR",
        help = "A block of addresses that only pods of this node have; repeatable [default: those of the Node object]"
    )]
    pub(crate) pod_cidr: Vec<String>,

    /// What to do with connections from pods to their own node
    #[arg(long, default_value = "judge", value_name = "WHAT")]
    pub(crate) own_node_egress: OwnNodeArg,

    /// The address that serves health and metrics, as 127.0.0.1:9477
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,

    /// Close the pods of this node where no policies are enforced, and exit: for use before the
    /// agent starts
    #[arg(long, requires = "pod_cidr", conflicts_with_all = ["cleanup", "source", "listen"])]
    pub(crate) close_only: bool,

    /// Remove everything that belongs to Palisade from the kernel, and exit
    #[arg(long)]
    pub(crate) cleanup: bool,
}

/// What to do with connections that the policies no longer allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EstablishedArg {
    /// Evaluate them again by their next packet, and stop them
    #[value(name = "judge")]
    Evaluate,
    /// Let them continue
    Keep,
}

/// What to do with packets of unknown pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnknownPodArg {
    /// Drop them until the pod is known
    Drop,
    /// Let them pass until the pod is known
    Allow,
}

/// What to do with packets of this node's pods where nothing is enforced yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BootPolicyArg {
    /// Drop them, except replies of established connections and the node's own packets
    Closed,
    /// Let them pass
    Open,
}

/// What to do with packets that arrive on another path than their source address is reached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FalseSenderArg {
    /// Drop them, unless they belong to an evaluated connection
    Drop,
    /// Drop all of them, which requires a check of every packet
    DropEvery,
    /// Evaluate them by their source address
    Allow,
}

/// What to do about eBPF programs on the path to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BpfArg {
    /// The agent is not ready while there is one
    Refuse,
    /// They leave packets to netfilter
    Allow,
}

/// What to do with connections from pods to their own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OwnNodeArg {
    /// Evaluate them like all others
    #[value(name = "judge")]
    Evaluate,
    /// Let them pass
    Allow,
}
