//! D148: which NetworkPolicies do not fit into the budget of their namespace, by
//! docs/reference/model.md ("Budgets").

use crate::netpol::{NetPol, NetPolSide};
use crate::rule::{Match, Namespaces, Peer, Port};

/// Removes the rules of policies that do not fit.
pub(crate) fn apply(policies: &mut [NetPol], budget: u64) {
    let mut order: Vec<usize> = (0..policies.len()).collect();
    // The oldest first, then those without a usual time; then by name, then NetworkPolicy before
    // its 2016 form.
    order.sort_by_key(|i| {
        let p = &policies[*i];
        let undated = !is_usual(&p.created);
        let created = if undated { "" } else { &p.created };
        (
            p.namespace.clone(),
            undated,
            created.to_owned(),
            p.name.clone(),
            p.id.starts_with("np0"),
        )
    });
    let (mut namespace, mut used) = (String::new(), 0);
    for i in order {
        let p = &mut policies[i];
        if p.namespace != namespace {
            (namespace, used) = (p.namespace.clone(), 0);
        }
        let entries = entries(&p.ingress) + entries(&p.egress);
        if used + entries <= budget {
            used += entries;
        } else {
            p.ingress.rules.clear();
            p.egress.rules.clear();
        }
    }
}

/// As API servers write times.
fn is_usual(time: &str) -> bool {
    time.len() == 20
        && time.char_indices().all(|(i, c)| match i {
            4 | 7 => c == '-',
            10 => c == 'T',
            13 | 16 => c == ':',
            19 => c == 'Z',
            _ => c.is_ascii_digit(),
        })
}

fn entries(side: &NetPolSide) -> u64 {
    side.rules.iter().map(|(_, rule)| of_rule(rule)).sum()
}

fn of_rule(rule: &Match) -> u64 {
    let ports: u64 = rule.ports.iter().flatten().map(of_port).sum();
    let peers: u64 = rule.peers.iter().flatten().map(of_peer).sum();
    // A name has up to eight ports of a pod.
    let names = rule.ports.iter().flatten();
    let names = names.filter(|it| matches!(it, Port::Named(..))).count() as u64;
    [1, ports + peers, (ports + 7 * names) * peers / 5]
        .into_iter()
        .max()
        .unwrap()
}

/// All ports are one; otherwise the fewest blocks of 1, 16, 256 or 4,096 that begin at a multiple
/// of their size.
fn of_port(port: &Port) -> u64 {
    let Port::Range(_, first, last) = port else {
        return 1;
    };
    if (*first, *last) == (1, 65_535) {
        return 1;
    }
    let (mut at, end, mut blocks) = (u64::from(*first), u64::from(*last) + 1, 0);
    while at < end {
        let fits = |size: &u64| at % size == 0 && at + size <= end;
        at += [4096, 256, 16, 1].into_iter().find(fits).unwrap();
        blocks += 1;
    }
    blocks
}

fn of_peer(peer: &Peer) -> u64 {
    1 + match peer {
        Peer::Pods(namespaces, pods) => {
            let required = match namespaces {
                Namespaces::Selector(s) => s.values(),
                Namespaces::Exact(_)
                // No NetworkPolicy has these.
                | Namespaces::Except(..)
                | Namespaces::Same
                | Namespaces::Other
                | Namespaces::SameLabels(_)
                | Namespaces::NotSameLabels(_) => 0,
            };
            required + pods.values()
        }
        Peer::Cidr(_, except) => 1 + 2 * except.len() as u64,
        Peer::Any | Peer::Nodes(_) | Peer::Networks(_) | Peer::Domains(_) => 0,
    }
}
