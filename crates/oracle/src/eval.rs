//! The walk of section 1.1: Admin, NetworkPolicy, Baseline, default.

use crate::admin::{self, Kind, Ordered, Subject, Tier};
use crate::budget;
use crate::cidr;
use crate::early::{self, DefaultPolicy};
use crate::json::{Bad, Map, Res, field, opt_list, opt_text};
use crate::netpol::{self, NetPol};
use crate::rule::{self, Action, Direction, Flow, domain_name};
use crate::service::{Service, Slice};
use crate::world::{Meta, Pod, World};
use crate::{Reason, Side, SideVerdict};
use serde_json::Value;
use std::collections::HashMap;
use std::net::IpAddr;

/// A cluster that answers flow queries.
#[derive(Clone, Debug)]
pub struct Oracle {
    pub(crate) world: World,
    admin: Vec<Ordered>,
    netpol: Vec<NetPol>,
    baseline: Vec<Ordered>,
    default: Vec<DefaultPolicy>,
    /// D136: addresses that represent all that a pod without one could have.
    pub(crate) candidates: Vec<IpAddr>,
}

/// The kind of an object, by its full apiVersion (2.6: never by kind alone).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Form {
    Namespace,
    Pod,
    Node,
    Service,
    Slice,
    Workload(&'static str),
    NetPol,
    NetPol0,
    Admin(u8),
    Cluster0,
    Default0,
}

fn form(api: &str, kind: &str) -> Option<Form> {
    Some(match (api, kind) {
        ("v1", "Namespace") => Form::Namespace,
        ("v1", "Pod") => Form::Pod,
        ("v1", "Node") => Form::Node,
        ("v1", "Service") => Form::Service,
        ("discovery.k8s.io/v1" | "discovery.k8s.io/v1beta1", "EndpointSlice") => Form::Slice,
        ("apps/v1", "Deployment") => Form::Workload("deploy"),
        ("apps/v1", "StatefulSet") => Form::Workload("sts"),
        ("apps/v1", "DaemonSet") => Form::Workload("ds"),
        ("apps/v1", "ReplicaSet") => Form::Workload("rs"),
        ("v1", "ReplicationController") => Form::Workload("rc"),
        ("batch/v1", "Job") => Form::Workload("job"),
        ("batch/v1" | "batch/v1beta1", "CronJob") => Form::Workload("cronjob"),
        ("networking.k8s.io/v1", "NetworkPolicy") => Form::NetPol,
        // D72.
        ("v1beta" | "extensions/v1beta1", "NetworkPolicy") => Form::NetPol0,
        ("policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy") => Form::Admin(0),
        ("policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy") => Form::Admin(1),
        ("policy.networking.k8s.io/v1alpha1", "BaselineAdminNetworkPolicy") => Form::Admin(2),
        ("networking.k8s.io/v1alpha1", "ClusterNetworkPolicy") => Form::Cluster0,
        ("networking.k8s.io/v1alpha1", "DefaultNetworkPolicy") => Form::Default0,
        _ => return None,
    })
}

fn flatten<'a>(v: &'a Value, out: &mut Vec<&'a Map>) {
    let Some(map) = v.as_object() else { return };
    if v.get("kind").and_then(Value::as_str) == Some("List") {
        for i in opt_list(map, "items").ok().flatten().into_iter().flatten() {
            flatten(i, out);
        }
    } else {
        out.push(map);
    }
}

impl Oracle {
    /// Reads a cluster: Kubernetes objects of any kind and API version as raw JSON, defective ones
    /// too, and addresses learned from DNS.
    pub fn new(objects: &[Value], dns: &[(String, IpAddr)]) -> Self {
        Self::within(100_000, objects, dns)
    }

