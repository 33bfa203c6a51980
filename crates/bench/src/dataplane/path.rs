//! Checks that the last policy of each direction allows the traffic, behind all other rules, which
//! do not match: in the plan, and by the counters of the kernel's rules.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

use anyhow::{Context as _, Result, bail, ensure};
use palisade_core::net::{Family, Protocol};
use palisade_core::plan::{
    GroupId, GroupKind, MERGE_OVER, MergedUnion, PeerCondition, PeerScope, Plan, PortBlock,
    PortCondition, RuleChain, RuleChainId, Step,
};
use palisade_core::policy::{Action, Direction, Verdict};
use palisade_nft::load::RuleCount;

use super::cluster::{CLIENT, Load, PODS, PORT, SERVER, pod_address};

/// The number of rules of the Admin tier, which are evaluated first.
const ADMIN_RULES: usize = 3;

/// Ensures that a plan, with unions of more than `merge_over` policies merged, allows the traffic
/// by the last policy of each direction.
pub(super) fn check(plan: &Plan, load: Load, merge_over: usize) -> Result<()> {
    let families: Vec<Family> = load.stack.families().collect();
    ensure!(
        plan.pods.len() == PODS * families.len(),
        "the node has {} addresses of pods",
        plan.pods.len()
    );
    for family in families {
        for direction in Direction::BOTH {
            let (subject, peer) = ends(direction);
            let chain = chain(plan, family, direction)?;
            let traffic = Traffic {
                plan,
                peer: pod_address(peer, family),
            };
            traffic
                .check(chain, load.policies_of(subject), merge_over)
                .with_context(|| format!("{direction:?} of {family:?}"))?;
        }
    }
    Ok(())
}

/// The pod whose policies are evaluated in a direction, and the other pod.
fn ends(direction: Direction) -> (usize, usize) {
    match direction {
        Direction::Egress => (CLIENT, SERVER),
        Direction::Ingress => (SERVER, CLIENT),
    }
}

fn chain_id(plan: &Plan, family: Family, direction: Direction) -> Result<RuleChainId> {
    let (subject, _) = ends(direction);
    let pod = plan.pods.get(&pod_address(subject, family));
    let pod = pod.context("a pod is missing")?;
    pod.chain(direction).context("a pod has no policies")
}

fn chain(plan: &Plan, family: Family, direction: Direction) -> Result<&RuleChain> {
    let id = chain_id(plan, family, direction)?;
    let chain = plan.chains.get(&id).context("no such rule chain")?;
    Ok(chain)
}

/// The traffic, seen from one of its ends.
struct Traffic<'p> {
    plan: &'p Plan,
    peer: IpAddr,
}

impl Traffic<'_> {
    fn check(&self, chain: &RuleChain, policies: usize, merge_over: usize) -> Result<()> {
        ensure!(
            chain.admin.len() == ADMIN_RULES && chain.verdict == Verdict::Deny,
            "the tiers around the NetworkPolicies are not those of this benchmark"
        );
        for protocol in [Protocol::Tcp, Protocol::Udp] {
            for step in &chain.admin {
                let matches = self.matches(step, protocol)?;
                ensure!(!matches, "the Admin tier matches the traffic");
            }
            if policies > merge_over {
                self.check_merged(chain, policies, protocol)?;
            } else {
                self.check_steps(chain, policies, protocol)?;
            }
        }
        Ok(())
    }

    /// One lookup for all policies: the port of each leads to a group of its own.
    fn check_merged(&self, chain: &RuleChain, policies: usize, protocol: Protocol) -> Result<()> {
        let MergedUnion {
            of_ports,
            any_port,
            nets_of_ports,
            nets_of_any_port,
            open,
        } = &chain.merged;
        // The last policy has two ports.
        let is_all = of_ports.len() == policies + 1 && chain.rest.is_empty();
        let no_nets = nets_of_any_port.iter().all(Option::is_none)
            && nets_of_ports.iter().all(|it| it.is_empty());
        let is_only_this = any_port.is_none() && no_nets && open.iter().all(|it| it.is_empty());
        ensure!(is_all && is_only_this, "the policies are not all merged");
        let group = of_ports.get(&PortBlock::single(protocol, PORT));
        let group = group.context("no policy matches the port of the traffic")?;
        ensure!(
            self.is_member(*group)?,
            "the port of the traffic does not match its peer"
        );
        Ok(())
    }

    /// One step for each policy: the last matches, and none before it.
    fn check_steps(&self, chain: &RuleChain, policies: usize, protocol: Protocol) -> Result<()> {
        ensure!(
            chain.rest.len() == policies && chain.merged == MergedUnion::default(),
            "the policies are not evaluated one by one"
        );
        let (last, others) = chain.rest.split_last().context("no policies")?;
        for step in others {
            let matches = self.matches(step, protocol)?;
            ensure!(!matches, "a policy before the last allows the traffic");
        }
        let is_allowed = last.action == Action::Accept && self.matches(last, protocol)?;
        ensure!(is_allowed, "the last policy does not allow the traffic");
        Ok(())
    }

    fn matches(&self, step: &Step, of_traffic: Protocol) -> Result<bool> {
        let port = NonZeroU16::new(PORT).context("the traffic has no port")?;
        let mut is_port = step.ports.is_none();
        for PortCondition {
            protocol,
            range,
            at,
        } in step.ports.iter().flatten()
        {
            let is_there = match at {
                Some(group) => self.is_member(*group)?,
                None => true,
            };
            is_port |= *protocol == of_traffic && range.contains(port) && is_there;
        }
        let mut is_peer = step.peers.is_none();
        for PeerCondition { within, except } in step.peers.iter().flatten() {
            let mut is_this = match within {
                PeerScope::Family(family) => *family == Family::of(self.peer),
                PeerScope::Group(group) => self.is_member(*group)?,
            };
            for group in except {
                is_this &= !self.is_member(*group)?;
            }
            is_peer |= is_this;
        }
        Ok(is_port && is_peer)
    }

    fn is_member(&self, group: GroupId) -> Result<bool> {
        let group = self.plan.groups.get(&group).context("no such group")?;
        match group.kind {
            GroupKind::Hosts => Ok(group.addresses.contains(&self.peer)),
            GroupKind::Nets(..) | GroupKind::Ranges(_) => {
                bail!("this benchmark has no blocks of addresses")
            }
        }
    }
}

