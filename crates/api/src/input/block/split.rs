//! A long list of objects, as `kubectl get -o yaml` prints it, scanned side by side.
//!
//! The dashes of the items are in one column, and nothing inside an item can be that far to the
//! left. So every line with a dash in that column starts an item, unless it is inside a scalar: the
//! scanner of the piece before then does not end there, or gives up.

use std::ops::Range;

use memchr::memmem;
use rayon::prelude::*;

use super::Node;
use super::scan::Scan;
use crate::input::bytes::spaces;

/// How many pieces a list has at most.
const MOST: usize = 256;

/// Where items of a list start, and in which column.
struct Cuts {
    column: usize,
    at: Vec<usize>,
}

/// Scans a document whose `items` are a long list. `None` also if there is no such list, or if it
/// is too short for pieces of this many bytes.
pub(super) fn scan(text: &str, range: &Range<usize>, least: usize) -> Option<Vec<Node>> {
    let document = text.as_bytes().get(range.clone())?;
    let Cuts { column, at } = cuts(document, range.start, least)?;
    let mut scan = Scan::new(text, range.clone())?;
    scan.up_to(*at.first()?)?;
    scan.at_item(column)?;
    let up_to_end = text.get(..range.end)?;
    let pieces: Vec<&[usize]> = at.windows(2).collect();
    let pieces: Vec<Option<Vec<Node>>> = pieces
        .into_par_iter()
        .map(|piece| match *piece {
            [start, end] => Scan::piece(up_to_end, start..end, column),
            _ => None,
        })
        .collect();
    for piece in pieces {
        scan.append(&piece?);
    }
    scan.go_on_at(*at.last()?);
    scan.finish()
}

fn cuts(document: &[u8], start: usize, least: usize) -> Option<Cuts> {
    if document.len() / 4 < least {
        return None;
    }
    const ITEMS: &[u8] = b"\nitems:\n";
    let list = memmem::find(document, ITEMS)? + ITEMS.len();
    let column = spaces(document.get(list..)?);
    let size = least.max(document.len() / MOST).max(1);
    let mut separator = vec![b'\n'];
    separator.extend(std::iter::repeat_n(b' ', column));
    separator.extend(b"- ");
    let finder = memmem::Finder::new(&separator);
    let mut at = Vec::new();
    let mut next = list + size;
    while let Some(found) = document.get(next..).and_then(|rest| finder.find(rest)) {
        at.push(start + next + found + 1);
        next += found + 1 + size;
    }
    (at.len() > 1).then_some(Cuts { column, at })
}
