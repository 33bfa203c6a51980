//! The source addresses of spoofed packets, and their payloads.

use std::fmt;

/// The owner of the source address of a spoofed packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    /// Another pod of the sender's node, not on the sender's bridge.
    #[default]
    SameNodePod,
    /// A pod of another node.
    OtherNodePod,
    /// The sender's node, by its own address or that of a bridge.
    OwnNode,
    /// Another node.
    OtherNode,
    /// A host outside the cluster.
    Outside,
    /// No pod: an address of the node's block.
    NoPod,
    /// The loopback interface.
    Loopback,
    /// A multicast group.
    Multicast,
    /// The IPv4 broadcast address.
    Broadcast,
    /// The unspecified address.
    Unspecified,
    /// A link-local address.
    LinkLocal,
    /// A router of the link.
    Router,
    /// A pod of the node, sent from outside the cluster.
    FromOutside,
}

/// The claims of pods.
pub(super) const CLAIMS: [Claim; 11] = [
    Claim::SameNodePod,
    Claim::OtherNodePod,
    Claim::OwnNode,
    Claim::OtherNode,
    Claim::Outside,
    Claim::NoPod,
    Claim::Loopback,
    Claim::Multicast,
    Claim::Broadcast,
    Claim::Unspecified,
    Claim::LinkLocal,
];

impl Claim {
    /// Whether such packets pass without the check of senders. The kernel itself drops the others,
    /// or D84 does.
    pub(super) fn passes_unchecked(self) -> bool {
        match self {
            Claim::SameNodePod
            | Claim::OtherNodePod
            | Claim::OwnNode
            | Claim::OtherNode
            | Claim::Outside
            | Claim::LinkLocal
            | Claim::Router
            | Claim::FromOutside => true,
            Claim::NoPod
            | Claim::Loopback
            | Claim::Multicast
            | Claim::Broadcast
            | Claim::Unspecified => false,
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Claim::SameNodePod => "another pod of the node",
            Claim::OtherNodePod => "a pod of another node",
            Claim::OwnNode => "the sender's node",
            Claim::OtherNode => "another node",
            Claim::Outside => "a host outside",
            Claim::NoPod => "an address of the node's block without a pod",
            Claim::Loopback => "loopback",
            Claim::Multicast => "multicast",
            Claim::Broadcast => "broadcast",
            Claim::Unspecified => "unspecified",
            Claim::LinkLocal => "link-local",
            Claim::Router => "a router of the link",
            Claim::FromOutside => "a pod of the node, from outside",
        })
    }
}

/// The payload of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Payload {
    /// The first segment of a TCP connection.
    #[default]
    Tcp,
    /// A UDP datagram.
    Udp,
    /// The first packet of an SCTP association.
    Sctp,
    /// An echo request.
    Echo,
    /// A protocol without a parser.
    Other,
    /// A UDP datagram in two fragments.
    Fragments,
    /// An IPv6 router advertisement.
    Advertisement,
    /// A redirect.
    Redirect,
}

/// The payloads for every destination.
pub(super) const ROUTABLE: [Payload; 6] = [
    Payload::Tcp,
    Payload::Udp,
    Payload::Sctp,
    Payload::Echo,
    Payload::Other,
    Payload::Fragments,
];

/// All payloads.
pub(super) const ALL_PAYLOADS: [Payload; 8] = [
    Payload::Tcp,
    Payload::Udp,
    Payload::Sctp,
    Payload::Echo,
    Payload::Other,
    Payload::Fragments,
    Payload::Advertisement,
    Payload::Redirect,
];

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Payload::Tcp => "TCP",
            Payload::Udp => "UDP",
            Payload::Sctp => "SCTP",
            Payload::Echo => "echo",
            Payload::Other => "other protocols",
            Payload::Fragments => "fragments",
            Payload::Advertisement => "router advertisements",
            Payload::Redirect => "redirects",
        })
    }
}
