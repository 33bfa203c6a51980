//! Deletions: a pod whose address is reused, and a namespace whose policies are deleted before its
//! pods.

#![allow(
    clippy::indexing_slicing,
    reason = "a missing field of a value is null"
)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::ground::{Ground, PODS, VICTIM, closed, one_before, replace};
use super::objects::TENANT;
use super::{AttackArgs, Findings};
use crate::cluster::packets::connected;
use crate::cluster::pods::{Pod, object};
use crate::cluster::until;

/// The node on which addresses change hands.
const NODE: u8 = 2;
/// Attempts of the new owner of an address to use it.
const TRIES: usize = 5;
/// The namespace that is deleted.
const LEAVING: &str = "leaving";
/// So long its pod runs on.
const LINGERS: u64 = 15;

/// A pod of the tenant gets the address of a pod of the victim that had more rights.
pub fn inherited(ground: &Ground, findings: &mut Findings) -> Result<()> {
    let web = SocketAddr::new(ground.pod(VICTIM, "web")?.address, 80);
    let extra = object(VICTIM, "victim-extra", "db", NODE);
    ground.whole.apply(&extra)?;
    let before = named(ground, "victim-extra")?;
    until("a new pod of the victim has its rights", || {
        before.inside(|| connected(web))
    })?;
    ground.whole.delete(&extra)?;
    let last = ground.last_address(NODE);
    let reserved = last.with_file_name(before.address.to_string());
    until("the address is free", || Ok(!reserved.exists()))?;
    // The allocator wraps around: after some 250 pods of the tenant, this address comes again.
    replace(&last, &one_before(before.address)?)?;
    let heir = object(TENANT, "tenant-heir", "db", NODE);
    ground.write(PODS, heir.to_string().as_bytes())?;
    let after = named(ground, "tenant-heir")?;
    ensure!(
        after.address == before.address,
        "the tenant's pod got {} and not {}",
        after.address,
        before.address
    );
    for _ in 0..TRIES {
        findings.probes += 1;
        let passes = after.inside(|| connected(web))?;
        ensure!(
            !passes,
            "the tenant's pod has the rights of the pod that had its address"
        );
    }
    findings.note(format!(
        "{} of a deleted pod of the victim went to a pod of the tenant, which tried {TRIES} times to use its rights",
        after.address
    ));
    ground.whole.delete(&heir)
}

/// The pod of a name, once it runs.
fn named(ground: &Ground, name: &str) -> Result<Pod> {
    let mut found = None;
    until(&format!("{name} runs"), || {
        found = ground.whole.look()?.into_iter().find(|it| it.name == name);
        Ok(found.is_some())
    })?;
    found.context("a running pod exists")
}

/// Deletes a namespace: its policies are deleted while its pod still runs.
pub fn namespace(ground: &Ground, _: &AttackArgs, findings: &mut Findings) -> Result<()> {
    let pod = leave(ground)?;
    let to = SocketAddr::new(pod.address, 80);
    let senders = [ground.pod(TENANT, "db")?, ground.pod(TENANT, "web")?];
    let closed = || -> Result<bool> {
        let mut is_closed = true;
        for sender in senders {
            // After the end of the pod it cannot be reached.
            is_closed &= !sender.inside(|| connected(to)).unwrap_or(false);
        }
        Ok(is_closed)
    };
    until("the policy of the namespace is enforced", closed)?;
    let whole = &ground.whole;
    let policy = format!("/apis/networking.k8s.io/v1/namespaces/{LEAVING}/networkpolicies");
    whole.kubectl(&["delete", "namespace", LEAVING, "--wait=false"])?;
    let own = format!("{policy}/closed-late");
    // The namespace's own controller may have been faster.
    let _ = whole.kubectl(&["delete", "--raw", &own]);
    until("the policy is deleted", || {
        let text = whole.kubectl(&["get", "--raw", &policy])?;
        let list: Value = serde_json::from_str(&text)?;
        Ok(list["items"].as_array().is_none_or(Vec::is_empty))
    })?;
    let began = Instant::now();
    let mut probes = 0;
    while pod.network.exists() && began.elapsed() < Duration::from_secs(LINGERS * 2) {
        probes += senders.len();
        if !closed()? {
            bail!("a pod is open because its policy was deleted with its namespace");
        }
    }
    findings.probes += probes;
    ensure!(
        probes > senders.len(),
        "the pod ended before its policy was deleted"
    );
    findings.note(format!(
        "the pod ran for {:.1?} more after its policy was deleted, and {probes} connections to it were dropped",
        began.elapsed()
    ));
    whole.kubectl(&[
        "wait",
        "--for=delete",
        "--timeout=120s",
        "namespace/leaving",
    ])?;
    Ok(())
}

/// A namespace with a closed pod that takes its time to end.
fn leave(ground: &Ground) -> Result<Pod> {
    let whole = &ground.whole;
    whole
        .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEAVING}}))?;
    whole.apply(&closed(LEAVING, "late"))?;
    let mut late = object(LEAVING, "leaving-late", "late", 1);
    late["spec"]["terminationGracePeriodSeconds"] = json!(LINGERS * 2);
    let sleep = json!({"preStop": {"sleep": {"seconds": LINGERS}}});
    late["spec"]["containers"][0]["lifecycle"] = sleep;
    until("a pod was made", || whole.apply(&late).map(|()| true))?;
    named(ground, "leaving-late")
}
