//! The sources that reach one destination: groups by reach, and single sources on its own node.

use super::keys::Key;
use super::members::MemberView;
use super::rows::{CellPorts, Rows, SourceGroup, everything};
use super::services::{ServiceMap, ServiceTarget};
use super::{Connectivity, MemberId, Reach};
use crate::net::Family;

/// A destination key or a Service.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'t, 'c> {
    Key(&'t Key<'c>),
    Service(&'t ServiceTarget),
}

/// The sources that reach a destination.
#[derive(Debug)]
pub(super) struct ReachingSources {
    /// The members of the destination, ascending.
    pub(super) members: Vec<u32>,
    /// The sources by reach; sources without any are left out.
    pub(super) parts: Vec<SourceGroup>,
    /// Single pairs with another reach: sources on the destination's own node (D74).
    pub(super) local: Vec<(MemberId, MemberId, Reach)>,
}

impl<'c> Connectivity<'c> {
    pub(super) fn reached(
        &self,
        rows: &mut Rows<'_>,
        map: &ServiceMap<'_>,
        target: Target<'_, 'c>,
    ) -> ReachingSources {
        match target {
            Target::Key(key) => self.key_reached(rows, key),
            Target::Service(service) => {
                let (parts, local) = self.service_parts(rows, map, service);
                let local = local.into_iter();
                ReachingSources {
                    members: vec![service.member.0],
                    parts,
                    local: local
                        .map(|(source, reach)| (source, service.member, reach))
                        .collect(),
                }
            }
        }
    }

    fn key_reached(&self, rows: &mut Rows<'_>, key: &Key<'c>) -> ReachingSources {
        let row = rows.row(key);
        let context = rows.context();
        let ports = self.cell_ports(context, key, &row);
        let parts = row.parts(context, key, &ports);
        // Only pairs that D74 changes are listed. Where policies allow everything anyhow, the pair
        // stays in its group.
        let mut local = Vec::new();
        for member in &key.members {
            let destination = self.views.get(*member as usize).copied().flatten();
            let node = destination.and_then(|view| view.node);
            let sources = node.and_then(|node| self.local_sources.get(node));
            for source in sources.into_iter().flatten() {
                let view = self.views.get(*source as usize).copied().flatten();
                let (Some(view), Some(destination)) = (view, destination) else {
                    continue;
                };
                let open = open(&ports, &view, &destination);
                let by_policy = self.sources.of(*source);
                let by_policy = by_policy.and_then(|key| part_of(&parts, key));
                if by_policy.map(|part| &part.reach) != Some(&open) {
                    local.push((MemberId(*source), MemberId(*member), open));
                }
            }
        }
        ReachingSources {
            members: key.members.clone(),
            parts,
            local,
        }
    }
}

/// Returns the part that a source key is in.
pub(super) fn part_of(parts: &[SourceGroup], source: u32) -> Option<&SourceGroup> {
    parts
        .iter()
        .find(|part| super::bits::has(&part.sources, source))
}

/// Returns the reach between two members if no policy applies.
fn open(ports: &[CellPorts], source: &MemberView<'_>, destination: &MemberView<'_>) -> Reach {
    let shares = |family| source.may_have(family) && destination.may_have(family);
    let families = Family::BOTH.map(shares);
    let mut open = Reach::default();
    if families.contains(&true) {
        open.allowed = everything(ports, families);
    }
    open
}
