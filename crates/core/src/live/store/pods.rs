//! Pods and their classes.

use std::net::{IpAddr, Ipv4Addr};

use super::claims::Claimant;
use super::classes::named;
use super::{Hosted, Owner, Store};
use crate::live::digest::Digest;
use crate::live::slab::NONE;
use crate::live::texts::Symbol;
use crate::model::{Life, Pod as Given};

/// A pod that has an address.
#[derive(Debug)]
pub(in crate::live) struct Pod {
    /// The hash of its namespace, its name, and all that policies can see of it: where this is the same, nothing has
    /// changed.
    whole: u64,
    stamp: Stamp,
    /// Half of the hash of its namespace and name.
    key: u32,
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
            whole: 0,
            stamp: Stamp::new(Life::Ended, None, false),
            key: 0,
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
        self.name != NONE
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
    /// The hash of all of it.
    whole: u64,
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
        let begun = self.begin(namespace, name);
        let key = begun.short() >> 32;
        let facts = given.map(|given| self.facts(begun, given));
        let whole = facts.as_ref().map(|it| it.whole);
        let known = self.pod_index.find(key << 32, |id| {
            let pod = self.pods.get(id).filter(|it| u64::from(it.key) == key);
            pod.is_some_and(|it| Some(it.whole) == whole || self.pod_name(id) == (namespace, name))
        });
        match (known, facts) {
            (None, None) => false,
            (Some(id), None) => {
                self.remove_pod(id);
                true
            }
            (None, Some(facts)) => {
                self.add_pod(key as u32, namespace, name, &facts);
                true
            }
            (Some(id), Some(facts)) => {
                let before = self.pods.get(id).map(|it| it.whole);
                if before == Some(facts.whole) {
                    return false;
                }
                self.change_pod(id, &facts);
                true
            }
        }
    }

    /// The hash of what a pod is called.
    fn begin(&mut self, namespace: &str, name: &str) -> Digest {
        let scratch = &mut self.scratch;
        scratch.clear();
        // Something longer can follow, since these say where the texts end.
        scratch.extend_from_slice(&(namespace.len() as u64).to_le_bytes());
        scratch.extend_from_slice(&(name.len() as u64).to_le_bytes());
        scratch.extend_from_slice(namespace.as_bytes());
        scratch.extend_from_slice(name.as_bytes());
        let mut digest = self.texts.hashes().begin();
        digest.part(&self.scratch);
        digest
    }

    /// What policies can see of a pod, and the hash of it behind that of what it is called. What makes its class is left
    /// in the scratch room.
    fn facts<'g, 'a>(&mut self, mut begun: Digest, given: &'g Given<'a>) -> Facts<'g, 'a> {
        let is_local = given.node == Some(self.texts.get(self.own_node));
        let scratch = &mut self.scratch;
        scratch.clear();
        scratch.push(u8::from(given.host_network) << 1 | u8::from(is_local));
        scratch.extend_from_slice(&(given.addresses.len() as u64).to_le_bytes());
        for address in &given.addresses {
            match address {
                IpAddr::V4(it) => {
                    scratch.push(4);
                    scratch.extend_from_slice(&it.octets());
                }
                IpAddr::V6(it) => {
                    scratch.push(6);
                    scratch.extend_from_slice(&it.octets());
                }
            }
        }
        let text = if given.host_network {
            given.node
        } else {
            scratch.push(given.life as u8);
            given.created
        };
        scratch.push(u8::from(text.is_some()));
        let text = text.unwrap_or_default();
        scratch.extend_from_slice(&(text.len() as u64).to_le_bytes());
        scratch.extend_from_slice(text.as_bytes());
        begun.part(scratch);
        scratch.clear();
        if !given.host_network {
            // No text has the bytes that stand between them.
            for (key, value) in given.labels.iter() {
                scratch.extend_from_slice(key.as_bytes());
                scratch.push(0xff);
                scratch.extend_from_slice(value.as_bytes());
                scratch.push(0xff);
            }
            scratch.push(0xfe);
            for (name, protocol, port) in given.ports.iter().filter_map(named) {
                scratch.extend_from_slice(name.as_bytes());
                scratch.extend_from_slice(&[0xff, protocol as u8]);
                scratch.extend_from_slice(&port.to_le_bytes());
            }
            begun.part(scratch);
        }
        Facts {
            given,
            is_local,
            whole: begun.short(),
        }
    }

    /// The hash of what makes a class, the same for the same texts: those that `facts` has left.
    pub(super) fn class_digest(&self, namespace: u32) -> u128 {
        let mut digest = self.texts.hashes().begin();
        digest.part(&namespace.to_le_bytes());
        digest.part(&self.scratch);
        digest.long()
    }

    fn same_created(&self, known: Stamp, given: Option<&str>) -> bool {
        match (known.created(), given) {
            (None, None) => true,
            (Some(Created::Digits(known)), Some(text)) => digits(text) == Some(known),
            (Some(Created::Text(known)), Some(text)) => self.texts.get(known) == text,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    fn add_pod(&mut self, key: u32, namespace: &str, name: &str, facts: &Facts<'_, '_>) {
        let namespace = self.use_namespace(namespace);
        let name = self.texts.arena.put(name);
        let id = self.pods.insert(Pod {
            key,
            name,
            ..Pod::default()
        });
        let pods = &self.pods;
        self.pod_index.insert(u64::from(key) << 32, id, |id| {
            u64::from(pods.get(id).map_or(0, |it| it.key)) << 32
        });
        self.fill(id, namespace, facts, NONE);
    }

    fn remove_pod(&mut self, id: u32) {
        let namespace = self.namespace_of(id);
        let class = self.empty(id);
        self.leave(id, class);
        let pod = self.pods.take(id);
        self.pod_index.remove(u64::from(pod.key) << 32, id);
        self.texts.arena.free(pod.name);
        self.release_namespace(namespace);
        self.changes.gone_pods.push(id);
    }

    fn change_pod(&mut self, id: u32, facts: &Facts<'_, '_>) {
        let before = self.pods.get(id).map(|pod| pod.stamp);
        let same = before.is_some_and(|it| self.same_created(it, facts.given.created));
        if !same && !facts.given.host_network {
            self.changes.recreated.insert(id);
        }
        let namespace = self.namespace_of(id);
        let class = self.empty(id);
        self.fill(id, namespace, facts, class);
    }

    /// The namespace of a pod.
    fn namespace_of(&self, id: u32) -> u32 {
        let class = self.pods.get(id).map_or(NONE, |it| it.class);
        match self.classes.get(class) {
            Some(class) => class.namespace,
            None => self.hosted.get(&id).map_or(NONE, |it| it.namespace),
        }
    }

    /// Writes down everything of a pod but its name, and claims its addresses. `before` is the
    /// class that it is still a member of.
    fn fill(&mut self, id: u32, namespace: u32, facts: &Facts<'_, '_>, before: u32) {
        let given = facts.given;
        let (stamp, class) = if given.host_network {
            let node = given.node.map(|node| self.texts.intern(node));
            let node = node.unwrap_or(NONE);
            self.hosted.insert(id, Hosted { namespace, node });
            self.host_pods.entry(node).or_default().push(id);
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
            pod.whole = facts.whole;
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
        let Some((class, stamp, one)) = self
            .pods
            .get(id)
            .map(|pod| (pod.class, pod.stamp, pod.address))
        else {
            return NONE;
        };
        let claimant = claimant(id, class);
        if one == 0 {
            for address in self.addresses(id) {
                self.unclaim(address, claimant);
            }
            self.more_addresses.remove(&id);
        } else {
            self.unclaim(IpAddr::V4(Ipv4Addr::from_bits(one)), claimant);
        }
        if class == NONE {
            let hosted = self.hosted.remove(&id);
            let node = hosted.map_or(NONE, |it| it.node);
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
        let namespace = self.namespaces.get(self.namespace_of(id));
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
