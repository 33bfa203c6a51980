//! Rejects a `--port` name that no destination has, and a `-l` that selects no pod: the empty
//! answer would look like a closed cluster.

use std::collections::BTreeSet;

use anyhow::bail;
use palisade_core::analysis::connect::{Member, PortFilter};
use palisade_core::labels::{Operator, Requirement, Selector};
use palisade_core::model::{Cluster, Pod, PodId, PodPhase, ServiceId, label};
use palisade_core::net::Protocol;
use palisade_core::text::{name, nearest, ticked};

use super::filter::Filter;
use super::names::limited;

/// The most names that a message lists.
const MOST: usize = 8;

/// Fails if no destination that `to` selects has a port of a name in `ports`.
pub(crate) fn require_port_names(
    cluster: &Cluster<'_>,
    ports: &[PortFilter],
    to: &[Filter],
) -> anyhow::Result<()> {
    for port in ports {
        let PortFilter::Named(protocol, wanted) = port else {
            continue;
        };
        let names = port_names(cluster, *protocol, to);
        if names.contains(&**wanted) {
            continue;
        }
        let names: Vec<&str> = names.into_iter().collect();
        let help = match nearest(wanted, &names) {
            Some(near) => format!("; did you mean {}?", ticked(near)),
            None if names.is_empty() => {
                "; only declared container ports and ports of Services have names".to_owned()
            }
            None => format!("; they have {}", listed(&names)),
        };
        bail!(
            "no destination has a {protocol} port named {}{help}",
            ticked(wanted)
        );
    }
    Ok(())
}

/// Returns the names of the ports of the destinations.
fn port_names<'c>(
    cluster: &'c Cluster<'_>,
    protocol: Protocol,
    to: &[Filter],
) -> BTreeSet<&'c str> {
    // No pod or Service is inside a network.
    let is_destination =
        |member: Member| to.is_empty() || to.iter().any(|it| it.selects(cluster, &member, &[]));
    let pods = pods(cluster);
    // Port names of host-network pods do not resolve (D73).
    let pods = pods.filter(|(id, pod)| !pod.host_network && is_destination(Member::Pod(*id)));
    let of_pods = pods.flat_map(|(_, pod)| pod.ports.iter().map(|it| (it.protocol, it.name)));
    let services = (0..).map(ServiceId).zip(&cluster.services);
    let services = services.filter(|(id, _)| is_destination(Member::Service(*id)));
    let of_services = services.flat_map(|(_, it)| it.ports.iter().map(|it| (it.protocol, it.name)));
    let all = of_pods.chain(of_services);
    all.filter(|(its, _)| *its == protocol)
        .filter_map(|(_, name)| name)
        .collect()
}

/// Fails if no pod in the namespaces (any, if there are none) matches a selector.
pub(crate) fn require_labelled(
    cluster: &Cluster<'_>,
    (text, selector): (&str, &Selector<String>),
    namespaces: &[Filter],
) -> anyhow::Result<()> {
    let is_there = |id: &PodId| {
        let selects = |it: &Filter| it.selects(cluster, &Member::Pod(*id), &[]);
        namespaces.is_empty() || namespaces.iter().any(selects)
    };
    let matches = |selector: &Selector<String>, pod: &Pod<'_>| {
        selector.matches(|key| label(&pod.labels, key))
    };
    let mut elsewhere = None;
    for (id, pod) in pods(cluster) {
        if matches(selector, pod) {
            if is_there(&id) {
                return Ok(());
            }
            elsewhere = elsewhere.or(Some(pod.namespace));
        }
    }
    let text = ticked(text);
    if let Some(namespace) = elsewhere {
        let namespace = ticked(cluster.namespace_name(namespace));
        bail!("no pod of the namespace matches {text}; pods of {namespace} do");
    }
    let alone = |it: &&Requirement<String>| {
        let selector = Selector {
            requirements: vec![(*it).clone()],
        };
        !pods(cluster).any(|(_, pod)| matches(&selector, pod))
    };
    let help = if pods(cluster).next().is_none() {
        "; the input has no pod".to_owned()
    } else {
        match selector.requirements.iter().find(alone) {
            Some(requirement) => suggestion(cluster, requirement),
            None => "; pods match its parts, and none matches all".to_owned(),
        }
    };
    bail!("no pod matches {text}{help}");
}

/// Proposes a label for a requirement that no pod matches.
fn suggestion(cluster: &Cluster<'_>, requirement: &Requirement<String>) -> String {
    let Requirement {
        key,
        operator,
        values,
    } = requirement;
    let labels = pods(cluster).flat_map(|(_, pod)| pod.labels.iter());
    let of_key: BTreeSet<&str> = labels
        .clone()
        .filter(|(its, _)| its == key)
        .map(|(_, value)| *value)
        .collect();
    match operator {
        Operator::In | Operator::Exists if of_key.is_empty() => {
            let keys: BTreeSet<&str> = labels.map(|(key, _)| *key).collect();
            let keys: Vec<&str> = keys.into_iter().collect();
            match nearest(key, &keys) {
                Some(near) => format!("; did you mean the label {}?", ticked(near)),
                None if keys.is_empty() => "; no pod has a label".to_owned(),
                None => format!("; pods have the labels {}", listed(&keys)),
            }
        }
        Operator::In => {
            let of_key: Vec<&str> = of_key.into_iter().collect();
            match values.iter().find_map(|value| nearest(value, &of_key)) {
                Some(near) => format!("; did you mean {}?", ticked(&format!("{key}={near}"))),
                None => format!("; the values of {} are {}", ticked(key), listed(&of_key)),
            }
        }
        Operator::NotIn | Operator::Exists | Operator::DoesNotExist => String::new(),
    }
}

/// The pods that have flows.
fn pods<'c, 'm>(cluster: &'c Cluster<'m>) -> impl Iterator<Item = (PodId, &'c Pod<'m>)> + Clone {
    let pods = (0..).map(PodId).zip(&cluster.pods);
    pods.filter(|(_, pod)| pod.phase != PodPhase::Terminated)
}

fn listed(names: &[&str]) -> String {
    let names = names.iter().map(|it| name(it)).collect();
    limited(names, MOST).join(", ")
}
