//! Policies as bytes: what of them decides anything, in a few hundred bytes each.
//!
//! There are many policies, and a node is concerned with few of them. They are kept in this form, which
//! also says whether two are equal, and are made policies of the model again when they are needed.

use std::net::IpAddr;
use std::num::NonZeroU16;

use crate::domain::DomainPattern;
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{
    Cluster, Effect, Namespace, NamespaceId, NamespaceSet, Origin, Peer, Place, PodSet, Policy,
    PortMatch, Rule, Rules, label,
};
use crate::net::{Cidr, PortRange, Protocol};
use crate::policy::{Action, Generation, Tier};

/// The encoded form of a policy of a cluster.
pub(super) fn encode(cluster: &Cluster<'_>, policy: &Policy<'_>) -> Vec<u8> {
    let mut writer = Writer {
        cluster,
        own: policy.namespace,
        bytes: Vec::with_capacity(256),
    };
    writer.policy(policy);
    writer.bytes
}

/// The policy of some bytes; `namespace` gives the numbers of the namespaces that it names. `None`
/// never comes back for what [`encode`] made.
pub(super) fn decode<'b>(
    bytes: &'b [u8],
    namespace: &mut dyn FnMut(&'b str) -> NamespaceId,
) -> Option<Policy<'b>> {
    let mut reader = Reader {
        bytes,
        own: NamespaceId(u32::MAX),
        namespace,
    };
    reader.policy()
}

/// What has to be known of every policy: the parts that stand in front.
pub(super) struct Head<'b> {
    pub(super) place: Place,
    pub(super) generation: Generation,
    pub(super) namespace: Option<&'b str>,
    pub(super) name: &'b str,
    /// Whom it selects; `None`: nobody, or it only says what it would do.
    pub(super) subject: Option<PodSet<'b>>,
}

/// Reads only the parts in front; `NamespaceSet::Exact` has a number without meaning.
pub(super) fn head(bytes: &[u8]) -> Option<Head<'_>> {
    let mut namespace = |_: &str| NamespaceId(u32::MAX);
    let mut reader = Reader {
        bytes,
        own: NamespaceId(u32::MAX),
        namespace: &mut namespace,
    };
    let (generation, place, audited) = reader.front()?;
    let own = reader.option(Reader::text)?;
    let name = reader.text()?;
    let subject = reader.option(Reader::pod_set)?;
    Some(Head {
        place,
        generation,
        namespace: own,
        name,
        subject: subject.filter(|_| !audited),
    })
}

/// Some pods of some namespaces, no longer as seen from a subject, as bytes; `None`: nothing of the set is
/// left for subjects of that namespace (D46, D47). `exact` is the namespace, if it is one.
pub(super) fn selection_bytes(
    set: &PodSet<'_>,
    exact: Option<&str>,
    subject: &Namespace<'_>,
) -> Option<Box<[u8]>> {
    let cluster = Cluster::default();
    let mut writer = Writer {
        cluster: &cluster,
        own: None,
        bytes: Vec::with_capacity(64),
    };
    let own_values = |keys: &[&str]| {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys.dedup();
        let pairs = keys.into_iter().map(|key| {
            let value = label(&subject.labels, key)?;
            Some((key.to_owned(), value.to_owned()))
        });
        let pairs: Option<Vec<(String, String)>> = pairs.collect();
        pairs.filter(|pairs| !pairs.is_empty())
    };
    match (&set.namespaces, exact) {
        (_, Some(name)) => {
            writer.byte(0);
            writer.text(name);
        }
        (NamespaceSet::Selected { selector, except }, None) => {
            writer.byte(1);
            writer.selector(selector);
            writer.list(except, Writer::selector);
        }
        (NamespaceSet::NotOwn, None) => {
            writer.byte(2);
            writer.text(subject.name);
        }
        (NamespaceSet::SameLabels(keys), None) => {
            let pairs = own_values(keys)?;
            writer.byte(1);
            let requirements = pairs.iter().map(|(key, value)| Requirement {
                key: key.as_str(),
                operator: Operator::In,
                values: vec![value.as_str()],
            });
            let requirements = requirements.collect();
            writer.selector(&Selector { requirements });
            writer.list(&[], Writer::selector);
        }
        (NamespaceSet::NotSameLabels(keys), None) => {
            let pairs = own_values(keys)?;
            writer.byte(3);
            writer.list(&pairs, |it, (key, value)| {
                it.text(key);
                it.text(value);
            });
        }
        (NamespaceSet::Exact(_) | NamespaceSet::Own, None) => return None,
    }
    writer.option(set.pods.as_ref(), Writer::selector);
    Some(writer.bytes.into())
}

