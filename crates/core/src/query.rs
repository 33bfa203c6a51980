//! Flow queries as text: two endpoints and a port.

use std::net::IpAddr;
use std::num::NonZeroU16;

use thiserror::Error;

use crate::net::{Cidr, Protocol};
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
    /// Every address of a block.
    Block(Cidr),
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
    #[error(
        "{0} is not an endpoint; write `NS/POD`, `NS/KIND/NAME`, `KIND/NAME`, `POD`, `node/NAME`, \
         `SERVICE.NS.svc`, an address or a block of addresses"
    )]
    Endpoint(String),
    /// A block of addresses has bits after its prefix, or too long a prefix.
    #[error("{0} is not a block of addresses; {1}")]
    Block(String, String),
    /// The kind of an endpoint is unknown.
    #[error("{0} is not a kind of endpoint; {1}")]
    Kind(String, String),
    /// A port has none of the forms.
    #[error(
        "{0} is not a port; write `tcp/8080`, `8080`, `udp/53`, `sctp/9003`, `tcp/http`, `icmp`, `icmpv6`, `ip/47` or `any`"
    )]
    Port(String),
    /// A number is no port.
    #[error("{0} is not a port number; ports are 1 to 65535")]
    PortRange(String),
    /// A number is no IP protocol.
    #[error("{0} is not an IP protocol number; these are 0 to 255")]
    ProtocolRange(String),
    /// A protocol that has ports is in the form of one that has none.
    #[error("`ip/{0}` has ports; write `{1}/PORT`")]
    HasPorts(u8, &'static str),
}

/// The kinds of endpoints: the short name, other words for one object, and words for several.
const KINDS: [(&str, &[&str], &[&str]); 9] = [
    ("pod", &["po"], &["pods"]),
    ("deploy", &["deployment"], &["deployments"]),
    ("sts", &["statefulset"], &["statefulsets"]),
    ("ds", &["daemonset"], &["daemonsets"]),
    ("rs", &["replicaset"], &["replicasets"]),
    (
        "rc",
        &["replicationcontroller"],
        &["replicationcontrollers"],
    ),
    ("job", &[], &["jobs"]),
    ("cronjob", &["cj"], &["cronjobs"]),
    ("svc", &["service"], &["services"]),
];

/// The namespace of endpoints that are written without one, if nothing else is set.
pub const DEFAULT_NAMESPACE: &str = "default";

impl Endpoint {
    /// Parses an endpoint; without a namespace it is in [`DEFAULT_NAMESPACE`].
    pub fn parse(text: &str) -> Result<Endpoint, QueryParseError> {
        Endpoint::parse_in(text, DEFAULT_NAMESPACE)
    }

    /// Parses an endpoint; without a namespace it is in `namespace`.
    pub fn parse_in(text: &str, namespace: &str) -> Result<Endpoint, QueryParseError> {
        if let Some(address) = address(text) {
            return Ok(Endpoint::Address(address.to_canonical()));
        }
        if let Some(block) = block(text) {
            return block.map(Endpoint::Block);
        }
        let parts: Vec<&str> = text.split('/').collect();
        let wrong = || QueryParseError::Endpoint(ticked(text));
        if parts
            .iter()
            .any(|part| part.is_empty() || part.contains(char::is_whitespace))
        {
            return Err(wrong());
        }
        match parts.as_slice() {
            [name] if is_name(name) => Ok(of_dns(name)
                .unwrap_or_else(|| Endpoint::Pod(namespace.to_owned(), (*name).to_owned()))),
            // A pod of a namespace called `node` is written `node/pod/NAME`, and likewise for the
            // names of kinds.
            ["node", name] => Ok(Endpoint::Node((*name).to_owned())),
            [first, name] => Ok(match kind_of_one(first) {
                Some(kind) => of_kind(namespace, kind, name),
                None => Endpoint::Pod((*first).to_owned(), (*name).to_owned()),
            }),
            [namespace, word, name] => match kind(word) {
                Some(kind) => Ok(of_kind(namespace, kind, name)),
                // The order of policy ids: `deploy/shop/web`.
                None if kind(namespace).is_some() => {
                    let help = format!("write `{word}/{namespace}/{name}`");
                    Err(QueryParseError::Kind(ticked(word), help))
                }
                None => {
                    let names: Vec<&str> = KINDS.iter().map(|(short, ..)| *short).collect();
                    let help = match nearest(word, &names) {
                        Some(name) => format!("did you mean `{name}`?"),
                        None => format!("the kinds are {}", names.join(", ")),
                    };
                    Err(QueryParseError::Kind(ticked(word), help))
                }
            },
            _ => Err(wrong()),
        }
    }
}

