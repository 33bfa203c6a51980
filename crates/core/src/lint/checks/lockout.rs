//! The guard against locking a cluster out: rules for the whole cluster that keep pods from its DNS,
//! or its components from the API server, from each other and from the kubelets; and
//! NetworkPolicies that leave pods without DNS.
//!
//! Every flow is decided by the engine itself, for one pod of those that no rule tells apart. What a
//! kubelet sends to the pods of its own node, its probes above all, is exempt from every policy
//! (D74), so that no policy can keep it from them and there is nothing to ask.

use std::collections::BTreeMap;

use super::context::CheckContext;
use super::lockout_flows::{Group, LockoutEvaluator, PodDistinction};
use super::targets::{Dns, SYSTEM, Target};
use super::{Code, Finding, FindingDetail, FindingTarget, now};
use crate::affect::{Decider, Witness};
use crate::flow_end::{self, EndCandidate};
use crate::model::Pod;
use crate::policy::Direction;

/// So many kinds of components are asked about each other at most.
const MOST_COMPONENTS: usize = 200;

pub(super) fn find(ground: &CheckContext<'_>) -> Vec<Finding> {
    if !ground.has_pods() {
        return Vec::new();
    }
    let guard = LockoutEvaluator::new(ground);
    let dns = ground.dns();
    let mut told = LockoutFindings::default();
    if guard.may_deny_something() {
        let is_guarded = dns.targets.iter().any(|it| guard.may_refuse(it));
        let apart = if is_guarded {
            PodDistinction::Addresses
        } else {
            PodDistinction::Classes
        };
        let clients = guard.groups(&|id, _| !dns.pods.contains(&id), apart);
        guard.keep_from(&clients, &dns.targets, Code::LockoutDns, &mut told);
        let system = ground.namespace(SYSTEM);
        let is_component = |_, pod: &Pod<'_>| Some(pod.namespace) == system;
        let components = guard.groups(&is_component, PodDistinction::AddressesAndPorts);
        let server = ground.api_server();
        guard.keep_from(&components, &server, Code::LockoutApiServer, &mut told);
        let kubelets = ground.kubelets();
        guard.keep_from(&components, &kubelets, Code::LockoutKubelet, &mut told);
        guard.check_components(&components, &dns, &mut told);
    }
    guard.without_dns(&dns, &mut told);
    told.finish()
}

/// What was found, by kind and place.
#[derive(Default)]
pub(super) struct LockoutFindings {
    list: BTreeMap<(Code, FindingTarget), Entry>,
}

struct Entry {
    by: Vec<Decider>,
    witness: Witness,
    cut_off: u64,
    evaluated: u64,
    /// The last group that was counted.
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

    /// Says how many pods were asked about for one kind.
    pub(super) fn evaluated(&mut self, code: Code, asked: u64) {
        for ((its, _), entry) in &mut self.list {
            if *its == code {
                entry.evaluated = asked;
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
    /// Which rules or default isolations keep pods from targets.
    fn keep_from(
        &self,
        groups: &[Group<'c>],
        targets: &[Target<'c>],
        code: Code,
        told: &mut LockoutFindings,
    ) {
        let guarded: Vec<bool> = targets.iter().map(|it| self.may_refuse(it)).collect();
        for (number, group) in groups.iter().enumerate() {
            let is_held = self.may_deny(group.class, Direction::Egress);
            for (target, guarded) in targets.iter().zip(&guarded) {
                if !is_held && !guarded {
                    continue;
                }
                if let Some(source) = self.other_than(group, target.end.identity) {
                    self.record(&source, target, code, (number, group.size), told);
                }
            }
        }
        told.evaluated(code, groups.iter().map(|it| it.size).sum());
    }

    /// Which of them keep components from one another, at the ports that they declare. What the DNS
    /// serves has been asked for already.
    fn check_components(
        &self,
        components: &[Group<'c>],
        dns: &Dns<'c>,
        told: &mut LockoutFindings,
    ) {
        let code = Code::LockoutControlPlane;
        for (number, source_group) in components.iter().take(MOST_COMPONENTS).enumerate() {
            let is_held = self.may_deny(source_group.class, Direction::Egress);
            for group in components.iter().take(MOST_COMPONENTS) {
                if !is_held && !self.may_deny(group.class, Direction::Ingress) {
                    continue;
                }
                let Some(pod) = group.pods.iter().flatten().next() else {
                    continue;
                };
                let party = flow_end::pod(self.context.cluster, self.context.program, *pod);
                let Some(source) = self.other_than(source_group, party.identity) else {
                    continue;
                };
                for port in group.ports {
                    let target = Target {
                        end: party,
                        protocol: port.protocol,
                        port: port.port,
                    };
                    let same =
                        |it: &Target<'_>| (it.protocol, it.port) == (target.protocol, target.port);
                    let is_dns = dns.pods.contains(pod) && dns.targets.iter().any(same);
                    if !is_dns {
                        self.record(&source, &target, code, (number, source_group.size), told);
                    }
                }
            }
        }
        told.evaluated(code, components.iter().map(|it| it.size).sum());
    }

    /// Tells what keeps a pod from a target, in either direction.
    fn record(
        &self,
        source: &EndCandidate<'c>,
        target: &Target<'c>,
        code: Code,
        group: (usize, u64),
        told: &mut LockoutFindings,
    ) {
        for asked in self.evaluate(source, target) {
            for direction in Direction::BOTH {
                let at = asked
                    .cause(direction)
                    .and_then(|it| self.denier(it, direction));
                if let Some(at) = at {
                    told.add(code, at, asked.witness, group);
                }
            }
        }
    }
}
