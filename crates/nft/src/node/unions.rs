//! The sets for unions of many rules that the plan has merged.
//!
//! A map leads from a block of ports to the group that may use it: no port needs a chain of its
//! own. A port is in at most one block of each length, and one rule looks up each length.

use palisade_core::net::Family;
use palisade_core::plan::{GroupId, Plan, PortBlock, RuleChain, RuleChainId};

use crate::ruleset::{Field, Name, Set, Value, l4};

/// Returns the name of a rule chain's map from length, protocol and block to the group of hosts
/// that may use these ports.
// A map for each rule chain: the kernel walks all of a map whenever a rule of one more chain uses
// it. One map for all took 436 ms to load 250 pods with 10,000 policies, instead of 155 ms.
pub(crate) fn by_port(chain: u32) -> Name {
    Name::numbered("ports", chain)
}

/// Returns the name of the map for groups of ranges of a family.
pub(crate) fn nets_by_port(family: Family, chain: u32) -> Name {
    let word = match family {
        Family::V4 => "nets4",
        Family::V6 => "nets6",
    };
    Name::numbered(word, chain)
}

/// Reports whether a set belongs to one rule chain.
pub(crate) fn is_of_a_chain(set: &Name) -> bool {
    let words = ["ports-", "nets4-", "nets6-"];
    words.iter().any(|word| set.as_str().starts_with(word))
}

/// Returns the name of the set of ports that any peer may use: rule chain, length, protocol and
/// block.
pub(crate) fn open(family: Family) -> &'static str {
    match family {
        Family::V4 => "open4",
        Family::V6 => "open6",
    }
}

/// The fields of the set [`open`].
pub(crate) const OPEN: [Field; 4] = [Field::Number, Field::Number, Field::L4, Field::Port];

/// Makes the sets of all rule chains, except empty ones.
pub(super) fn sets(plan: &Plan) -> impl Iterator<Item = Set> {
    let mut sets = Vec::new();
    let mut opens = Family::BOTH.map(|family| Set::new(Name::word(open(family)), OPEN.to_vec()));
    for (id, chain) in &plan.chains {
        sets.extend(of_chain(*id, chain));
        // One set for all rule chains: the kernel walks maps only, not sets.
        for (family, set) in Family::BOTH.into_iter().zip(&mut opens) {
            for block in chain.merged.open(family) {
                set.push(&key(*id, *block));
            }
        }
    }
    let opens = opens.into_iter().filter(|set| !set.is_empty());
    sets.into_iter().chain(opens)
}

/// Makes the maps of a rule chain, except empty ones.
pub(crate) fn of_chain(
    RuleChainId(id): RuleChainId,
    chain: &RuleChain,
) -> impl Iterator<Item = Set> {
    let nets = |family| (nets_by_port(family, id), chain.merged.nets_of_ports(family));
    let [nets4, nets6] = Family::BOTH.map(nets);
    let maps = [(by_port(id), &chain.merged.of_ports), nets4, nets6];
    let maps = maps.map(|(name, ports)| {
        let mut map = Set::numbers(name, vec![Field::Number, Field::L4, Field::Port]);
        for (block, GroupId(group)) in ports {
            map.push_number(&block_key(*block), *group);
        }
        map
    });
    maps.into_iter().filter(|map| !map.is_empty())
}

/// Returns the key of a block of ports in the set [`open`].
pub(crate) fn key(RuleChainId(chain): RuleChainId, block: PortBlock) -> [Value; 4] {
    let [length, protocol, port] = block_key(block);
    [Value::Number(chain), length, protocol, port]
}

fn block_key(block: PortBlock) -> [Value; 3] {
    let protocol = Value::L4(l4(block.protocol));
    let length = Value::Number(block.bits.into());
    [length, protocol, Value::Port(block.first)]
}
