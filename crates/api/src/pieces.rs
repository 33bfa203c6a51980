//! The items of a large list, read side by side.
//!
//! A list is cut where items probably start. The first piece does start at one; if a piece that starts
//! at an item ends just where the next piece starts, that one starts at an item too. So either all
//! cuts were right, or the list is read again in one go, as also if there is anything that the items
//! would have to know of each other.

use rayon::prelude::*;

use crate::input::{Input, Piece, Reached};
use crate::manifest::Part;
use crate::problem::MAX_PROBLEMS;
use crate::reader::Reader;
use crate::type_meta::List;

/// How many bytes a piece has at least. Handing it to a thread costs a few microseconds.
pub(crate) const PIECE_BYTES: usize = 1 << 19;

/// How the reading of a piece ended.
enum End<I> {
    /// Where the next one starts.
    Next,
    /// At the end of the list.
    List(Box<I>),
    /// Elsewhere.
    Wrong,
}

impl<'a> Reader<'a> {
    /// Reads the items of the list entered last side by side, and leaves it. `None` if they have to
    /// be read one after another; then nothing has happened.
    pub(crate) fn side_by_side<I: Input<'a> + Clone + Send + Sync>(
        &self,
        input: &mut I,
        list: &List<'a, I>,
        found_before: usize,
    ) -> Option<Vec<Part<'a>>> {
        if self.ways.piece_bytes == usize::MAX {
            return None;
        }
        let pieces = input.pieces(self.ways.piece_bytes);
        if pieces.len() < 2 {
            return None;
        }
        let read: Vec<(Part<'a>, End<I>)> = pieces
            .into_par_iter()
            .map(|piece| self.piece(piece, list))
            .collect();
        let mut parts = Vec::with_capacity(read.len());
        let mut n_problems = found_before;
        for (part, end) in read {
            n_problems += part.problems.len();
            // How many problems are kept is limited for the whole document.
            if n_problems >= MAX_PROBLEMS {
                return None;
            }
            parts.push(part);
            match end {
                End::Next => {}
                End::Wrong => return None,
                End::List(end) => {
                    *input = *end;
                    return Some(parts);
                }
            }
        }
        None
    }

    fn piece<I: Input<'a> + Clone + Send + Sync>(
        &self,
        Piece { mut input, next }: Piece<I>,
        list: &List<'a, I>,
    ) -> (Part<'a>, End<I>) {
        let mut part = Part::default();
        while input.next_item() {
            self.value(&mut input, Some(list), &mut part);
            match input.reached(next) {
                Reached::Inside => {}
                Reached::Next => return (part, End::Next),
                Reached::Beyond => return (part, End::Wrong),
            }
        }
        let end = if input.is_broken() {
            End::Wrong
        } else {
            End::List(Box::new(input))
        };
        (part, end)
    }
}
