//! Sets of ports in short form, each stored once.

use std::collections::HashMap;
use std::sync::LazyLock;

use palisade_core::analysis::connect::Reach;
use palisade_core::answer::PortSet;

/// A set of ports, and its words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortList {
    set: PortSet,
    /// The set in text.
    pub(crate) words: Vec<String>,
}

impl PortList {
    fn new(set: &PortSet) -> PortList {
        PortList {
            set: set.clone(),
            words: set.text(),
        }
    }

    fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

/// The verdicts of flows by port; ports in none of the lists are denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ports {
    /// Allowed.
    pub(crate) allowed: PortList,
    /// Allowed in one family or at one backend, and denied in another.
    pub(crate) mixed: PortList,
    /// Dependent on an unknown address.
    pub(crate) unknown: PortList,
    /// Whether every port of every protocol is allowed.
    pub(crate) open: bool,
    /// For scripts: every port, with a prefix if it is not simply allowed.
    pub(crate) marked: String,
}

/// How much is allowed, from nothing to everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// Not evaluated.
    Unasked,
    /// Nothing.
    Closed,
    /// Nothing for certain.
    Mixed,
    /// Some ports.
    Some,
    /// Every port and protocol.
    Open,
}

impl Ports {
    /// Returns how much is allowed.
    pub(crate) fn state(&self) -> State {
        if self.open {
            State::Open
        } else if !self.allowed.is_empty() {
            State::Some
        } else if !self.mixed.is_empty() || !self.unknown.is_empty() {
            State::Mixed
        } else {
            State::Closed
        }
    }

    /// Formats the ports for people, in words: `any`, `tcp/80` and `udp/53`, `any but tcp/25`; at
    /// most `most` words a part.
    pub(crate) fn short(&self, most: usize) -> Vec<(State, Vec<String>)> {
        let mut parts = Vec::new();
        if self.open {
            parts.push((State::Open, vec!["any".to_owned()]));
        } else if !self.allowed.is_empty() {
            parts.push((State::Some, few(&self.allowed.set, most)));
        }
        for (word, ports) in [("mixed", &self.mixed), ("unknown", &self.unknown)] {
            if !ports.is_empty() {
                let mut words = few(&ports.set, most);
                if let Some(first) = words.first_mut() {
                    *first = format!("{word}: {first}");
                }
                parts.push((State::Mixed, words));
            }
        }
        parts
    }

    /// Formats the short form as one list of words.
    pub(crate) fn words(&self, most: usize) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for (_, words) in self.short(most) {
            let mut words = words.into_iter();
            if let Some(last) = all.last_mut()
                && let Some(first) = words.next()
            {
                *last += &format!("; {first}");
            }
            all.extend(words);
        }
        all
    }

    /// Formats the short form as one text.
    pub(crate) fn text(&self, most: usize) -> String {
        let words = self.words(most);
        if words.is_empty() {
            "-".to_owned()
        } else {
            words.join(", ")
        }
    }

    fn new(reach: &Reach) -> Ports {
        let [allowed, mixed, unknown] =
            [&reach.allowed, &reach.mixed, &reach.unknown].map(PortList::new);
        let mut words = allowed.words.clone();
        words.extend(mixed.words.iter().map(|it| format!("mixed:{it}")));
        words.extend(unknown.words.iter().map(|it| format!("unknown:{it}")));
        Ports {
            open: reach.allowed.is_everything(),
            marked: words.join(" "),
            allowed,
            mixed,
            unknown,
        }
    }
}

/// Lists the ports, or everything but the missing ones if these are fewer; at most `most` words.
pub(crate) fn few(ports: &PortSet, most: usize) -> Vec<String> {
    let missing = missing(ports);
    if missing.is_empty() {
        return vec!["any".to_owned()];
    }
    let present = ports.text();
    let (lead, words) = if missing.len() < present.len() && present.len() > 2 {
        ("any but ", missing)
    } else {
        ("", present)
    };
    let n_more = words.len().saturating_sub(most);
    let mut shown: Vec<String> = words.into_iter().take(most).collect();
    if let Some(first) = shown.first_mut() {
        first.insert_str(0, lead);
    }
    if let Some(last) = shown.last_mut()
        && n_more > 0
    {
        *last += &format!(" and {n_more} more");
    }
    shown
}

