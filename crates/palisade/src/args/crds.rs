//! The arguments of `palisade crds`.

use clap::{Args, ValueEnum};
use palisade_crds::Channel;

use super::format::{self, OutputFormat};

#[derive(Args, Debug)]
#[command(after_help = "\
Channels: standard and experimental are those of the policy API, ClusterNetworkPolicy as of v0.2.0,
AdminNetworkPolicy and BaselineAdminNetworkPolicy as of v0.1.8. The channel `palisade` has
everything that Palisade enforces: the peer `all`, every shape of the v1alpha1 kinds, Tenancy; and
it rejects most of what `check` reports as an error. docs/reference/apis/crds.md compares them. The CRDs need
Kubernetes 1.31 or later.

Examples:
  palisade crds | kubectl apply --server-side -f -
  palisade crds --channel palisade --legacy > crds.yaml
  palisade crds --channel experimental -o json | jq '.items[].metadata.name'

Exit codes: 0 printed, 2 could not answer.")]
pub(crate) struct CrdsArgs {
    /// The channel of the CRDs
    #[arg(long, default_value = "standard", value_name = "CHANNEL")]
    pub(crate) channel: CrdsChannel,

    /// Also the kinds of the 2021 draft: ClusterNetworkPolicy and DefaultNetworkPolicy of
    /// networking.k8s.io/v1alpha1. Kubernetes accepts these CRDs and serves none of their objects,
    /// because it owns the group
    #[arg(long)]
    pub(crate) legacy: bool,

    /// How to print them
    #[arg(long, short, default_value = "yaml", value_name = "FORMAT", value_parser = format::CRDS)]
    pub(crate) output: OutputFormat,
}

/// Which CRDs are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CrdsChannel {
    /// The stable fields of the policy API
    Standard,
    /// Also the experimental fields of the policy API
    Experimental,
    /// Everything that Palisade enforces
    Palisade,
}

impl CrdsChannel {
    /// Returns the channel.
    pub(crate) fn channel(self) -> Channel {
        match self {
            CrdsChannel::Standard => Channel::Standard,
            CrdsChannel::Experimental => Channel::Experimental,
            CrdsChannel::Palisade => Channel::Palisade,
        }
    }
}
