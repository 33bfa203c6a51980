//! Kinds of ends that nothing tells apart, and what each may send each.

use std::collections::HashMap;

use super::ends::NamedEnds;
use super::names::{Names, kind_label};
use super::ports::{Reaches, State};

/// Ends of one sort and one namespace that nothing tells apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndClass {
    /// What it is called.
    pub(crate) label: String,
    /// Where it belongs.
    pub(crate) space: usize,
    /// Its ends, ascending.
    pub(crate) members: Vec<u32>,
}

/// The kinds, and a cell for each ordered pair of them.
#[derive(Debug, Default)]
pub(crate) struct EndClasses {
    /// The kinds, space by space.
    pub(crate) list: Vec<EndClass>,
    /// Which of the rows each kind has as a source.
    pub(crate) row_of: Vec<usize>,
    /// Distinct rows: for each kind as a destination what is said of ports, or [`UNASKED`].
    pub(crate) rows: Vec<Vec<i32>>,
    /// The places of rows.
    known: HashMap<Vec<i32>, usize>,
}

/// Nobody asked, or it is one end and itself.
pub(crate) const UNASKED: i32 = -1;

/// What some ends may send some others, together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share {
    /// The most that any of them may.
    pub(crate) state: State,
    /// The ordered pairs for which something is allowed.
    pub(crate) allowed: u64,
    /// All ordered pairs that were asked about.
    pub(crate) pairs: u64,
}

impl Share {
    /// Nobody asked.
    pub(crate) const UNASKED: Share = Share {
        state: State::Unasked,
        allowed: 0,
        pairs: 0,
    };

    /// Both together.
    pub(crate) fn and(self, other: Share) -> Share {
        Share {
            state: self.state.max(other.state),
            allowed: self.allowed + other.allowed,
            pairs: self.pairs + other.pairs,
        }
    }
}

impl EndClasses {
    /// Gives the kinds their names.
    pub(crate) fn name(&mut self, ends: &NamedEnds) {
        let names = Names::new(ends);
        for kind in &mut self.list {
            kind.label = kind_label(ends, &names, &kind.members);
        }
    }

    /// Adds the row of the next kind.
    pub(crate) fn add_row(&mut self, row: Vec<i32>) {
        let next = self.rows.len();
        let place = *self.known.entry(row.clone()).or_insert(next);
        if place == next {
            self.rows.push(row);
        }
        self.row_of.push(place);
    }

    /// What is said of ports from one kind to another; `None`: nobody asked.
    pub(crate) fn cell(&self, from: usize, to: usize) -> Option<usize> {
        let row = self.rows.get(*self.row_of.get(from)?)?;
        usize::try_from(*row.get(to)?).ok()
    }

    fn size(&self, kind: usize) -> usize {
        self.list.get(kind).map_or(0, |kind| kind.members.len())
    }

    /// What one kind may send another.
    pub(crate) fn share(&self, reaches: &Reaches, from: usize, to: usize) -> Share {
        let Some(cell) = self.cell(from, to) else {
            return Share::UNASKED;
        };
        let (sources, mut destinations) = (self.size(from) as u64, self.size(to) as u64);
        // A template stands for several pods, and is asked about itself.
        if from == to && sources > 1 {
            destinations = destinations.saturating_sub(1);
        }
        let pairs = sources * destinations;
        let state = reaches.get(cell).state();
        Share {
            state,
            allowed: if state > State::Closed { pairs } else { 0 },
            pairs,
        }
    }
}

/// What is drawn as one: a kind, or all kinds of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// What it is called.
    pub(crate) label: String,
    /// The kinds.
    pub(crate) kinds: std::ops::Range<usize>,
}

impl EndClasses {
    /// One unit for each kind, or for each space if there would be more than so many.
    pub(crate) fn units(&self, ends: &NamedEnds, most: usize) -> Vec<Unit> {
        let list = self.list.iter().enumerate();
        if self.list.len() <= most {
            let one = |(at, kind): (usize, &EndClass)| Unit {
                label: kind.label.clone(),
                kinds: at..at + 1,
            };
            return list.map(one).collect();
        }
        let mut units: Vec<Unit> = Vec::new();
        let mut last = None;
        for (at, kind) in list {
            match units.last_mut() {
                Some(unit) if last == Some(kind.space) => unit.kinds.end = at + 1,
                _ => units.push(Unit {
                    label: ends.space(kind.space).to_owned(),
                    kinds: at..at + 1,
                }),
            }
            last = Some(kind.space);
        }
        units
    }

    /// What one unit may send another.
    pub(crate) fn between(&self, reaches: &Reaches, from: &Unit, to: &Unit) -> Share {
        let mut share = Share::UNASKED;
        for source in from.kinds.clone() {
            for destination in to.kinds.clone() {
                share = share.and(self.share(reaches, source, destination));
            }
        }
        share
    }
}
