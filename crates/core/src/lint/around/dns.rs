//! Pods that NetworkPolicies leave without DNS.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use super::Code;
use super::guard::{Asked, Group, Guard};
use super::lockout::Told;
use super::targets::{Dns, Target};
use crate::decide::Cause;
use crate::model::label;
use crate::net::Protocol;
use crate::party;
use crate::policy::{Direction, Verdict};
use crate::program::{Class, direction_index};

/// Where the resolver of a node listens by custom.
const NODE_LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 20, 10));

const DNS_PORT: NonZeroU16 = NonZeroU16::new(53).unwrap();

impl<'c> Guard<'_, 'c> {
    /// Pods that NetworkPolicies let send something, and not ask the DNS; and pods that may ask it,
    /// and not the resolver on their node, if there is one (D75).
    pub(super) fn without_dns(&self, dns: &Dns<'c>, told: &mut Told) {
        let over_udp: Vec<Target<'c>> = {
            let udp = dns.targets.iter().filter(|it| it.protocol == Protocol::Udp);
            udp.copied().collect()
        };
        if over_udp.is_empty() {
            return;
        }
        let node_local = self.node_local();
        // Addresses of sources count for nothing where they send.
        let mut isolated: BTreeMap<u32, Group<'c>> = BTreeMap::new();
        for (id, _) in self.ground.pods().filter(|(id, _)| !dns.pods.contains(id)) {
            let Some(class) = self.ground.program.class(id).filter(|it| self.may_send(it)) else {
                continue;
            };
            let group = isolated.entry(class.id).or_insert_with(|| Group {
                class,
                pods: [None, None],
                size: 0,
                ports: &[],
            });
            group.size += 1;
            let slot = group.pods.iter_mut().find(|it| it.is_none());
            slot.into_iter().for_each(|slot| *slot = Some(id));
        }
        for (number, group) in isolated.values().enumerate() {
            let size = (number, group.size);
            let sent = over_udp.iter().filter_map(|target| {
                let source = self.other_than(group, target.party.who)?;
                Some(self.ask(&source, target))
            });
            let sent: Vec<Asked> = sent.flatten().collect();
            let isolation = |it: &Asked| match it.egress {
                Some(Cause::Isolation(id)) => self.isolators(id, Direction::Egress),
                _ => None,
            };
            let allowed = |it: &Asked| it.egress.is_some_and(|it| it.verdict() == Verdict::Allow);
            if sent.iter().all(|it| isolation(it).is_some())
                && let Some(first) = sent.first()
                && let Some(at) = isolation(first)
            {
                told.add(Code::NoDns, at, first.witness, size);
            } else if sent.iter().any(allowed)
                && let Some(resolver) = &node_local
                && let Some(source) = self.other_than(group, resolver.party.who)
            {
                let asked = self.ask(&source, resolver);
                if let Some((at, asked)) = asked.iter().find_map(|it| Some((isolation(it)?, it))) {
                    told.add(Code::NodeLocalDns, at, asked.witness, size);
                }
            }
        }
        let all: u64 = isolated.values().map(|it| it.size).sum();
        told.asked(Code::NoDns, all);
        told.asked(Code::NodeLocalDns, all);
    }

    /// Whether NetworkPolicies isolate a class for what it sends, and let it send something.
    fn may_send(&self, class: &Class) -> bool {
        let index = direction_index(Direction::Egress);
        let union = class.unions.get(index).copied();
        let unions = self.ground.program.unions.get(index);
        let union = unions.zip(union).and_then(|(all, it)| all.get(it as usize));
        union.is_some_and(|union| !union.rules.is_empty())
    }

    /// The resolver on the nodes, if something here is one.
    fn node_local(&self) -> Option<Target<'c>> {
        const NAME: &str = "node-local-dns";
        let mut pods = self.ground.pods();
        let mut workloads = self.ground.cluster.workloads.iter();
        let exists = pods.any(|(_, pod)| label(&pod.labels, "k8s-app") == Some(NAME))
            || workloads.any(|it| it.name == NAME);
        exists.then(|| Target {
            party: party::at(self.ground.cluster, self.ground.program, NODE_LOCAL),
            protocol: Protocol::Udp,
            port: DNS_PORT,
        })
    }
}
