//! The answers of each program, read from its CSV into one form.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context as _, Result, bail};

use super::cluster::{Cluster, range};

/// The protocols that both programs report.
pub(super) const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];

/// Ports of each protocol, as ascending runs that do not meet.
pub(super) type Ports = [Vec<(u16, u16)>; 3];

/// Interned sets of ports: equal sets have equal numbers. 0 is the empty set.
#[derive(Debug)]
pub(super) struct Sets {
    numbers: BTreeMap<Ports, usize>,
    pub(super) list: Vec<Ports>,
}

impl Default for Sets {
    fn default() -> Sets {
        let mut sets = Sets {
            numbers: BTreeMap::new(),
            list: Vec::new(),
        };
        sets.number(Ports::default());
        sets
    }
}

impl Sets {
    fn number(&mut self, mut ports: Ports) -> usize {
        for runs in &mut ports {
            runs.sort_unstable();
            let mut joined: Vec<(u16, u16)> = Vec::new();
            for &(first, last) in runs.iter() {
                match joined.last_mut() {
                    Some(run) if first <= run.1.saturating_add(1) => run.1 = run.1.max(last),
                    Some(_) | None => joined.push((first, last)),
                }
            }
            *runs = joined;
        }
        if let Some(number) = self.numbers.get(&ports) {
            return *number;
        }
        self.list.push(ports.clone());
        self.numbers.insert(ports, self.list.len() - 1);
        self.list.len() - 1
    }

    /// A set in words.
    pub(super) fn words(&self, number: usize) -> String {
        let mut words = Vec::new();
        let ports = self.list.get(number).into_iter().flatten();
        for (protocol, runs) in PROTOCOLS.iter().zip(ports) {
            for run in runs {
                words.push(match run {
                    (1, u16::MAX) => format!("{protocol}/*"),
                    (first, last) if first == last => format!("{protocol}/{first}"),
                    (first, last) => format!("{protocol}/{first}-{last}"),
                });
            }
        }
        if words.is_empty() {
            "nothing".to_owned()
        } else {
            words.join(" ")
        }
    }
}

/// Addresses outside the cluster, from the first to the last, and a set of ports.
pub(super) type Range = (u32, u32, usize);

/// One program's answers. Missing pairs are denied.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answers {
    /// From pod to pod.
    pub(super) pairs: BTreeMap<(usize, usize), usize>,
    /// From a pod to addresses outside.
    pub(super) out: BTreeMap<usize, Vec<Range>>,
    /// From addresses outside to a pod.
    pub(super) into: BTreeMap<usize, Vec<Range>>,
}

/// One end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Pod(usize),
    Outside(u32, u32),
    /// What the other program does not report.
    Ignored,
}

impl Answers {
    /// `from,to,ports`: pods as `namespace/name`, blocks, ports as `tcp/80 udp/*`.
    pub(super) fn ours(text: &str, cluster: &Cluster, sets: &mut Sets) -> Result<Answers> {
        let mut answers = Answers::default();
        for fields in csv(text).skip(1) {
            let [from, to, words, ..] = &fields[..] else {
                bail!("not three fields: {}", fields.join(","));
            };
            let ports = our_ports(words).with_context(|| format!("not ports: `{words}`"))?;
            let number = sets.number(ports);
            // A network can have several blocks.
            for from in from.split_whitespace().map(|it| our_end(it, cluster)) {
                for to in to.split_whitespace().map(|it| our_end(it, cluster)) {
                    answers.add(from, to, number);
                }
            }
        }
        Ok(answers)
    }

    /// `src,dst,conn,network`: workloads as `namespace/name[Kind]`, ranges as
    /// `first-last[External]`.
    pub(super) fn theirs(text: &str, cluster: &Cluster, sets: &mut Sets) -> Result<Answers> {
        let mut answers = Answers::default();
        for fields in csv(text)
            .skip_while(|fields| fields.first().is_none_or(|it| it != "src"))
            .skip(1)
        {
            let [from, to, words, ..] = &fields[..] else {
                bail!("not three fields: {}", fields.join(","));
            };
            let ports = their_ports(words).with_context(|| format!("not ports: `{words}`"))?;
            let number = sets.number(ports);
            let end = |text: &str| {
                their_end(text, cluster)
                    .with_context(|| format!("neither a workload nor addresses: `{text}`"))
            };
            answers.add(end(from)?, end(to)?, number);
        }
        Ok(answers)
    }

    fn add(&mut self, from: End, to: End, number: usize) {
        match (from, to) {
            // Flows of a pod to itself are not compared.
            (End::Pod(from), End::Pod(to)) if from != to => {
                self.pairs.insert((from, to), number);
            }
            (End::Pod(pod), End::Outside(first, last)) => {
                self.out.entry(pod).or_default().push((first, last, number));
            }
            (End::Outside(first, last), End::Pod(pod)) => {
                self.into
                    .entry(pod)
                    .or_default()
                    .push((first, last, number));
            }
            (_, _) => {}
        }
    }
}

fn our_end(text: &str, cluster: &Cluster) -> End {
    match (cluster.pods.get(text), range(text)) {
        (Some(pod), _) => End::Pod(*pod),
        (None, Some((first, last))) => End::Outside(first, last),
        // Nodes, Services, IPv6.
        (None, None) => End::Ignored,
    }
}

