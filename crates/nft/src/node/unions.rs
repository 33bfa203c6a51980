//! Unions of many rules, asked at once.
//!
//! NetworkPolicies that select a pod are a union: their order does not matter. Where there are many, the
//! groups that may use a port become one group, and the port leads to its number; so that what a
//! new connection costs does not grow with the policies, and no chain is needed for each port.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use palisade_core::net::{Family, Protocol};
use palisade_core::plan::{Body, Group, GroupId, PeerCondition, Plan, PortCondition, Step, Within};

use crate::ruleset::{Field, Name, Set, Value, l4};

/// The numbers of the groups that may use a port, by protocol and port: a map for each body, since
/// the kernel walks all of a map whenever a rule of one more chain uses it.
pub(super) fn by_port(body: u32) -> Name {
    Name::numbered("ports", body)
}

/// The ports that anyone may use, by body, protocol and port.
pub(super) fn open(family: Family) -> &'static str {
    match family {
        Family::V4 => "open4",
        Family::V6 => "open6",
    }
}

/// What is left of a union when the most of it is in sets.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// Whether there are ports that some groups may use.
    pub(super) by_port: bool,
    /// The families for which there are ports that anyone may use.
    pub(super) open: Vec<Family>,
    /// The group that may use every port.
    pub(super) any_port: Option<u32>,
    /// The steps that have to be asked one by one.
    pub(super) steps: Vec<Step>,
}

/// The sets that unions share.
pub(super) struct Unions<'p> {
    plan: &'p Plan,
    by_port: Vec<Set>,
    open: [Set; 2],
    /// The numbers of groups that are several together.
    together: HashMap<Vec<GroupId>, u32>,
    /// And who is in them.
    pub(super) members: Vec<(u32, IpAddr)>,
}

