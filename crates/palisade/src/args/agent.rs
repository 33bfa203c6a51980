//! What was typed after `palisade agent`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

#[derive(Args, Debug)]
#[command(after_help = "\
Keeps the kernel of this node as the objects say, for as long as it runs, in the network namespace it is
started in. The objects are those of the cluster, or of a directory with --source. Either is watched: whatever
changes is in the kernel a moment later, by what is different only. Connections that are not allowed any more
stop with the change. It needs CAP_NET_ADMIN, and the right to list and watch policies, pods, namespaces and nodes.

While the API server cannot be asked, what is known is enforced. Kinds that the cluster does not have are looked
for every 15 seconds.

SIGTERM ends it, SIGHUP puts everything in place once more. However it ends, the kernel goes on enforcing
what it holds, and the next agent takes that over; --cleanup is what removes it.

Where nothing is enforced when it starts, as after a reboot, the pods of this node are closed until every object is
known (--boot-policy), as far as --pod-cidr or the Node object says which addresses they have. To have them closed
before anything else runs, --close-only does just that and exits; what it leaves is taken over by the agent.

At --listen, /healthz says whether the loop goes round, /readyz whether the kernel holds what the objects
say (and if not, why), and /metrics is for Prometheus.

Examples:
  palisade agent --listen 127.0.0.1:9477                                # for the cluster that it runs in
  palisade agent --kubeconfig admin.conf --node n1                      # for another one
  palisade agent --source manifests/ --node n1                          # enforce what a directory says
  palisade agent --source manifests/ --listen 127.0.0.1:9477            # with health and metrics
  palisade agent --source manifests/ --pod-cidr 10.1.1.0/24             # unknown pods of this block are closed
  palisade agent --close-only --pod-cidr 10.1.1.0/24                    # before the kubelet starts, at boot
  palisade agent --cleanup                                              # enforce nothing any more

Exit codes: 0 ended by a signal, closed or cleaned up; 2 could not start.")]
pub(crate) struct AgentArgs {
    /// The node that it enforces for
    #[arg(
        long,
        value_name = "NAME",
        env = "NODE_NAME",
        hide_env = true,
        help = "The node that it enforces for [default: $NODE_NAME, or the name of this host]"
    )]
    pub(crate) node: Option<String>,

    /// A directory that says which objects there are, instead of the cluster; it is watched
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "context", "legacy_apis"])]
    pub(crate) source: Option<PathBuf>,

    /// The file that says where the cluster is
    #[arg(
        long,
        value_name = "FILE",
        help = "The file that says where the cluster is [default: the usual ones, or the cluster that it runs in]"
    )]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// The policy kinds of 2021 count, too, where the cluster has them
    #[arg(long)]
    pub(crate) legacy_apis: bool,

    /// The directories below it, too
    #[arg(long, short = 'R', requires = "source")]
    pub(crate) recursive: bool,

    /// What becomes of connections that the policies do not allow any more
    #[arg(long, default_value = "judge", value_name = "WHAT")]
    pub(crate) established: EstablishedArg,

    /// What becomes of packets of this node's addresses that no known pod has
    #[arg(long, default_value = "drop", value_name = "WHAT")]
    pub(crate) unknown_pod: UnknownPodArg,

    /// What becomes of packets of this node's pods where nothing is enforced yet, until every object is known
    #[arg(long, default_value = "closed", value_name = "WHAT")]
    pub(crate) boot_policy: BootPolicyArg,

    /// What becomes of packets whose sender is not who they say
    #[arg(long, default_value = "drop", value_name = "WHAT")]
    pub(crate) false_sender: FalseSenderArg,

    /// What is made of programs of eBPF on the way to pods, which may send packets past all policies
    #[arg(long, default_value = "refuse", value_name = "WHAT")]
    pub(crate) bpf: BpfArg,

    /// How many entries the NetworkPolicies of one namespace may have together; 0: any number
    #[arg(
        long,
        value_name = "ENTRIES",
        help = "How many entries the NetworkPolicies of one namespace may have together [default: 100000]; 0: any number. A policy that does not fit isolates its pods and allows nothing"
    )]
    pub(crate) namespace_budget: Option<u64>,

    /// A block that only pods of this node have addresses of; repeatable
    #[arg(
        long,
        value_name = "CIDR",
        help = "A block that only pods of this node have addresses of; repeatable [default: those of the Node object]"
    )]
    pub(crate) pod_cidr: Vec<String>,

    /// What becomes of connections from pods to their own node
    #[arg(long, default_value = "judge", value_name = "WHAT")]
    pub(crate) own_node_egress: OwnNodeArg,

    /// Where health and metrics are asked for, as 127.0.0.1:9477
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,

    /// Close the pods of this node where no policies are enforced, and exit: for what comes before the agent
    #[arg(long, requires = "pod_cidr", conflicts_with_all = ["cleanup", "source", "listen"])]
    pub(crate) close_only: bool,

    /// Remove everything that is ours from the kernel, and exit
    #[arg(long)]
    pub(crate) cleanup: bool,
}

/// What becomes of connections that the policies do not allow any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EstablishedArg {
    /// They are judged again by their next packet, and stop
    Judge,
    /// They go on
    Keep,
}

/// What becomes of packets of pods that nobody knows yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UnknownPodArg {
    /// They are dropped until the pod is known
    Drop,
    /// They pass until the pod is known
    Allow,
}

/// What becomes of packets of this node's pods where nothing is enforced yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BootPolicyArg {
    /// They are dropped, but for answers of established connections and the node's own
    Closed,
    /// They pass
    Open,
}

/// What becomes of packets that come from elsewhere than their sender's address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FalseSenderArg {
    /// They are dropped, unless they belong to a connection that was judged
    Drop,
    /// All of them are dropped, for which every packet has to be asked
    DropEvery,
    /// They are judged as whoever they say
    Allow,
}

/// What is made of programs of eBPF on the way to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BpfArg {
    /// The agent is not ready while there is one
    Refuse,
    /// They are known to leave packets to netfilter
    Allow,
}

/// What becomes of connections from pods to their own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OwnNodeArg {
    /// They are judged like all others
    Judge,
    /// They pass
    Allow,
}
