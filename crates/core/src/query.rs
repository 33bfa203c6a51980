//! Flow queries as text: two endpoints and a port.

use std::net::IpAddr;
use std::num::NonZeroU16;

use thiserror::Error;

use crate::net::Protocol;
use crate::text::{nearest, ticked};

/// An endpoint of a flow query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Endpoint {
    /// `NS/POD`.
    Pod(String, String),
    /// `NS/KIND/NAME`: namespace, short name of the kind, name.
    Workload(String, &'static str, String),
    /// `NS/svc/NAME`.
    Service(String, String),
    /// `node/NAME`: a process in that node's network.
    Node(String),
    /// An address.
    Address(IpAddr),
}

/// The port of a flow query.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortQuery {
    /// `tcp/8080`.
    Number(Protocol, NonZeroU16),
    /// `tcp/http`: a named port of the destination.
    Name(Protocol, String),
    /// `icmp`: an echo request.
    Icmp,
    /// `icmpv6`: an echo request; or a message of a type, as `icmpv6/135`.
    Icmp6(Option<u8>),
    /// `ip/47`: any other protocol.
    Ip(u8),
    /// `any`: every port set that has its own answer.
    Any,
}

/// A flow query: `SRC DST PORT [via ENDPOINT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowQuery {
    /// The endpoint that opens the connection.
    pub source: Endpoint,
    /// The endpoint that the client dials.
    pub destination: Endpoint,
    /// The protocol and port that the client dials.
    pub port: PortQuery,
    /// The node through which outside traffic enters, or the Service that translated the flow.
    pub via: Option<Endpoint>,
}

/// Why a text is not a flow query.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QueryParseError {
    /// The number of words is wrong.
    #[error("a flow query must be `SRC DST PORT` or `SRC DST PORT via ENDPOINT`")]
    Words,
    /// An endpoint has none of the forms.
    #[error("{0} is not an endpoint; write `NS/POD`, `NS/KIND/NAME`, `node/NAME` or an address")]
    Endpoint(String),
    /// The kind of an endpoint is unknown.
    #[error("{0} is not a kind of endpoint; {1}")]
    Kind(String, String),
    /// A port has none of the forms.
    #[error(
        "{0} is not a port; write `tcp/8080`, `udp/53`, `sctp/9003`, `tcp/http`, `icmp`, `icmpv6`, `ip/47` or `any`"
    )]
    Port(String),
    /// A protocol that has ports is in the form of one that has none.
    #[error("`ip/{0}` has ports; write `{1}/PORT`")]
    HasPorts(u8, &'static str),
}

const KINDS: [(&str, &[&str]); 9] = [
    ("pod", &["pods", "po"]),
    ("deploy", &["deployment", "deployments"]),
    ("sts", &["statefulset", "statefulsets"]),
    ("ds", &["daemonset", "daemonsets"]),
    ("rs", &["replicaset", "replicasets"]),
    ("rc", &["replicationcontroller", "replicationcontrollers"]),
    ("job", &["jobs"]),
    ("cronjob", &["cronjobs", "cj"]),
    ("svc", &["service", "services"]),
];

impl Endpoint {
    /// Parses an endpoint.
    pub fn parse(text: &str) -> Result<Endpoint, QueryParseError> {
        // No address contains a slash, and no other form lacks one.
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Endpoint::Address(address.to_canonical()));
        }
        let parts: Vec<&str> = text.split('/').collect();
        let wrong = || QueryParseError::Endpoint(ticked(text));
        if parts.iter().any(|part| part.is_empty()) {
            return Err(wrong());
        }
        match parts.as_slice() {
            // A pod of a namespace called `node` is written `node/pod/NAME`.
            ["node", name] => Ok(Endpoint::Node((*name).to_owned())),
            [namespace, name] => Ok(Endpoint::Pod((*namespace).to_owned(), (*name).to_owned())),
            [namespace, kind, name] => {
                let found = KINDS.iter().find(|(short, long)| {
                    short.eq_ignore_ascii_case(kind)
                        || long.iter().any(|it| it.eq_ignore_ascii_case(kind))
                });
                let (namespace, name) = ((*namespace).to_owned(), (*name).to_owned());
                match found {
                    Some(("pod", _)) => Ok(Endpoint::Pod(namespace, name)),
                    Some(("svc", _)) => Ok(Endpoint::Service(namespace, name)),
                    Some((kind, _)) => Ok(Endpoint::Workload(namespace, kind, name)),
                    None => {
                        let names: Vec<&str> = KINDS.iter().map(|(short, _)| *short).collect();
                        let help = match nearest(kind, &names) {
                            Some(name) => format!("did you mean `{name}`?"),
                            None => format!("the kinds are {}", names.join(", ")),
                        };
                        Err(QueryParseError::Kind(ticked(kind), help))
                    }
                }
            }
            _ => Err(wrong()),
        }
    }
}

