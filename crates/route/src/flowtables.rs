//! nftables flowtables on the path to pods.
//!
//! A flowtable receives packets at the interfaces at which it is hooked. Those of connections that
//! a rule has added to it go to the next interface at once, past `forward`. A policy that denies
//! such a connection later has no effect on it. Whether a rule adds connections now does not
//! matter: those in the flowtable stay while packets arrive.

use std::collections::BTreeSet;

use crate::bypass::Bypass;

/// A flowtable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flowtable {
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// The names of its interfaces. A name with a star at the end stands for all interfaces that
    /// begin so.
    pub interfaces: Vec<String>,
}

/// Returns the flowtables that are hooked at one of the interfaces
/// [`on_the_way`](crate::on_the_way).
pub fn flowtables(all: &[Flowtable], on_the_way: &BTreeSet<String>) -> Vec<Bypass> {
    let mut found = Vec::new();
    for it in all {
        let mut path = on_the_way.iter();
        let at = path.find(|name| it.interfaces.iter().any(|hooked| is_at(hooked, name)));
        // One interface is enough to report; a flowtable may have hundreds.
        found.extend(at.map(|interface| Bypass::Flowtable {
            table: it.table.clone(),
            name: it.name.clone(),
            interface: interface.clone(),
        }));
    }
    found.sort_unstable();
    found
}

fn is_at(hooked: &str, interface: &str) -> bool {
    match hooked.strip_suffix('*') {
        Some(beginning) => interface.starts_with(beginning),
        None => hooked == interface,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flowtable(table: &str, interfaces: &[&str]) -> Flowtable {
        Flowtable {
            table: table.to_owned(),
            name: "fast".to_owned(),
            interfaces: interfaces.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    #[test]
    fn a_flowtable_counts_where_packets_of_pods_pass() {
        let path = BTreeSet::from(["eth0", "veth1", "veth2"].map(str::to_owned));
        let all = [
            flowtable("b", &["docker0", "veth2", "veth1"]),
            flowtable("a", &["eth0"]),
            flowtable("of others", &["docker0", "eth", "veth10"]),
            flowtable("bare", &[]),
        ];
        let found: Vec<String> = flowtables(&all, &path).iter().map(Bypass::words).collect();
        let [of_a, of_b] = found.as_slice() else {
            unreachable!("{found:?}")
        };
        assert!(of_a.starts_with("the flowtable fast of the table a (eth0)"));
        assert!(of_b.starts_with("the flowtable fast of the table b (veth1)"));
    }

    #[test]
    fn a_trailing_star_matches_every_name_with_the_prefix() {
        let path = BTreeSet::from(["veth1".to_owned()]);
        for (hooked, is_found) in [
            ("veth*", true),
            ("*", true),
            ("eth*", false),
            ("veth", false),
        ] {
            let found = flowtables(&[flowtable("a", &[hooked])], &path);
            assert_eq!(!found.is_empty(), is_found, "{hooked}");
        }
    }
}
