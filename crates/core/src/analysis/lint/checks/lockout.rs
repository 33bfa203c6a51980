//! Lockouts: cluster-wide rules that block pods from the cluster's DNS, or components of the
//! cluster from the API server, from each other or from the kubelets; and NetworkPolicies that
//! block pods from the DNS.
//!
//! The engine evaluates each flow, for one pod of those that no rule distinguishes. Traffic of a
//! kubelet to pods of its own node, such as probes, is exempt from every policy (D74). No policy
//! can deny it, so it is not evaluated here.

use std::collections::BTreeMap;

use super::context::CheckContext;
use super::lockout_flows::{Group, LockoutEvaluator, PodDistinction};
use super::targets::{Dns, SYSTEM, Target};
use super::{Code, Finding, FindingDetail, FindingTarget, now};
use crate::analysis::affect::{Decider, Witness};
use crate::flow_end::{self, EndCandidate};
use crate::model::Pod;
use crate::policy::Direction;

/// The maximum number of groups of components to evaluate against each other. Pairs grow
/// quadratically: 200 groups make 40,000, each with the ports of the destination.
const MAX_COMPONENTS: usize = 200;

/// Finds lockouts. Without pods there is no client to lock out.
pub(super) fn find(context: &CheckContext<'_>) -> Vec<Finding> {
    if !context.has_pods() {
        return Vec::new();
    }
    let evaluator = LockoutEvaluator::new(context);
    let dns = context.dns();
    let mut findings = LockoutFindings::default();
    // Evaluating flows is the expensive part, and useless without any cluster-wide Deny or
    // isolation.
    if evaluator.may_deny_something() {
        // All pods are clients of the DNS. Their addresses multiply the groups, so they count only
        // if a rule of the DNS pods could distinguish them.
        let dns_may_refuse = dns.targets.iter().any(|it| evaluator.may_refuse(it));
        let distinction = if dns_may_refuse {
            PodDistinction::Addresses
        } else {
            PodDistinction::Classes
        };
        let clients = evaluator.groups(&|id, _| !dns.pods.contains(&id), distinction);
        evaluator.check_targets(&clients, &dns.targets, Code::LockoutDns, &mut findings);
        let system = context.namespace(SYSTEM);
        let is_component = |_, pod: &Pod<'_>| Some(pod.namespace) == system;
        let components = evaluator.groups(&is_component, PodDistinction::AddressesAndPorts);
        let server = context.api_server();
        evaluator.check_targets(&components, &server, Code::LockoutApiServer, &mut findings);
        let kubelets = context.kubelets();
        evaluator.check_targets(&components, &kubelets, Code::LockoutKubelet, &mut findings);
        evaluator.check_components(&components, &dns, &mut findings);
    }
    evaluator.without_dns(&dns, &mut findings);
    findings.finish()
}

/// Findings under construction, by code and target.
#[derive(Default)]
pub(super) struct LockoutFindings {
    list: BTreeMap<(Code, FindingTarget), Entry>,
}

struct Entry {
    by: Vec<Decider>,
    witness: Witness,
    cut_off: u64,
    evaluated: u64,
    /// The last group that was counted. A group meets a finding once for each target and family,
    /// and its pods count once.
    last: usize,
}

impl LockoutFindings {
    pub(super) fn add(
        &mut self,
        code: Code,
        (at, by): (FindingTarget, Vec<Decider>),
        witness: Witness,
        group: (usize, u64),
    ) {
        let (number, size) = group;
        let entry = self.list.entry((code, at)).or_insert_with(|| Entry {
            by,
            witness,
            cut_off: 0,
            evaluated: 0,
            last: usize::MAX,
        });
        if entry.last != number {
            entry.last = number;
            entry.cut_off += size;
        }
    }

    /// Sets the number of evaluated pods for all findings of a code.
    pub(super) fn evaluated(&mut self, code: Code, n_pods: u64) {
        for ((its, _), entry) in &mut self.list {
            if *its == code {
                entry.evaluated = n_pods;
            }
        }
    }

    fn finish(self) -> Vec<Finding> {
        let list = self.list.into_iter();
        let findings = list.map(|((code, at), entry)| Finding {
            by: entry.by,
            witness: Some(entry.witness),
            detail: FindingDetail::Share(entry.cut_off, entry.evaluated),
            ..now(code, at)
        });
        findings.collect()
    }
}

impl<'c> LockoutEvaluator<'_, 'c> {
    /// Finds rules and default isolations that block groups from targets.
    fn check_targets(
        &self,
        groups: &[Group<'c>],
        targets: &[Target<'c>],
        code: Code,
        findings: &mut LockoutFindings,
    ) {
        let may_refuse: Vec<bool> = targets.iter().map(|it| self.may_refuse(it)).collect();
        for (number, group) in groups.iter().enumerate() {
            let may_be_denied = self.may_deny(group.class, Direction::Egress);
            for (target, may_refuse) in targets.iter().zip(&may_refuse) {
                if !may_be_denied && !may_refuse {
                    continue;
                }
                if let Some(source) = self.other_than(group, target.end.identity) {
                    self.record(&source, target, code, (number, group.size), findings);
                }
            }
        }
        findings.evaluated(code, groups.iter().map(|it| it.size).sum());
    }

    /// Finds rules and default isolations that block components from ports that other components
    /// declare. Ports of the DNS are left to [`Code::LockoutDns`].
    fn check_components(
        &self,
        components: &[Group<'c>],
        dns: &Dns<'c>,
        findings: &mut LockoutFindings,
    ) {
        let code = Code::LockoutControlPlane;
        // Either direction can deny: egress rules of the source, ingress rules of the destination.
        // A pair without either is not evaluated.
        for (number, source_group) in components.iter().take(MAX_COMPONENTS).enumerate() {
            let may_be_denied = self.may_deny(source_group.class, Direction::Egress);
            for group in components.iter().take(MAX_COMPONENTS) {
                if !may_be_denied && !self.may_deny(group.class, Direction::Ingress) {
                    continue;
                }
                let Some(pod) = group.pods.iter().flatten().next() else {
                    continue;
                };
                let destination = flow_end::pod(self.context.cluster, self.context.program, *pod);
                let Some(source) = self.other_than(source_group, destination.identity) else {
                    continue;
                };
                for port in group.ports {
                    let target = Target {
                        end: destination,
                        protocol: port.protocol,
                        port: port.port,
                    };
                    let same =
                        |it: &Target<'_>| (it.protocol, it.port) == (target.protocol, target.port);
                    let is_dns = dns.pods.contains(pod) && dns.targets.iter().any(same);
                    if !is_dns {
                        self.record(
                            &source,
                            &target,
                            code,
                            (number, source_group.size),
                            findings,
                        );
                    }
                }
            }
        }
        findings.evaluated(code, components.iter().map(|it| it.size).sum());
    }

    /// Adds a finding for each direction in which a cluster-wide policy denies the flow.
    fn record(
        &self,
        source: &EndCandidate<'c>,
        target: &Target<'c>,
        code: Code,
        group: (usize, u64),
        findings: &mut LockoutFindings,
    ) {
        for flow in self.evaluate(source, target) {
            for direction in Direction::BOTH {
                let at = flow
                    .cause(direction)
                    .and_then(|it| self.denier(it, direction));
                if let Some(at) = at {
                    findings.add(code, at, flow.witness, group);
                }
            }
        }
    }
}
