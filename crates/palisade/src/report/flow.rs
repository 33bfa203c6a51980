//! Flows with the names of their ends.

use std::borrow::Cow;

use palisade_core::analysis::affect::Witness;
use palisade_core::answer::{PortSet, Transport};
use palisade_core::model::Cluster;
use palisade_core::net::{Family, Protocol};
use palisade_core::query::{FlowQuery, FlowWords, PortQuery};

use crate::draw::clean;

/// The protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowProtocol {
    /// A protocol with ports.
    Transport(Protocol),
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmp6,
    /// Another IP protocol, by number.
    Ip(u8),
}

impl FlowProtocol {
    /// Returns the name in documents: `TCP`, `ICMPv6`, `47`.
    pub fn name(self) -> Cow<'static, str> {
        match self {
            FlowProtocol::Transport(protocol) => protocol.name().into(),
            FlowProtocol::Icmp => "ICMP".into(),
            FlowProtocol::Icmp6 => "ICMPv6".into(),
            FlowProtocol::Ip(number) => number.to_string().into(),
        }
    }

    /// Returns the word of a flow query: `tcp`, `icmpv6`, `ip/47`.
    pub fn word(self) -> String {
        match self {
            FlowProtocol::Transport(protocol) => protocol.name().to_ascii_lowercase(),
            FlowProtocol::Icmp => "icmp".to_owned(),
            FlowProtocol::Icmp6 => "icmpv6".to_owned(),
            FlowProtocol::Ip(number) => format!("ip/{number}"),
        }
    }
}

/// A flow, with the names of its ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedFlow {
    /// The source.
    pub source: String,
    /// The destination.
    pub destination: String,
    /// The protocol; `None`: any.
    pub protocol: Option<FlowProtocol>,
    /// The destination port; `None` also for a port that has only a name.
    pub port: Option<u16>,
    /// The ports that share an answer, for a query about any port.
    pub ports: Option<PortSet>,
    /// The address family, if it is the same for all flows.
    pub family: Option<Family>,
    /// The Service or node that the flow passes through.
    pub via: Option<String>,
}

impl NamedFlow {
    /// Returns the flow of a witness.
    pub fn of_witness(cluster: &Cluster<'_>, witness: &Witness) -> NamedFlow {
        let flow = NamedFlow {
            source: witness.source.text(cluster),
            destination: witness.destination.text(cluster),
            family: witness.family,
            via: witness.via.map(|id| cluster.service_name(id)),
            ..NamedFlow::default()
        };
        flow.with_transport(witness.transport)
    }

    /// Returns the flow of a query, with the names as they were written.
    pub fn of_query(words: FlowWords<'_>, query: &FlowQuery) -> NamedFlow {
        let flow = NamedFlow {
            source: words.source.to_owned(),
            destination: words.destination.to_owned(),
            via: words.via.map(str::to_owned),
            ..NamedFlow::default()
        };
        flow.with_query(&query.port)
    }

    /// Sets the protocol and port of a query.
    pub fn with_query(mut self, port: &PortQuery) -> NamedFlow {
        (self.protocol, self.port) = match port {
            PortQuery::Number(protocol, number) => {
                (Some(FlowProtocol::Transport(*protocol)), Some(number.get()))
            }
            PortQuery::Name(protocol, _) => (Some(FlowProtocol::Transport(*protocol)), None),
            PortQuery::Icmp => (Some(FlowProtocol::Icmp), None),
            PortQuery::Icmp6(_) => (Some(FlowProtocol::Icmp6), None),
            PortQuery::Ip(number) => (Some(FlowProtocol::Ip(*number)), None),
            PortQuery::Any => (None, None),
        };
        self
    }

    /// Sets the protocol and port of an evaluated flow.
    pub fn with_transport(mut self, transport: Transport) -> NamedFlow {
        let (protocol, port) = match transport {
            Transport::Port(protocol, port) => (FlowProtocol::Transport(protocol), Some(port)),
            Transport::Icmp => (FlowProtocol::Icmp, None),
            Transport::Icmp6(_) => (FlowProtocol::Icmp6, None),
            Transport::Ip(number) => (FlowProtocol::Ip(number), None),
        };
        self.protocol = Some(protocol);
        self.port = port.map(std::num::NonZeroU16::get);
        self
    }

    /// Formats the protocol and port as in a flow query: `tcp/5432`, `icmp`.
    pub fn traffic(&self) -> Option<String> {
        let protocol = self.protocol?.word();
        Some(match self.port {
            Some(port) => format!("{protocol}/{port}"),
            None => protocol,
        })
    }

    /// Formats the flow for people: `shop/web -> shop/db tcp/5432 via shop/svc/db`.
    pub fn text(&self) -> String {
        self.text_with(self.traffic().as_deref(), None)
    }

    /// Formats the flow with its address family, if it has one.
    pub fn text_with_family(&self) -> String {
        self.text_with(self.traffic().as_deref(), self.family)
    }

    /// Formats the flow as a query, which has `any` for every protocol.
    pub fn query_text(&self) -> String {
        let traffic = self.traffic();
        self.text_with(Some(traffic.as_deref().unwrap_or("any")), None)
    }

    fn text_with(&self, traffic: Option<&str>, family: Option<Family>) -> String {
        let mut text = format!("{} -> {}", clean(&self.source), clean(&self.destination));
        if let Some(traffic) = traffic {
            text = text + " " + traffic;
        }
        if let Some(family) = family {
            text += &format!(" ({family})");
        }
        if let Some(via) = &self.via {
            text = text + " via " + &clean(via);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: &str) -> NamedFlow {
        let flow = NamedFlow {
            source: "shop/web".to_owned(),
            destination: "shop/db".to_owned(),
            ..NamedFlow::default()
        };
        flow.with_query(&PortQuery::parse(port).unwrap())
    }

    #[test]
    fn a_flow_is_written_like_its_query() {
        assert_eq!(flow("tcp/80").text(), "shop/web -> shop/db tcp/80");
        assert_eq!(flow("tcp/http").text(), "shop/web -> shop/db tcp");
        assert_eq!(flow("icmpv6/135").text(), "shop/web -> shop/db icmpv6");
        assert_eq!(flow("ip/47").text(), "shop/web -> shop/db ip/47");
        assert_eq!(flow("any").text(), "shop/web -> shop/db");
        assert_eq!(flow("any").query_text(), "shop/web -> shop/db any");
        let flow = NamedFlow {
            family: Some(Family::V4),
            via: Some("shop/svc/db\n".to_owned()),
            ..flow("udp/53")
        };
        assert_eq!(
            flow.text_with_family(),
            "shop/web -> shop/db udp/53 (IPv4) via shop/svc/db\u{240a}"
        );
    }

    #[test]
    fn protocols_have_the_names_of_documents() {
        let name = |port: &str| flow(port).protocol.map(|it| it.name().into_owned());
        assert_eq!(name("sctp/9"), Some("SCTP".to_owned()));
        assert_eq!(name("icmpv6"), Some("ICMPv6".to_owned()));
        assert_eq!(name("ip/47"), Some("47".to_owned()));
        assert_eq!(name("any"), None);
    }
}
