//! Decodes policies.

use std::net::IpAddr;
use std::num::NonZeroU16;

use super::{ACTIONS, WORDS};
use crate::domain::DomainPattern;
use crate::labels::{Operator, Requirement, Selector};
use crate::model::{
    Effect, NamespaceId, NamespaceSet, Origin, Peer, PodSet, Policy, PolicyRank, PortMatch, Rule,
    Rules,
};
use crate::net::{Cidr, PortRange, Protocol};
use crate::policy::{PolicyApi, Tier};

/// Reads a policy part by part. Each method returns `None` if the bytes are not of this form.
pub(super) struct Reader<'b, 'n> {
    /// The bytes that are left.
    pub(super) bytes: &'b [u8],
    /// The namespace of the policy, once it was read.
    pub(super) own: NamespaceId,
    pub(super) namespace: &'n mut dyn FnMut(&'b str) -> NamespaceId,
}

impl<'b, 'n> Reader<'b, 'n> {
    /// Starts at the first byte. `namespace` returns the numbers of the namespaces in the bytes.
    pub(super) fn new(
        bytes: &'b [u8],
        namespace: &'n mut dyn FnMut(&'b str) -> NamespaceId,
    ) -> Reader<'b, 'n> {
        Reader {
            bytes,
            own: NamespaceId(u32::MAX),
            namespace,
        }
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        Some(self.byte()? != 0)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            // Ends after ten bytes at the latest, as a number of 64 bits does.
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
            shift += 7;
        }
    }

    pub(super) fn length(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    pub(super) fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length)?;
        self.bytes = rest;
        Some(taken)
    }

    pub(super) fn text(&mut self) -> Option<&'b str> {
        // An index of a frequent text, or a length with their number added.
        let length = self.length()?;
        match WORDS.get(length) {
            Some(word) => Some(word),
            None => str::from_utf8(self.take(length - WORDS.len())?).ok(),
        }
    }

    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        all.get(usize::from(self.byte()?)).copied()
    }

    pub(super) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<Option<T>> {
        if self.flag()? {
            Some(Some(read(self)?))
        } else {
            Some(None)
        }
    }

    pub(super) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let length = self.length()?;
        // An item has at least a byte: a length that is wrong reserves no more than there is.
        let mut list = Vec::with_capacity(length.min(self.bytes.len()));
        for _ in 0..length {
            list.push(read(self)?);
        }
        Some(list)
    }

    pub(super) fn front(&mut self) -> Option<(PolicyApi, PolicyRank, bool)> {
        let api = self.one_of(&PolicyApi::ALL)?;
        let rank = match self.byte()? {
            0 => PolicyRank::EarlyAdmin,
            1 => PolicyRank::NetworkPolicy,
            2 => PolicyRank::DefaultGroup,
            3 => PolicyRank::Ordered(Tier::Admin, self.number()?.cast_signed()),
            _ => PolicyRank::Ordered(Tier::Baseline, self.number()?.cast_signed()),
        };
        Some((api, rank, self.flag()?))
    }

    pub(super) fn policy(&mut self) -> Option<Policy<'b>> {
        let mut policy = self.isolation()?;
        policy.ingress.list = self.rules()?;
        policy.egress.list = self.rules()?;
        Some(policy)
    }

    /// Reads a policy up to its rules, which come last.
    pub(super) fn isolation(&mut self) -> Option<Policy<'b>> {
        let (api, rank, audited) = self.front()?;
        let namespace = self.option(Self::namespace)?;
        // Before the subject, which may name the namespace by a byte.
        self.own = namespace.unwrap_or(self.own);
        // Rust evaluates the fields in this order, which must be that of the bytes.
        Some(Policy {
            api,
            api_version: "",
            origin: Origin(u32::MAX),
            namespace,
            name: self.text()?,
            rank,
            created: self.option(Self::number)?,
            subject: self.option(Self::pod_set)?,
            ingress: self.no_rules()?,
            egress: self.no_rules()?,
            audited,
            is_over_budget: false,
        })
    }

    fn no_rules(&mut self) -> Option<Rules<'b>> {
        Some(Rules {
            isolates: self.flag()?,
            list: Vec::new(),
        })
    }

    pub(super) fn namespace(&mut self) -> Option<NamespaceId> {
        let name = self.text()?;
        Some((self.namespace)(name))
    }

    pub(super) fn rules(&mut self) -> Option<Vec<Rule<'b>>> {
        self.list(|it| {
            // Names and spellings are for explanations, which read the objects themselves.
            Some(Rule {
                name: None,
                written_action: None,
                failed_closed: false,
                effect: it.option(Self::effect)?,
            })
        })
    }

    pub(super) fn effect(&mut self) -> Option<Effect<'b>> {
        Some(Effect {
            action: self.one_of(&ACTIONS)?,
            peers: self.option(|it| it.list(Self::peer))?,
            ports: self.option(|it| it.list(Self::port))?,
        })
    }

    pub(super) fn peer(&mut self) -> Option<Peer<'b>> {
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

    pub(super) fn cidr(&mut self) -> Option<Cidr> {
        let length = self.byte()?;
        let address = match self.byte()? {
            4 => IpAddr::from(<[u8; 4]>::try_from(self.take(4)?).ok()?),
            _ => IpAddr::from(<[u8; 16]>::try_from(self.take(16)?).ok()?),
        };
        Cidr::new(address, length)
    }

    pub(super) fn port(&mut self) -> Option<PortMatch<'b>> {
        if self.flag()? {
            let protocol = self.option(|it| it.one_of(&Protocol::ALL))?;
            return Some(PortMatch::Named(protocol, self.text()?));
        }
        let protocol = self.one_of(&Protocol::ALL)?;
        let (start, end) = (self.port_number()?, self.port_number()?);
        Some(PortMatch::Numbers(protocol, PortRange::new(start, end)?))
    }

    pub(super) fn port_number(&mut self) -> Option<NonZeroU16> {
        NonZeroU16::new(u16::try_from(self.number()?).ok()?)
    }

    pub(super) fn pod_set(&mut self) -> Option<PodSet<'b>> {
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

    pub(super) fn selector(&mut self) -> Option<Selector<&'b str>> {
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
