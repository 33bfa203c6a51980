//! Parses `--from`, `--to`, `-n`, `-l` and `--port`, and matches endpoints with them.

use std::net::IpAddr;

use anyhow::bail;
use palisade_core::analysis::connect::{Member, Network, PortFilter};
use palisade_core::answer::PortSet;
use palisade_core::labels::{Operator, Requirement, Selector};
use palisade_core::model::{Cluster, NamespaceId, NodeId, PodId, ServiceId, label};
use palisade_core::name_index::NameIndex;
use palisade_core::net::{Cidr, CidrText, Protocol};
use palisade_core::program::{Owner, Program};
use palisade_core::query::{Endpoint, PortQuery};
use palisade_core::text::{nearest, ticked};

/// A selection of endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    /// Everything of a namespace.
    Namespace(NamespaceId),
    /// Pods with labels.
    Labelled(Selector<String>),
    /// All endpoints of a type.
    Sort(EndKinds),
    /// A pod, or those of a workload.
    Pods(Vec<PodId>),
    /// A node.
    Node(NodeId),
    /// A Service.
    Service(ServiceId),
    /// Every endpoint with an address in a block.
    Block(Cidr),
}

/// Types of endpoints that have a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndKinds {
    Pods,
    Nodes,
    Networks,
    Services,
}

const KEYWORDS: [(&str, EndKinds); 4] = [
    ("pods", EndKinds::Pods),
    ("nodes", EndKinds::Nodes),
    ("networks", EndKinds::Networks),
    ("services", EndKinds::Services),
];

/// Resolves the names in filters.
pub(crate) struct Finder<'c> {
    cluster: &'c Cluster<'c>,
    program: &'c Program,
    directory: NameIndex<'c>,
}

