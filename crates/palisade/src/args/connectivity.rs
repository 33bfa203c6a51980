//! The arguments of `palisade connectivity`.

use clap::Args;

use super::ClusterArgs;
use super::format::{self, OutputFormat};

#[derive(Args, Debug)]
#[command(after_help = "\
Blocks of groups: every endpoint of the group on the left may send to every endpoint of the group on
the right on these ports; flows that no block covers are denied. Endpoints are pods, templates of
workloads without pods, nodes, Services (as destinations), and the networks outside, split where
policies distinguish addresses. Flows from a pod to itself are not included. `mixed`: allowed in one
address family, or at one backend of a Service, and denied in another. `unknown`: depends on an
unknown address.

--from and --to take NS/POD, NS/KIND/NAME, node/NAME, an address, a block as 10.0.0.0/8 (every
endpoint with an address in it), a namespace as NS/ (everything in it), or a word: pods, nodes,
networks, services. Several are a union. -n and -l select flows that start or end there.
--port takes tcp/8080, tcp/8000-8080, tcp/*, tcp/http (a port name of the destination), udp/53,
sctp/9003, icmp, icmpv6, ip/47.

Examples:
  palisade connectivity                                              # the live cluster
  palisade connectivity -f cluster/                                  # a cluster of manifests
  palisade connectivity -f cluster/ --to shop/deploy/db              # what reaches the database
  palisade connectivity -f cluster/ --from networks --port tcp/443   # what is open to the outside
  palisade connectivity -f cluster/ -n shop -o matrix                # flows from and to one namespace
  palisade connectivity -f cluster/ -o html > map.html               # a page to view and search
  palisade connectivity -f cluster/ --pairs -o csv > pairs.csv       # one pair a line
  palisade connectivity -f cluster/ --summary -o json | jq .allowedPairs

Exit codes: 0 answered, 2 could not answer.")]
pub(crate) struct ConnectivityArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// Only flows from these endpoints; repeatable
    #[arg(long, value_name = "ENDPOINT|NS/|CIDR|KIND")]
    pub(crate) from: Vec<String>,

    /// Only flows to these endpoints; repeatable
    #[arg(long, value_name = "ENDPOINT|NS/|CIDR|KIND")]
    pub(crate) to: Vec<String>,

    /// Only these ports; repeatable
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Vec<String>,

    /// Only flows that start or end in this namespace; repeatable
    #[arg(long, short, value_name = "NS")]
    pub(crate) namespace: Vec<String>,

    /// Every namespace, which is the default
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,

    /// Only flows that start or end at pods with these labels, as in kubectl
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,

    /// How to print the answer
    #[arg(long, short, default_value = "table", value_name = "FORMAT", value_parser = format::CONNECTIVITY)]
    pub(crate) output: OutputFormat,

    /// Every pair of endpoints instead of blocks of groups
    #[arg(long, conflicts_with = "summary")]
    pub(crate) pairs: bool,

    /// Totals only
    #[arg(long)]
    pub(crate) summary: bool,

    /// Fail if there are more blocks than this
    #[arg(long, value_name = "N", default_value = "1000000")]
    pub(crate) max_blocks: usize,
}
