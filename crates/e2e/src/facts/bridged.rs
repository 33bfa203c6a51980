//! Whether packets between pods of one node pass the agent's rules, by what connects the pods
//! (D103).

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::seen::{on_node, readiness};
use super::{Findings, Place};
use crate::cluster::E2eCluster;
use crate::cluster::campaign::one_way;
use crate::cluster::packets::{Echoes, differences, measured};

/// The pods of all flows.
pub const APPS: [&str; 3] = ["web", "db", "client"];
/// The times within which packets must follow a change, and the agent must report a bypass.
const SETTLED: Duration = Duration::from_secs(10);

/// Counts packets between pods of the node in the forward hook.
const COUNTER: &str = "add table inet facts; delete table inet facts; add table inet facts; \
    add chain inet facts forward { type filter hook forward priority filter - 20; }; \
    add rule inet facts forward ip saddr 10.200.1.0/24 ip daddr 10.200.1.0/24 counter";

/// Packets follow `explain` under some policies, or bypass the agent, which must report it.
pub fn bridged(whole: &E2eCluster, place: &Place, findings: &mut Findings) -> Result<()> {
    let pods = whole.start_pods(&["x"], &APPS, 1)?;
    let echoes = Echoes::start(&pods)?;
    let when = &place.name;
    on_node(whole, &format!("nft '{COUNTER}'"))?;
    let mut is_evaluated = true;
    for (name, policy) in [("one way", one_way("x")), ("isolated", isolated())] {
        whole.apply(&policy)?;
        let explained = whole.explained(&pods)?;
        let end = Instant::now() + SETTLED;
        let found = loop {
            let found = differences(&explained, &measured(&pods)?);
            if found.is_empty() || Instant::now() > end {
                break found;
            }
        };
        is_evaluated &= found.is_empty();
        let denied = explained.values().filter(|it| !**it).count();
        findings.record(format!(
            "{when}: {name}: {} flows compared, {denied} denied; {} differ from explain{}",
            explained.len(),
            found.len(),
            found
                .first()
                .map_or(String::new(), |it| format!(", as {it}"))
        ));
        whole.delete(&policy)?;
    }
    findings.expect(
        is_evaluated || place.is_bypassed,
        format!("{when}: packets follow explain: {is_evaluated}"),
    );
    findings.record(format!(
        "{when}: {} packets between pods of the node were seen in forward",
        counted(whole)?
    ));
    on_node(whole, "nft delete table inet facts")?;
    drop(echoes);
    if !is_evaluated {
        // For other reasons, too, an agent may not be ready for a moment.
        std::thread::sleep(SETTLED);
    }
    let end = Instant::now() + SETTLED;
    let (code, words) = loop {
        let status = readiness(whole)?;
        if (status.0 == 200) == is_evaluated || Instant::now() > end {
            break status;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    findings.expect(
        (code == 200) == is_evaluated,
        format!(
            "{when}: flows between pods are evaluated: {is_evaluated}; the agent's /readyz answers {code} {words:?} (D103)"
        ),
    );
    Ok(())
}

/// Denies all flows between the pods.
fn isolated() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"namespace": "x", "name": "isolated"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    })
}

/// What the rule counted.
fn counted(whole: &E2eCluster) -> Result<u64> {
    let text = on_node(whole, "nft list chain inet facts forward")?;
    let (_, rest) = text.split_once("counter packets ").context("no counters")?;
    let number = rest.split(' ').next().context("no number")?;
    Ok(number.parse()?)
}