/// A selector as bytes.
pub(super) fn conditions_bytes(selector: &Selector<&str>) -> Box<[u8]> {
    let cluster = Cluster::default();
    let mut writer = Writer {
        cluster: &cluster,
        own: None,
        bytes: Vec::new(),
    };
    writer.selector(selector);
    writer.bytes.into()
}

/// The scope of what [`selection_bytes`] made.
pub(super) enum ScopeText<'b> {
    Exact(&'b str),
    Selected(Selector<&'b str>, Vec<Selector<&'b str>>),
    Other(&'b str),
    Differing(Vec<(&'b str, &'b str)>),
}

/// What [`selection_bytes`] made: which namespaces, and which of their pods.
pub(super) fn selection(bytes: &[u8]) -> Option<(ScopeText<'_>, Option<Selector<&str>>)> {
    let mut namespace = |_: &str| NamespaceId(u32::MAX);
    let mut reader = Reader {
        bytes,
        own: NamespaceId(u32::MAX),
        namespace: &mut namespace,
    };
    let scope = match reader.byte()? {
        0 => ScopeText::Exact(reader.text()?),
        1 => ScopeText::Selected(reader.selector()?, reader.list(Reader::selector)?),
        2 => ScopeText::Other(reader.text()?),
        _ => ScopeText::Differing(reader.list(|it| Some((it.text()?, it.text()?)))?),
    };
    Some((scope, reader.option(Reader::selector)?))
}

/// What [`conditions_bytes`] made.
pub(super) fn conditions(bytes: &[u8]) -> Option<Selector<&str>> {
    let mut namespace = |_: &str| NamespaceId(u32::MAX);
    let mut reader = Reader {
        bytes,
        own: NamespaceId(u32::MAX),
        namespace: &mut namespace,
    };
    reader.selector()
}

const GENERATIONS: [Generation; 7] = [
    Generation::Cluster,
    Generation::Admin,
    Generation::BaselineAdmin,
    Generation::NetworkPolicy,
    Generation::NetworkPolicy2016,
    Generation::EarlyCluster,
    Generation::Default,
];

const ACTIONS: [Action; 3] = [Action::Accept, Action::Deny, Action::Pass];

/// Texts that many policies have.
const WORDS: [&str; 4] = [
    "kubernetes.io/metadata.name",
    "app",
    "app.kubernetes.io/name",
    "k8s-app",
];

struct Writer<'c, 'a> {
    cluster: &'c Cluster<'a>,
    /// The namespace of the policy.
    own: Option<NamespaceId>,
    bytes: Vec<u8>,
}

impl Writer<'_, '_> {
    fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    /// Seven bits a byte, the lowest first.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    fn length(&mut self, length: usize) {
        self.number(u64::try_from(length).unwrap_or(u64::MAX));
    }

    fn text(&mut self, text: &str) {
        if let Some(word) = WORDS.iter().position(|word| *word == text) {
            self.length(word);
        } else {
            self.length(text.len() + WORDS.len());
            self.bytes.extend_from_slice(text.as_bytes());
        }
    }

    fn place_of<T: PartialEq>(&mut self, all: &[T], it: &T) {
        let place = all.iter().position(|other| other == it);
        self.byte(
            place
                .and_then(|it| u8::try_from(it).ok())
                .unwrap_or(u8::MAX),
        );
    }

    fn option<T>(&mut self, it: Option<&T>, mut write: impl FnMut(&mut Self, &T)) {
        self.byte(u8::from(it.is_some()));
        if let Some(it) = it {
            write(self, it);
        }
    }

    fn list<T>(&mut self, list: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.length(list.len());
        for it in list {
            write(self, it);
        }
    }

    fn policy(&mut self, policy: &Policy<'_>) {
        let Policy {
            generation,
            // These decide nothing.
            api_version: _,
            origin: _,
            namespace,
            name,
            place,
            subject,
            ingress,
            egress,
            audited,
        } = policy;
        self.place_of(&GENERATIONS, generation);
        match place {
            Place::EarlyAdmin => self.byte(0),
            Place::NetworkPolicy => self.byte(1),
            Place::DefaultGroup => self.byte(2),
            Place::Ordered(tier, priority) => {
                self.byte(match tier {
                    Tier::Admin => 3,
                    Tier::Baseline => 4,
                });
                self.number(priority.cast_unsigned());
            }
        }
        self.byte(u8::from(*audited));
        self.option(namespace.as_ref(), |it, id| it.namespace(*id));
        self.text(name);
        self.option(subject.as_ref(), Self::pod_set);
        self.rules(ingress);
        self.rules(egress);
    }

    fn namespace(&mut self, id: NamespaceId) {
        let name = self.cluster.namespace_name(id);
        self.text(name);
    }

    fn rules(&mut self, rules: &Rules<'_>) {
        let Rules { isolates, list } = rules;
        self.byte(u8::from(*isolates));
        self.list(list, |it, rule| {
            let Rule {
                // What it is called and how it was written decides nothing.
                name: _,
                written_action: _,
                failed_closed: _,
                effect,
            } = rule;
            it.option(effect.as_ref(), Self::effect);
        });
    }

    fn effect(&mut self, effect: &Effect<'_>) {
        let Effect {
            action,
            peers,
            ports,
        } = effect;
        self.place_of(&ACTIONS, action);
        self.option(peers.as_ref(), |it, peers| it.list(peers, Self::peer));
        self.option(ports.as_ref(), |it, ports| it.list(ports, Self::port));
    }

    fn peer(&mut self, peer: &Peer<'_>) {
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

    fn cidr(&mut self, cidr: &Cidr) {
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

    fn port(&mut self, port: &PortMatch<'_>) {
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

    fn pod_set(&mut self, set: &PodSet<'_>) {
        let PodSet { namespaces, pods } = set;
        match namespaces {
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

    fn selector(&mut self, selector: &Selector<&str>) {
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

struct Reader<'b, 'n> {
    bytes: &'b [u8],
    /// The namespace of the policy.
    own: NamespaceId,
    namespace: &'n mut dyn FnMut(&'b str) -> NamespaceId,
}

impl<'b> Reader<'b, '_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.byte()? != 0)
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    fn text(&mut self) -> Option<&'b str> {
        let length = self.length()?;
        match WORDS.get(length) {
            Some(word) => Some(word),
            None => str::from_utf8(self.take(length - WORDS.len())?).ok(),
        }
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(usize::from(self.byte()?)).copied()
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? {
            Some(Some(read(self)?))
        } else {
            Some(None)
        }
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let length = self.length()?;
        let mut list = Vec::with_capacity(length.min(self.bytes.len()));
        for _ in 0..length {
            list.push(read(self)?);
        }
        Some(list)
    }

    fn front(&mut self) -> Option<(Generation, Place, bool)> {
        let generation = self.one_of(&GENERATIONS)?;
        let place = match self.byte()? {
            0 => Place::EarlyAdmin,
            1 => Place::NetworkPolicy,
            2 => Place::DefaultGroup,
            3 => Place::Ordered(Tier::Admin, self.number()?.cast_signed()),
            _ => Place::Ordered(Tier::Baseline, self.number()?.cast_signed()),
        };
        Some((generation, place, self.flag()?))
    }

    fn policy(&mut self) -> Option<Policy<'b>> {
        let (generation, place, audited) = self.front()?;
        let namespace = self.option(Self::namespace)?;
        self.own = namespace.unwrap_or(self.own);
        Some(Policy {
            generation,
            api_version: "",
            origin: Origin(u32::MAX),
            namespace,
            name: self.text()?,
            place,
            subject: self.option(Self::pod_set)?,
            ingress: self.rules()?,
            egress: self.rules()?,
            audited,
        })
    }

    fn namespace(&mut self) -> Option<NamespaceId> {
        let name = self.text()?;
        Some((self.namespace)(name))
    }

    fn rules(&mut self) -> Option<Rules<'b>> {
        Some(Rules {
            isolates: self.flag()?,
            list: self.list(|it| {
                Some(Rule {
                    name: None,
                    written_action: None,
                    failed_closed: false,
                    effect: it.option(Self::effect)?,
                })
            })?,
        })
    }

    fn effect(&mut self) -> Option<Effect<'b>> {
        Some(Effect {
            action: self.one_of(&ACTIONS)?,
            peers: self.option(|it| it.list(Self::peer))?,
            ports: self.option(|it| it.list(Self::port))?,
        })
    }

    fn peer(&mut self) -> Option<Peer<'b>> {
        Some(match self.byte()? {
            0 => Peer::Pods(self.pod_set()?),
            1 => Peer::Nodes(self.selector()?),
            2 => Peer::Block {
                cidr: self.cidr()?,
                except: self.list(Self::cidr)?,
            },
            3 => Peer::Domains(self.list(|it| {
                Some(DomainPattern {
                    wildcard: it.flag()?,
                    name: it.text()?.to_owned(),
                })
            })?),
            _ => Peer::All,
        })
    }

    fn cidr(&mut self) -> Option<Cidr> {
        let length = self.byte()?;
        let address = match self.byte()? {
            4 => IpAddr::from(<[u8; 4]>::try_from(self.take(4)?).ok()?),
            _ => IpAddr::from(<[u8; 16]>::try_from(self.take(16)?).ok()?),
        };
        Cidr::new(address, length)
    }

    fn port(&mut self) -> Option<PortMatch<'b>> {
        if self.flag()? {
            let protocol = self.option(|it| it.one_of(&Protocol::ALL))?;
            return Some(PortMatch::Named(protocol, self.text()?));
        }
        let protocol = self.one_of(&Protocol::ALL)?;
        let (start, end) = (self.port_number()?, self.port_number()?);
        Some(PortMatch::Numbers(protocol, PortRange::new(start, end)?))
    }

    fn port_number(&mut self) -> Option<NonZeroU16> {
        NonZeroU16::new(u16::try_from(self.number()?).ok()?)
    }

    fn pod_set(&mut self) -> Option<PodSet<'b>> {
        let namespaces = match self.byte()? {
            0 => NamespaceSet::Exact(self.namespace()?),
            1 => NamespaceSet::Selected {
                selector: self.selector()?,
                except: self.list(Self::selector)?,
            },
            2 => NamespaceSet::Own,
            3 => NamespaceSet::NotOwn,
            4 => NamespaceSet::SameLabels(self.list(Self::text)?),
            5 => NamespaceSet::NotSameLabels(self.list(Self::text)?),
            _ => NamespaceSet::Exact(self.own),
        };
        Some(PodSet {
            namespaces,
            pods: self.option(Self::selector)?,
        })
    }

    fn selector(&mut self) -> Option<Selector<&'b str>> {
        let requirements = self.list(|it| {
            Some(Requirement {
                key: it.text()?,
                operator: it.one_of(&Operator::ALL)?,
                values: it.list(Self::text)?,
            })
        })?;
        Some(Selector { requirements })
    }
}