impl<'c> Finder<'c> {
    pub(crate) fn new(cluster: &'c Cluster<'c>, program: &'c Program) -> Finder<'c> {
        Finder {
            cluster,
            program,
            directory: NameIndex::new(cluster),
        }
    }

    /// Parses a value of `--from` or `--to`.
    pub(crate) fn filter(&self, text: &str) -> anyhow::Result<Filter> {
        if let Some((_, kind)) = KEYWORDS.iter().find(|(word, _)| *word == text) {
            return Ok(Filter::Sort(*kind));
        }
        if let Ok(block) = CidrText::parse(text) {
            return Ok(Filter::Block(block.cidr));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(self.address(address.to_canonical()));
        }
        let looks_like_block = text.split_once('/').is_some_and(|(address, length)| {
            address.parse::<IpAddr>().is_ok() && length.bytes().all(|it| it.is_ascii_digit())
        });
        if looks_like_block {
            let why = CidrText::parse(text).err().map(|it| it.to_string());
            let why = why.unwrap_or_default();
            bail!("{} is not a block of addresses: {why}", ticked(text));
        }
        if let Some(name) = text.strip_suffix('/') {
            return self.namespace(name);
        }
        if !text.contains('/') {
            return self.word(text);
        }
        Ok(match Endpoint::parse(text)? {
            Endpoint::Pod(namespace, name) => {
                Filter::Pods(vec![self.directory.pod(&namespace, &name)?])
            }
            Endpoint::Workload(namespace, kind, name) => {
                let pods = self.directory.workload(&namespace, kind, &name)?;
                Filter::Pods(pods.to_vec())
            }
            Endpoint::Service(namespace, name) => {
                Filter::Service(self.directory.service(&namespace, &name)?)
            }
            Endpoint::Node(name) => Filter::Node(self.directory.node(&name)?),
            Endpoint::Address(address) => self.address(address),
            Endpoint::Block(block) => Filter::Block(block),
        })
    }

    /// Returns the namespace with a name.
    pub(crate) fn namespace(&self, name: &str) -> anyhow::Result<Filter> {
        let namespaces = self.cluster.namespaces.iter();
        let names: Vec<&str> = namespaces.map(|it| it.name).collect();
        if let Some(found) = names.iter().position(|it| *it == name) {
            let id = u32::try_from(found).unwrap_or(u32::MAX);
            return Ok(Filter::Namespace(NamespaceId(id)));
        }
        let help = match nearest(name, &names) {
            Some(near) => format!("; did you mean {}?", ticked(&format!("{near}/"))),
            None if names.is_empty() => "; the input has no namespace".to_owned(),
            None => String::new(),
        };
        bail!("namespace {} not found{help}", ticked(name));
    }

    /// Returns the namespace with a name, or proposes another object with that name.
    fn word(&self, text: &str) -> anyhow::Result<Filter> {
        let error = match self.namespace(text) {
            Ok(filter) => return Ok(filter),
            Err(error) => error,
        };
        let words: Vec<&str> = KEYWORDS.iter().map(|(word, _)| *word).collect();
        let pods = (0..self.cluster.pods.len()).filter_map(|it| u32::try_from(it).ok());
        let mut pods = pods.map(|id| self.cluster.pod_name(PodId(id)));
        let has_the_name = |name: &String| name.rsplit('/').next() == Some(text);
        let nodes = self.cluster.nodes.iter();
        let mut nodes = nodes.map(|node| format!("node/{}", node.name));
        let proposal = nearest(text, &words).map(str::to_owned);
        let proposal = proposal
            .or_else(|| pods.find(has_the_name))
            .or_else(|| nodes.find(has_the_name));
        match proposal {
            Some(name) => bail!(
                "namespace {} not found; did you mean {}?",
                ticked(text),
                ticked(&name)
            ),
            None => Err(error),
        }
    }

    fn address(&self, address: IpAddr) -> Filter {
        let mut services = self.cluster.services.iter();
        let has_it = services.position(|it| it.cluster_addresses.contains(&address));
        if let Some(service) = has_it.and_then(|it| u32::try_from(it).ok()) {
            return Filter::Service(ServiceId(service));
        }
        match self.program.owner(address) {
            Some(Owner::Pod(pod)) => Filter::Pods(vec![pod]),
            Some(Owner::Node(Some(node))) => Filter::Node(node),
            Some(Owner::Node(None)) | None => Filter::Block(Cidr::single(address)),
        }
    }
}

impl Filter {
    /// Reports whether an endpoint is selected.
    pub(crate) fn selects(
        &self,
        cluster: &Cluster<'_>,
        member: &Member,
        networks: &[Network],
    ) -> bool {
        let pod = |id: &PodId| cluster.pods.get(id.0 as usize);
        let service = |id: &ServiceId| cluster.services.get(id.0 as usize);
        match (self, member) {
            (Filter::Namespace(namespace), Member::Pod(id)) => {
                pod(id).is_some_and(|it| it.namespace == *namespace)
            }
            (Filter::Namespace(namespace), Member::Service(id)) => {
                service(id).is_some_and(|it| it.namespace == *namespace)
            }
            (Filter::Labelled(selector), Member::Pod(id)) => {
                let labels = pod(id).map(|it| &it.labels);
                labels.is_some_and(|labels| selector.matches(|key| label(labels, key)))
            }
            (Filter::Sort(EndKinds::Pods), Member::Pod(_))
            | (Filter::Sort(EndKinds::Nodes), Member::Node(_))
            | (Filter::Sort(EndKinds::Networks), Member::Network(_))
            | (Filter::Sort(EndKinds::Services), Member::Service(_)) => true,
            (Filter::Pods(pods), Member::Pod(id)) => pods.contains(id),
            (Filter::Node(node), Member::Node(id)) => node == id,
            (Filter::Service(service), Member::Service(id)) => service == id,
            (Filter::Block(block), Member::Pod(id)) => {
                pod(id).is_some_and(|it| it.addresses.iter().any(|at| block.contains(*at)))
            }
            (Filter::Block(block), Member::Node(id)) => {
                let node = cluster.nodes.get(id.0 as usize);
                node.is_some_and(|it| it.addresses.iter().any(|at| block.contains(*at)))
            }
            // Networks are split at the blocks of filters: each is inside a block or outside.
            (Filter::Block(block), Member::Network(id)) => {
                let network = networks.get(id.0 as usize);
                let first = network.and_then(|it| it.blocks.first());
                first.is_some_and(|it| block.contains(it.first()) && block.contains(it.last()))
            }
            (Filter::Block(block), Member::Service(id)) => {
                let addresses = service(id).map(|it| &it.cluster_addresses);
                addresses.is_some_and(|it| it.iter().any(|at| block.contains(*at)))
            }
            (
                Filter::Namespace(_)
                | Filter::Labelled(_)
                | Filter::Sort(_)
                | Filter::Pods(_)
                | Filter::Node(_)
                | Filter::Service(_),
                _,
            ) => false,
        }
    }

