//! Pods that NetworkPolicies leave without DNS.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use super::Code;
use super::lockout::LockoutFindings;
use super::lockout_flows::{CertainFlow, LockoutEvaluator, PodDistinction};
use super::targets::{Dns, Target};
use crate::decide::Cause;
use crate::flow_end;
use crate::model::{Pod, label};
use crate::net::Protocol;
use crate::policy::{Direction, Verdict};
use crate::program::{Class, direction_index};

/// Where the resolver of a node listens by custom.
const NODE_LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 20, 10));

const DNS_PORT: NonZeroU16 = NonZeroU16::new(53).unwrap();

impl<'c> LockoutEvaluator<'_, 'c> {
    /// Pods that NetworkPolicies let send something, and not ask the DNS; and pods that may ask it,
    /// and not the resolver on their node, if there is one (D75).
    pub(super) fn without_dns(&self, dns: &Dns<'c>, told: &mut LockoutFindings) {
        let over_udp: Vec<Target<'c>> = {
            let udp = dns.targets.iter().filter(|it| it.protocol == Protocol::Udp);
            udp.copied().collect()
        };
        if over_udp.is_empty() {
            return;
        }
        let node_local = self.node_local();
        let is_meant = |id, _: &Pod<'_>| {
            let class = self.context.program.class(id);
            class.is_some_and(|it| self.may_send(it)) && !dns.pods.contains(&id)
        };
        let isolated = self.groups(&is_meant, PodDistinction::Classes);
        for (number, group) in isolated.iter().enumerate() {
            let size = (number, group.size);
            let sent = over_udp.iter().filter_map(|target| {
                let source = self.other_than(group, target.end.identity)?;
                Some(self.evaluate(&source, target))
            });
            let sent: Vec<CertainFlow> = sent.flatten().collect();
            let isolation = |it: &CertainFlow| match it.egress {
                Some(Cause::Isolation(id)) => Some(id),
                _ => None,
            };
            let tell = |told: &mut LockoutFindings, code, asked: &CertainFlow| {
                let by = isolation(asked).and_then(|id| self.isolators(id, Direction::Egress));
                if let Some(by) = by {
                    told.add(code, by, asked.witness, size);
                }
            };
            let allowed =
                |it: &CertainFlow| it.egress.is_some_and(|it| it.verdict() == Verdict::Allow);
            if sent.iter().all(|it| isolation(it).is_some()) {
                let first = sent.first();
                first.into_iter().for_each(|it| tell(told, Code::NoDns, it));
            } else if sent.iter().any(allowed)
                && let Some(resolver) = &node_local
                && let Some(source) = self.other_than(group, resolver.end.identity)
            {
                let mut asked = self.evaluate(&source, resolver);
                if let Some(asked) = asked.find(|it| isolation(it).is_some()) {
                    tell(told, Code::NodeLocalDns, &asked);
                }
            }
        }
        let all: u64 = isolated.iter().map(|it| it.size).sum();
        told.evaluated(Code::NoDns, all);
        told.evaluated(Code::NodeLocalDns, all);
    }

    /// Whether NetworkPolicies isolate a class for what it sends, and let it send something.
    fn may_send(&self, class: &Class) -> bool {
        let index = direction_index(Direction::Egress);
        let union = class.unions.get(index).copied();
        let unions = self.context.program.unions.get(index);
        let union = unions.zip(union).and_then(|(all, it)| all.get(it as usize));
        union.is_some_and(|union| !union.rules.is_empty())
    }

    /// The resolver on the nodes, if something here is one.
    fn node_local(&self) -> Option<Target<'c>> {
        const NAME: &str = "node-local-dns";
        let mut pods = self.context.pods();
        let mut workloads = self.context.cluster.workloads.iter();
        let exists = pods.any(|(_, pod)| label(&pod.labels, "k8s-app") == Some(NAME))
            || workloads.any(|it| it.name == NAME);
        exists.then(|| Target {
            end: flow_end::at(self.context.cluster, self.context.program, NODE_LOCAL),
            protocol: Protocol::Udp,
            port: DNS_PORT,
        })
    }
}
