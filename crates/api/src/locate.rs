//! The place of a field of an object: its document is read once more, on demand.
//!
//! Objects do not keep the places of all their fields: there are millions of them, and hardly any
//! is ever shown.

use std::ops::Range;

use crate::input::json::Json;
use crate::input::{Input, ValueShape, block, yaml};
use crate::object::Object;
use crate::path::PathText;
use crate::problem::Span;
use crate::source::{Source, documents};

/// One step on the way to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathStep<'p> {
    /// Into the value of a key.
    Field(&'p str),
    /// To an item of a list.
    Index(usize),
}

/// A path as kubectl would write it: `spec.ingress[0].from[1]`. `None`: the object itself.
pub fn path_text(path: &[PathStep<'_>]) -> Option<String> {
    let mut text = PathText::default();
    for step in path {
        match step {
            PathStep::Field(name) => text.field(name),
            PathStep::Index(index) => text.index(*index),
        }
    }
    text.finish()
}

/// How the document of a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// YAML without anchors, tags and other rarities: each value is in the text once.
    Yaml,
    /// JSON.
    Json,
    /// Any other YAML: a value may be read from elsewhere in the text, or more than once.
    Other,
}

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Its key, if it is the value of one.
    pub key: Option<Span>,
    /// All of it; a list in block style starts at its first item, after the dash.
    pub value: Span,
    /// How it is written.
    pub layout: Layout,
}

/// The place of a field of an object in its source; `None` if the object does not have it.
pub fn locate(source: &Source, object: &Object<'_>, path: &[PathStep<'_>]) -> Option<Span> {
    let located = Locator::new(source).locate(object, path)?;
    Some(located.value)
}

/// Finds fields of objects of one source. Keeps the last document.
#[derive(Debug)]
pub struct Locator<'s> {
    text: &'s str,
    documents: Vec<Range<usize>>,
    read: Option<Document<'s>>,
}

impl<'s> Locator<'s> {
    /// A locator for the objects of a source.
    pub fn new(source: &'s Source) -> Locator<'s> {
        let text = source.text();
        let mark = '\u{feff}';
        let start = text.strip_prefix(mark).map_or(0, |_| mark.len_utf8());
        Locator {
            text,
            documents: documents(text, start),
            read: None,
        }
    }

    /// The place of a field of an object; `None` if the object does not have it.
    pub fn locate(&mut self, object: &Object<'_>, path: &[PathStep<'_>]) -> Option<Located> {
        let start = object.span.start;
        if let Some(json) = self.json(start as usize) {
            return followed(json, path, Layout::Json);
        }
        let at = self
            .documents
            .partition_point(|it| it.end <= start as usize);
        let range = self.documents.get(at)?.clone();
        if self.read.as_ref().is_none_or(|read| read.range != range) {
            self.read = Some(Document::read(self.text, range));
        }
        let document = self.read.as_ref()?;
        let node = document.node(start)?;
        match &document.tree {
            Tree::Block(tree) => followed(tree.cursor_at(node), path, Layout::Yaml),
            Tree::Full(tree) => {
                let mut located = followed(tree.cursor_at(node), path, Layout::Other)?;
                located.value = trimmed(self.text, located.value);
                Some(located)
            }
        }
    }

    /// A reader of the object at an offset, if it is JSON.
    fn json(&self, start: usize) -> Option<Json<'s>> {
        let starts = self.text.get(start..)?.starts_with('{');
        let json = starts.then(|| Json::new(self.text, start))?;
        let mut ahead = json.clone();
        ahead.skip();
        ahead.error().is_none().then_some(json)
    }
}

/// A document that was read again.
#[derive(Debug)]
struct Document<'s> {
    range: Range<usize>,
    tree: Tree<'s>,
    /// Where mappings start, and which node each is; sorted.
    maps: Vec<(u32, usize)>,
}

#[derive(Debug)]
enum Tree<'s> {
    Block(block::Tree<'s>),
    Full(yaml::Tree<'s>),
}

impl<'s> Document<'s> {
    fn read(text: &'s str, range: Range<usize>) -> Document<'s> {
        let tree = match block::read(text, range.clone(), usize::MAX) {
            Some(tree) => Tree::Block(tree),
            None => Tree::Full(yaml::read(text, range.clone()).0),
        };
        let mut maps: Vec<(u32, usize)> = match &tree {
            Tree::Block(tree) => tree.maps().collect(),
            Tree::Full(tree) => tree.maps().collect(),
        };
        maps.sort_unstable();
        Document { range, tree, maps }
    }

    /// The first mapping that starts at an offset.
    fn node(&self, start: u32) -> Option<usize> {
        let at = self.maps.partition_point(|(it, _)| *it < start);
        let (found, node) = self.maps.get(at)?;
        (*found == start).then_some(*node)
    }
}

/// Follows a path.
fn followed<'a>(
    mut input: impl Input<'a>,
    path: &[PathStep<'_>],
    layout: Layout,
) -> Option<Located> {
    let mut key = None;
    for step in path {
        match step {
            PathStep::Field(name) => {
                if input.shape() != ValueShape::Map {
                    return None;
                }
                input.enter();
                loop {
                    let (found, span) = input.next_key()?;
                    if found == *name {
                        key = Some(span);
                        break;
                    }
                    input.skip();
                }
            }
            PathStep::Index(index) => {
                if input.shape() != ValueShape::Seq {
                    return None;
                }
                input.enter();
                for _ in 0..*index {
                    if !input.next_item() {
                        return None;
                    }
                    input.skip();
                }
                if !input.next_item() {
                    return None;
                }
                key = None;
            }
        }
    }
    let value = match input.extent() {
        Some(value) => value,
        None => input.span(),
    };
    Some(Located { key, value, layout })
}

/// A range without white space and comments at its end: parsers notice late that a block has ended.
fn trimmed(text: &str, span: Span) -> Span {
    let mut rest = text.get(span.range()).unwrap_or_default().trim_end();
    while let Some(at) = rest.rfind('\n')
        && let Some(line) = rest.get(at..)
        && line.trim_start().starts_with('#')
    {
        rest = rest.get(..at).unwrap_or_default().trim_end();
    }
    Span::new(span.start as usize, span.start as usize + rest.len())
}
