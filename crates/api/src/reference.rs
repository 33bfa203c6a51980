//! The slow ways of reading, for tests that compare the fast ones with them. Not for use.

use std::ops::Range;

use crate::input::{Input, ValueShape, block, yaml};
use crate::manifest::{Manifests, Options, read_by};
use crate::reader::ReadStrategy;
use crate::source::Source;
use crate::source::{documents, unprintable};

/// Reads sources by the full parser, and every list sequentially.
pub fn read_plainly(sources: &[Source], options: Options) -> Manifests<'_> {
    let ways = ReadStrategy {
        blocks: false,
        piece_bytes: usize::MAX,
    };
    read_by(sources, options, ways, &|_| {})
}

/// Reads sources by the fast readers, with lists cut in pieces of this many bytes.
pub fn read_in_pieces(sources: &[Source], options: Options, bytes: usize) -> Manifests<'_> {
    let ways = ReadStrategy {
        blocks: true,
        piece_bytes: bytes,
    };
    read_by(sources, options, ways, &|_| {})
}

/// The results of reading the documents of a text as block-style YAML and by the full parser.
#[derive(Debug, Default)]
pub struct Documents {
    /// How many there are, without those with characters that YAML does not allow.
    pub all: usize,
    /// How many the fast reader did not give up.
    pub followed: usize,
    /// The bytes of those that it gave up.
    pub given_up: Vec<Range<usize>>,
    /// The first difference between the two.
    pub difference: Option<String>,
}

/// Reads every document of a text as block-style YAML and by the full parser.
pub fn compare_documents(text: &str) -> Documents {
    let mut found = Documents::default();
    for range in documents(text, 0) {
        let document = text.get(range.clone()).unwrap_or_default();
        if unprintable(document).is_some() {
            continue;
        }
        found.all += 1;
        let Some(fast) = block::read(text, range.clone(), usize::MAX) else {
            found.given_up.push(range);
            continue;
        };
        found.followed += 1;
        let in_pieces = block::read(text, range.clone(), 1);
        let (full, flaws) = yaml::read(text, range.clone());
        let difference = match flaws.first() {
            Some(flaw) => Some(format!("the full parser rejects it: {}", flaw.message)),
            None if full.is_empty() || fast.is_empty() => (full.is_empty() != fast.is_empty())
                .then(|| "only one of the two is empty".to_owned()),
            None => {
                difference(&mut fast.cursor(), &mut full.cursor()).or_else(|| match &in_pieces {
                    Some(it) => difference(&mut it.cursor(), &mut full.cursor()),
                    None => Some("given up in pieces".to_owned()),
                })
            }
        };
        if let Some(difference) = difference {
            found.difference = Some(format!("{range:?}: {difference}"));
            break;
        }
    }
    found
}

/// Reads every document of a text as block-style YAML; returns how many were not given up.
pub fn follow(text: &str) -> usize {
    let documents = documents(text, 0);
    let followed = documents
        .into_iter()
        .filter(|range| block::read(text, range.clone(), usize::MAX).is_some());
    followed.count()
}

/// Where two inputs first differ.
fn difference<'a>(one: &mut impl Input<'a>, other: &mut impl Input<'a>) -> Option<String> {
    let here = (one.span(), one.shape());
    let there = (other.span(), other.shape());
    if here != there {
        return Some(format!("{here:?} and {there:?}"));
    }
    match here.1 {
        ValueShape::Map => {
            one.enter();
            other.enter();
            loop {
                let (here, there) = (one.next_key(), other.next_key());
                if here != there {
                    return Some(format!("{here:?} and {there:?}"));
                }
                here?;
                if let Some(difference) = difference(one, other) {
                    return Some(difference);
                }
            }
        }
        ValueShape::Seq => {
            one.enter();
            other.enter();
            loop {
                let (here, there) = (one.next_item(), other.next_item());
                if here != there {
                    return Some(format!("after {:?}: another item, or none", one.span()));
                }
                if !here {
                    return None;
                }
                if let Some(difference) = difference(one, other) {
                    return Some(difference);
                }
            }
        }
        ValueShape::Null
        | ValueShape::Bool
        | ValueShape::Int
        | ValueShape::Number
        | ValueShape::Str
        | ValueShape::Broken => {
            let (here, there) = (one.scalar(), other.scalar());
            (here != there).then(|| format!("{here:?} and {there:?}"))
        }
    }
}
