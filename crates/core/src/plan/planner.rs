//! Plans are read off the program, class by class.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::groups::GroupDrafts;
use super::merge::merge;
use super::{Body, BodyId, Faced, MERGE_OVER, Merged, Plan, PortCondition, Step};
use crate::compile::count;
use crate::model::{Cluster, PodId, PortMatch};
use crate::net::{PortRange, Protocol};
use crate::policy::{Action, Direction, Tier, Verdict};
use crate::program::{
    Class, NONE, Owner, Program, Rule, RuleId, Table, direction_index, table_index,
};

/// What a node has to enforce. A node that no pod names gets an empty plan.
pub fn plan(cluster: &Cluster<'_>, program: &Program, node: &str) -> Plan {
    plan_merging(cluster, program, node, MERGE_OVER)
}

/// [`plan`], where unions of more steps than `merge_over` are asked at once.
pub fn plan_merging(
    cluster: &Cluster<'_>,
    program: &Program,
    node: &str,
    merge_over: usize,
) -> Plan {
    let mut planner = Planner {
        cluster,
        program,
        groups: GroupDrafts::new(cluster, program),
        merge_over,
        bodies: BTreeMap::new(),
        body_ids: HashMap::new(),
        of_class: FxHashMap::default(),
    };
    let mut pods = BTreeMap::new();
    for (index, pod) in cluster.pods.iter().enumerate() {
        let id = PodId(count(index));
        let class = program.class_id(id);
        let (true, Some(class)) = (pod.node == Some(node), class) else {
            continue;
        };
        let addresses = pod.addresses.iter().copied();
        let own = addresses.filter(|it| program.owner(*it) == Some(Owner::Pod(id)));
        let addresses: Vec<IpAddr> = own.collect();
        if addresses.is_empty() {
            continue;
        }
        let faced = Faced {
            egress: planner.body(class, Direction::Egress),
            ingress: planner.body(class, Direction::Ingress),
        };
        pods.extend(addresses.into_iter().map(|address| (address, faced)));
    }
    let named: BTreeSet<_> = planner.bodies.values().flat_map(|it| it.groups()).collect();
    let mut groups = planner.groups.finish();
    groups.retain(|id, _| named.contains(id));
    Plan {
        groups,
        bodies: planner.bodies,
        pods,
    }
}

struct Planner<'p, 'a> {
    cluster: &'p Cluster<'a>,
    program: &'p Program,
    groups: GroupDrafts<'p, 'a>,
    merge_over: usize,
    bodies: BTreeMap<BodyId, Arc<Body>>,
    body_ids: HashMap<Arc<Body>, BodyId>,
    /// What is known of a class of pods, for each direction.
    of_class: FxHashMap<(u32, Direction), Option<BodyId>>,
}

impl Planner<'_, '_> {
    fn body(&mut self, class: u32, direction: Direction) -> Option<BodyId> {
        if let Some(known) = self.of_class.get(&(class, direction)) {
            return *known;
        }
        let body = self.program.classes.get(class as usize);
        let body = body.and_then(|class| self.draft(class, direction));
        let id = body.map(|body| match self.body_ids.get(&body) {
            Some(known) => *known,
            None => {
                let (id, body) = (BodyId(count(self.bodies.len())), Arc::new(body));
                self.bodies.insert(id, Arc::clone(&body));
                self.body_ids.insert(body, id);
                id
            }
        });
        self.of_class.insert((class, direction), id);
        id
    }

    /// The three tiers and the default, as `Program::evaluate` asks them; `None`: there is nothing to
    /// ask, and everything is allowed.
    fn draft(&mut self, subject: &Class, direction: Direction) -> Option<Body> {
        let index = direction_index(direction);
        let of_direction = |ids: &[u32; 2]| ids.get(index).copied().filter(|id| *id != NONE);
        let admin = self.ordered(subject, Tier::Admin, direction, None);
        let union = of_direction(&subject.unions);
        let union = union.and_then(|id| self.program.unions.get(index)?.get(id as usize));
        let (merged, rest, end) = match union {
            Some(union) => {
                let steps = union.rules.iter();
                let steps = steps.filter_map(|rule| self.step(subject, *rule));
                let steps: Vec<Step> = steps.collect();
                let (merged, steps) = if steps.len() > self.merge_over {
                    merge(&steps, &mut self.groups)
                } else {
                    (Merged::default(), steps)
                };
                (merged, steps, Verdict::Deny)
            }
            None => {
                let isolated = of_direction(&subject.default_isolations).is_some();
                let table = self.program.table(Tier::Baseline, direction);
                let stop = isolated.then_some(table.group_end);
                let mut steps = self.ordered(subject, Tier::Baseline, direction, stop);
                for step in &mut steps {
                    // Behind the Baseline tier there is only the default, which allows (D10).
                    if step.action == Action::Pass {
                        step.action = Action::Accept;
                    }
                }
                let end = if isolated {
                    Verdict::Deny
                } else {
                    Verdict::Allow
                };
                (Merged::default(), steps, end)
            }
        };
        let is_nothing = admin.is_empty() && rest.is_empty() && end == Verdict::Allow;
        (!is_nothing).then_some(Body {
            direction,
            admin,
            merged,
            rest,
            end,
        })
    }

