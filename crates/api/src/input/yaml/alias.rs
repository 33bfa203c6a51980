//! Aliases, merge keys and duplicate keys, which need earlier nodes of the tree.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use saphyr_parser::Span as Marks;

use super::build::{Builder, Stop, key_text};
use super::{Node, Value, after};
use crate::input::Scalar;
use crate::problem::{Code, Span};
use palisade_core::text::ticked;

/// How many nodes aliases may add to a document: this many, and this many for each of its own.
const ALIAS_BUDGET: usize = 20_000;
const ALIAS_BUDGET_PER_NODE: usize = 4;

impl<'a> Builder<'a> {
    /// Takes `<<` and its value out of the tree and keeps the entries for the map's end.
    pub(super) fn merge(&mut self, key: usize) {
        let mut sources: Vec<usize> = Vec::new();
        let value = key + 1;
        match self.nodes.get(value).map(|node| &node.value) {
            Some(Value::Map(_)) => sources.push(value),
            Some(Value::Seq(end)) => {
                let end = *end as usize;
                let mut item = value + 1;
                while item + 1 < end {
                    sources.push(item);
                    item = after(&self.nodes, item);
                }
            }
            _ => sources.push(value),
        }
        let mut entries = Vec::new();
        for source in sources {
            match self.nodes.get(source).map(|node| &node.value) {
                Some(Value::Map(end)) => {
                    let inner = self
                        .nodes
                        .get(source + 1..*end as usize - 1)
                        .unwrap_or_default();
                    // Ends are absolute; they are moved when the entries are inserted.
                    entries.push((source + 1, inner.to_vec()));
                }
                _ => {
                    let span = self
                        .nodes
                        .get(key)
                        .map(|node| node.span)
                        .unwrap_or_default();
                    self.flaw(
                        Code::MergeKey,
                        span,
                        "`<<` needs a mapping, or a list of mappings",
                        Some("give it an alias of a mapping, like `<<: *defaults`"),
                    );
                }
            }
        }
        self.nodes.truncate(key);
        // An anchor inside the removed nodes is undefined from here on: other nodes take their
        // indices.
        let stays = |range: &Option<Range<usize>>| range.as_ref().is_none_or(|it| it.end <= key);
        self.anchors.retain(|_, range| stays(range));
        if let Some(frame) = self.frames.last_mut() {
            for (from, mut nodes) in entries {
                let offset = frame.merged.len();
                // Make the ends relative to the list of merged nodes.
                for node in &mut nodes {
                    shift(node, from, offset);
                }
                frame.merged.extend(nodes);
            }
        }
    }

    /// Appends merged entries whose keys the map does not have itself.
    pub(super) fn insert_merged(&mut self) -> Result<(), Stop> {
        let Some(frame) = self.frames.last_mut() else {
            return Ok(());
        };
        let merged = std::mem::take(&mut frame.merged);
        let map = frame.node;
        if merged.is_empty() {
            return Ok(());
        }
        let mut known: HashSet<Cow<'a, str>> = HashSet::new();
        let mut at = map + 1;
        while let Some(node) = self.nodes.get(at) {
            if let Value::Scalar(Scalar::Str(key)) = &node.value {
                known.insert(key.clone());
            }
            at = after(&self.nodes, at + 1);
        }
        let mut from = 0;
        while let Some(key) = merged.get(from) {
            let to = after(&merged, from + 1);
            if let Value::Scalar(Scalar::Str(name)) = &key.value
                && known.insert(name.clone())
            {
                let entry = merged.get(from..to).unwrap_or_default();
                self.spend(entry.len(), key.span)?;
                let offset = self.nodes.len();
                for node in entry {
                    let mut node = node.clone();
                    shift(&mut node, from, offset);
                    self.nodes.push(node);
                }
            }
            from = to;
        }
        Ok(())
    }