fn their_end(text: &str, cluster: &Cluster) -> Option<End> {
    if let Some(pod) = cluster.workloads.get(text) {
        return Some(End::Pod(*pod));
    }
    let range = text.strip_suffix("[External]")?;
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |address: &str| address.parse::<Ipv4Addr>().ok().map(u32::from);
    Some(End::Outside(number(first)?, number(last)?))
}

fn run(text: &str) -> Option<(u16, u16)> {
    match text.split_once('-') {
        Some((first, last)) => Some((first.parse().ok()?, last.parse().ok()?)),
        None => text.parse().ok().map(|port| (port, port)),
    }
}

/// `tcp/1-79 udp/* icmp`; ports that are not certainly allowed have a mark, and protocols without
/// ports are left out, as only Palisade reports them.
fn our_ports(text: &str) -> Option<Ports> {
    let mut ports = Ports::default();
    for word in text.split_whitespace() {
        let Some((protocol, range)) = word.split_once('/') else {
            continue;
        };
        let at = PROTOCOLS.iter().position(|it| *it == protocol);
        let Some(runs) = at.and_then(|at| ports.get_mut(at)) else {
            continue;
        };
        runs.push(if range == "*" {
            (1, u16::MAX)
        } else {
            run(range)?
        });
    }
    Some(ports)
}

/// `All Connections`, `No Connections`, or `TCP 80,443-445,UDP 53`; a protocol alone means all
/// ports.
fn their_ports(text: &str) -> Option<Ports> {
    let mut ports = Ports::default();
    match text.trim() {
        "All Connections" => return Some(ports.map(|_| vec![(1, u16::MAX)])),
        "No Connections" | "" => return Some(ports),
        _ => {}
    }
    let mut current = None;
    for part in text.split(',').map(str::trim) {
        let (word, range) = part.split_once(' ').unwrap_or((part, ""));
        let named = word.to_ascii_lowercase();
        let named = PROTOCOLS.iter().position(|it| *it == named);
        let range = match named {
            Some(at) => {
                current = Some(at);
                range
            }
            None => part,
        };
        let runs = ports.get_mut(current?)?;
        let all = range.is_empty() && named.is_some();
        runs.push(if all { (1, u16::MAX) } else { run(range)? });
    }
    Some(ports)
}

/// The fields of each line; quoted ones may hold commas and, doubled, quotes.
fn csv(text: &str) -> impl Iterator<Item = Vec<String>> {
    text.lines().filter(|line| !line.is_empty()).map(|line| {
        let mut fields = vec![String::new()];
        let mut quoted = false;
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '"' if quoted && chars.peek() == Some(&'"') => {
                    chars.next();
                    push(&mut fields, '"');
                }
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(String::new()),
                c => push(&mut fields, c),
            }
        }
        fields
    })
}

fn push(fields: &mut [String], c: char) {
    if let Some(field) = fields.last_mut() {
        field.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster {
        let mut cluster = Cluster::default();
        cluster.pods.insert("a/web-1".to_owned(), 0);
        cluster.pods.insert("b/db-0".to_owned(), 1);
        cluster.workloads.insert("a/web[ReplicaSet]".to_owned(), 0);
        cluster.workloads.insert("b/db[StatefulSet]".to_owned(), 1);
        cluster
    }

    #[test]
    fn both_forms_come_to_the_same() {
        let ours = "from,to,ports\r\n\
                    a/web-1,b/db-0,tcp/80 tcp/443-445 udp/53\r\n\
                    b/db-0,a/web-1,tcp/* udp/* sctp/* icmp ip/*\r\n\
                    a/web-1,0.0.0.0/1 128.0.0.0/1,sctp/*\r\n\
                    10.0.0.0/8,b/db-0,tcp/1-79 tcp/80\r\n\
                    node/n1,b/db-0,tcp/*\r\n";
        let theirs = "src,dst,conn,network\n\
                      a/web[ReplicaSet],b/db[StatefulSet],\"TCP 80,443-445,UDP 53\",pod-network\n\
                      b/db[StatefulSet],a/web[ReplicaSet],All Connections,pod-network\n\
                      a/web[ReplicaSet],0.0.0.0-127.255.255.255[External],SCTP 1-65535,pod-network\n\
                      a/web[ReplicaSet],128.0.0.0-255.255.255.255[External],SCTP,pod-network\n\
                      10.0.0.0-10.255.255.255[External],b/db[StatefulSet],TCP 1-80,pod-network\n";
        let mut sets = Sets::default();
        let ours = Answers::ours(ours, &cluster(), &mut sets).unwrap();
        let theirs = Answers::theirs(theirs, &cluster(), &mut sets).unwrap();
        assert_eq!(ours, theirs);
        assert_eq!(sets.words(ours.pairs[&(0, 1)]), "tcp/80 tcp/443-445 udp/53");
        assert_eq!(ours.pairs.len(), 2);
        assert_eq!(ours.out[&0].len(), 2);
        assert_eq!(ours.into[&1].len(), 1);
    }

    #[test]
    fn what_is_not_csv_of_theirs_is_refused() {
        let mut sets = Sets::default();
        let line = "src,dst,conn\nc/x[Pod],a/web[ReplicaSet],All Connections\n";
        assert!(Answers::theirs(line, &cluster(), &mut sets).is_err());
        let line = "src,dst,conn\nb/db[StatefulSet],a/web[ReplicaSet],GRE\n";
        assert!(Answers::theirs(line, &cluster(), &mut sets).is_err());
    }
}