impl PortQuery {
    /// Parses a port.
    pub fn parse(text: &str) -> Result<PortQuery, QueryParseError> {
        let wrong = || QueryParseError::Port(ticked(text));
        let lower = text.to_ascii_lowercase();
        match &*lower {
            "icmp" => return Ok(PortQuery::Icmp),
            "icmpv6" => return Ok(PortQuery::Icmp6(None)),
            "any" => return Ok(PortQuery::Any),
            _ => {}
        }
        let (protocol, port) = text.split_once('/').ok_or_else(wrong)?;
        let protocol = match &*protocol.to_ascii_lowercase() {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "sctp" => Protocol::Sctp,
            "icmpv6" => {
                let number = port.parse::<u8>().map_err(|_| wrong())?;
                return Ok(PortQuery::Icmp6((number != ECHO_REQUEST).then_some(number)));
            }
            "ip" => {
                return match port.parse::<u8>().map_err(|_| wrong())? {
                    // One form for each protocol, whatever the notation (D131): ICMP depends on the
                    // family, and TCP, UDP and SCTP need a port.
                    1 => Ok(PortQuery::Icmp),
                    58 => Ok(PortQuery::Icmp6(None)),
                    6 => Err(QueryParseError::HasPorts(6, "tcp")),
                    17 => Err(QueryParseError::HasPorts(17, "udp")),
                    132 => Err(QueryParseError::HasPorts(132, "sctp")),
                    number => Ok(PortQuery::Ip(number)),
                };
            }
            _ => return Err(wrong()),
        };
        // A number out of range is an error, not a name: port names have at least one letter.
        if port.bytes().all(|c| c.is_ascii_digit()) {
            let number = port.parse::<NonZeroU16>().map_err(|_| wrong())?;
            return Ok(PortQuery::Number(protocol, number));
        }
        if port.is_empty() || port.contains(['/', ',']) {
            return Err(wrong());
        }
        Ok(PortQuery::Name(protocol, port.to_owned()))
    }
}

/// The type of an ICMPv6 echo request.
const ECHO_REQUEST: u8 = 128;

impl FlowQuery {
    /// Parses a line: `SRC DST PORT [via ENDPOINT]`.
    pub fn parse(line: &str) -> Result<FlowQuery, QueryParseError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        FlowWords::new(&words)?.query(None)
    }
}

/// The words of a flow query, by their role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowWords<'w> {
    /// The source.
    pub source: &'w str,
    /// The destination.
    pub destination: &'w str,
    /// The port, if there is one.
    pub port: Option<&'w str>,
    /// The word after `via`, if there is one.
    pub via: Option<&'w str>,
}

impl<'w> FlowWords<'w> {
    /// Splits a query of two or three words, and `via` with an endpoint.
    pub fn new(words: &[&'w str]) -> Result<FlowWords<'w>, QueryParseError> {
        let (words, via) = match words {
            [words @ .., "via", via] => (words, Some(*via)),
            words => (words, None),
        };
        let (source, destination, port) = match words {
            [source, destination] => (source, destination, None),
            [source, destination, port] => (source, destination, Some(*port)),
            _ => return Err(QueryParseError::Words),
        };
        Ok(FlowWords {
            source,
            destination,
            port,
            via,
        })
    }

    /// Parses the query; `without_port` is the port of a query that has none, if it may have none.
    pub fn query(self, without_port: Option<PortQuery>) -> Result<FlowQuery, QueryParseError> {
        let port = match (self.port, without_port) {
            (Some(port), _) => PortQuery::parse(port)?,
            (None, Some(port)) => port,
            (None, None) => return Err(QueryParseError::Words),
        };
        Ok(FlowQuery {
            source: Endpoint::parse(self.source)?,
            destination: Endpoint::parse(self.destination)?,
            port,
            via: self.via.map(Endpoint::parse).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_by_their_slashes() {
        let read = |text: &str| Endpoint::parse(text).unwrap();
        assert_eq!(read("x/a"), Endpoint::Pod("x".into(), "a".into()));
        assert_eq!(read("x/pod/a"), Endpoint::Pod("x".into(), "a".into()));
        assert_eq!(read("node/a"), Endpoint::Node("a".into()));
        assert_eq!(
            read("x/Deployment/a"),
            Endpoint::Workload("x".into(), "deploy", "a".into())
        );
        assert_eq!(
            read("::ffff:10.0.0.1"),
            Endpoint::Address("10.0.0.1".parse().unwrap())
        );
        for wrong in ["x", "", "x/", "/a", "x/y/z/w", "x/dploy/a"] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_query_may_have_no_port_where_one_is_assumed() {
        let parse = |line: &str, port| {
            let words: Vec<&str> = line.split(' ').collect();
            FlowWords::new(&words)?.query(port)
        };
        let any = parse("x/a x/b via x/svc/c", Some(PortQuery::Any)).unwrap();
        assert_eq!(any.port, PortQuery::Any);
        assert_eq!(any.via, Some(Endpoint::Service("x".into(), "c".into())));
        assert_eq!(parse("x/a x/b", None), Err(QueryParseError::Words));
        assert_eq!(parse("x/a", None), Err(QueryParseError::Words));
        let typed = parse("x/a x/b icmp", Some(PortQuery::Any)).unwrap();
        assert_eq!(typed.port, PortQuery::Icmp);
        assert_eq!(FlowQuery::parse("x/a  x/b icmp"), Ok(typed));
    }

    #[test]
    fn ports_are_numbers_names_or_protocols() {
        let read = |text: &str| PortQuery::parse(text);
        assert_eq!(read("ip/58"), Ok(PortQuery::Icmp6(None)));
        assert_eq!(read("ip/1"), Ok(PortQuery::Icmp));
        assert_eq!(
            read("TCP/http"),
            Ok(PortQuery::Name(Protocol::Tcp, "http".into()))
        );
        for wrong in [
            "tcp/0",
            "tcp/65536",
            "tcp",
            "ip/6",
            "ip/17",
            "ip/132",
            "tcp/",
            "80",
            "ip/256",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
