//! Sets of ports in short form, each stored once.

use std::collections::HashMap;

use palisade_core::analysis::connect::Reach;
use palisade_core::answer::PortSet;

/// The verdicts of flows by port; ports in none of the lists are denied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ports {
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
            parts.push((State::Some, few(&self.allowed, most)));
        }
        for (word, ports) in [("mixed", &self.mixed), ("unknown", &self.unknown)] {
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
            open: reach.allowed.is_everything(),
            marked: words.join(" "),
            allowed,
            mixed,
            unknown,
        }
    }
}

/// Lists the words, or everything but the missing ones if these are fewer.
pub(crate) fn few(words: &[String], most: usize) -> String {
    let missing = missing(words);
    if missing.is_empty() {
        return "any".to_owned();
    }
    let (lead, words) = if missing.len() < words.len() && words.len() > 2 {
        ("any but ", &missing[..])
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

/// Returns the ports that are in none of the words. ICMP is missing only if ICMPv6 is missing as
/// well: a pair of endpoints of one family has only one of them.
fn missing(words: &[String]) -> Vec<String> {
    let mut missing = Vec::new();
    for protocol in ["tcp", "udp", "sctp"] {
        let mut next: u32 = 1;
        let mut gap = |first: u32, last: u32| {
            missing.push(match (first, last) {
                (1, 65535) => format!("{protocol}/*"),
                _ if first == last => format!("{protocol}/{first}"),
                _ => format!("{protocol}/{first}-{last}"),
            });
        };
        for word in words {
            let Some((its, range)) = word.split_once('/') else {
                continue;
            };
            if its != protocol {
                continue;
            }
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (first.parse().unwrap_or(1), last.parse().unwrap_or(65535)),
                None if range == "*" => (1, 65535),
                None => (range.parse().unwrap_or(1), range.parse().unwrap_or(1)),
            };
            if first > next {
                gap(next, first - 1);
            }
            next = next.max(last + 1);
        }
        if next <= 65535 {
            gap(next, 65535);
        }
    }
    let has = |word: &str| words.iter().any(|it| it == word);
    if !has("icmp") && !has("icmpv6") {
        missing.push("icmp".to_owned());
    }
    if !has("ip/*") {
        missing.push("ip/*".to_owned());
    }
    missing
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
        const NOTHING: &Ports = &Ports {
            allowed: Vec::new(),
            mixed: Vec::new(),
            unknown: Vec::new(),
            open: false,
            marked: String::new(),
        };
        self.list.get(place).unwrap_or(NOTHING)
    }

    /// Returns all sets, by index.
    pub(crate) fn all(&self) -> &[Ports] {
        &self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_core::query::PortQuery;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_shorter_form_is_shown() {
        assert_eq!(few(&words("tcp/80 udp/53"), 9), "tcp/80, udp/53");
        let but_one = words("tcp/1-24 tcp/26-65535 udp/* sctp/* icmp ip/*");
        assert_eq!(few(&but_one, 9), "any but tcp/25");
        assert_eq!(few(&words("tcp/* udp/* sctp/* icmpv6 ip/*"), 9), "any");
        assert_eq!(
            few(&words("tcp/1 tcp/3 tcp/5"), 2),
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
