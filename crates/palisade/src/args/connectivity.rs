//! What was typed after `palisade connectivity`.

use clap::{Args, ValueEnum};

use super::ClusterArgs;

#[derive(Args, Debug)]
#[command(after_help = "\
Blocks of groups: everyone of the group at the left may send everyone of the group at the right on
these ports; what no block says is denied. Pods, templates of workloads without pods, nodes, Services
(as destinations), and the networks outside, cut where policies tell addresses apart. A pod is not asked
about itself. `mixed`: allowed in one family of addresses, or at one backend of a Service, and denied in
another. `unknown`: it depends on an address that is not known.

--from and --to take NS/POD, NS/KIND/NAME, node/NAME, an address, a block as 10.0.0.0/8 (whoever has
an address in it), a namespace as NS/ (everything in it), or a word: pods, nodes, networks, services.
Several are a union. -n and -l choose flows that start or end there.
--port takes tcp/8080, tcp/8000-8080, tcp/*, tcp/http (a name of the destination), udp/53, sctp/9003, icmp,
icmpv6, ip/47.

Examples:
  palisade connectivity                                              # who reaches whom in the live cluster
  palisade connectivity -f cluster/                                  # in the cluster of manifests
  palisade connectivity -f cluster/ --to shop/deploy/db              # who reaches the database
  palisade connectivity -f cluster/ --from networks --port tcp/443   # what is open to the outside
  palisade connectivity -f cluster/ -n shop -o matrix                # all that concerns one namespace
  palisade connectivity -f cluster/ -o html > map.html               # a page to look at and to search
  palisade connectivity -f cluster/ --pairs -o csv > pairs.csv       # every pair on a line
  palisade connectivity -f cluster/ --summary -o json | jq .allowedPairs

Exit codes: 0 answered, 2 could not answer.")]
pub(crate) struct ConnectivityArgs {
    #[command(flatten)]
    pub(crate) cluster: ClusterArgs,

    /// Only flows that start there; repeatable
    #[arg(long, value_name = "ENDPOINT|NS/|CIDR|SORT")]
    pub(crate) from: Vec<String>,

    /// Only flows that go there; repeatable
    #[arg(long, value_name = "ENDPOINT|NS/|CIDR|SORT")]
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
    #[arg(long, short, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: ConnectivityOutput,

    /// Every pair of endpoints instead of blocks of groups
    #[arg(long, conflicts_with = "summary")]
    pub(crate) pairs: bool,

    /// Totals only
    #[arg(long)]
    pub(crate) summary: bool,

    /// Give up rather than print more blocks than these
    #[arg(long, value_name = "N", default_value = "1000000")]
    pub(crate) max_blocks: usize,
}

/// How connectivity is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ConnectivityOutput {
    /// For people: blocks of groups
    Table,
    /// For people: blocks with everyone in them, and all ports
    Wide,
    /// For people: a sign for every two kinds of endpoints
    Matrix,
    /// For spreadsheets
    Csv,
    /// A table in Markdown
    Md,
    /// One document
    Json,
    /// One block or pair a line
    Jsonl,
    /// The same document as json
    Yaml,
    /// A graph for Graphviz
    Dot,
    /// A drawing
    Svg,
    /// A page with a map and a matrix that can be searched
    Html,
}