    /// Returns the block at which networks must be split.
    pub(crate) fn cut(&self) -> Option<Cidr> {
        match self {
            Filter::Block(block) => Some(*block),
            Filter::Namespace(_)
            | Filter::Labelled(_)
            | Filter::Sort(_)
            | Filter::Pods(_)
            | Filter::Node(_)
            | Filter::Service(_) => None,
        }
    }
}

/// Parses a value of `--port`: a port of a flow query, and also `tcp/8000-8080` and `tcp/*`.
pub(crate) fn port(text: &str) -> anyhow::Result<PortFilter> {
    if let Some((word, range)) = text.split_once('/') {
        let upper = word.to_ascii_uppercase();
        let bounds = match range {
            "*" => Some(("1", "65535")),
            range => range.split_once('-'),
        };
        if let (Some(protocol), Some((first, last))) = (Protocol::from_name(&upper), bounds) {
            let is_number = |it: &str| !it.is_empty() && it.bytes().all(|c| c.is_ascii_digit());
            let bounds_read = first.parse::<u16>().ok().zip(last.parse::<u16>().ok());
            match bounds_read {
                Some((first, last)) if 0 < first && first <= last => {
                    let mut set = PortSet::default();
                    set.add_run(protocol, first, last);
                    return Ok(PortFilter::Set(set));
                }
                // A port name may contain a dash, and has at least one letter.
                _ if is_number(first) && is_number(last) => bail!(
                    "{} is not a range of ports; write `{}/FIRST-LAST`, from 1 to 65535",
                    ticked(text),
                    word.to_ascii_lowercase()
                ),
                _ => {}
            }
        }
    }
    let query = PortQuery::parse(text)?;
    Ok(match query {
        PortQuery::Name(protocol, name) => PortFilter::Named(protocol, name),
        PortQuery::Number(..)
        | PortQuery::Icmp
        | PortQuery::Icmp6(_)
        | PortQuery::Ip(_)
        | PortQuery::Any => PortFilter::Set(PortSet::of_query(&query)),
    })
}

/// Parses a selector as kubectl does: `app=web,tier!=db,env in (a, b),!old`.
pub(crate) fn selector(text: &str) -> anyhow::Result<Selector<String>> {
    let mut requirements = Vec::new();
    for part in parts(text) {
        let part = part.trim();
        if part.is_empty() {
            bail!("{} is not a label selector", ticked(text));
        }
        requirements.push(requirement(part, text)?);
    }
    Ok(Selector { requirements })
}

/// Splits a text at the commas outside parentheses.
fn parts(text: &str) -> Vec<&str> {
    let mut depth = 0;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

fn requirement(part: &str, whole: &str) -> anyhow::Result<Requirement<String>> {
    let made = |key: &str, operator, values: Vec<&str>| {
        let is_word = |word: &str, signs: &[char]| {
            let fits = |c: char| c.is_ascii_alphanumeric() || signs.contains(&c);
            word.chars().all(fits)
        };
        let key = key.trim();
        let values: Vec<&str> = values.into_iter().map(str::trim).collect();
        let is_key = !key.is_empty() && is_word(key, &['-', '_', '.', '/']);
        if !is_key || !values.iter().all(|it| is_word(it, &['-', '_', '.'])) {
            bail!(
                "{} is not a label selector; write `app=web`, `app!=web`, `app in (a, b)`, `app` or `!app`",
                ticked(whole)
            );
        }
        Ok(Requirement {
            key: key.to_owned(),
            operator,
            values: values.into_iter().map(str::to_owned).collect(),
        })
    };
    if let Some((front, values)) = part.strip_suffix(')').and_then(|it| it.split_once('(')) {
        let values = values.split(',').collect();
        let front = front.trim();
        if let Some(key) = front.strip_suffix(" notin") {
            return made(key, Operator::NotIn, values);
        }
        if let Some(key) = front.strip_suffix(" in") {
            return made(key, Operator::In, values);
        }
        return made("", Operator::In, Vec::new());
    }
    for (sign, operator) in [
        ("!=", Operator::NotIn),
        ("==", Operator::In),
        ("=", Operator::In),
    ] {
        if let Some((key, value)) = part.split_once(sign) {
            return made(key, operator, vec![value]);
        }
    }
    match part.strip_prefix('!') {
        Some(key) => made(key, Operator::DoesNotExist, Vec::new()),
        None => made(part, Operator::Exists, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_as_kubectl_does() {
        let read = |text: &str| selector(text).unwrap().requirements;
        let one = |key: &str, operator, values: &[&str]| Requirement {
            key: key.to_owned(),
            operator,
            values: values.iter().map(|it| (*it).to_owned()).collect(),
        };
        assert_eq!(
            read("app=web,tier!=db,env in (a, b),x.y/z,!old,n notin (c)"),
            [
                one("app", Operator::In, &["web"]),
                one("tier", Operator::NotIn, &["db"]),
                one("env", Operator::In, &["a", "b"]),
                one("x.y/z", Operator::Exists, &[]),
                one("old", Operator::DoesNotExist, &[]),
                one("n", Operator::NotIn, &["c"]),
            ]
        );
        for wrong in ["", "a=b,", "a b", "=x", "a in b", "x (a)", "a=b c"] {
            assert!(selector(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ports_are_numbers_ranges_names_or_protocols() {
        let words = |text: &str| match port(text).unwrap() {
            PortFilter::Set(set) => set.text().join(" "),
            PortFilter::Named(protocol, name) => format!("{protocol} {name}"),
        };
        assert_eq!(words("tcp/80"), "tcp/80");
        assert_eq!(words("80"), "tcp/80");
        assert_eq!(words("TCP/8000-8080"), "tcp/8000-8080");
        assert_eq!(words("udp/*"), "udp/*");
        assert_eq!(words("tcp/my-port"), "TCP my-port");
        assert_eq!(words("icmp"), "icmp");
        assert_eq!(words("tcp/1-a"), "TCP 1-a");
        for wrong in ["tcp/0", "tcp/9-1", "tcp/0-9", "tcp/1-70000", "web", "ip/6"] {
            assert!(port(wrong).is_err(), "{wrong}");
        }
    }
}
