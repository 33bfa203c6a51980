//! Encodes policies.

use std::net::IpAddr;

use super::{ACTIONS, WORDS};
use crate::domain::DomainPattern;
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{
    Cluster, Effect, NamespaceId, NamespaceSet, Peer, PodSet, Policy, PolicyRank, PortMatch, Rule,
    Rules,
};
use crate::net::{Cidr, Protocol};
use crate::policy::{PolicyApi, Tier};

/// Writes a policy part by part, in the order in which `Reader` reads it.
pub(super) struct Writer<'c, 'a> {
    /// The cluster of the policy, for the names of namespaces.
    pub(super) cluster: &'c Cluster<'a>,
    /// The namespace of the policy.
    pub(super) own: Option<NamespaceId>,
    pub(super) bytes: Vec<u8>,
}

impl Writer<'_, '_> {
    pub(super) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Writes seven bits per byte, the lowest first. A set top bit means that another byte follows.
    pub(super) fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    pub(super) fn length(&mut self, length: usize) {
        self.number(u64::try_from(length).unwrap_or(u64::MAX));
    }

    pub(super) fn text(&mut self, text: &str) {
        if let Some(word) = WORDS.iter().position(|word| *word == text) {
            self.length(word);
        } else {
            self.length(text.len() + WORDS.len());
            self.bytes.extend_from_slice(text.as_bytes());
        }
    }

    /// Writes the position of a value in a list of all values.
    pub(super) fn place_of<T: PartialEq>(&mut self, all: &[T], it: &T) {
        let position = all.iter().position(|other| other == it);
        self.byte(
            position
                .and_then(|it| u8::try_from(it).ok())
                .unwrap_or(u8::MAX),
        );
    }

    pub(super) fn option<T>(&mut self, it: Option<&T>, mut write: impl FnMut(&mut Self, &T)) {
        self.byte(u8::from(it.is_some()));
        if let Some(it) = it {
            write(self, it);
        }
    }

    pub(super) fn list<T>(&mut self, list: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.length(list.len());
        for it in list {
            write(self, it);
        }
    }

    pub(super) fn policy(&mut self, policy: &Policy<'_>, with_rules: bool) {
        // Every field is listed: a new one must be encoded, or be left out here with a reason.
        let Policy {
            api,
            // Decide nothing; a policy that differs in them only is equal.
            api_version: _,
            origin: _,
            namespace,
            name,
            rank,
            subject,
            ingress,
            egress,
            audited,
            created,
            // Depends on the other policies of the namespace, and changes without this policy.
            is_over_budget: _,
        } = policy;
        self.place_of(&PolicyApi::ALL, api);
        match rank {
            PolicyRank::EarlyAdmin => self.byte(0),
            PolicyRank::NetworkPolicy => self.byte(1),
            PolicyRank::DefaultGroup => self.byte(2),
            PolicyRank::Ordered(tier, priority) => {
                self.byte(match tier {
                    Tier::Admin => 3,
                    Tier::Baseline => 4,
                });
                self.number(priority.cast_unsigned());
            }
        }
        self.byte(u8::from(*audited));
        // The parts that are read most often come first: the title, then the subject, and the rules
        // last. A title is a few bytes of a policy that can have megabytes.
        self.option(namespace.as_ref(), |it, id| it.namespace(*id));
        self.text(name);
        self.option(created.as_ref(), |it, created| it.number(*created));
        self.option(subject.as_ref(), Self::pod_set);
        for Rules { isolates, .. } in [ingress, egress] {
            self.byte(u8::from(*isolates));
        }
        for Rules { list, .. } in [ingress, egress] {
            self.rules(if with_rules { list } else { &[] });
        }
    }

    pub(super) fn namespace(&mut self, id: NamespaceId) {
        // By name: the number belongs to the cluster of one object.
        let name = self.cluster.namespace_name(id);
        self.text(name);
    }

    pub(super) fn rules(&mut self, list: &[Rule<'_>]) {
        self.list(list, |it, rule| {
            let Rule {
                // The name and the spelling of a rule decide nothing.
                name: _,
                written_action: _,
                failed_closed: _,
                effect,
            } = rule;
            it.option(effect.as_ref(), Self::effect);
        });
    }

    pub(super) fn effect(&mut self, effect: &Effect<'_>) {
        let Effect {
            action,
            peers,
            ports,
        } = effect;
        self.place_of(&ACTIONS, action);
        self.option(peers.as_ref(), |it, peers| it.list(peers, Self::peer));
        self.option(ports.as_ref(), |it, ports| it.list(ports, Self::port));
    }

    pub(super) fn peer(&mut self, peer: &Peer<'_>) {
        match peer {
            Peer::Pods(set) => {
                self.byte(0);
                self.pod_set(set);
            }
            Peer::Nodes(selector) => {
                self.byte(1);
                self.selector(selector);
            }
            Peer::Block { cidr, except } => {
                self.byte(2);
                self.cidr(cidr);
                self.list(except, Self::cidr);
            }
            Peer::Domains(patterns) => {
                self.byte(3);
                self.list(patterns, |it, DomainPattern { wildcard, name }| {
                    it.byte(u8::from(*wildcard));
                    it.text(name);
                });
            }
            Peer::All => self.byte(4),
        }
    }

    pub(super) fn cidr(&mut self, cidr: &Cidr) {
        self.byte(cidr.net().prefix_len());
        match cidr.first() {
            IpAddr::V4(address) => {
                self.byte(4);
                self.bytes.extend(address.octets());
            }
            IpAddr::V6(address) => {
                self.byte(6);
                self.bytes.extend(address.octets());
            }
        }
    }

    pub(super) fn port(&mut self, port: &PortMatch<'_>) {
        match port {
            PortMatch::Numbers(protocol, range) => {
                self.byte(0);
                self.place_of(&Protocol::ALL, protocol);
                self.number(range.start().get().into());
                self.number(range.end().get().into());
            }
            PortMatch::Named(protocol, name) => {
                self.byte(1);
                self.option(protocol.as_ref(), |it, protocol| {
                    it.place_of(&Protocol::ALL, protocol);
                });
                self.text(name);
            }
        }
    }

    pub(super) fn pod_set(&mut self, set: &PodSet<'_>) {
        let PodSet { namespaces, pods } = set;
        match namespaces {
            // The subject of every NetworkPolicy, and most of its peers: a byte, not a name.
            NamespaceSet::Exact(id) if self.own == Some(*id) => self.byte(6),
            NamespaceSet::Exact(id) => {
                self.byte(0);
                self.namespace(*id);
            }
            NamespaceSet::Selected { selector, except } => {
                self.byte(1);
                self.selector(selector);
                self.list(except, Self::selector);
            }
            NamespaceSet::Own => self.byte(2),
            NamespaceSet::NotOwn => self.byte(3),
            NamespaceSet::SameLabels(keys) => {
                self.byte(4);
                self.list(keys, |it, key| it.text(key));
            }
            NamespaceSet::NotSameLabels(keys) => {
                self.byte(5);
                self.list(keys, |it, key| it.text(key));
            }
        }
        self.option(pods.as_ref(), Self::selector);
    }

    pub(super) fn selector(&mut self, selector: &Selector<&str>) {
        self.list(&selector.requirements, |it, requirement| {
            let Requirement {
                key,
                operator,
                values,
            } = requirement;
            it.text(key);
            it.place_of(&Operator::ALL, operator);
            it.list(values, |it, value| it.text(value));
        });
    }
}
