//! The verdicts of all sources at one destination on each side, and the sources whose verdicts
//! differ.

use crate::analysis::connect::bits::{Words, and, and_not, has, is_empty, or, set};
use crate::analysis::connect::members::{MemberView, family_index};
use crate::analysis::connect::peers::Sources;
use crate::analysis::connect::rows::Cell;
use crate::net::Family;

/// The change of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// Denied before, allowed now.
    Gained,
    /// Allowed before, denied now.
    Lost,
    /// Different for some address that an endpoint with an unknown address could have (D83).
    Undecided,
}

/// Selects the flows to compare: all but ICMP, in any family that source and destination share; or
/// those of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FamilyFilter {
    Any,
    Only(Family),
}

/// The sources of one side by their verdicts, for each family.
#[derive(Debug)]
pub(super) struct States {
    /// Allowed for every possible address.
    allowed: [Words; 2],
    /// Allowed for some possible address.
    possible: [Words; 2],
    /// With flows of their own in the family: source and destination are known to have it.
    known: [Words; 2],
    /// With a selected family that the destination has, too.
    present: Words,
    /// With only the other family in common: they have no selected flow.
    elsewhere: Words,
}

fn each(mut make: impl FnMut(usize) -> Words) -> [Words; 2] {
    [make(0), make(1)]
}

fn both(a: &[u64], b: &[u64]) -> Words {
    let mut words = a.to_vec();
    and(&mut words, b);
    words
}

fn without(a: &[u64], b: &[u64]) -> Words {
    let mut words = a.to_vec();
    and_not(&mut words, b);
    words
}

fn either(a: &[u64], b: &[u64]) -> Words {
    let mut words = a.to_vec();
    or(&mut words, b);
    words
}

impl States {
    /// Reads the verdicts of all sources from a cell. Ingress policy does not apply to `open`.
    pub(super) fn new(
        sources: &Sources<'_>,
        destination: &MemberView<'_>,
        cell: &Cell,
        filter: FamilyFilter,
        open: Option<u32>,
    ) -> States {
        let none = || vec![0; sources.all.len()];
        let is_selected = |family: Family| match filter {
            FamilyFilter::Any => true,
            FamilyFilter::Only(only) => family == only,
        };
        let shared = |family: Family, is_included: bool| {
            let words = sources.may_have.get(family_index(family));
            match words.filter(|_| is_included && destination.may_have(family)) {
                Some(words) => words.clone(),
                None => none(),
            }
        };
        let shares = Family::BOTH.map(|family| shared(family, is_selected(family)));
        let bound = |index: usize, any: bool| {
            let allowed = cell.families.get(index).and_then(Option::as_ref);
            let words = allowed.map(|it| if any { it.any() } else { &it.all });
            let shares = shares.get(index);
            match (words, shares) {
                (Some(words), Some(shares)) => both(words, shares),
                _ => none(),
            }
        };
        let mut verdicts = Bounds {
            allowed: each(|index| bound(index, false)),
            possible: each(|index| bound(index, true)),
        };
        if let Some(key) = open {
            verdicts.open(key, &shares);
        }
        let [v4, v6] = &shares;
        let present = either(v4, v6);
        let [other4, other6] = Family::BOTH.map(|family| shared(family, !is_selected(family)));
        let elsewhere = without(&either(&other4, &other6), &present);
        let unknown = if destination.is_unknown {
            present.clone()
        } else {
            both(&sources.unknown_words, &present)
        };
        if !is_empty(&unknown) {
            verdicts.join_families(&unknown, &shares, &present);
        }
        verdicts.fill_missing_families(&unknown, &shares, &present);
        let known = |index: usize| {
            let shares = shares.get(index);
            shares.map_or_else(none, |it| without(it, &unknown))
        };
        States {
            allowed: verdicts.allowed,
            possible: verdicts.possible,
            known: each(known),
            present,
            elsewhere,
        }
    }
}

/// The sources that are allowed for every and for some possible address, for each family.
struct Bounds {
    allowed: [Words; 2],
    possible: [Words; 2],
}

impl Bounds {
    /// Allows a source in the families that it shares.
    fn open(&mut self, key: u32, shares: &[Words; 2]) {
        let words = self.allowed.iter_mut().chain(&mut self.possible);
        for (words, shares) in words.zip(shares.iter().cycle()) {
            if has(shares, key) {
                set(words, key);
            }
        }
    }

