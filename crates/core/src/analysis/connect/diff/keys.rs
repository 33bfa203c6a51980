//! Joint keys of both sides: endpoints that neither cluster distinguishes.

use rustc_hash::FxHashMap;

use super::ends::{ClusterSide, ComparedEndpoint};
use crate::analysis::connect::keys::{FlowRole, Key, Keys};
use crate::analysis::connect::members::MemberView;
use crate::compile::count;
use crate::decide::Identity;
use crate::program::{NONE, direction_index};

/// The keys of one role in both clusters. Both sides have the same numbers: a key that one side
/// lacks has a placeholder there, without addresses and so without flows.
#[derive(Debug)]
pub(super) struct JointKeys<'c> {
    pub(super) old: Keys<'c>,
    pub(super) new: Keys<'c>,
    /// For each key whether the old and the new side have it.
    pub(super) presence: Vec<[bool; 2]>,
}

impl<'c> JointKeys<'c> {
    /// Groups the endpoints that take part.
    pub(super) fn new(
        old: &ClusterSide<'c>,
        new: &ClusterSide<'c>,
        endpoints: &[ComparedEndpoint],
        role: FlowRole,
        takes_part: impl Fn(usize) -> bool,
    ) -> JointKeys<'c> {
        let of_old = keys_of(old, endpoints.iter().map(|it| it.old), role, &takes_part);
        let of_new = keys_of(new, endpoints.iter().map(|it| it.new), role, &takes_part);
        let mut ids: FxHashMap<(u32, u32), usize> = FxHashMap::default();
        let mut joint = JointKeys {
            old: empty(endpoints.len()),
            new: empty(endpoints.len()),
            presence: Vec::new(),
        };
        for (index, endpoint) in endpoints.iter().enumerate() {
            if !takes_part(index) {
                continue;
            }
            let key = |keys: &Keys<'c>, member: Option<u32>| {
                member.and_then(|it| keys.of(it)).unwrap_or(NONE)
            };
            // Endpoints share a joint key if they share the keys of both sides. The two rows of a
            // destination then have the same bits, and differences are operations on words.
            let pair = (key(&of_old, endpoint.old), key(&of_new, endpoint.new));
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

    /// Returns the endpoints of a key, ascending.
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

/// Returns the keys of one side.
fn keys_of<'c>(
    side: &ClusterSide<'c>,
    members: impl Iterator<Item = Option<u32>>,
    role: FlowRole,
    takes_part: &impl Fn(usize) -> bool,
) -> Keys<'c> {
    let mut is_included = vec![false; side.members.len()];
    for (index, member) in members.enumerate() {
        let slot = member.and_then(|it| is_included.get_mut(it as usize));
        if let Some(slot) = slot.filter(|_| takes_part(index)) {
            *slot = true;
        }
    }
    let views = side.members.iter().map(|(_, view)| Some(*view));
    let marks = isolations(side, role);
    Keys::new(side.program, role, &side.addresses, views, |member| {
        let is_included = is_included.get(member as usize).copied().unwrap_or(false);
        let mark = marks.get(member as usize).copied().unwrap_or(0);
        is_included.then_some(mark)
    })
}

/// Returns a number for each member by the policies that isolate it as the subject.
fn isolations(side: &ClusterSide<'_>, role: FlowRole) -> Vec<u32> {
    // Verdicts do not distinguish isolating policies with the same rules. Blocks name them as the
    // cause, so here they must not share a key.
    let direction = direction_index(role.as_subject());
    let mut ids: FxHashMap<[u32; 2], u32> = FxHashMap::default();
    let marks = side.members.iter().map(|(_, view)| {
        let class = view
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

/// Returns a key of a side without its members; `NONE`: a placeholder.
fn copy<'c>(keys: &Keys<'c>, id: u32) -> Key<'c> {
    let absent = MemberView {
        identity: Identity::External,
        class: None,
        atoms: [None; 2],
        is_unknown: false,
        local_to: None,
        node: None,
    };
    Key {
        view: keys.list.get(id as usize).map_or(absent, |key| key.view),
        members: Vec::new(),
        n_pods: 0,
        mark: 0,
    }
}
