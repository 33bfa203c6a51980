//! Objects of a tenant: deeply nested ones, bytes that are not UTF-8, large policies, ranges of
//! ports.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::agents::Peak;
use super::ground::{Ground, PODS, POLICIES, VICTIM};
use super::objects::{
    LARGE, Large, Limit, Shape, Subject, TENANT, deep, not_text, pod_with_fields,
    policy_with_fields, ranges,
};
use super::traffic::{flood, latencies};
use super::{AttackArgs, Findings};
use crate::cluster::pods::AGNHOST;
use crate::cluster::until;

/// How deep objects are nested.
const LEVELS: [usize; 2] = [250, 5_000];
/// Ranges per policy.
const RANGES: usize = 20_000;
/// The time for which denied packets are sent.
const FLOOD: Duration = Duration::from_secs(4);
/// The longest that an echo of the victim may take beside them, at the 99th percentile.
const SANE: Duration = Duration::from_millis(50);

/// Objects nested so deep that a parser which calls itself gives up.
pub fn nested(ground: &Ground, _: &AttackArgs, findings: &mut Findings) -> Result<()> {
    let objects = LEVELS.map(|levels| (format!("deep-{levels}"), deep(levels)));
    let served = odd(ground, &objects, findings)?;
    let levels = served.windows(5).filter(|it| *it == b"\"f:a\"").count();
    let wanted: usize = LEVELS.iter().sum();
    ensure!(
        levels >= wanted,
        "the API server serves {levels} levels only"
    );
    findings.note(format!(
        "a NetworkPolicy and a Pod nested {LEVELS:?} deep each"
    ));
    clear(ground, &objects)
}

/// Bytes that are not UTF-8 in unused fields.
pub fn bytes(ground: &Ground, _: &AttackArgs, findings: &mut Findings) -> Result<()> {
    let objects = [("bytes".to_owned(), not_text())];
    let served = odd(ground, &objects, findings)?;
    ensure!(served.contains(&0xff), "the API server serves other bytes");
    super::deleted::inherited(ground, findings)?;
    findings.note("a NetworkPolicy and a Pod with the byte 0xff in a key");
    clear(ground, &objects)
}

/// Writes a policy and a pod with each of some fields, and checks all flows and agents. Returns the
/// policies as the server sends them.
fn odd(ground: &Ground, objects: &[(String, Vec<u8>)], findings: &mut Findings) -> Result<Vec<u8>> {
    for (name, fields) in objects {
        ground.write(POLICIES, &policy_with_fields(name, fields))?;
        ground.write(PODS, &pod_with_fields(name, 1, AGNHOST, fields))?;
    }
    let served = ground
        .whole
        .cluster
        .kubectl()
        .args(["get", "--raw", POLICIES])
        .output()?;
    ground.holds("beside the objects", findings)?;
    ground.new_deny(findings)?;
    ground.restart(findings)?;
    ground.holds("after a restart beside the objects", findings)?;
    ground.new_deny(findings)?;
    Ok(served.stdout)
}

fn clear(ground: &Ground, objects: &[(String, Vec<u8>)]) -> Result<()> {
    ground.delete_policies()?;
    for (name, _) in objects {
        ground.as_tenant(&["delete", "--raw", &format!("{PODS}/{name}")])?;
    }
    until("the tenant's odd pods are deleted", || {
        let words = ["get", "pods", "-n", TENANT, "-l", "app=odd", "-o", "name"];
        Ok(ground.whole.kubectl(&words)?.trim().is_empty())
    })
}

/// Many large policies at once, in each shape.
pub fn large(ground: &Ground, args: &AttackArgs, findings: &mut Findings) -> Result<()> {
    let mut most = Peak::default();
    for shape in Shape::ALL {
        let began = Instant::now();
        for number in 0..args.policies {
            // Nearly half of them select a pod of the tenant; the others select none.
            let subject = match number * 25 % 55 < 25 {
                true => Subject::App("db"),
                false => Subject::None,
            };
            let policy = Large::new(shape, subject, Limit::Bytes(LARGE), number * 1_000);
            ground.write(POLICIES, &policy.named(&format!("large-{number}")))?;
        }
        let wrote = began.elapsed();
        ground.holds("beside the policies", findings)?;
        ground.new_deny(findings)?;
        ground.restart(findings)?;
        ground.holds("after a restart beside the policies", findings)?;
        ground.new_deny(findings)?;
        ground.look_at_agents(findings)?;
        findings.note(format!(
            "{}: {} policies of {LARGE} bytes written in {wrote:.0?}, agents took at most {} MiB of a limit of {} (with the table {})",
            shape.name(),
            args.policies,
            findings.peak.resident >> 20,
            findings.peak.limit >> 20,
            findings.peak.counted >> 20,
        ));
        ground.delete_policies()?;
        // The next shape starts with new processes, and their own peaks.
        ground.restart(findings)?;
        most = most.or(std::mem::take(&mut findings.peak));
    }
    findings.peak = most;
    Ok(())
}

/// Very many ranges of ports on a pod of the tenant, and packets that none of them allows.
pub fn many_ranges(ground: &Ground, args: &AttackArgs, findings: &mut Findings) -> Result<()> {
    let (from, to) = (ground.pod(VICTIM, "db")?, ground.pod(VICTIM, "web")?);
    let (sender, target) = (ground.pod(TENANT, "web")?, ground.pod(TENANT, "db")?);
    ground.write(POLICIES, &ranges("narrow", "db", 0, 1))?;
    let policies = args.policies.min(30);
    for is_wide in [false, true] {
        if is_wide {
            for number in 0..policies {
                let policy = ranges(&format!("wide-{number}"), "db", number + 1, RANGES);
                ground.write(POLICIES, &policy)?;
            }
            ground.holds("beside the ranges", findings)?;
            ground.new_deny(findings)?;
        }
        let idle = latencies(from, to, Duration::ZERO, || Ok(()))?.0;
        let (echoes, sent) = latencies(from, to, FLOOD, || flood(sender, target, FLOOD))?;
        let cost = FLOOD.as_secs_f64() * 1e6 / sent.max(1) as f64;
        findings.note(format!(
            "{}: an echo of the victim takes {idle}, beside {sent} denied packets to the tenant's pod ({cost:.1} us each) {echoes}",
            if is_wide {
                format!("{policies} policies of {RANGES} ranges more")
            } else {
                "one policy of one range".to_owned()
            },
        ));
        ensure!(
            echoes.at(99) < SANE && echoes.lost * 100 <= echoes.sent,
            "echoes of the victim took {echoes} beside denied packets"
        );
    }
    ground.restart(findings)?;
    ground.holds("after a restart beside the ranges", findings)?;
    ground.delete_policies()
}
