//! Pods that NetworkPolicies block from the cluster's DNS.

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

/// The conventional address of a node-local DNS cache.
const NODE_LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(169, 254, 20, 10));

const DNS_PORT: NonZeroU16 = NonZeroU16::new(53).unwrap();

impl<'c> LockoutEvaluator<'_, 'c> {
    /// Finds pods to which NetworkPolicies allow some egress but not the DNS, and pods that may
    /// reach the DNS but not the resolver on their node, if the cluster has one (D75).
    pub(super) fn without_dns(&self, dns: &Dns<'c>, findings: &mut LockoutFindings) {
        // Clients try UDP first. TCP alone is not enough for them, and UDP alone mostly is.
        let over_udp: Vec<Target<'c>> = {
            let udp = dns.targets.iter().filter(|it| it.protocol == Protocol::Udp);
            udp.copied().collect()
        };
        if over_udp.is_empty() {
            return;
        }
        let node_local = self.node_local();
        let is_client = |id, _: &Pod<'_>| {
            let class = self.context.program.class(id);
            class.is_some_and(|it| self.may_send(it)) && !dns.pods.contains(&id)
        };
        let isolated = self.groups(&is_client, PodDistinction::Classes);
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
            let report = |findings: &mut LockoutFindings, code, flow: &CertainFlow| {
                let by = isolation(flow).and_then(|id| self.isolators(id, Direction::Egress));
                if let Some(by) = by {
                    findings.add(code, by, flow.witness, size);
                }
            };
            let allowed =
                |it: &CertainFlow| it.egress.is_some_and(|it| it.verdict() == Verdict::Allow);
            // One reachable backend in one family is enough for lookups to work.
            if sent.iter().all(|it| isolation(it).is_some()) {
                let first = sent.first();
                first
                    .into_iter()
                    .for_each(|it| report(findings, Code::NoDns, it));
            } else if sent.iter().any(allowed)
                && let Some(resolver) = &node_local
                && let Some(source) = self.other_than(group, resolver.end.identity)
            {
                let mut flows = self.evaluate(&source, resolver);
                if let Some(flow) = flows.find(|it| isolation(it).is_some()) {
                    report(findings, Code::NodeLocalDns, &flow);
                }
            }
        }
        let all: u64 = isolated.iter().map(|it| it.size).sum();
        findings.evaluated(Code::NoDns, all);
        findings.evaluated(Code::NodeLocalDns, all);
    }

    /// Whether NetworkPolicies isolate a class for egress and have a rule that allows some. A class
    /// without any allowed egress is closed on purpose.
    fn may_send(&self, class: &Class) -> bool {
        let index = direction_index(Direction::Egress);
        let union = class.unions.get(index).copied();
        let unions = self.context.program.unions.get(index);
        let union = unions.zip(union).and_then(|(all, it)| all.get(it as usize));
        union.is_some_and(|union| !union.rules.is_empty())
    }

    /// Returns the node-local resolver, if the input has its pods or its workload.
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