    /// Gives sources of which an address is unknown one state for both families.
    fn join_families(&mut self, unknown: &Words, [v4, v6]: &[Words; 2], present: &Words) {
        // An unknown address can be of either family: the source is allowed if both families allow
        // it, and possible if one does. A family that it does not share does not count.
        let open = |words: &Words, shares: &Words| either(words, &without(present, shares));
        let [allowed4, allowed6] = &self.allowed;
        let all = both(&open(allowed4, v4), &open(allowed6, v6));
        let [possible4, possible6] = &self.possible;
        let any = either(possible4, possible6);
        let settle = |words: &mut Words, by: &Words| {
            and_not(words, unknown);
            or(words, &both(by, unknown));
        };
        self.allowed.iter_mut().for_each(|it| settle(it, &all));
        self.possible.iter_mut().for_each(|it| settle(it, &any));
    }

    /// Gives sources with flows in one family the state of that family in both.
    fn fill_missing_families(&mut self, unknown: &Words, shares: &[Words; 2], present: &Words) {
        // Such a source then differs in both families or in none, and output names no family.
        for (index, other) in [(0, 1), (1, 0)] {
            let lacks = shares.get(index).map(|shares| without(present, shares));
            let Some(lacks) = lacks.map(|it| without(&it, unknown)) else {
                continue;
            };
            for words in [&mut self.allowed, &mut self.possible] {
                let from = words.get(other).map(|it| both(it, &lacks));
                if let (Some(words), Some(from)) = (words.get_mut(index), from) {
                    or(words, &from);
                }
            }
        }
    }
}

/// Sources whose verdicts differ, in one family or in all that they have.
#[derive(Clone, Debug)]
pub(super) struct ChangedSources {
    pub(super) kind: ChangeKind,
    pub(super) family: Option<Family>,
    pub(super) sources: Words,
    /// Whether both sides depend on an address: single flows must be compared.
    pub(super) is_doubtful: bool,
}

/// Returns the sources whose verdicts differ between two sides.
pub(super) fn changed(old: &States, new: &States) -> Vec<ChangedSources> {
    let get = |words: &[Words; 2], index: usize| words.get(index).cloned().unwrap_or_default();
    let elsewhere = either(&old.elsewhere, &new.elsewhere);
    // A side on which a source shares only the other family has no selected flow. That is not a
    // denial, so there is nothing to compare.
    let mut relevant = each(|index| {
        let known = either(&get(&old.known, index), &get(&new.known, index));
        without(&known, &elsewhere)
    });
    // Sources without a known address on either side have one state for both families: they are
    // compared in one.
    let [v4, v6] = &mut relevant;
    let rest = without(&either(&old.present, &new.present), &either(v4, v6));
    or(v4, &without(&rest, &elsewhere));
    let differs = |index: usize| {
        let (old_all, old_any) = (get(&old.allowed, index), get(&old.possible, index));
        let (new_all, new_any) = (get(&new.allowed, index), get(&new.possible, index));
        let old_depends = without(&old_any, &old_all);
        let new_depends = without(&new_any, &new_all);
        let mut one_depends = either(&old_depends, &new_depends);
        let both_depend = both(&old_depends, &new_depends);
        and_not(&mut one_depends, &both_depend);
        // Gained and lost hold for every address: the lower bound of one side is compared with the
        // upper bound of the other.
        let relevant = get(&relevant, index);
        [
            (ChangeKind::Gained, false, without(&new_all, &old_any)),
            (ChangeKind::Lost, false, without(&old_all, &new_any)),
            (ChangeKind::Undecided, false, one_depends),
            (ChangeKind::Undecided, true, both_depend),
        ]
        .map(|(kind, is_doubtful, words)| (kind, is_doubtful, both(&words, &relevant)))
    };
    let of_v4 = differs(0);
    let of_v6 = differs(1);
    let [v4, v6] = &relevant;
    let mut found = Vec::new();
    for ((kind, is_doubtful, mine), (_, _, its)) in of_v4.into_iter().zip(of_v6) {
        let mut in_all = both(&mine, &its);
        or(&mut in_all, &without(&mine, v6));
        or(&mut in_all, &without(&its, v4));
        let only_v4 = without(&mine, &in_all);
        let only_v6 = without(&its, &in_all);
        for (family, sources) in [
            (None, in_all),
            (Some(Family::V4), only_v4),
            (Some(Family::V6), only_v6),
        ] {
            if !is_empty(&sources) {
                found.push(ChangedSources {
                    kind,
                    family,
                    sources,
                    is_doubtful,
                });
            }
        }
    }
    found
}