    /// The same, with a budget of entries for the NetworkPolicies of each namespace (D148).
    pub fn within(budget: u64, objects: &[Value], dns: &[(String, IpAddr)]) -> Self {
        let mut flat = Vec::new();
        for v in objects {
            flatten(v, &mut flat);
        }
        // Of duplicate objects the later one counts.
        let mut last: HashMap<(Form, String, String), (Meta, &Map)> = HashMap::new();
        for map in flat {
            let read = |map: &Map| -> Res<(Form, Meta)> {
                let api = opt_text(map, "apiVersion")?.ok_or(Bad)?;
                let kind = opt_text(map, "kind")?.ok_or(Bad)?;
                Ok((form(api, kind).ok_or(Bad)?, Meta::read(map)?))
            };
            if let Ok((form, mut meta)) = read(map) {
                if matches!(
                    form,
                    Form::Namespace | Form::Node | Form::Admin(_) | Form::Cluster0 | Form::Default0
                ) {
                    meta.namespace.clear();
                }
                let key = (form, meta.namespace.clone(), meta.name.clone());
                last.insert(key, (meta, map));
            }
        }
        let mut all: Vec<(Form, Meta, &Map)> = last
            .into_iter()
            .map(|((f, _, _), (m, o))| (f, m, o))
            .collect();
        all.sort_by(|a, b| (&a.1.namespace, &a.1.name).cmp(&(&b.1.namespace, &b.1.name)));
        let mut oracle = Self {
            world: World::default(),
            admin: Vec::new(),
            netpol: Vec::new(),
            baseline: Vec::new(),
            default: Vec::new(),
            candidates: Vec::new(),
        };
        let mut isolated = Vec::new();
        for (form, meta, _) in &all {
            if *form == Form::Namespace {
                oracle.world.add_namespace(&meta.name, &meta.labels);
                if netpol::isolated(&meta.annotations) {
                    // D69: the namespace itself isolates.
                    oracle.netpol.push(netpol::isolation(&meta.name));
                    isolated.push(meta.name.clone());
                }
            }
        }
        for (form, meta, map) in &all {
            // D123: an object with a wrong type outside rules and subject is skipped.
            let _ = oracle.add(*form, meta, map, &isolated);
        }
        oracle.world.dns = dns
            .iter()
            .map(|(n, a)| (domain_name(n), cidr::fold(*a)))
            .collect();
        budget::apply(&mut oracle.netpol, budget);
        oracle.finish();
        oracle
    }

