//! Sets of ports in short form, each stored once.

use std::collections::HashMap;

use palisade_core::analysis::connect::Reach;
use palisade_core::answer::PortSet;
use palisade_core::query::PortQuery;

/// The verdicts of flows by port; ports in none of the lists are denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ports {
    /// The same as sets.
    reach: Reach,
    /// Allowed.
    pub(crate) allowed: Vec<String>,
    /// Allowed in one family or at one backend, and denied in another.
    pub(crate) mixed: Vec<String>,
    /// Dependent on an unknown address.
    pub(crate) unknown: Vec<String>,
    /// Whether every port of every protocol is allowed.
    pub(crate) open: bool,
    /// For scripts: every port, with a prefix if it is not simply allowed.
    pub(crate) marked: String,
}

/// How much is allowed, from nothing to everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// Not evaluated.
    NotEvaluated,
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

    /// Formats the ports for people: `any`, `tcp/80, udp/53`, `any but tcp/25`; at most `most`
    /// words a part.
    pub(crate) fn short(&self, most: usize) -> Vec<(State, String)> {
        let mut parts = Vec::new();
        if self.open {
            parts.push((State::Open, "any".to_owned()));
        } else if !self.allowed.is_empty() {
            parts.push((State::Some, few(&self.reach.allowed, most)));
        }
        for (word, ports) in [
            ("mixed", &self.reach.mixed),
            ("unknown", &self.reach.unknown),
        ] {
            if !ports.is_empty() {
                parts.push((State::Mixed, format!("{word}: {}", few(ports, most))));
            }
        }
        parts
    }

    /// Formats the short form as one text.
    pub(crate) fn text(&self, most: usize) -> String {
        let parts = self.short(most).into_iter().map(|(_, text)| text);
        let text = parts.collect::<Vec<String>>().join("; ");
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    }

    fn new(reach: &Reach) -> Ports {
        let [allowed, mixed, unknown] =
            [&reach.allowed, &reach.mixed, &reach.unknown].map(PortSet::text);
        let mut words = allowed.clone();
        words.extend(mixed.iter().map(|it| format!("mixed:{it}")));
        words.extend(unknown.iter().map(|it| format!("unknown:{it}")));
        Ports {
            reach: reach.clone(),
            open: reach.allowed.is_everything(),
            marked: words.join(" "),
            allowed,
            mixed,
            unknown,
        }
    }
}

/// Lists the ports, or everything but the missing ones if these are fewer words.
pub(crate) fn few(ports: &PortSet, most: usize) -> String {
    let (words, missing) = (ports.text(), missing(ports).text());
    if missing.is_empty() {
        return "any".to_owned();
    }
    let (lead, words) = if missing.len() < words.len() && words.len() > 2 {
        ("any but ", missing)
    } else {
        ("", words)
    };
    let shown: Vec<&str> = words.iter().take(most).map(String::as_str).collect();
    let mut text = format!("{lead}{}", shown.join(", "));
    if words.len() > most {
        text += &format!(" and {} more", words.len() - most);
    }
    text
}

/// Returns the other ports. ICMP is missing only if ICMPv6 is missing as well: a pair of endpoints
/// of one family has only one of them.
fn missing(ports: &PortSet) -> PortSet {
    let mut missing = PortSet::everything();
    missing.remove_all(ports);
    missing.remove_all(&PortSet::of_query(&PortQuery::Icmp6(None)));
    if ports.has_icmp6() {
        missing.remove_all(&PortSet::of_query(&PortQuery::Icmp));
    }
    missing
}

/// Distinct sets of ports.
#[derive(Debug, Default)]
pub(crate) struct Reaches {
    list: Vec<Ports>,
    places: HashMap<Reach, usize>,
    /// What an unknown index has.
    nothing: Ports,
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
        self.list.get(place).unwrap_or(&self.nothing)
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

    /// The union of runs of ports, ranges as `tcp/1-24`.
    fn ports(text: &str) -> PortSet {
        let mut set = PortSet::default();
        for word in text.split(' ') {
            match word.split_once('/') {
                Some(("tcp", range)) => {
                    let (first, last) = range.split_once('-').unwrap_or((range, range));
                    let [first, last] = [first, last].map(|it| it.parse().unwrap());
                    set.add_run(Protocol::Tcp, first, last);
                }
                _ => set.add(&PortSet::of_query(&PortQuery::parse(word).unwrap())),
            }
        }
        set
    }

    #[test]
    fn the_shorter_form_is_shown() {
        assert_eq!(few(&ports("tcp/80 udp/53"), 9), "tcp/80, udp/53");
        let mut but_one = PortSet::everything();
        but_one.remove_all(&ports("tcp/25"));
        assert_eq!(few(&but_one, 9), "any but tcp/25");
        but_one.remove_all(&ports("icmp"));
        assert_eq!(few(&but_one, 9), "any but tcp/25");
        but_one.remove_all(&ports("icmpv6 tcp/2-20"));
        assert_eq!(few(&but_one, 9), "any but tcp/2-20, tcp/25, icmp");
        assert_eq!(few(&PortSet::everything(), 9), "any");
        assert_eq!(
            few(&ports("tcp/1 tcp/3 tcp/5"), 2),
            "tcp/1, tcp/3 and 1 more"
        );
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
