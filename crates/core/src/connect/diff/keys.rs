//! Keys of both sides at once: ends that neither cluster tells apart.

use rustc_hash::FxHashMap;

use super::ends::{ClusterSide, ComparedEnd};
use crate::compile::count;
use crate::connect::keys::{FlowRole as Which, Key, Keys};
use crate::connect::members::MemberView;
use crate::decide::Identity;
use crate::program::{NONE, direction_index};

/// The keys of one end of flows. Both sides number them alike; a key that one side does not have is there
/// as somebody without addresses, to whom nothing can be sent.
#[derive(Debug)]
pub(super) struct JointKeys<'c> {
    pub(super) old: Keys<'c>,
    pub(super) new: Keys<'c>,
    /// Which of them each side has.
    pub(super) presence: Vec<[bool; 2]>,
}

impl<'c> JointKeys<'c> {
    /// Of those ends that take part.
    pub(super) fn new(
        old: &ClusterSide<'c>,
        new: &ClusterSide<'c>,
        ends: &[ComparedEnd],
        which: Which,
        takes_part: impl Fn(usize) -> bool,
    ) -> JointKeys<'c> {
        let of_old = keys_of(old, ends.iter().map(|it| it.old), which, &takes_part);
        let of_new = keys_of(new, ends.iter().map(|it| it.new), which, &takes_part);
        let mut ids: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        let mut joint = JointKeys {
            old: empty(ends.len()),
            new: empty(ends.len()),
            presence: Vec::new(),
        };
        for (index, end) in ends.iter().enumerate() {
            if !takes_part(index) {
                continue;
            }
            let key = |keys: &Keys<'c>, member: Option<u32>| {
                member.and_then(|it| keys.of(it)).unwrap_or(NONE)
            };
            let pair = (key(&of_old, end.old), key(&of_new, end.new));
            let id = *ids.entry(pair).or_insert_with(|| {
                joint.old.list.push(copy(&of_old, pair.0));
                joint.new.list.push(copy(&of_new, pair.1));
                joint.presence.push([pair.0 != NONE, pair.1 != NONE]);
                joint.presence.len() - 1
            });
            for keys in [&mut joint.old, &mut joint.new] {
                if let Some(slot) = keys.of_member.get_mut(index) {
                    *slot = count(id);
                }
                if let Some(key) = keys.list.get_mut(id) {
                    key.members.push(count(index));
                }
            }
        }
        joint
    }

    pub(super) fn len(&self) -> usize {
        self.presence.len()
    }

    /// The ends of a key, ascending.
    pub(super) fn members(&self, key: u32) -> &[u32] {
        let key = self.new.list.get(key as usize);
        key.map_or(&[], |key| key.members.as_slice())
    }
}

fn empty<'c>(n_members: usize) -> Keys<'c> {
    Keys {
        list: Vec::new(),
        of_member: vec![NONE; n_members],
    }
}

/// The keys of one side alone.
fn keys_of<'c>(
    side: &ClusterSide<'c>,
    members: impl Iterator<Item = Option<u32>>,
    which: Which,
    takes_part: &impl Fn(usize) -> bool,
) -> Keys<'c> {
    let mut is_meant = vec![false; side.members.len()];
    for (index, member) in members.enumerate() {
        let slot = member.and_then(|it| is_meant.get_mut(it as usize));
        if let Some(slot) = slot.filter(|_| takes_part(index)) {
            *slot = true;
        }
    }
    let seen = side.members.iter().map(|(_, seen)| Some(*seen));
    let marks = isolations(side, which);
    Keys::new(side.program, which, &side.addresses, seen, |member| {
        let is_meant = is_meant.get(member as usize).copied().unwrap_or(false);
        let mark = marks.get(member as usize).copied().unwrap_or(0);
        is_meant.then_some(mark)
    })
}

/// A number for the policies that isolate each member where it is the subject: verdicts do not tell them
/// apart, and reasons do.
fn isolations(side: &ClusterSide<'_>, which: Which) -> Vec<u32> {
    let direction = direction_index(which.as_subject());
    let mut ids: FxHashMap<[u32; 2], u32> = FxHashMap::default();
    let marks = side.members.iter().map(|(_, seen)| {
        let class = seen
            .class
            .and_then(|it| side.program.classes.get(it as usize));
        let Some(class) = class else {
            return 0;
        };
        let at = |of: &[u32; 2]| of.get(direction).copied().unwrap_or(NONE);
        let unions = side.program.unions.get(direction);
        let union = unions.and_then(|it| it.get(at(&class.unions) as usize));
        let parts = [
            union.map_or(NONE, |it| it.isolation.0),
            at(&class.default_isolations),
        ];
        let next = count(ids.len()) + 1;
        *ids.entry(parts).or_insert(next)
    });
    marks.collect()
}

/// A key of a side without its members.
fn copy<'c>(keys: &Keys<'c>, id: u32) -> Key<'c> {
    let nobody = MemberView {
        identity: Identity::External,
        class: None,
        atoms: [None; 2],
        is_unknown: false,
        local_to: None,
        node: None,
    };
    Key {
        view: keys.list.get(id as usize).map_or(nobody, |key| key.view),
        members: Vec::new(),
        n_pods: 0,
        mark: 0,
    }
}