/// Parses an address, which may stand in brackets as in a URL.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    match bare {
        Some(bare) => bare.parse().ok().filter(IpAddr::is_ipv6),
        None => text.parse().ok(),
    }
}

/// Parses a block of addresses; `None`: the text is something else.
fn block(text: &str) -> Option<Result<Cidr, QueryParseError>> {
    let (first, length) = text.split_once('/')?;
    // No namespace is an address: its name has no dots or colons.
    let first = address(first)?;
    let wrong = |help: &str| QueryParseError::Block(ticked(text), help.to_owned());
    let bits = if first.is_ipv4() { 32 } else { 128 };
    let Some(length) = length.parse::<u8>().ok().filter(|it| *it <= bits) else {
        return Some(Err(wrong(&format!("a prefix is 0 to {bits} bits long"))));
    };
    let Some(block) = Cidr::new(first, length) else {
        return Some(Err(wrong("write it as `198.51.100.0/24`")));
    };
    if block.first() != first.to_canonical() {
        return Some(Err(wrong(&format!("did you mean `{}`?", block.net()))));
    }
    Some(Ok(block))
}

/// Returns the endpoint of a name in the cluster's DNS: `SERVICE.NS`, `SERVICE.NS.svc` with or
/// without the domain of the cluster, `POD.SERVICE.NS.svc`.
fn of_dns(text: &str) -> Option<Endpoint> {
    let labels: Vec<&str> = text.strip_suffix('.').unwrap_or(text).split('.').collect();
    let owned = |it: &str| it.to_owned();
    match labels.as_slice() {
        [service, namespace] | [service, namespace, "svc", ..] => {
            Some(Endpoint::Service(owned(namespace), owned(service)))
        }
        [pod, _, namespace, "svc", ..] => Some(Endpoint::Pod(owned(namespace), owned(pod))),
        _ => None,
    }
}

/// Returns whether a text has only characters of object names.
fn is_name(text: &str) -> bool {
    let is_part = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.');
    text.bytes().all(is_part)
}

/// Returns the short name of a kind.
fn kind(word: &str) -> Option<&'static str> {
    let is = |it: &str| it.eq_ignore_ascii_case(word);
    let mut kinds = KINDS.iter();
    let found =
        kinds.find(|(short, one, many)| is(short) || one.iter().chain(*many).any(|it| is(it)));
    found.map(|(short, ..)| *short)
}

/// Returns the short name of a kind that stands before a name without a namespace. A word for
/// several objects is a namespace there: `services/mail` is a pod of the namespace `services`.
fn kind_of_one(word: &str) -> Option<&'static str> {
    let is_many = |it: &str| it.eq_ignore_ascii_case(word);
    let mut many = KINDS.iter().flat_map(|(.., many)| *many);
    kind(word).filter(|_| !many.any(|it| is_many(it)))
}