impl<'p> Unions<'p> {
    pub(super) fn new(plan: &'p Plan) -> Unions<'p> {
        let fields = || vec![Field::Number, Field::L4, Field::Port];
        Unions {
            plan,
            by_port: Vec::new(),
            open: Family::BOTH.map(|family| Set::new(Name::word(open(family)), fields())),
            together: HashMap::new(),
            members: Vec::new(),
        }
    }

    /// The sets, as far as anything is in them.
    pub(super) fn sets(self) -> impl Iterator<Item = Set> {
        let sets = self.by_port.into_iter().chain(self.open);
        sets.filter(|set| !set.is_empty())
    }

    /// Puts as much of a union as possible into sets.
    pub(super) fn merge(&mut self, id: u32, body: &Body) -> Merged {
        let mut draft = Draft::default();
        for step in &body.rest {
            draft.step(self.plan, step);
        }
        let Draft {
            of_ports,
            of_any_port,
            open,
            steps,
        } = draft;
        let mut merged = Merged {
            by_port: !of_ports.is_empty(),
            steps,
            ..Merged::default()
        };
        let mut ports = Set::numbers(by_port(id), vec![Field::L4, Field::Port]);
        for ((protocol, port), groups) in of_ports {
            let number = self.together(groups);
            let key = [Value::L4(l4(protocol)), Value::Port(port)];
            ports.push_number(&key, number);
        }
        self.by_port.push(ports);
        if !of_any_port.is_empty() {
            merged.any_port = Some(self.together(of_any_port));
        }
        for ((family, set), ports) in Family::BOTH.into_iter().zip(&mut self.open).zip(open) {
            if !ports.is_empty() {
                merged.open.push(family);
            }
            for (protocol, port) in ports {
                set.push(&key(id, protocol, port));
            }
        }
        merged
    }

    /// The number of a group that is several together.
    fn together(&mut self, groups: BTreeSet<GroupId>) -> u32 {
        let groups: Vec<GroupId> = groups.into_iter().collect();
        if let [GroupId(only)] = groups.as_slice() {
            return *only;
        }
        if let Some(known) = self.together.get(&groups) {
            return *known;
        }
        let first = u32::try_from(self.plan.groups.len()).unwrap_or(u32::MAX);
        let number = first + u32::try_from(self.together.len()).unwrap_or(u32::MAX - first);
        let mut members = BTreeSet::new();
        for GroupId(group) in &groups {
            if let Some(Group::Hosts(hosts)) = self.plan.groups.get(*group as usize) {
                members.extend(hosts);
            }
        }
        let members = members.into_iter();
        self.members
            .extend(members.map(|address| (number, address)));
        self.together.insert(groups, number);
        number
    }
}

fn key(body: u32, protocol: Protocol, port: u16) -> [Value; 3] {
    let protocol = Value::L4(l4(protocol));
    [Value::Number(body), protocol, Value::Port(port)]
}

/// The parts of a union.
#[derive(Default)]
struct Draft {
    of_ports: BTreeMap<(Protocol, u16), BTreeSet<GroupId>>,
    of_any_port: BTreeSet<GroupId>,
    open: [BTreeSet<(Protocol, u16)>; 2],
    steps: Vec<Step>,
}

impl Draft {
    /// Takes a step apart. What fits into no set stays a step: ranges, blocks, names of ports.
    fn step(&mut self, plan: &Plan, step: &Step) {
        let is_single = |port: &PortCondition| port.range.start() == port.range.end();
        let is_plain = |port: &&PortCondition| is_single(port) && port.at.is_none();
        let ports = step.ports.as_deref().unwrap_or_default();
        let plain: Vec<(Protocol, u16)> = ports
            .iter()
            .filter(is_plain)
            .map(|port| (port.protocol, port.range.start().get()))
            .collect();
        let others = ports.iter().filter(|port| !is_plain(port)).copied();
        let others: Vec<PortCondition> = others.collect();
        let (hosts, families, odd) = ends(plan, step);
        for group in &hosts {
            if step.ports.is_none() {
                self.of_any_port.insert(*group);
            }
            for port in &plain {
                self.of_ports.entry(*port).or_default().insert(*group);
            }
        }
        for (family, open) in Family::BOTH.into_iter().zip(&mut self.open) {
            if families.contains(&family) {
                open.extend(&plain);
            }
        }
        let mut keep = |ports: Option<Vec<PortCondition>>, peers: Vec<PeerCondition>| {
            let is_no_port = ports.as_ref().is_some_and(Vec::is_empty);
            if !peers.is_empty() && !is_no_port {
                self.steps.push(Step {
                    ports,
                    peers: Some(peers),
                    ..step.clone()
                });
            }
        };
        keep(step.ports.clone(), odd);
        // Anyone at any port is a step of its own; groups at any port are in a set.
        let plainly = |within| PeerCondition {
            within,
            except: Vec::new(),
        };
        let open = families.iter().map(|it| plainly(Within::Family(*it)));
        if step.ports.is_none() {
            keep(None, open.collect());
        } else {
            let hosts = hosts.iter().map(|it| plainly(Within::Group(*it)));
            keep(Some(others), hosts.chain(open).collect());
        }
    }
}

/// The other ends of a step: groups of hosts, whole families, and everything else.
fn ends(plan: &Plan, step: &Step) -> (Vec<GroupId>, Vec<Family>, Vec<PeerCondition>) {
    let Some(peers) = &step.peers else {
        return (Vec::new(), Family::BOTH.to_vec(), Vec::new());
    };
    let (mut hosts, mut families, mut odd) = (Vec::new(), Vec::new(), Vec::new());
    for peer in peers {
        match peer.within {
            Within::Family(family) if peer.except.is_empty() => families.push(family),
            Within::Group(group) if peer.except.is_empty() && is_hosts(plan, group) => {
                hosts.push(group);
            }
            Within::Family(_) | Within::Group(_) => odd.push(peer.clone()),
        }
    }
    (hosts, families, odd)
}

fn is_hosts(plan: &Plan, GroupId(group): GroupId) -> bool {
    matches!(plan.groups.get(group as usize), Some(Group::Hosts(_)))
}
