//! The items of a large list, read in parallel.
//!
//! A list is cut where items probably start. The first piece does start at one; if a piece that
//! starts at an item ends just where the next piece starts, that one starts at an item too. A piece
//! that ends elsewhere is read again sequentially with everything after it, and so is one whose
//! items depend on earlier ones.
//!
//! The list may end anywhere, and then its pieces were read in vain. So at most twice the bytes
//! read so far are read ahead.

use rayon::prelude::*;

use crate::input::{Input, ItemEnd, ListPiece};
use crate::manifest::SourcePart;
use crate::problem::MAX_PROBLEMS;
use crate::reader::Reader;
use crate::type_meta::List;

/// How many bytes a piece has at least. Passing it to a thread costs a few microseconds.
pub(crate) const PIECE_BYTES: usize = 1 << 18;

/// How many pieces are read at a time, at most.
const MOST_PIECES: usize = 64;

/// How the reading of a piece ended, and the input after it.
enum PieceEnd<I> {
    /// Where the next one starts.
    Next(I),
    /// At the end of the list.
    List(I),
    /// Elsewhere.
    Wrong,
}

/// How the reading of several pieces ended.
enum ReadAhead {
    /// At an item.
    Item,
    /// At the end of the list.
    End,
    /// At an item, from which sequential reading is faster.
    Stop,
    /// At the start: there are no pieces.
    Nothing,
}

impl<'a> Reader<'a> {
    /// Reads the items of the list entered last, and leaves it.
    pub(crate) fn items<I: Input<'a> + Clone + Send + Sync>(
        &self,
        input: &mut I,
        list: &List<'a, I>,
        part: &mut SourcePart<'a>,
    ) {
        let least = self.strategy.piece_bytes;
        let mut start = None;
        let mut is_ahead = least < usize::MAX && !list.is_inner;
        while input.next_item() {
            if is_ahead {
                let here = input.span().start as usize;
                let seen = here - *start.get_or_insert(here);
                if seen >= least {
                    match self.read_ahead(input, list, part, seen.saturating_mul(2)) {
                        ReadAhead::End => return,
                        ReadAhead::Item => continue,
                        ReadAhead::Stop => {
                            is_ahead = false;
                            continue;
                        }
                        ReadAhead::Nothing => is_ahead = false,
                    }
                }
            }
            self.value(input, Some(list), part);
        }
    }

    /// Reads items in parallel, up to this many bytes of them.
    fn read_ahead<I: Input<'a> + Clone + Send + Sync>(
        &self,
        input: &mut I,
        list: &List<'a, I>,
        part: &mut SourcePart<'a>,
        most: usize,
    ) -> ReadAhead {
        let least = self.strategy.piece_bytes.max(most / MOST_PIECES);
        let pieces = input.pieces(least, most);
        if pieces.is_empty() {
            return ReadAhead::Nothing;
        }
        let read: Vec<(SourcePart<'a>, PieceEnd<I>)> = pieces
            .par_iter()
            .map(|piece| self.piece(piece.clone(), list))
            .collect();
        for (piece, (found, end)) in pieces.into_iter().zip(read) {
            // The limit of problems holds for the whole document.
            let has_room = part.problems.len() + found.problems.len() < MAX_PROBLEMS;
            match end {
                PieceEnd::Next(next) if has_room => *input = next,
                PieceEnd::List(next) if has_room => {
                    *input = next;
                    part.append(found);
                    return ReadAhead::End;
                }
                PieceEnd::Next(_) | PieceEnd::List(_) | PieceEnd::Wrong => {
                    *input = piece.input;
                    return ReadAhead::Stop;
                }
            }
            part.append(found);
        }
        ReadAhead::Item
    }

    fn piece<I: Input<'a> + Clone + Send + Sync>(
        &self,
        ListPiece { mut input, next }: ListPiece<I>,
        list: &List<'a, I>,
    ) -> (SourcePart<'a>, PieceEnd<I>) {
        let mut part = SourcePart::default();
        while input.next_item() {
            self.value(&mut input, Some(list), &mut part);
            match input.reached(next) {
                ItemEnd::Inside => {}
                ItemEnd::Next => return (part, PieceEnd::Next(input)),
                ItemEnd::Beyond => return (part, PieceEnd::Wrong),
            }
        }
        let end = if input.is_broken() {
            PieceEnd::Wrong
        } else {
            PieceEnd::List(input)
        };
        (part, end)
    }
}