/// Returns the missing ports in text. ICMP is missing only if ICMPv6 is missing as well: a pair of
/// endpoints of one family has only one of them.
fn missing(ports: &PortSet) -> Vec<String> {
    let mut rest = PortSet::everything();
    rest.remove_all(ports);
    if !rest.has_icmp() || !rest.has_icmp6() {
        let mut icmp = PortSet::default();
        icmp.add_icmp();
        rest.remove_all(&icmp);
    }
    let mut icmp6 = PortSet::default();
    icmp6.add_icmp6();
    rest.remove_all(&icmp6);
    rest.text()
}

/// Distinct sets of ports.
#[derive(Debug, Default)]
pub(crate) struct Reaches {
    list: Vec<Ports>,
    places: HashMap<Reach, usize>,
}

impl Reaches {
    /// Returns the index of a set of ports.
    pub(crate) fn intern(&mut self, reach: &Reach) -> usize {
        if let Some(place) = self.places.get(reach) {
            return *place;
        }
        self.list.push(Ports::new(reach));
        let place = self.list.len() - 1;
        self.places.insert(reach.clone(), place);
        place
    }

    /// Returns the set of ports with an index.
    pub(crate) fn get(&self, place: usize) -> &Ports {
        static NOTHING: LazyLock<Ports> = LazyLock::new(Ports::default);
        self.list.get(place).unwrap_or(&NOTHING)
    }

    /// Returns all sets, by index.
    pub(crate) fn all(&self) -> &[Ports] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_core::net::Protocol;
    use palisade_core::query::PortQuery;

    fn ports(text: &str) -> PortSet {
        let mut ports = PortSet::default();
        for word in text.split(' ') {
            let (name, range) = word.split_once('/').unwrap_or((word, ""));
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (first.parse().unwrap(), last.parse().unwrap()),
                None if range == "*" => (1, 65535),
                None => (range.parse().unwrap_or(0), range.parse().unwrap_or(0)),
            };
            match Protocol::from_name(&name.to_ascii_uppercase()) {
                Some(protocol) => ports.add_run(protocol, first, last),
                None if name == "icmp" => ports.add_icmp(),
                None if name == "icmpv6" => ports.add_icmp6(),
                None => ports.add_other(),
            }
        }
        assert_eq!(ports.text().join(" "), text);
        ports
    }

    #[test]
    fn the_shorter_form_is_shown() {
        let check = |text: &str, most, expected: &[&str]| {
            assert_eq!(few(&ports(text), most), expected, "{text}");
        };
        check("tcp/80 udp/53", 9, &["tcp/80", "udp/53"]);
        let but_one = "tcp/1-24 tcp/26-65535 udp/* sctp/* icmp ip/*";
        check(but_one, 9, &["any but tcp/25"]);
        check("tcp/* udp/* sctp/* icmpv6 ip/*", 9, &["any"]);
        check("tcp/1 tcp/3 tcp/5", 2, &["tcp/1", "tcp/3 and 1 more"]);
        check("tcp/* udp/* sctp/*", 9, &["any but icmp", "ip/*"]);
    }

    #[test]
    fn ports_that_are_not_simply_allowed_have_a_prefix() {
        let port = |text: &str| PortSet::of_query(&PortQuery::parse(text).unwrap());
        let ports = Ports::new(&Reach {
            allowed: port("tcp/80"),
            mixed: port("tcp/81"),
            unknown: port("udp/53"),
        });
        assert_eq!(ports.marked, "tcp/80 mixed:tcp/81 unknown:udp/53");
        assert_eq!(ports.text(9), "tcp/80; mixed: tcp/81; unknown: udp/53");
        assert_eq!(ports.state(), State::Some);
    }
}
