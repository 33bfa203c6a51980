//! Policies that `--lenient` continues without, beside the answers that they could change.

use std::collections::BTreeSet;

use palisade_api::Unread;
use palisade_core::EndName;
use palisade_core::answer::FlowAnswer;
use palisade_core::decide::Identity;
use palisade_core::model::Cluster;
use palisade_core::policy::Direction;

use super::flow::NamedFlow;
use crate::draw::clean;

/// The most policies that a text names.
const MOST: usize = 5;

/// An unreadable policy, or an unreadable document that may be one, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadObject {
    /// What it is.
    pub unread: Unread,
    /// The name of the source.
    pub file: String,
    /// The line of the problem.
    pub line: usize,
}

impl UnreadObject {
    /// Describes the object and its problem.
    fn text(&self) -> String {
        let UnreadObject { unread, file, line } = self;
        let what = unread.object.as_deref().unwrap_or("a document");
        let message = &unread.problem.message;
        clean(&format!("{what} has no effect: {message} ({file}:{line})"))
    }
}

/// An unreadable policy that could select an end of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadAtFlow<'t> {
    /// The policy.
    pub object: &'t UnreadObject,
    /// The ends.
    pub ends: BTreeSet<String>,
}

impl<'t> UnreadAtFlow<'t> {
    /// Returns those that could select an end of the flows; `queried` has the names of the ends.
    pub fn of_flows(
        all: &'t [UnreadObject],
        cluster: &Cluster<'_>,
        queried: &NamedFlow,
        flows: &[FlowAnswer],
    ) -> Vec<UnreadAtFlow<'t>> {
        let at_flow = all.iter().map(|object| {
            let could_select = |direction| {
                let ends = flows.iter().map(move |it| match direction {
                    Direction::Egress => (it.source, it.flow.source.identity),
                    Direction::Ingress => (it.destination, it.flow.destination.identity),
                });
                let ends = ends.filter(|(_, identity)| match identity {
                    Identity::Pod(id) => cluster.pods.get(id.0 as usize).is_some_and(|pod| {
                        let namespace = cluster.namespace_name(pod.namespace);
                        object.unread.could_select(direction, namespace)
                    }),
                    Identity::Node(_) | Identity::External => false,
                });
                let ends: BTreeSet<EndName> = ends.map(|(name, _)| name).collect();
                (ends, direction)
            };
            let ends = Direction::BOTH.map(could_select).into_iter();
            let ends = ends.filter_map(|(ends, direction)| {
                let name = ends.first()?;
                Some(match direction {
                    _ if ends.len() == 1 => name.text(cluster),
                    Direction::Egress => queried.source.clone(),
                    Direction::Ingress => queried.destination.clone(),
                })
            });
            UnreadAtFlow {
                object,
                ends: ends.collect(),
            }
        });
        at_flow.filter(|it| !it.ends.is_empty()).collect()
    }

    /// Joins those of several flows.
    pub fn joined<'i>(all: impl IntoIterator<Item = &'i UnreadAtFlow<'t>>) -> Vec<UnreadAtFlow<'t>>
    where
        't: 'i,
    {
        let mut joined: Vec<UnreadAtFlow<'t>> = Vec::new();
        for it in all {
            let known = joined.iter_mut();
            match known
                .into_iter()
                .find(|its| std::ptr::eq(its.object, it.object))
            {
                Some(known) => known.ends.extend(it.ends.iter().cloned()),
                None => joined.push(it.clone()),
            }
        }
        joined
    }

    /// Formats the notes beside a verdict, one a line.
    pub fn notes(all: &[UnreadAtFlow<'_>]) -> Vec<String> {
        let named = all.iter().take(MOST).map(|it| {
            let ends: Vec<String> = it.ends.iter().map(|end| clean(end)).collect();
            // Without its identity it may be anything.
            let condition = match it.object.unread.object {
                Some(_) => "",
                None => "if it is a policy, ",
            };
            let text = it.object.text();
            format!("{text}; {condition}it could select {}", ends.join(" and "))
        });
        let mut notes: Vec<String> = named.collect();
        if all.len() > MOST {
            let more = all.len() - MOST;
            notes.push(format!(
                "{more} more have no effect; `palisade check` shows their problems"
            ));
        }
        notes
    }
}

/// Formats unreadable policies in one line; `None`: there are none.
pub fn line(all: &[UnreadObject]) -> Option<String> {
    let (first, others) = all.split_first()?;
    if others.is_empty() {
        return Some(format!("{}; the answer ignores it", first.text()));
    }
    let named = all.iter().take(MOST).map(|it| {
        let what = it.unread.object.as_deref().unwrap_or("a document");
        clean(&format!("{what} ({}:{})", it.file, it.line))
    });
    let mut named: Vec<String> = named.collect();
    if all.len() > MOST {
        named.push(format!("{} more", all.len() - MOST));
    }
    Some(format!(
        "{} policies or documents have no effect, and the answer ignores them: {}",
        all.len(),
        named.join(", ")
    ))
}
