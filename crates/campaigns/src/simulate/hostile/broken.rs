//! The ways in which an answer can be broken.

use palisade_kube::reflector::NextAction;

use palisade_generate::Rng;

/// What happens to one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    Not,
    Refused,
    Failed,
    NotFoundOnce,
    CutInside,
    CutBetween,
    Deeper,
    Larger,
    NotText,
    Reordered,
    Repeated,
    Unreadable,
    Unnamed,
    OtherKind,
    NoList,
    SameToken,
    OddVersion,
    Garbage,
    TooOldInside,
    GoneOfAnotherKind,
}

const LIST: [Broken; 14] = [
    Broken::Refused,
    Broken::Failed,
    Broken::CutInside,
    Broken::CutBetween,
    Broken::Deeper,
    Broken::Larger,
    Broken::NotText,
    Broken::Reordered,
    Broken::Repeated,
    Broken::Unreadable,
    Broken::Unnamed,
    Broken::OtherKind,
    Broken::NoList,
    Broken::SameToken,
];

const WATCH: [Broken; 13] = [
    Broken::Refused,
    Broken::Failed,
    Broken::CutInside,
    Broken::Deeper,
    Broken::Larger,
    Broken::NotText,
    Broken::Repeated,
    Broken::Unreadable,
    Broken::Unnamed,
    Broken::OddVersion,
    Broken::Garbage,
    Broken::TooOldInside,
    Broken::GoneOfAnotherKind,
];

const DISCOVER: [Broken; 3] = [Broken::Refused, Broken::Failed, Broken::NotFoundOnce];

impl Broken {
    /// One that fits the question.
    pub(super) fn any(ask: &NextAction, rng: &mut Rng) -> Broken {
        let all: &[Broken] = match ask {
            NextAction::List(_) => &LIST,
            NextAction::Watch(_) => &WATCH,
            NextAction::Discover | NextAction::Rest(_) => &DISCOVER,
        };
        let place = rng.below(all.len() as u64) as usize;
        all.get(place).copied().unwrap_or(Broken::Not)
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Broken::Not => "as it should be",
            Broken::Refused => "404, 410, 403, 429 or 500",
            Broken::Failed => "broken off before it begins",
            Broken::NotFoundOnce => "no such kind, once",
            Broken::CutInside => "cut inside an object",
            Broken::CutBetween => "cut between two objects",
            Broken::Deeper => "an object nested 300 deep",
            Broken::Larger => "an object of 20 kB more",
            Broken::NotText => "an object with bytes that are not UTF-8",
            Broken::Reordered => "objects in another order",
            Broken::Repeated => "an object twice",
            Broken::Unreadable => "an object that cannot be read",
            Broken::Unnamed => "an object without a name",
            Broken::OtherKind => "an empty list of another kind",
            Broken::NoList => "no list",
            Broken::SameToken => "a page that leads to itself",
            Broken::OddVersion => "an object of an odd resourceVersion",
            Broken::Garbage => "a line that is no event",
            Broken::TooOldInside => "410 inside a watch",
            Broken::GoneOfAnotherKind => "a deletion of another kind",
        }
    }
}
