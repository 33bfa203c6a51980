//! The faults of a response.

use palisade_kube::reflector::NextAction;

use palisade_generate::Rng;

/// The fault of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseFault {
    None,
    Refused,
    Failed,
    NotFoundOnce,
    CutInside,
    CutBetween,
    Deeper,
    Larger,
    NotUtf8,
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
    DeletedOtherKind,
}

const LIST: [ResponseFault; 14] = [
    ResponseFault::Refused,
    ResponseFault::Failed,
    ResponseFault::CutInside,
    ResponseFault::CutBetween,
    ResponseFault::Deeper,
    ResponseFault::Larger,
    ResponseFault::NotUtf8,
    ResponseFault::Reordered,
    ResponseFault::Repeated,
    ResponseFault::Unreadable,
    ResponseFault::Unnamed,
    ResponseFault::OtherKind,
    ResponseFault::NoList,
    ResponseFault::SameToken,
];

const WATCH: [ResponseFault; 13] = [
    ResponseFault::Refused,
    ResponseFault::Failed,
    ResponseFault::CutInside,
    ResponseFault::Deeper,
    ResponseFault::Larger,
    ResponseFault::NotUtf8,
    ResponseFault::Repeated,
    ResponseFault::Unreadable,
    ResponseFault::Unnamed,
    ResponseFault::OddVersion,
    ResponseFault::Garbage,
    ResponseFault::TooOldInside,
    ResponseFault::DeletedOtherKind,
];

const DISCOVER: [ResponseFault; 3] = [
    ResponseFault::Refused,
    ResponseFault::Failed,
    ResponseFault::NotFoundOnce,
];

impl ResponseFault {
    /// A random fault that fits the request.
    pub(super) fn any(request: &NextAction, rng: &mut Rng) -> ResponseFault {
        let all: &[ResponseFault] = match request {
            NextAction::List(_) => &LIST,
            NextAction::Watch(_) => &WATCH,
            NextAction::Discover | NextAction::Rest(_) => &DISCOVER,
        };
        let place = rng.below(all.len() as u64) as usize;
        all.get(place).copied().unwrap_or(ResponseFault::None)
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            ResponseFault::None => "correct",
            ResponseFault::Refused => "404, 410, 403, 429 or 500",
            ResponseFault::Failed => "closed before the first byte",
            ResponseFault::NotFoundOnce => "no such kind, once",
            ResponseFault::CutInside => "cut inside an object",
            ResponseFault::CutBetween => "cut between two objects",
            ResponseFault::Deeper => "an object nested 300 deep",
            ResponseFault::Larger => "an object with 20 kB more",
            ResponseFault::NotUtf8 => "an object with bytes that are not UTF-8",
            ResponseFault::Reordered => "objects in another order",
            ResponseFault::Repeated => "an object twice",
            ResponseFault::Unreadable => "an unreadable object",
            ResponseFault::Unnamed => "an object without a name",
            ResponseFault::OtherKind => "an empty list of another kind",
            ResponseFault::NoList => "a body that is no list",
            ResponseFault::SameToken => "a page whose token leads to itself",
            ResponseFault::OddVersion => "an object with an odd resourceVersion",
            ResponseFault::Garbage => "a line that is no watch event",
            ResponseFault::TooOldInside => "410 inside a watch",
            ResponseFault::DeletedOtherKind => "a deletion of an object of another kind",
        }
    }
}
