//! The difference between two clusters as plain values, for every output format.

pub(crate) mod lines;
pub(crate) mod table;
pub(crate) mod unseen;

use std::collections::BTreeMap;

use palisade_core::EndName;
use palisade_core::analysis::connect::diff::{
    Block, Change, ChangeKind, ChangedObject, Difference, Endpoint, OneSided, Version,
};
use palisade_core::analysis::connect::{Member, Network};
use palisade_core::answer::Reason;
use palisade_core::decide::{Cause, Exemption};
use palisade_core::net::Family;

use crate::connectivity::ends::{
    EndKind, NETWORKS, NODES, NamedEnd, NamedEnds, network_label, workloads,
};

/// A difference, with the names of its endpoints.
#[derive(Debug)]
pub(crate) struct DiffReport<'d> {
    pub(crate) difference: &'d Difference<'d>,
    pub(crate) ends: NamedEnds,
}

/// A changed object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangedObjectName {
    /// The name: `netpol/shop/db`, `namespace/shop`, `shop/web-0`, `node/n1`.
    pub(crate) name: String,
    /// `added`, `removed` or `changed`.
    pub(crate) change: &'static str,
}

/// What decided a flow in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) reason: &'static str,
    pub(crate) rule: Option<String>,
    pub(crate) policies: Vec<String>,
    cause: Cause,
}

impl Decided {
    fn new(version: Version<'_>, cause: Cause) -> Decided {
        let names = |ids: &[palisade_core::model::PolicyId]| {
            let names = ids.iter().map(|id| version.cluster.policy_name(*id));
            names.collect::<Vec<String>>()
        };
        let place = cause.rule().and_then(|rule| version.program.place(rule));
        let rule = place.map(|it| version.cluster.rule_name(it));
        let policies = match cause {
            Cause::Isolation(id) | Cause::DefaultIsolation(id) => {
                names(version.program.isolation(id))
            }
            Cause::AdminRule(..)
            | Cause::NetworkPolicyRule(_)
            | Cause::BaselineRule(..)
            | Cause::Default
            | Cause::Exempt(_)
            | Cause::NotApplicable(_) => place.map(|it| names(&[it.policy])).unwrap_or_default(),
        };
        Decided {
            reason: Reason::of(cause).name(),
            rule,
            policies,
            cause,
        }
    }

    /// Describes what decided: `netpol/shop/db#ingress[0]`, `isolated by netpol/shop/db`, `no
    /// policy`.
    pub(crate) fn words(&self) -> String {
        if let Some(rule) = &self.rule {
            return rule.clone();
        }
        match self.cause {
            Cause::Isolation(_) | Cause::DefaultIsolation(_) => {
                const MOST: usize = 3;
                let named = self.policies.iter().take(MOST).cloned();
                let mut named: Vec<String> = named.collect();
                if self.policies.len() > MOST {
                    named.push(format!("{} more", self.policies.len() - MOST));
                }
                format!("isolated by {}", named.join(", "))
            }
            Cause::Exempt(Exemption::NodeLocal) => "exempt on its own node".to_owned(),
            Cause::Exempt(_) => "exempt".to_owned(),
            Cause::NotApplicable(_) => "no pod, no policy".to_owned(),
            Cause::AdminRule(..)
            | Cause::NetworkPolicyRule(_)
            | Cause::BaselineRule(..)
            | Cause::Default => "no policy".to_owned(),
        }
    }
}

