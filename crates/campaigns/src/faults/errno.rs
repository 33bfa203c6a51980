//! F05: the kernel returns an error, or its response is lost, at every call of every kind of
//! update. Until the retry the state is the old or the new one; after it, the new one.

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use palisade_core::net::Family;
use palisade_lab::packet::{ProbePayload, ProbeSpec, build};
use palisade_lab::topology::Location;
use palisade_nft::faults::Fault;

use super::churn::{CHANGE_KINDS, ChangeKind, ChurningCluster};
use super::matrix::{Matrix, Verdicts};
use super::objects::{Objects, Pod, pod_address};
use super::outcome::Outcome;
use super::programmer::Programmer;
use super::script::{ERRORS, Injection, Script};
use super::test_node::{SPARE, TestNode};

/// The injections for one call.
fn injections() -> Vec<Injection> {
    let mut injections = vec![
        Injection::Once(Fault::Lose),
        Injection::FromCallOn(Fault::Lose),
    ];
    for errno in ERRORS {
        injections.push(Injection::Once(Fault::Fail(errno)));
        // EINTR does not persist.
        if errno != Errno::EINTR {
            injections.push(Injection::FromCallOn(Fault::Fail(errno)));
        }
    }
    injections
}

/// Injects up to `tries` faults at every call of every kind of update.
pub fn errors(
    name: &str,
    node: &TestNode,
    programmer: &mut dyn Programmer,
    script: &Script,
    tries: u64,
    seed: u64,
) -> Result<Outcome> {
    let mut outcome = Outcome::of_packets(name);
    let mut matrix = Matrix::open(node)?;
    let mut offset = 0;
    for kind in CHANGE_KINDS {
        let (old, new) = before_and_after(kind, seed);
        let [before, after] = [matrix.predicted(&old)?, matrix.predicted(&new)?];
        programmer.apply(&old)?;
        script.arm(None);
        programmer.apply(&new)?;
        let calls = script.calls();
        outcome.count("calls", calls);
        for call in 0..calls {
            let injections = injections();
            let tries = usize::try_from(tries).unwrap_or(usize::MAX);
            // Other injections at the next call: 7 does not divide their number.
            offset += 7;
            let chosen = injections.iter().cycle().skip(offset % injections.len());
            for injection in chosen.take(tries.min(injections.len())).copied() {
                script.arm(None);
                programmer
                    .apply(&old)
                    .context("cannot restore the old state")?;
                script.arm(Some((call, injection)));
                let applied = programmer.apply(&new);
                script.arm(None);
                outcome.count("faults", 1);
                let when = format!("with {injection:?} at call {call} of {kind:?}");
                let both = both_allow(&before, &after);
                let before_and_after: &[&Verdicts] = match applied {
                    Ok(()) => &[&after],
                    Err(_) => &[&before, &after, &both],
                };
                matrix.compare_with(&mut outcome, before_and_after, &when)?;
                match programmer.apply(&new) {
                    Ok(()) => matrix.compare_with(&mut outcome, &[&after], &when)?,
                    Err(error) => outcome.check(false, || format!("no retry {when}: {error:#}")),
                }
            }
        }
    }
    Ok(outcome)
}

/// The objects before and after a change of one kind.
pub fn before_and_after(kind: ChangeKind, seed: u64) -> (Objects, Objects) {
    let mut cluster = ChurningCluster::new(seed);
    for kind in CHANGE_KINDS {
        cluster.apply(kind);
    }
    let old = cluster.objects.clone();
    cluster.apply(kind);
    (old, cluster.objects)
}

/// The verdicts while two tables enforce: only packets that both accept pass.
pub fn both_allow(one: &Verdicts, other: &Verdicts) -> Verdicts {
    one.iter().zip(other).map(|(a, b)| *a && *b).collect()
}

/// Grows sets to their capacity and beyond, and shrinks them again.
pub fn full_sets(
    name: &str,
    node: &TestNode,
    programmer: &mut dyn Programmer,
    limit: u16,
) -> Result<Outcome> {
    let mut outcome = Outcome::of_packets(name);
    let mut matrix = Matrix::open(node)?;
    let mut cluster = ChurningCluster::new(0);
    for wanted in [1, limit / 8, limit, limit / 2, 1] {
        let mut objects = cluster.objects.clone();
        for number in 0..wanted {
            let name = format!("extra-{number}");
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
        programmer.apply(&objects)?;
        matrix.compare(&mut outcome, &objects, &format!("with {wanted} more peers"))?;
        outcome.count("peers", wanted.into());
        cluster.change();
    }
    Ok(outcome)
}

/// Fills connection tracking: new connections may be lost, but denied packets do not pass, and
/// established connections continue.
pub fn full_conntrack(
    name: &str,
    node: &TestNode,
    programmer: &mut dyn Programmer,
) -> Result<Outcome> {
    let mut outcome = Outcome::new(name);
    let mut cluster = ChurningCluster::new(0);
    for (name, place) in ["left", "right"].iter().zip(SPARE) {
        cluster.objects.put_pod(&Pod::at(name, "plain", place));
    }
    let mut matrix = Matrix::open(node)?;
    let mut conntrack = node.on_node(|| Ok(palisade_nft::Conntrack::open()?))?;
    let limit = conntrack.max()?.context("the kernel has no limit")?;
    programmer.apply(&cluster.objects)?;
    let predicted = matrix.predicted(&cluster.objects)?;
    fill(&mut matrix, limit)?;
    let count = conntrack.count()?;
    outcome.count("connections", count.into());
    outcome.check(count >= limit / 100 * 95, || {
        format!("only {count} of {limit} connections were made")
    });
    let measured = matrix.measured()?;
    outcome.count("packets compared", measured.len() as u64);
    for (measured, predicted) in measured.iter().zip(&predicted) {
        let what = match (*measured, *predicted) {
            (true, false) => "leaked",
            (false, true) => "lost",
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

/// Fills connection tracking with connections of two pods that no policy selects.
fn fill(matrix: &mut Matrix, limit: u32) -> Result<()> {
    let [from, to, ..] = SPARE;
    let mut packet = Vec::new();
    let ports = (7_000..u16::MAX).flat_map(|port| (1_024..u16::MAX).map(move |it| (port, it)));
    // More than the limit: some entries may expire meanwhile.
    let wanted = limit as usize + limit as usize / 50;
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
