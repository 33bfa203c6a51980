//! F05: the kernel refuses, or its answer is lost, at every call of every kind of update. Until the retry
//! the state is the old one or the new one; after it, the new one.

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use palisade_core::net::Family;
use palisade_lab::packet::{ProbePayload, ProbeSpec, build};
use palisade_lab::topology::Location;
use palisade_nft::faults::Fault;

use super::churn::{ChurningCluster, KINDS, Kind};
use super::matrix::{Matrix, Verdicts};
use super::objects::{Objects, Pod, pod_address};
use super::outcome::Outcome;
use super::programming::Programming;
use super::script::{ERRORS, Happens, Script};
use super::test_node::{SPARE, TestNode};

/// What can happen to a call.
fn events() -> Vec<Happens> {
    let mut events = vec![Happens::Once(Fault::Lose), Happens::FromThenOn(Fault::Lose)];
    for errno in ERRORS {
        events.push(Happens::Once(Fault::Fail(errno)));
        // Nobody is interrupted for ever.
        if errno != Errno::EINTR {
            events.push(Happens::FromThenOn(Fault::Fail(errno)));
        }
    }
    events
}

/// Lets things happen at every call of every kind of update: so many of all that can.
pub fn errors(
    name: &str,
    stage: &TestNode,
    programming: &mut dyn Programming,
    script: &Script,
    tries: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    outcome.count("leaked", 0);
    outcome.count("lost", 0);
    let mut matrix = Matrix::open(stage)?;
    let mut turn = 0;
    for kind in KINDS {
        let (old, new) = states(kind, seed);
        let [before, after] = [matrix.predicted(&old)?, matrix.predicted(&new)?];
        programming.apply(&old)?;
        script.arm(None);
        programming.apply(&new)?;
        let calls = script.calls();
        outcome.count("calls", calls);
        for call in 0..calls {
            let events = events();
            let tries = usize::try_from(tries).unwrap_or(usize::MAX);
            // Others at the next call: they have no number in common with all of them.
            turn += 7;
            let chosen = events.iter().cycle().skip(turn % events.len());
            for event in chosen.take(tries.min(events.len())).copied() {
                script.arm(None);
                programming.apply(&old).context("back to where it began")?;
                script.arm(Some((call, event)));
                let applied = programming.apply(&new);
                script.arm(None);
                outcome.count("faults", 1);
                let when = format!("with {event:?} at call {call} of {kind:?}");
                let both = narrower(&before, &after);
                let states: &[&Verdicts] = match applied {
                    Ok(()) => &[&after],
                    Err(_) => &[&before, &after, &both],
                };
                matrix.compare_with(&mut outcome, states, &when)?;
                match programming.apply(&new) {
                    Ok(()) => matrix.compare_with(&mut outcome, &[&after], &when)?,
                    Err(error) => outcome.check(false, || format!("no retry {when}: {error:#}")),
                }
            }
        }
    }
    Ok(outcome)
}

/// The objects before and after a change of one kind.
pub fn states(kind: Kind, seed: u64) -> (Objects, Objects) {
    let mut town = ChurningCluster::new(seed);
    for kind in KINDS {
        town.change_so(kind);
    }
    let old = town.objects.clone();
    town.change_so(kind);
    (old, town.objects)
}

/// What both of two states allow: what holds while both enforce.
pub fn narrower(one: &Verdicts, other: &Verdicts) -> Verdicts {
    one.iter().zip(other).map(|(a, b)| *a && *b).collect()
}

/// Sets that are full: more and more peers, then few again.
pub fn crowds(
    name: &str,
    stage: &TestNode,
    programming: &mut dyn Programming,
    most: u16,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    outcome.count("leaked", 0);
    outcome.count("lost", 0);
    let mut matrix = Matrix::open(stage)?;
    let mut town = ChurningCluster::new(0);
    for wanted in [1, most / 8, most, most / 2, 1] {
        let mut objects = town.objects.clone();
        for number in 0..wanted {
            let name = format!("crowd-{number}");
            let [high, low] = number.to_be_bytes();
            let addresses = vec![
                std::net::Ipv4Addr::new(10, 1, high, low).into(),
                std::net::Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, number).into(),
            ];
            objects.put_pod(&Pod {
                addresses,
                ..Pod::elsewhere(&name, "client", 1)
            });
        }
        programming.apply(&objects)?;
        matrix.compare(&mut outcome, &objects, &format!("with {wanted} more peers"))?;
        outcome.count("peers", wanted.into());
        town.change();
    }
    Ok(outcome)
}

/// Connection tracking is full: what is new may be lost, but nothing that is denied gets through, and
/// what runs goes on.
pub fn full_conntrack(
    name: &str,
    stage: &TestNode,
    programming: &mut dyn Programming,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    let mut town = ChurningCluster::new(0);
    for (name, place) in ["left", "right"].iter().zip(SPARE) {
        town.objects.put_pod(&Pod::at(name, "plain", place));
    }
    let mut matrix = Matrix::open(stage)?;
    let mut conntrack = stage.on_node(|| Ok(palisade_nft::Conntrack::open()?))?;
    let most = conntrack.max()?.context("the kernel has no limit")?;
    programming.apply(&town.objects)?;
    let predicted = matrix.predicted(&town.objects)?;
    fill(&mut matrix, most)?;
    let count = conntrack.count()?;
    outcome.count("connections", count.into());
    outcome.check(count >= most / 100 * 95, || {
        format!("only {count} of {most} connections were made")
    });
    let measured = matrix.measured()?;
    outcome.count("packets compared", measured.len() as u64);
    for (measured, predicted) in measured.iter().zip(&predicted) {
        let what = match (*measured, *predicted) {
            (true, false) => "leaked",
            (false, true) => "not taken",
            (true, true) => "passed",
            (false, false) => "denied",
        };
        outcome.count(what, 1);
    }
    let leaked = outcome.get("leaked");
    outcome.check(leaked == 0, || format!("{leaked} leaked"));
    conntrack.flush()?;
    Ok(outcome)
}

/// Fills connection tracking with connections of two pods that no policy is about.
fn fill(matrix: &mut Matrix, most: u32) -> Result<()> {
    let [from, to, ..] = SPARE;
    let mut packet = Vec::new();
    let ports = (7_000..u16::MAX).flat_map(|port| (1_024..u16::MAX).map(move |it| (port, it)));
    // Some more than fit, as some may end meanwhile.
    let wanted = most as usize + most as usize / 50;
    for (number, (port, source_port)) in ports.take(wanted).enumerate() {
        packet.clear();
        let draft = ProbeSpec {
            source: pod_address(from, Family::V4),
            destination: pod_address(to, Family::V4),
            carried: ProbePayload::Udp { port },
            source_port,
            id: 1,
        };
        build(&draft, &mut packet)?;
        matrix.wire().send(Location::Pod(from), &packet)?;
        if number % 256 == 0 {
            matrix.wire().drain(&mut |_, _| {})?;
        }
    }
    Ok(matrix.wire().settle(&mut |_, _| {})?)
}
