//! The benchmark's own checks: they hold at every size, and fail for plans and counts that are
//! wrong.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::sync::Arc;

use palisade_core::net::{Family, Protocol};
use palisade_core::plan::{MERGE_OVER, Plan, PortBlock, RuleChain, RuleChainId};
use palisade_core::policy::{Action, Direction};
use palisade_nft::load::RuleCount;

use super::super::cluster::{
    CLIENT, Load, PORT, SERVER, Stack, node_plan, pod_address, unmerged_plan,
};
use super::{Begun, Path, chain_id, check};

fn load(policies: usize) -> Load {
    Load {
        policies,
        stack: Stack::Dual,
    }
}

#[test]
fn policies_are_spread_over_pods() {
    // 1,010 policies for 250 pods: four for each, and five for the first ten.
    let policies = |pod| load(1_010).policies_of(pod);
    assert_eq!([0, 9, 10, 249].map(policies), [5, 5, 4, 4]);
    // Few policies are all about the client and the server.
    let policies = |pod| load(10).policies_of(pod);
    assert_eq!([CLIENT, SERVER, 2].map(policies), [5, 5, 0]);
}

/// Making a plan checks it.
#[test]
fn the_traffic_is_allowed_by_the_last_policy_at_every_size() {
    // All about two pods, one by one; some for each pod, unevenly spread; many for two pods,
    // merged.
    for (policies, stack) in [
        (10, Stack::Ipv4),
        (10, Stack::Dual),
        (1_010, Stack::Dual),
        (490, Stack::Ipv4),
    ] {
        let load = Load { policies, stack };
        node_plan(load).unwrap();
    }
    unmerged_plan(load(490)).unwrap();
}

/// Changes the server's rule chain for ingress.
fn changed(plan: &Plan, change: impl FnOnce(&mut RuleChain)) -> Plan {
    let mut plan = plan.clone();
    let id = chain_id(&plan, Family::V4, Direction::Ingress).unwrap();
    change(Arc::make_mut(plan.chains.get_mut(&id).unwrap()));
    plan
}

#[track_caller]
fn refused(plan: &Plan, load: Load, why: &str) {
    let error = check(plan, load, MERGE_OVER).unwrap_err();
    let message = format!("{error:#}");
    assert!(message.contains(why), "{message}");
}

#[test]
fn plans_that_allow_it_elsewhere_are_refused() {
    let load = load(10);
    let plan = node_plan(load).unwrap();
    let early = changed(&plan, |chain| chain.rest.reverse());
    refused(&early, load, "a policy before the last allows the traffic");
    let closed = changed(&plan, |chain| {
        Arc::make_mut(chain.rest.last_mut().unwrap()).action = Action::Deny;
    });
    refused(&closed, load, "the last policy does not allow the traffic");
    let fewer = changed(&plan, |chain| drop(chain.rest.remove(0)));
    refused(&fewer, load, "not evaluated one by one");
    let plain = changed(&plan, |chain| drop(chain.admin.pop()));
    refused(&plain, load, "the tiers around");
    let wide = changed(&plan, |chain| {
        let step = Arc::make_mut(&mut chain.admin[0]);
        (step.ports, step.peers) = (None, None);
    });
    refused(&wide, load, "the Admin tier matches the traffic");
    let mut absent = plan.clone();
    absent.pods.remove(&pod_address(7, Family::V6)).unwrap();
    refused(&absent, load, "499 addresses of pods");
}

#[test]
fn merged_plans_that_do_not_allow_it_are_refused() {
    let load = load(2_510);
    let plan = node_plan(load).unwrap();
    let key = PortBlock::single(Protocol::Udp, PORT);
    let closed = changed(&plan, |chain| {
        let group = chain.merged.of_ports.remove(&key).unwrap();
        let other = PortBlock::single(Protocol::Udp, 1);
        chain.merged.of_ports.insert(other, group);
    });
    refused(&closed, load, "no policy matches the port of the traffic");
    let others = changed(&plan, |chain| {
        let (_, other) = chain.merged.of_ports.last_key_value().unwrap();
        let other = *other;
        chain.merged.of_ports.insert(key, other);
    });
    refused(&others, load, "does not match its peer");
    let open = changed(&plan, |chain| {
        chain.merged.open[0].insert(key);
    });
    refused(&open, load, "not all merged");
}

/// What rules of the server's chains on the way in have counted, by chain and place.
fn counts(id: u32, admin: &[u64], policies: &[u64]) -> Vec<RuleCount> {
    let of_chain = |chain: String, packets: &[u64]| {
        let counts = packets.iter().enumerate().map(|(rule, packets)| RuleCount {
            table: "palisade1a".to_owned(),
            chain: chain.clone(),
            rule,
            packets: *packets,
            bytes: 0,
        });
        counts.collect::<Vec<RuleCount>>()
    };
    let admin = of_chain(format!("ingress4-{id}"), admin);
    [admin, of_chain(format!("ingress4-{id}-1"), policies)].concat()
}

#[test]
fn counts_of_other_rules_are_refused() {
    let begun = Begun {
        tcp: 3,
        udp: 5,
        closed: 1,
    };
    for (policies, right, wrong) in [
        // Five policies: the last is a rule for each of its two ports, and then everything is
        // dropped.
        (
            10,
            &[0, 0, 0, 0, 3, 5, 0][..],
            [
                &[1, 0, 0, 0, 2, 5, 0][..],
                &[0, 0, 0, 0, 3, 6, 0],
                &[0, 0, 0, 0, 5, 3, 0],
                &[0, 0, 0, 0, 3, 5, 1],
                &[0, 0, 0, 3, 5, 0],
            ],
        ),
        // One rule for all policies.
        (2_510, &[8, 0], [&[7, 0], &[9, 0], &[8, 1], &[8], &[0, 8]]),
    ] {
        let plan = node_plan(load(policies)).unwrap();
        let path = Path::of(&plan, load(policies), Family::V4).unwrap();
        let RuleChainId(id) = chain_id(&plan, Family::V4, Direction::Ingress).unwrap();
        let server = path.directions.iter();
        let server = server.filter(|it| it.direction == Direction::Ingress);
        let [server] = server.collect::<Vec<_>>()[..] else {
            unreachable!()
        };
        server.check(&counts(id, &[0; 3], right), begun).unwrap();
        for wrong in wrong {
            let counts = counts(id, &[0; 3], wrong);
            assert!(server.check(&counts, begun).is_err(), "{wrong:?}");
        }
        let of_admin = counts(id, &[0, 1, 0], right);
        assert!(server.check(&of_admin, begun).is_err());
        assert!(server.check(&[], begun).is_err());
    }
}
