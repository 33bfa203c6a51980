//! Classes of endpoints that no policy distinguishes, and the ports between each two.

use std::collections::HashMap;

use super::ends::NamedEnds;
use super::names::{Names, kind_label};
use super::ports::{Reaches, State};

/// Endpoints of one type and one space that no policy distinguishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EndClass {
    /// The label.
    pub(crate) label: String,
    /// The space.
    pub(crate) space: usize,
    /// Its endpoints, ascending.
    pub(crate) members: Vec<u32>,
}

/// The classes, and a cell for each ordered pair of them.
#[derive(Debug, Default)]
pub(crate) struct EndClasses {
    /// The classes, space by space.
    pub(crate) list: Vec<EndClass>,
    /// The row of each class as a source.
    pub(crate) row_of: Vec<usize>,
    /// Distinct rows: for each class as a destination the index of its ports, or [`NOT_EVALUATED`].
    pub(crate) rows: Vec<Vec<i32>>,
    /// The indexes of rows.
    known: HashMap<Vec<i32>, usize>,
}

/// Not evaluated, or an endpoint and itself.
pub(crate) const NOT_EVALUATED: i32 = -1;

/// The combined state of several pairs of endpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share {
    /// The strongest state of any pair.
    pub(crate) state: State,
    /// The ordered pairs for which a port is allowed.
    pub(crate) allowed: u64,
    /// All evaluated ordered pairs.
    pub(crate) pairs: u64,
}

impl Share {
    /// Not evaluated.
    pub(crate) const NOT_EVALUATED: Share = Share {
        state: State::NotEvaluated,
        allowed: 0,
        pairs: 0,
    };

    /// Combines two shares.
    pub(crate) fn and(self, other: Share) -> Share {
        Share {
            state: self.state.max(other.state),
            allowed: self.allowed + other.allowed,
            pairs: self.pairs + other.pairs,
        }
    }
}

impl EndClasses {
    /// Sets the labels of the classes.
    pub(crate) fn name(&mut self, ends: &NamedEnds) {
        let names = Names::new(ends);
        for kind in &mut self.list {
            kind.label = kind_label(ends, &names, &kind.members);
        }
    }

    /// Adds the row of the next class.
    pub(crate) fn add_row(&mut self, row: Vec<i32>) {
        let next = self.rows.len();
        let place = *self.known.entry(row.clone()).or_insert(next);
        if place == next {
            self.rows.push(row);
        }
        self.row_of.push(place);
    }

    /// Returns the index of the ports from one class to another; `None`: not evaluated.
    pub(crate) fn cell(&self, from: usize, to: usize) -> Option<usize> {
        let row = self.rows.get(*self.row_of.get(from)?)?;
        usize::try_from(*row.get(to)?).ok()
    }

    fn size(&self, kind: usize) -> usize {
        self.list.get(kind).map_or(0, |kind| kind.members.len())
    }

    /// Returns the share of flows from one class to another.
    pub(crate) fn share(&self, reaches: &Reaches, from: usize, to: usize) -> Share {
        let Some(cell) = self.cell(from, to) else {
            return Share::NOT_EVALUATED;
        };
        let (sources, mut destinations) = (self.size(from) as u64, self.size(to) as u64);
        // A template represents several pods, and is evaluated with itself.
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

/// A row or column: a class, or all classes of a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// The label.
    pub(crate) label: String,
    /// The classes.
    pub(crate) kinds: std::ops::Range<usize>,
}

impl EndClasses {
    /// Returns one unit for each class, or for each space if there are more than `most` classes.
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

    /// Returns the share of flows from one unit to another.
    pub(crate) fn between(&self, reaches: &Reaches, from: &Unit, to: &Unit) -> Share {
        let mut share = Share::NOT_EVALUATED;
        for source in from.kinds.clone() {
            for destination in to.kinds.clone() {
                share = share.and(self.share(reaches, source, destination));
            }
        }
        share
    }
}