/// The number of new flows of each kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Begun {
    pub(super) tcp: u64,
    pub(super) udp: u64,
    /// Packets to a port that no policy allows.
    pub(super) closed: u64,
}

/// The rule chains of the traffic of a family.
#[derive(Clone, Debug)]
pub(super) struct Path {
    directions: Vec<DirectionChains>,
}

/// The rule chains of one direction.
#[derive(Clone, Debug)]
struct DirectionChains {
    direction: Direction,
    /// The Admin tier.
    admin: String,
    /// The NetworkPolicies.
    policies: String,
    /// The number of rules of the policies before the last, or `None` if all are one rule.
    before: Option<usize>,
}

impl Path {
    /// The chains of a plan that was checked.
    pub(super) fn of(plan: &Plan, load: Load, family: Family) -> Result<Path> {
        let chains = |direction| -> Result<DirectionChains> {
            let RuleChainId(id) = chain_id(plan, family, direction)?;
            let word = match (direction, family) {
                (Direction::Egress, Family::V4) => "egress4",
                (Direction::Egress, Family::V6) => "egress6",
                (Direction::Ingress, Family::V4) => "ingress4",
                (Direction::Ingress, Family::V6) => "ingress6",
            };
            let policies = load.policies_of(ends(direction).0);
            Ok(DirectionChains {
                direction,
                admin: format!("{word}-{id}"),
                policies: format!("{word}-{id}-1"),
                before: (policies <= MERGE_OVER).then(|| policies.saturating_sub(1)),
            })
        };
        let directions = Direction::BOTH.map(chains);
        Ok(Path {
            directions: directions.into_iter().collect::<Result<_>>()?,
        })
    }

    /// Ensures that every flow was counted once by the rule that allows it, and by no other.
    pub(super) fn check(&self, counts: &[RuleCount], begun: Begun) -> Result<()> {
        for chains in &self.directions {
            chains.check(counts, begun).with_context(|| {
                format!("{:?} is not allowed by the last rule", chains.direction)
            })?;
        }
        Ok(())
    }
}

impl DirectionChains {
    fn check(&self, counts: &[RuleCount], begun: Begun) -> Result<()> {
        let admin = counted(counts, &self.admin);
        ensure!(
            admin.len() == ADMIN_RULES && admin.values().all(|packets| *packets == 0),
            "rules of the Admin tier counted {admin:?}"
        );
        let Begun { tcp, udp, closed } = begun;
        // What the client's side has dropped does not come to the server's.
        let dropped = match self.direction {
            Direction::Egress => closed,
            Direction::Ingress => 0,
        };
        let expected: Vec<u64> = match self.before {
            None => vec![tcp + udp, dropped],
            Some(before) => {
                let others = std::iter::repeat_n(0, before);
                others.chain([tcp, udp, dropped]).collect()
            }
        };
        let policies = counted(counts, &self.policies);
        ensure!(
            policies.values().eq(&expected),
            "rules of the policies counted {policies:?}, and {expected:?} was expected"
        );
        Ok(())
    }
}

/// The packets that the rules of a chain counted, by their places.
fn counted(counts: &[RuleCount], chain: &str) -> BTreeMap<usize, u64> {
    let of_chain = counts.iter().filter(|it| it.chain == chain);
    of_chain.map(|it| (it.rule, it.packets)).collect()
}
