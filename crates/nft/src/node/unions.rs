//! Unions of many rules, asked at once: the sets for what the plan has merged.
//!
//! A block of ports leads to the number of the group that may use it, so that no chain is needed for each port. A port is in at most
//! one block of each length, and each length is asked by one rule.

use palisade_core::net::Family;
use palisade_core::plan::{GroupId, Plan, PortBlock, RuleChain, RuleChainId};

use crate::ruleset::{Field, Name, Set, Value, l4};

/// The numbers of the groups of hosts that may use ports, by length, protocol and block: a map for each body, since
/// the kernel walks all of a map whenever a rule of one more chain uses it.
pub(crate) fn by_port(body: u32) -> Name {
    Name::numbered("ports", body)
}

/// The same for groups of ranges of a family.
pub(crate) fn nets_by_port(family: Family, body: u32) -> Name {
    let word = match family {
        Family::V4 => "nets4",
        Family::V6 => "nets6",
    };
    Name::numbered(word, body)
}

/// Whether a set is of one body alone.
pub(crate) fn is_of_a_body(set: &Name) -> bool {
    let words = ["ports-", "nets4-", "nets6-"];
    words.iter().any(|word| set.as_str().starts_with(word))
}

/// The ports that anyone may use, by body, length, protocol and block.
pub(crate) fn open(family: Family) -> &'static str {
    match family {
        Family::V4 => "open4",
        Family::V6 => "open6",
    }
}

/// The fields of [`open`].
pub(crate) const OPEN: [Field; 4] = [Field::Number, Field::Number, Field::L4, Field::Port];

/// The sets of all bodies, as far as anything is in them.
pub(super) fn sets(plan: &Plan) -> impl Iterator<Item = Set> {
    let mut sets = Vec::new();
    let mut opens = Family::BOTH.map(|family| Set::new(Name::word(open(family)), OPEN.to_vec()));
    for (id, body) in &plan.chains {
        sets.extend(of_body(*id, body));
        for (family, set) in Family::BOTH.into_iter().zip(&mut opens) {
            for block in body.merged.open(family) {
                set.push(&key(*id, *block));
            }
        }
    }
    let opens = opens.into_iter().filter(|set| !set.is_empty());
    sets.into_iter().chain(opens)
}

/// The maps of a body, as far as anything is in them.
pub(crate) fn of_body(RuleChainId(id): RuleChainId, body: &RuleChain) -> impl Iterator<Item = Set> {
    let nets = |family| (nets_by_port(family, id), body.merged.nets_of_ports(family));
    let [nets4, nets6] = Family::BOTH.map(nets);
    let maps = [(by_port(id), &body.merged.of_ports), nets4, nets6];
    let maps = maps.map(|(name, ports)| {
        let mut map = Set::numbers(name, vec![Field::Number, Field::L4, Field::Port]);
        for (block, GroupId(group)) in ports {
            map.push_number(&block_key(*block), *group);
        }
        map
    });
    maps.into_iter().filter(|map| !map.is_empty())
}

/// Ports that anyone may use, as they stand in [`open`].
pub(crate) fn key(RuleChainId(body): RuleChainId, block: PortBlock) -> [Value; 4] {
    let [length, protocol, port] = block_key(block);
    [Value::Number(body), length, protocol, port]
}

fn block_key(block: PortBlock) -> [Value; 3] {
    let protocol = Value::L4(l4(block.protocol));
    let length = Value::Number(block.bits.into());
    [length, protocol, Value::Port(block.first)]
}