    fn spend(&mut self, n_nodes: usize, span: Span) -> Result<(), Stop> {
        self.expanded += n_nodes;
        let own = self.nodes.len().saturating_sub(self.expanded);
        if self.expanded > ALIAS_BUDGET + ALIAS_BUDGET_PER_NODE * own {
            self.flaw(
                Code::AliasBudget,
                span,
                "the aliases of this document expand to too much",
                Some("write the values out, or split the document"),
            );
            return Err(Stop);
        }
        Ok(())
    }

    pub(super) fn alias(&mut self, anchor: usize, marks: Marks) -> Result<(), Stop> {
        let span = self.span(marks);
        let Some(known) = self.anchors.get(&anchor) else {
            self.flaw(
                Code::AliasUndefined,
                span,
                "this alias names no anchor",
                Some("define the anchor before it, with `&name`"),
            );
            return Err(Stop);
        };
        let Some(range) = known.clone() else {
            self.flaw(
                Code::AliasCycle,
                span,
                "this alias is inside the value it names",
                Some("a manifest cannot contain itself"),
            );
            return Err(Stop);
        };
        self.spend(range.len(), span)?;
        if self.expects_key() {
            let node = self.nodes.get(range.start).cloned();
            let Some(Node {
                value: Value::Scalar(scalar),
                ..
            }) = node
            else {
                self.flaw(Code::YamlKey, span, "a key is a mapping or a list", None);
                return Err(Stop);
            };
            self.push_key(key_text(&scalar), span);
            return Ok(());
        }
        let offset = self.nodes.len();
        for at in range.clone() {
            if let Some(mut node) = self.nodes.get(at).cloned() {
                shift(&mut node, range.start, offset);
                self.nodes.push(node);
            }
        }
        self.value_done();
        Ok(())
    }

    /// Compares the keys of the map that ends here.
    pub(super) fn duplicate_keys(&mut self) {
        let Some(node) = self.frames.last().map(|frame| frame.node) else {
            return;
        };
        let mut keys: Vec<usize> = Vec::new();
        let mut at = node + 1;
        while at < self.nodes.len() {
            keys.push(at);
            at = after(&self.nodes, at + 1);
        }
        let name = |at: usize| match self.nodes.get(at).map(|node| &node.value) {
            Some(Value::Scalar(Scalar::Str(key))) => &**key,
            _ => "",
        };
        let mut twice: Vec<(usize, usize)> = Vec::new();
        if keys.len() <= 12 {
            for (i, &key) in keys.iter().enumerate() {
                let earlier = keys
                    .iter()
                    .take(i)
                    .find(|&&earlier| name(earlier) == name(key));
                twice.extend(earlier.map(|&earlier| (earlier, key)));
            }
        } else {
            let mut seen: HashMap<&str, usize> = HashMap::with_capacity(keys.len());
            for &key in &keys {
                match seen.get(name(key)) {
                    Some(&earlier) => twice.push((earlier, key)),
                    None => drop(seen.insert(name(key), key)),
                }
            }
        }
        for (earlier, key) in twice {
            self.set_key(key);
            let span = self
                .nodes
                .get(key)
                .map(|node| node.span)
                .unwrap_or_default();
            let key_text = ticked(name_of(&self.nodes, key));
            let message = format!("duplicate key {key_text}");
            self.flaw(
                Code::DuplicateKey,
                span,
                message,
                Some("merge the two, or remove one"),
            );
            let first = self.nodes.get(earlier).map(|node| node.span);
            if let Some(flaw) = self.flaws.last_mut() {
                flaw.first = first;
            }
        }
    }
}

/// Moves a node's end when the node is copied from index `from` to `to`.
fn shift(node: &mut Node<'_>, from: usize, to: usize) {
    match &mut node.value {
        Value::Map(end) | Value::Seq(end) => {
            *end = u32::try_from(*end as usize + to - from).unwrap_or(u32::MAX);
        }
        Value::Scalar(_) | Value::End => {}
    }
}

fn name_of<'t>(nodes: &'t [Node<'_>], at: usize) -> &'t str {
    match nodes.get(at).map(|node| &node.value) {
        Some(Value::Scalar(Scalar::Str(key))) => key,
        _ => "",
    }
}
