//! Pods and their classes.

use std::net::{IpAddr, Ipv4Addr};

use super::claims::Claimant;
use super::{Owner, Store};
use crate::live::slab::NONE;
use crate::live::texts::Symbol;
use crate::model::{Life, Pod as Given};

/// A pod that has an address.
#[derive(Debug)]
pub(in crate::live) struct Pod {
    /// The hash of its namespace and name.
    digest: u64,
    stamp: Stamp,
    namespace: u32,
    /// Where its name is.
    name: u32,
    /// `NONE` for pods of the host network.
    pub(in crate::live) class: u32,
    /// The next pod of its class, and the one before.
    pub(super) next: u32,
    pub(super) previous: u32,
    /// Its address, if it has just one of IPv4; otherwise zero.
    address: u32,
}

impl Default for Pod {
    fn default() -> Pod {
        Pod {
            digest: 0,
            stamp: Stamp::new(Life::Ended, None, false),
            namespace: NONE,
            name: NONE,
            class: NONE,
            next: NONE,
            previous: NONE,
            address: 0,
        }
    }
}

impl Pod {
    /// Whether it is not the blank in the place of one that is gone.
    pub(in crate::live) fn is_there(&self) -> bool {
        self.namespace != NONE
    }

    /// Whether it runs on the node that all this is kept for.
    pub(in crate::live) fn is_local(&self) -> bool {
        self.stamp.0 & IS_LOCAL != 0
    }

    pub(super) fn life(&self) -> Life {
        self.stamp.life()
    }
}

/// Life, place and time of creation in one number: the digits of a time in the usual form, or the
/// number of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(u64);

const TIME: &str = "0000-00-00T00:00:00Z";
const IS_TEXT: u64 = 1 << 50;
const IS_GIVEN: u64 = 1 << 51;
const IS_LOCAL: u64 = 1 << 52;
const LIFE: u32 = 53;
const NUMBER: u64 = IS_TEXT - 1;
const LIVES: [Life; 4] = [Life::Running, Life::Pending, Life::Unknown, Life::Ended];

/// A time of creation: digits, or a text.
#[derive(Clone, Copy, Debug)]
enum Created {
    Digits(u64),
    Text(Symbol),
}

impl Stamp {
    fn new(life: Life, created: Option<Created>, is_local: bool) -> Stamp {
        let created = match created {
            None => 0,
            Some(Created::Digits(digits)) => IS_GIVEN | digits,
            Some(Created::Text(symbol)) => IS_GIVEN | IS_TEXT | u64::from(symbol),
        };
        let life = LIVES.iter().position(|it| *it == life).unwrap_or(0) as u64;
        Stamp(created | life << LIFE | if is_local { IS_LOCAL } else { 0 })
    }

    fn life(self) -> Life {
        let life = LIVES.get((self.0 >> LIFE) as usize);
        life.copied().unwrap_or(Life::Ended)
    }

    fn created(self) -> Option<Created> {
        let number = self.0 & NUMBER;
        let is_text = self.0 & IS_TEXT != 0;
        (self.0 & IS_GIVEN != 0).then(|| match is_text {
            true => Created::Text(u32::try_from(number).unwrap_or(NONE)),
            false => Created::Digits(number),
        })
    }
}

/// The digits of a time in the usual form.
fn digits(text: &str) -> Option<u64> {
    if text.len() != TIME.len() {
        return None;
    }
    let mut digits = 0;
    for (byte, form) in text.bytes().zip(TIME.bytes()) {
        if form == b'0' && byte.is_ascii_digit() {
            digits = digits * 10 + u64::from(byte - b'0');
        } else if form == b'0' || byte != form {
            return None;
        }
    }
    Some(digits)
}

/// What policies can see of a pod.
pub(super) struct Facts<'g, 'a> {
    pub(super) given: &'g Given<'a>,
    is_local: bool,
    /// The hash of what makes its class; none for pods of the host network.
    pub(super) class: u128,
}

/// The text of a time.
#[derive(Debug, Default)]
pub(super) struct CreatedText(Option<String>);