    fn add(&mut self, form: Form, meta: &Meta, map: &Map, isolated: &[String]) -> Res<()> {
        // A dry run decides nothing.
        let key = "palisade.dev/enforcement";
        let policy = matches!(
            form,
            Form::NetPol | Form::NetPol0 | Form::Admin(_) | Form::Cluster0 | Form::Default0
        );
        if policy
            && meta
                .annotations
                .iter()
                .any(|(k, v)| k == key && v == "audit")
        {
            return Ok(());
        }
        match form {
            Form::Namespace => {}
            Form::Pod => self.world.add_pod(meta, map)?,
            Form::Node => self.world.add_node(meta, map)?,
            Form::Service => self.world.services.push(Service::read(meta, map)?),
            Form::Slice => self.world.slices.push(Slice::read(meta, map)?),
            Form::Workload(kind) => self.world.add_workload(kind, meta, map)?,
            Form::NetPol => {
                let mut policy = netpol::read(&meta.namespace, &meta.name, map)?;
                policy.created.clone_from(&meta.created);
                self.netpol.push(policy);
            }
            Form::NetPol0 => {
                // D69: dropped where the namespace is not isolated.
                if isolated.contains(&meta.namespace) {
                    let extensions =
                        field(map, "apiVersion").and_then(Value::as_str) != Some("v1beta");
                    let mut policy =
                        netpol::read_2016(&meta.namespace, &meta.name, map, extensions)?;
                    policy.created.clone_from(&meta.created);
                    self.netpol.push(policy);
                }
            }
            Form::Admin(kind) => {
                let kind = match kind {
                    0 => Kind::Cnp,
                    1 => Kind::Anp,
                    _ => Kind::Banp,
                };
                let policy = admin::read(kind, &meta.name, &meta.uid, map)?;
                match policy.tier {
                    Tier::Admin => self.admin.push(policy),
                    Tier::Baseline => self.baseline.push(policy),
                }
            }
            Form::Cluster0 => self
                .admin
                .extend(early::read_cluster(&meta.name, &meta.uid, map)?),
            Form::Default0 => self.default.push(early::read_default(&meta.name, map)?),
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.world.finish();
        // 1.2: the order inside the tiers; D137: namespace and name.
        self.admin.sort_by(|a, b| a.key.cmp(&b.key));
        self.baseline.sort_by(|a, b| a.key.cmp(&b.key));
        self.netpol
            .sort_by(|a, b| (&a.namespace, &a.name, &a.id).cmp(&(&b.namespace, &b.name, &b.id)));
        self.default.sort_by(|a, b| a.name.cmp(&b.name));
        let mut nets = Vec::new();
        for p in self.admin.iter().chain(&self.baseline) {
            for r in p.ingress.iter().chain(&p.egress) {
                rule::blocks(&r.what, &mut nets);
            }
        }
        for p in &self.netpol {
            for (_, m) in p.ingress.rules.iter().chain(&p.egress.rules) {
                rule::blocks(m, &mut nets);
            }
        }
        for p in &self.default {
            for (_, m) in p.ingress.rules.iter().chain(&p.egress.rules) {
                rule::blocks(m, &mut nets);
            }
        }
        let learned: Vec<IpAddr> = self.world.dns.iter().map(|(_, a)| *a).collect();
        self.candidates = cidr::representatives(&nets, &learned);
    }

    fn selects(&self, subject: Option<&Subject>, pod: &Pod) -> bool {
        // D20: an invalid subject selects no pod. D48: host-network pods never come here.
        subject.is_some_and(|s| {
            s.pods.matches(&pod.labels)
                && s.namespaces
                    .matches(&self.world.namespaces[pod.namespace].labels)
        })
    }

    /// `eval(dir, subject, peer)` of section 1.1.
    pub(crate) fn eval(&self, direction: Direction, flow: &Flow<'_>) -> Side {
        // 1 ADMIN. Pass or no match continues (D10).
        if let Some(Some(side)) = self.tier(&self.admin, Reason::AdminRule, direction, flow) {
            return side;
        }
        // 2 NETPOL, per direction (D12); terminal (D11).
        let isolating: Vec<&NetPol> = self
            .netpol
            .iter()
            .filter(|p| {
                p.side(direction).isolates
                    && p.namespace == self.world.namespaces[flow.subject.namespace].name
                    && p.pods
                        .as_ref()
                        .is_some_and(|s| s.matches(&flow.subject.labels))
            })
            .collect();
        if !isolating.is_empty() {
            let with_few = with_few_names(direction, flow);
            let target = with_few.as_ref().or(flow.target);
            let flow = &Flow { target, ..*flow };
            // D137: the rule with the smallest namespace, name, index.
            for p in &isolating {
                for (id, what) in &p.side(direction).rules {
                    if what.matches(&self.world, flow) {
                        return decided(true, Reason::NetworkPolicyRule, id, &p.id);
                    }
                }
            }
            let ids = isolating.iter().map(|p| p.id.clone());
            return isolation(Reason::Isolation, ids.collect());
        }
        // 3 BASELINE: CNP and BANP by effective priority, then the DNP group at 1002 (1.2, D62).
        let split = self.baseline.partition_point(|p| p.key.1 <= 1002);
        let (before, after) = self.baseline.split_at(split);
        match self.tier(before, Reason::BaselineRule, direction, flow) {
            Some(Some(side)) => return side,
            // D62: a Baseline Pass skips the DNP group.
            Some(None) => return default(),
            None => {}
        }
        let isolating: Vec<&DefaultPolicy> = self
            .default
            .iter()
            .filter(|p| {
                p.side(direction).isolates && self.selects(p.subject.as_ref(), flow.subject)
            })
            .collect();
        if !isolating.is_empty() {
            for p in &isolating {
                for (id, what) in &p.side(direction).rules {
                    if what.matches(&self.world, flow) {
                        return decided(true, Reason::BaselineRule, id, &p.id);
                    }
                }
            }
            let ids = isolating.iter().map(|p| p.id.clone());
            return isolation(Reason::DefaultIsolation, ids.collect());
        }
        if let Some(Some(side)) = self.tier(after, Reason::BaselineRule, direction, flow) {
            return side;
        }
        // 4 DEFAULT.
        default()
    }

    /// The first matching rule of a tier: `Some(None)` is Pass, `None` no match.
    fn tier(
        &self,
        policies: &[Ordered],
        reason: Reason,
        direction: Direction,
        flow: &Flow<'_>,
    ) -> Option<Option<Side>> {
        for p in policies {
            if !self.selects(p.subject.as_ref(), flow.subject) {
                continue;
            }
            for r in p.rules(direction) {
                if r.what.matches(&self.world, flow) {
                    return Some(match r.action {
                        Action::Accept => Some(decided(true, reason, &r.id, &p.id)),
                        Action::Deny => Some(decided(false, reason, &r.id, &p.id)),
                        Action::Pass => None,
                    });
                }
            }
        }
        None
    }
}

/// docs/reference/model.md ("Budgets"): in ingress rules of NetworkPolicies, names of too many
/// ports match none.
fn with_few_names(direction: Direction, flow: &Flow<'_>) -> Option<Pod> {
    let target = flow.target.filter(|_| direction == Direction::Ingress)?;
    let mut pod = target.clone();
    pod.ports.retain(|p| p.counts);
    Some(pod)
}

fn decided(allow: bool, reason: Reason, rule: &str, policy: &str) -> Side {
    Side {
        verdict: if allow {
            SideVerdict::Allow
        } else {
            SideVerdict::Deny
        },
        reason: Some(reason),
        detail: None,
        rule: Some(rule.to_owned()),
        policies: vec![policy.to_owned()],
    }
}

fn isolation(reason: Reason, mut policies: Vec<String>) -> Side {
    policies.sort();
    Side {
        verdict: SideVerdict::Deny,
        reason: Some(reason),
        detail: None,
        rule: None,
        policies,
    }
}

fn default() -> Side {
    Side {
        verdict: SideVerdict::Allow,
        reason: Some(Reason::Default),
        detail: None,
        rule: None,
        policies: Vec::new(),
    }
}