    /// The rules of an ordered tier that select a subject, those up to a bit.
    fn ordered(
        &mut self,
        subject: &Class,
        tier: Tier,
        direction: Direction,
        stop: Option<u32>,
    ) -> Vec<Step> {
        let table: &Table = self.program.table(tier, direction);
        let row = subject.subject_rows.get(table_index(tier, direction));
        let Some(row) = row.copied().filter(|row| *row != 0) else {
            return Vec::new();
        };
        let words = table.subjects.row(row).iter().enumerate();
        let bits = words.flat_map(|(word, bits)| {
            let set = (0..64).filter(move |bit| bits >> bit & 1 == 1);
            set.map(move |bit| word * 64 + bit)
        });
        let bits = bits.filter(|bit| stop.is_none_or(|stop| *bit < stop as usize));
        let rules = bits.filter_map(|bit| table.rules.get(bit));
        let rules: Vec<RuleId> = rules.copied().collect();
        let steps = rules.into_iter().filter_map(|id| self.step(subject, id));
        steps.collect()
    }

    /// A rule as a step; `None`: it can match nothing.
    fn step(&mut self, subject: &Class, id: RuleId) -> Option<Step> {
        let rule = self.program.rules.get(id.0 as usize)?;
        let effect = self.cluster.effect(rule.place)?;
        let ports = match &effect.ports {
            None => None,
            Some(ports) => {
                let ports = self.ports(subject, rule, ports);
                Some(ports).filter(|ports| !ports.is_empty()).map(Some)?
            }
        };
        let peers = if rule.any_peer {
            None
        } else {
            let peers = effect.peers.as_deref().unwrap_or_default();
            let peers = self.groups.peers(subject, rule, peers);
            Some(peers).filter(|peers| !peers.is_empty()).map(Some)?
        };
        Some(Step {
            rule: id,
            action: rule.action,
            ports,
            peers,
        })
    }

    /// The ports of a rule. Names stand for the subject's own ports where it is the destination, and
    /// otherwise for the ports of each other end (D33).
    fn ports(
        &mut self,
        subject: &Class,
        rule: &Rule,
        ports: &[PortMatch<'_>],
    ) -> Vec<PortCondition> {
        let mut conditions = Vec::new();
        for port in ports {
            if let PortMatch::Numbers(protocol, range) = port {
                conditions.push(PortCondition {
                    protocol: *protocol,
                    range: *range,
                    at: None,
                });
            }
        }
        for named in rule.names.of(&self.program.lists.names) {
            let fits = |protocol: Protocol| named.protocol.is_none_or(|it| it == protocol);
            match rule.place.direction {
                Direction::Ingress => {
                    let map = self.program.port_map(subject);
                    let entries = map.into_iter().flat_map(|map| &map.entries);
                    let entries = entries.filter(|entry| entry.names.contains(&named.name));
                    let entries = entries.filter(|entry| fits(entry.protocol));
                    conditions.extend(entries.map(|entry| PortCondition {
                        protocol: entry.protocol,
                        range: PortRange::single(entry.port),
                        at: None,
                    }));
                }
                Direction::Egress => {
                    for (protocol, port, at) in self.groups.named(named.name) {
                        if fits(protocol) {
                            conditions.push(PortCondition {
                                protocol,
                                range: PortRange::single(port),
                                at: Some(at),
                            });
                        }
                    }
                }
            }
        }
        conditions.sort_unstable();
        conditions.dedup();
        conditions
    }
}
