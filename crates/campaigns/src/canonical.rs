//! Plans without identifiers: groups as addresses, rules as names.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a campaign fails by panicking"
)]

use std::collections::BTreeMap;
use std::net::IpAddr;

use palisade_core::incremental::IncrementalPlanner;
use palisade_core::model::Cluster;
use palisade_core::plan::{GroupId, PeerScope, Plan, PortBlock, RuleChain, RuleChainId, Step};
use palisade_core::program::{Program, RuleId};

/// The rule chains of each address of a local pod, as text.
pub type Canonical = BTreeMap<IpAddr, [Option<String>; 2]>;

/// The names of a program's rules.
pub fn program_rule_names<'p>(
    cluster: &'p Cluster<'_>,
    program: &'p Program,
) -> impl Fn(RuleId) -> String + use<'p> {
    let names: Vec<String> = (0..cluster.policies.len())
        .map(|id| cluster.policy_name(palisade_core::model::PolicyId(id as u32)))
        .collect();
    move |rule| {
        let place = program.place(rule).unwrap();
        let name = &names[place.policy.0 as usize];
        format!("{name} {} {}", place.direction, place.index)
    }
}

/// The name of a rule of an incremental planner.
pub fn planner_rule_name(live: &IncrementalPlanner, rule: RuleId) -> String {
    let rule = live.rule(rule).expect("a rule of a present policy");
    let mut name = rule.api.short().to_owned();
    if !rule.namespace.is_empty() {
        name = format!("{name}/{}", rule.namespace);
    }
    format!("{name}/{} {} {}", rule.name, rule.direction, rule.index)
}

/// A plan without identifiers.
pub fn canonical(plan: &Plan, rule: &dyn Fn(RuleId) -> String) -> Canonical {
    let writer = Writer { plan, rule };
    let mut texts: BTreeMap<RuleChainId, String> = BTreeMap::new();
    for (id, rule_chain) in &plan.chains {
        texts.insert(*id, writer.rule_chain(rule_chain));
    }
    let chains = plan.pods.iter().map(|(address, chains)| {
        let text = [chains.egress, chains.ingress].map(|id| id.map(|id| texts[&id].clone()));
        (*address, text)
    });
    chains.collect()
}

struct Writer<'p> {
    plan: &'p Plan,
    rule: &'p dyn Fn(RuleId) -> String,
}

impl Writer<'_> {
    fn rule_chain(&self, rule_chain: &RuleChain) -> String {
        let merged = &rule_chain.merged;
        let by_port = |ports: &BTreeMap<PortBlock, GroupId>| {
            let ports = ports.iter();
            let ports = ports.map(|(port, group)| (*port, self.group(*group)));
            ports.collect::<BTreeMap<PortBlock, String>>()
        };
        let of_ports = by_port(&merged.of_ports);
        let any_port = merged.any_port.map(|group| self.group(group));
        let nets = merged.nets_of_ports.each_ref().map(by_port);
        let any_nets = merged
            .nets_of_any_port
            .map(|it| it.map(|group| self.group(group)));
        let steps = |steps: &[std::sync::Arc<Step>]| {
            let steps = steps.iter().map(|step| self.step(step));
            steps.collect::<Vec<String>>().join("\n  ")
        };
        format!(
            "{:?}\n  {}\n of ports {of_ports:?} any {any_port:?} nets {nets:?} any {any_nets:?} open {:?}\n  {}\n{:?}",
            rule_chain.direction,
            steps(&rule_chain.admin),
            merged.open,
            steps(&rule_chain.rest),
            rule_chain.verdict
        )
    }

    fn step(&self, step: &Step) -> String {
        let mut ports: Vec<String> = step
            .ports
            .iter()
            .flatten()
            .map(|port| {
                let at = port.at.map(|group| self.group(group));
                format!("{} {:?} {at:?}", port.protocol, port.range)
            })
            .collect();
        ports.sort();
        let mut peers: Vec<String> = step
            .peers
            .iter()
            .flatten()
            .map(|peer| {
                let within = match peer.within {
                    PeerScope::Family(family) => family.to_string(),
                    PeerScope::Group(group) => self.group(group),
                };
                let mut except: Vec<String> =
                    peer.except.iter().map(|group| self.group(*group)).collect();
                except.sort();
                format!("{within} except {except:?}")
            })
            .collect();
        peers.sort();
        format!(
            "{} {} ports {:?} {ports:?} peers {:?} {peers:?}",
            (self.rule)(step.rule),
            step.action,
            step.ports.is_some(),
            step.peers.is_some()
        )
    }

    fn group(&self, id: GroupId) -> String {
        let group = &self.plan.groups[&id];
        let mut sorted = group.addresses.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted, group.addresses, "sorted, without duplicates");
        format!("{:?}{:?}", group.kind, group.addresses)
    }
}
