//! Unions of many rules, asked at once: the sets for what the plan has merged.
//!
//! A port leads to the number of the group that may use it, so that no chain is needed for each port.

use palisade_core::net::{Family, Protocol};
use palisade_core::plan::{Body, Plan};

use crate::ruleset::{Field, Name, Set, Value, l4};

/// The numbers of the groups that may use a port, by protocol and port: a map for each body, since
/// the kernel walks all of a map whenever a rule of one more chain uses it.
pub(crate) fn by_port(body: u32) -> Name {
    Name::numbered("ports", body)
}

/// Whether a set is one of those.
pub(crate) fn is_by_port(set: &Name) -> bool {
    set.as_str().starts_with("ports-")
}

/// The ports that anyone may use, by body, protocol and port.
pub(crate) fn open(family: Family) -> &'static str {
    match family {
        Family::V4 => "open4",
        Family::V6 => "open6",
    }
}

/// The sets of all bodies, as far as anything is in them.
pub(super) fn sets(plan: &Plan) -> impl Iterator<Item = Set> {
    let fields = || vec![Field::Number, Field::L4, Field::Port];
    let mut sets = Vec::new();
    let mut opens = Family::BOTH.map(|family| Set::new(Name::word(open(family)), fields()));
    for (id, body) in &plan.bodies {
        sets.push(ports(id.0, body));
        for (family, set) in Family::BOTH.into_iter().zip(&mut opens) {
            for (protocol, port) in body.merged.open(family) {
                set.push(&key(id.0, *protocol, *port));
            }
        }
    }
    let sets = sets.into_iter().chain(opens);
    sets.filter(|set| !set.is_empty())
}

/// The map of a body.
pub(crate) fn ports(id: u32, body: &Body) -> Set {
    let mut ports = Set::numbers(by_port(id), vec![Field::L4, Field::Port]);
    for ((protocol, port), group) in &body.merged.of_ports {
        let key = [Value::L4(l4(*protocol)), Value::Port(*port)];
        ports.push_number(&key, group.0);
    }
    ports
}

/// A port that anyone may use, as it stands in [`open`].
pub(crate) fn key(body: u32, protocol: Protocol, port: u16) -> [Value; 3] {
    let protocol = Value::L4(l4(protocol));
    [Value::Number(body), protocol, Value::Port(port)]
}
