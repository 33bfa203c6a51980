//! Whose address a spoofed packet has, and what it carries.

use std::fmt;

/// Whose address a packet has that is not its sender's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Claim {
    /// Another pod of the sender's node, not behind the sender's bridge.
    #[default]
    Neighbour,
    /// A pod of another node.
    Elsewhere,
    /// The sender's node, by its own address or that of a bridge.
    OwnNode,
    /// Another node.
    OtherNode,
    /// A host outside the cluster.
    Outside,
    /// An address of the node's block that no pod has.
    NoPod,
    /// Of the loopback interface.
    Loopback,
    /// A group.
    Multicast,
    /// Everybody, of IPv4.
    Broadcast,
    /// No address.
    Unspecified,
    /// Of the link.
    LinkLocal,
    /// A router of the link.
    Router,
    /// A pod of the node, sent from outside the cluster.
    FromOutside,
}

/// The claims of pods.
pub(super) const CLAIMS: [Claim; 11] = [
    Claim::Neighbour,
    Claim::Elsewhere,
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
    /// Whether such packets pass where senders are not checked. The kernel itself drops the others, or D84 does.
    pub(super) fn passes_unchecked(self) -> bool {
        match self {
            Claim::Neighbour
            | Claim::Elsewhere
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
            Claim::Neighbour => "another pod of the node",
            Claim::Elsewhere => "a pod of another node",
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

/// What a packet carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Payload {
    /// The first segment of a TCP connection.
    #[default]
    Tcp,
    /// A datagram of UDP.
    Udp,
    /// The first packet of an SCTP association.
    Sctp,
    /// An echo request.
    Echo,
    /// A protocol without a parser.
    Other,
    /// A datagram of UDP in two fragments.
    Fragments,
    /// A router advertisement, of IPv6.
    Advertisement,
    /// A redirect.
    Redirect,
}

/// What is sent to every place.
pub(super) const ANYWHERE: [Payload; 6] = [
    Payload::Tcp,
    Payload::Udp,
    Payload::Sctp,
    Payload::Echo,
    Payload::Other,
    Payload::Fragments,
];

/// All of them.
pub(super) const EVERYTHING: [Payload; 8] = [
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