fn of_kind(namespace: &str, kind: &'static str, name: &str) -> Endpoint {
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    match kind {
        "pod" => Endpoint::Pod(namespace, name),
        "svc" => Endpoint::Service(namespace, name),
        kind => Endpoint::Workload(namespace, kind, name),
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
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        let (protocol, port) = match text.split_once('/') {
            Some(parts) => parts,
            // As in most tools, a bare number is a TCP port.
            None if is_number(text) => ("tcp", text),
            None => return Err(wrong()),
        };
        let protocol = match &*protocol.to_ascii_lowercase() {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "sctp" => Protocol::Sctp,
            "icmpv6" => {
                let number = port.parse::<u8>().map_err(|_| wrong())?;
                return Ok(PortQuery::Icmp6((number != ECHO_REQUEST).then_some(number)));
            }
            "ip" => {
                if !is_number(port) {
                    return Err(wrong());
                }
                let number = port.parse::<u8>();
                return match number.map_err(|_| QueryParseError::ProtocolRange(ticked(port)))? {
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
        if is_number(port) {
            let number = port.parse::<NonZeroU16>();
            let number = number.map_err(|_| QueryParseError::PortRange(ticked(port)))?;
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
        FlowWords::new(&words)?.query(None, DEFAULT_NAMESPACE)
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
    /// Endpoints without a namespace are in `namespace`.
    pub fn query(
        self,
        without_port: Option<PortQuery>,
        namespace: &str,
    ) -> Result<FlowQuery, QueryParseError> {
        let endpoint = |text: &str| Endpoint::parse_in(text, namespace);
        let port = match (self.port, without_port) {
            (Some(port), _) => PortQuery::parse(port)?,
            (None, Some(port)) => port,
            (None, None) => return Err(QueryParseError::Words),
        };
        Ok(FlowQuery {
            source: endpoint(self.source)?,
            destination: endpoint(self.destination)?,
            port,
            via: self.via.map(endpoint).transpose()?,
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
        for wrong in ["", "x/", "/a", "x/y/z/w", "x/dploy/a", "deploy/x/a", "a b"] {
            assert!(Endpoint::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_query_may_have_no_port_where_one_is_assumed() {
        let parse = |line: &str, port| {
            let words: Vec<&str> = line.split(' ').collect();
            FlowWords::new(&words)?.query(port, DEFAULT_NAMESPACE)
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
    fn without_a_namespace_an_endpoint_is_in_the_default_one() {
        let read = |text: &str| Endpoint::parse_in(text, "shop").unwrap();
        let pod = |namespace: &str, name: &str| Endpoint::Pod(namespace.into(), name.into());
        assert_eq!(read("web-0"), pod("shop", "web-0"));
        assert_eq!(read("pod/web-0"), pod("shop", "web-0"));
        assert_eq!(read("x/a"), pod("x", "a"));
        assert_eq!(
            read("deploy/web"),
            Endpoint::Workload("shop".into(), "deploy", "web".into())
        );
        assert_eq!(
            read("svc/api"),
            Endpoint::Service("shop".into(), "api".into())
        );
        assert_eq!(read("services/mail"), pod("services", "mail"));
        assert_eq!(Endpoint::parse("web-0").unwrap(), pod("default", "web-0"));
    }

    #[test]
    fn dns_names_of_services_are_services() {
        let api = Endpoint::Service("shop".into(), "api".into());
        for text in [
            "api.shop",
            "api.shop.svc",
            "api.shop.svc.cluster.local",
            "api.shop.svc.cluster.local.",
        ] {
            assert_eq!(Endpoint::parse(text), Ok(api.clone()), "{text}");
        }
        assert_eq!(
            Endpoint::parse("db-0.db.shop.svc.cluster.local"),
            Ok(Endpoint::Pod("shop".into(), "db-0".into()))
        );
    }

    #[test]
    fn addresses_may_be_in_brackets_and_blocks_have_a_prefix() {
        let address = |text: &str| Endpoint::Address(text.parse().unwrap());
        assert_eq!(Endpoint::parse("[2001:db8::1]"), Ok(address("2001:db8::1")));
        let block = |address: &str, length| {
            Endpoint::Block(Cidr::new(address.parse().unwrap(), length).unwrap())
        };
        assert_eq!(
            Endpoint::parse("198.51.100.0/24"),
            Ok(block("198.51.100.0", 24))
        );
        assert_eq!(
            Endpoint::parse("2001:db8::/32"),
            Ok(block("2001:db8::", 32))
        );
        for (wrong, help) in [
            ("198.51.100.7/24", "did you mean `198.51.100.0/24`?"),
            ("198.51.100.0/33", "a prefix is 0 to 32 bits long"),
            ("2001:db8::/129", "a prefix is 0 to 128 bits long"),
        ] {
            let error = Endpoint::parse(wrong).unwrap_err().to_string();
            assert!(error.ends_with(help), "{error}");
        }
        assert!(Endpoint::parse("[198.51.100.7]").is_err());
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
        assert_eq!(read("9000"), read("tcp/9000"));
        for (wrong, range) in [
            ("tcp/65536", "1 to 65535"),
            ("0", "1 to 65535"),
            ("ip/256", "0 to 255"),
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains(range), "{error}");
        }
        for wrong in [
            "tcp/0",
            "tcp/65536",
            "tcp",
            "ip/6",
            "ip/17",
            "ip/132",
            "tcp/",
            "-80",
            "ip/256",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