impl CreatedText {
    pub(super) fn as_text(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl Store {
    /// A pod as it is now; `None`: it is gone, or has no address.
    pub(in crate::live) fn set_pod(
        &mut self,
        namespace: &str,
        name: &str,
        given: Option<&Given<'_>>,
    ) -> bool {
        let given = given.filter(|it| {
            it.template.is_none() && it.life != Life::Ended && !it.addresses.is_empty()
        });
        let (digest, known) = self.find_pod(namespace, name);
        match (known, given) {
            (None, None) => false,
            (Some(id), None) => {
                self.remove_pod(id);
                true
            }
            (None, Some(given)) => {
                self.add_pod(digest, namespace, name, given);
                true
            }
            (Some(id), Some(given)) => {
                let namespace = self.pods.get(id).map_or(NONE, |it| it.namespace);
                let facts = self.facts(namespace, given);
                if self.is_same(id, &facts) {
                    return false;
                }
                self.change_pod(id, &facts);
                true
            }
        }
    }

    fn find_pod(&mut self, namespace: &str, name: &str) -> (u64, Option<u32>) {
        self.scratch.clear();
        self.scratch.extend_from_slice(namespace.as_bytes());
        self.scratch.push(0xff);
        self.scratch.extend_from_slice(name.as_bytes());
        let digest = self.texts.hashes().short(&self.scratch);
        let found = self.pod_index.find(digest, |id| {
            let pod = self.pods.get(id).filter(|it| it.digest == digest);
            pod.is_some_and(|it| self.texts.arena.bytes(it.name) == name.as_bytes())
        });
        (digest, found)
    }

    fn facts<'g, 'a>(&mut self, namespace: u32, given: &'g Given<'a>) -> Facts<'g, 'a> {
        let own = self.texts.get(self.own_node);
        Facts {
            given,
            is_local: given.node == Some(own),
            class: if given.host_network {
                0
            } else {
                self.class_digest(namespace, given)
            },
        }
    }

    /// Whether policies can see no difference.
    fn is_same(&self, id: u32, facts: &Facts<'_, '_>) -> bool {
        let Some(pod) = self.pods.get(id) else {
            return false;
        };
        let given = facts.given;
        let same_addresses = match given.addresses.as_slice() {
            [IpAddr::V4(one)] if one.to_bits() != 0 => pod.address == one.to_bits(),
            several => {
                let more = self.more_addresses.get(&id);
                pod.address == 0 && more.is_some_and(|it| **it == *several)
            }
        };
        if !same_addresses || given.host_network != (pod.class == NONE) {
            return false;
        }
        if given.host_network {
            let node = self.host_nodes.get(&id);
            return match given.node {
                None => node.is_none(),
                Some(name) => node.is_some_and(|it| self.texts.get(*it) == name),
            };
        }
        let class = self.classes.get(pod.class);
        pod.is_local() == facts.is_local
            && pod.life() == given.life
            && self.same_created(pod.stamp, given.created)
            && class.is_some_and(|it| it.digest == facts.class)
    }

    fn same_created(&self, known: Stamp, given: Option<&str>) -> bool {
        match (known.created(), given) {
            (None, None) => true,
            (Some(Created::Digits(known)), Some(text)) => digits(text) == Some(known),
            (Some(Created::Text(known)), Some(text)) => self.texts.get(known) == text,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    fn add_pod(&mut self, digest: u64, namespace: &str, name: &str, given: &Given<'_>) {
        let namespace = self.use_namespace(namespace);
        let name = self.texts.arena.put(name);
        let id = self.pods.insert(Pod {
            digest,
            namespace,
            name,
            ..Pod::default()
        });
        let pods = &self.pods;
        self.pod_index
            .insert(digest, id, |id| pods.get(id).map_or(0, |it| it.digest));
        let facts = self.facts(namespace, given);
        self.fill(id, &facts, NONE);
    }

    fn remove_pod(&mut self, id: u32) {
        let class = self.empty(id);
        self.leave(id, class);
        let pod = self.pods.take(id);
        self.pod_index.remove(pod.digest, id);
        self.texts.arena.free(pod.name);
        self.release_namespace(pod.namespace);
        self.changes.gone_pods.push(id);
    }

    fn change_pod(&mut self, id: u32, facts: &Facts<'_, '_>) {
        let before = self.pods.get(id).map(|pod| pod.stamp);
        let same = before.is_some_and(|it| self.same_created(it, facts.given.created));
        if !same && !facts.given.host_network {
            self.changes.recreated.insert(id);
        }
        let class = self.empty(id);
        self.fill(id, facts, class);
    }

    /// Writes down everything of a pod but its name, and claims its addresses. `before` is the
    /// class that it is still a member of.
    fn fill(&mut self, id: u32, facts: &Facts<'_, '_>, before: u32) {
        let given = facts.given;
        let namespace = self.pods.get(id).map_or(NONE, |pod| pod.namespace);
        let (stamp, class) = if given.host_network {
            let node = given.node.map(|node| self.texts.intern(node));
            if let Some(node) = node {
                self.host_nodes.insert(id, node);
            }
            self.host_pods
                .entry(node.unwrap_or(NONE))
                .or_default()
                .push(id);
            (Stamp::new(Life::Running, None, facts.is_local), NONE)
        } else {
            let created = given.created.map(|text| match digits(text) {
                Some(digits) => Created::Digits(digits),
                None => Created::Text(self.texts.intern(text)),
            });
            let class = self.class_of(namespace, facts);
            (Stamp::new(given.life, created, facts.is_local), class)
        };
        let address = match given.addresses.as_slice() {
            [IpAddr::V4(one)] => one.to_bits(),
            _ => 0,
        };
        if address == 0 {
            let several = given.addresses.as_slice().into();
            self.more_addresses.insert(id, several);
        }
        if class != before {
            // Joined first, so that a class that only this pod has moved to is not idle in between.
            self.leave(id, before);
            self.join(id, class);
        }
        if let Some(pod) = self.pods.get_mut(id) {
            pod.stamp = stamp;
            pod.address = address;
            pod.class = class;
        }
        let claimant = claimant(id, class);
        for address in &given.addresses {
            self.claim(*address, claimant);
        }
    }

    /// The opposite of `fill`, but that it stays a member of its class, which is the answer.
    fn empty(&mut self, id: u32) -> u32 {
        let Some((class, stamp)) = self.pods.get(id).map(|pod| (pod.class, pod.stamp)) else {
            return NONE;
        };
        let claimant = claimant(id, class);
        for address in self.addresses(id) {
            self.unclaim(address, claimant);
        }
        self.more_addresses.remove(&id);
        if class == NONE {
            let node = self.host_nodes.remove(&id);
            let node = node.unwrap_or(NONE);
            if let Some(pods) = self.host_pods.get_mut(&node) {
                pods.retain(|it| *it != id);
                if pods.is_empty() {
                    self.host_pods.remove(&node);
                }
            }
            self.texts.release(node);
        }
        if let Some(Created::Text(symbol)) = stamp.created() {
            self.texts.release(symbol);
        }
        class
    }

    /// The addresses of a pod.
    pub(in crate::live) fn addresses(&self, id: u32) -> Vec<IpAddr> {
        let one = self.pods.get(id).map_or(0, |pod| pod.address);
        if one != 0 {
            return vec![IpAddr::V4(Ipv4Addr::from_bits(one))];
        }
        let several = self.more_addresses.get(&id);
        several.map(|it| it.to_vec()).unwrap_or_default()
    }

    /// Hands on the addresses of a pod that are its own (D82).
    pub(in crate::live) fn own_addresses(&self, id: u32, take: &mut dyn FnMut(IpAddr)) {
        let one = self.pods.get(id).map_or(0, |pod| pod.address);
        let mut take = |address: IpAddr| {
            if !self.is_shared(address) || self.owner(address) == Some(Owner::Pod(id)) {
                take(address);
            }
        };
        if one != 0 {
            take(IpAddr::V4(Ipv4Addr::from_bits(one)));
            return;
        }
        let several = self.more_addresses.get(&id);
        several.into_iter().flatten().copied().for_each(take);
    }

    /// Namespace and name of a pod, for comparing.
    pub(in crate::live) fn pod_name(&self, id: u32) -> (&str, &str) {
        let Some(pod) = self.pods.get(id) else {
            return ("", "");
        };
        let namespace = self.namespaces.get(pod.namespace);
        let namespace = namespace.map_or(NONE, |it| it.name);
        (self.texts.get(namespace), self.texts.arena.get(pod.name))
    }

    /// When a pod was created, as text.
    pub(super) fn created(&self, pod: &Pod) -> CreatedText {
        let mut digits = match pod.stamp.created() {
            None => return CreatedText(None),
            Some(Created::Text(symbol)) => {
                return CreatedText(Some(self.texts.get(symbol).to_owned()));
            }
            Some(Created::Digits(digits)) => digits,
        };
        let mut text: Vec<char> = TIME.chars().collect();
        for sign in text.iter_mut().rev() {
            if *sign == '0' {
                let digit = u32::try_from(digits % 10).unwrap_or(0);
                *sign = char::from_digit(digit, 10).unwrap_or('0');
                digits /= 10;
            }
        }
        CreatedText(Some(text.into_iter().collect()))
    }
}

fn claimant(id: u32, class: u32) -> Claimant {
    if class == NONE {
        Claimant::HostPod(id)
    } else {
        Claimant::Pod(id)
    }
}