impl<'d> DiffReport<'d> {
    pub(crate) fn new(difference: &'d Difference<'d>) -> DiffReport<'d> {
        DiffReport {
            difference,
            ends: named_ends(difference),
        }
    }

    /// Returns the names of the endpoints of a group; a network has one for each block.
    pub(crate) fn names(&self, group: u32) -> Vec<&str> {
        let ends = self.difference.groups.get(group).into_iter();
        let ends = ends.filter_map(|id| self.ends.get(id.0));
        ends.flat_map(|end| end.names.iter().map(String::as_str))
            .collect()
    }

    /// Names a changed object.
    pub(crate) fn changed(&self, object: ChangedObject) -> ChangedObjectName {
        let changes = &self.difference.changes;
        let (name, change_word) = match object {
            ChangedObject::Policy(index) => {
                let change = changes.policies.get(index as usize).map(|it| it.policy);
                self.named(change, |version, id| version.cluster.policy_name(id))
            }
            ChangedObject::Namespace(index) => {
                let change = changes.namespaces.get(index as usize).copied();
                self.named(change, |version, id| {
                    format!("namespace/{}", version.cluster.namespace_name(id))
                })
            }
            ChangedObject::Pod(index) => {
                let change = changes.pods.get(index as usize).copied();
                self.named(change, |version, id| version.cluster.pod_name(id))
            }
            ChangedObject::Node(index) => {
                let change = changes.nodes.get(index as usize).copied();
                self.named(change, |version, id| {
                    EndName::Node(id).text(version.cluster)
                })
            }
        };
        ChangedObjectName {
            name,
            change: change_word,
        }
    }

    fn named<T: Copy>(
        &self,
        change: Option<Change<T>>,
        name: impl Fn(Version<'d>, T) -> String,
    ) -> (String, &'static str) {
        let (old, new) = (self.difference.old, self.difference.new);
        match change.map(|it| (it.old, it.new)) {
            Some((Some(_), Some(id))) => (name(new, id), "changed"),
            Some((None, Some(id))) => (name(new, id), "added"),
            Some((Some(id), None)) => (name(old, id), "removed"),
            Some((None, None)) | None => (String::new(), "changed"),
        }
    }

    /// Returns every changed object, in order.
    pub(crate) fn all_changed(&self) -> Vec<ChangedObjectName> {
        let changes = &self.difference.changes;
        let number = |length: usize| (0..length).filter_map(|it| u32::try_from(it).ok());
        let policies = number(changes.policies.len()).map(ChangedObject::Policy);
        let namespaces = number(changes.namespaces.len()).map(ChangedObject::Namespace);
        let pods = number(changes.pods.len()).map(ChangedObject::Pod);
        let nodes = number(changes.nodes.len()).map(ChangedObject::Node);
        let all = policies.chain(namespaces).chain(pods).chain(nodes);
        all.map(|it| self.changed(it)).collect()
    }

    /// Returns what decided a block before, and what decides it now.
    pub(crate) fn decided(&self, block: &Block) -> [Option<Decided>; 2] {
        let Difference { old, new, .. } = self.difference;
        let Some(decision) = block.decision else {
            return [None, None];
        };
        [
            decision.old.map(|it| Decided::new(*old, it)),
            decision.new.map(|it| Decided::new(*new, it)),
        ]
    }

    /// Returns the endpoints that only one side has: added and removed.
    pub(crate) fn one_sided(&self) -> [Vec<&str>; 2] {
        let mut lists = [Vec::new(), Vec::new()];
        let [added, removed] = &mut lists;
        for (end, (_, named)) in self.difference.endpoints.iter().zip(self.ends.numbered()) {
            match (end.old, end.new) {
                (None, Some(_)) => added.push(named.label.as_str()),
                (Some(_), None) => removed.push(named.label.as_str()),
                (Some(_), Some(_)) | (None, None) => {}
            }
        }
        lists
    }

    /// Returns the blocks of a kind: between endpoints of both sides, or with an endpoint that only
    /// one side has.
    pub(crate) fn blocks(
        &self,
        kind: ChangeKind,
        is_one_sided: bool,
    ) -> impl Iterator<Item = &'d Block> {
        let blocks = self.difference.blocks.iter();
        blocks.filter(move |it| it.kind == kind && it.one_sided.is_some() == is_one_sided)
    }

    /// Reports whether nothing differs, as far as objects have any effect on flows.
    pub(crate) fn is_same(&self) -> bool {
        self.difference.blocks.is_empty() && self.difference.unseen.is_empty()
    }

    /// Reports whether a flow is newly allowed between endpoints of the input.
    pub(crate) fn is_wider(&self, include_new: bool) -> bool {
        let mut blocks = self.difference.blocks.iter();
        blocks.any(|it| {
            let counts = match it.one_sided {
                None => true,
                Some(OneSided::New) => include_new,
                Some(OneSided::Gone) => false,
            };
            it.kind == ChangeKind::Gained && counts
        })
    }
}

/// Names the endpoints of both clusters.
fn named_ends(difference: &Difference<'_>) -> NamedEnds {
    let outside = difference
        .endpoints
        .iter()
        .filter(|it| !it.blocks.is_empty());
    let networks: Vec<Network> = outside.filter_map(network).collect();
    let mut spaces: BTreeMap<(u8, String), usize> = BTreeMap::new();
    let mut list: Vec<(NamedEnd, (u8, String))> = Vec::with_capacity(difference.endpoints.len());
    for end in &difference.endpoints {
        let (end, space) = named(difference, end, &networks);
        spaces.entry(space.clone()).or_default();
        list.push((end, space));
    }
    for (number, slot) in spaces.values_mut().enumerate() {
        *slot = number;
    }
    let list = list.into_iter().map(|(end, space)| NamedEnd {
        space: spaces.get(&space).copied().unwrap_or(0),
        ..end
    });
    NamedEnds {
        list: list.collect(),
        workloads: workloads(
            difference.new.cluster,
            difference.endpoints.iter().map(|it| it.new),
        ),
        spaces: spaces.into_keys().map(|(_, name)| name).collect(),
    }
}

fn network(end: &Endpoint) -> Option<Network> {
    Some(Network {
        family: Family::of(end.blocks.first()?.first()),
        blocks: end.blocks.clone(),
    })
}

/// Names an endpoint and its space: namespaces first, then nodes, then networks.
fn named(
    difference: &Difference<'_>,
    end: &Endpoint,
    networks: &[Network],
) -> (NamedEnd, (u8, String)) {
    let plain = |name: String, kind: EndKind| NamedEnd {
        label: name.clone(),
        names: vec![name],
        kind,
        space: 0,
    };
    if let Some(network) = network(end) {
        let end = NamedEnd {
            names: end.blocks.iter().map(ToString::to_string).collect(),
            label: network_label(&network, networks),
            kind: EndKind::Network,
            space: 0,
        };
        return (end, (2, NETWORKS.to_owned()));
    }
    let version = if end.new.is_some() {
        difference.new
    } else {
        difference.old
    };
    match end.new.or(end.old) {
        Some(Member::Pod(id)) => {
            let pod = version.cluster.pods.get(id.0 as usize);
            let kind = pod.map_or(EndKind::Pod, EndKind::of_pod);
            let namespace = pod.map_or("", |it| version.cluster.namespace_name(it.namespace));
            let end = plain(version.cluster.pod_name(id), kind);
            (end, (0, namespace.to_owned()))
        }
        Some(Member::Node(id)) => {
            let name = EndName::Node(id).text(version.cluster);
            (plain(name, EndKind::Node), (1, NODES.to_owned()))
        }
        Some(Member::Network(_) | Member::Service(_)) | None => (
            plain(String::new(), EndKind::Network),
            (2, NETWORKS.to_owned()),
        ),
    }
}
