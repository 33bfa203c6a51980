//! The creation time of a pod, with its phase and location, in eight bytes.

use super::{Pod, Store};
use crate::incremental::slab::NONE;
use crate::incremental::texts::Symbol;
use crate::model::PodPhase;
use crate::time::{FORM, digits};

/// Phase, location and creation time in one number. The time is its digits in the usual form, or
/// the symbol of a text in any other form.
// The fourteen digits of a time are less than 2^47, and symbols have 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(u64);

const IS_TEXT: u64 = 1 << 50;
const IS_GIVEN: u64 = 1 << 51;
const IS_LOCAL: u64 = 1 << 52;
const LIFE: u32 = 53;
const NUMBER: u64 = IS_TEXT - 1;
const LIVES: [PodPhase; 4] = [
    PodPhase::Running,
    PodPhase::Pending,
    PodPhase::Unknown,
    PodPhase::Terminated,
];

/// A creation time.
// Digits compare like times, but a conflict compares them with texts of other pods. `created` makes
// the text again, which is the same for every time in the usual form.
#[derive(Clone, Copy, Debug)]
pub(super) enum Created {
    Digits(u64),
    Text(Symbol),
}

impl Stamp {
    pub(super) fn new(life: PodPhase, created: Option<Created>, is_local: bool) -> Stamp {
        let created = match created {
            None => 0,
            Some(Created::Digits(digits)) => IS_GIVEN | digits,
            Some(Created::Text(symbol)) => IS_GIVEN | IS_TEXT | u64::from(symbol),
        };
        let life = LIVES.iter().position(|it| *it == life).unwrap_or(0) as u64;
        Stamp(created | life << LIFE | if is_local { IS_LOCAL } else { 0 })
    }

    pub(super) fn is_local(self) -> bool {
        self.0 & IS_LOCAL != 0
    }

    pub(super) fn life(self) -> PodPhase {
        let life = LIVES.get((self.0 >> LIFE) as usize);
        life.copied().unwrap_or(PodPhase::Terminated)
    }

    pub(super) fn created(self) -> Option<Created> {
        let number = self.0 & NUMBER;
        let is_text = self.0 & IS_TEXT != 0;
        (self.0 & IS_GIVEN != 0).then(|| match is_text {
            true => Created::Text(u32::try_from(number).unwrap_or(NONE)),
            false => Created::Digits(number),
        })
    }
}

/// The creation time of a pod as text.
#[derive(Debug, Default)]
pub(super) struct CreatedText(Option<String>);

impl CreatedText {
    pub(super) fn as_text(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl Store {
    /// Returns whether a stamp has this creation time.
    pub(super) fn same_created(&self, known: Stamp, created: Option<&str>) -> bool {
        match (known.created(), created) {
            (None, None) => true,
            (Some(Created::Digits(known)), Some(text)) => digits(text) == Some(known),
            (Some(Created::Text(known)), Some(text)) => self.texts.get(known) == text,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// Returns the creation time of a pod as text.
    pub(super) fn created(&self, pod: &Pod) -> CreatedText {
        let mut digits = match pod.stamp.created() {
            None => return CreatedText(None),
            Some(Created::Text(symbol)) => {
                return CreatedText(Some(self.texts.get(symbol).to_owned()));
            }
            Some(Created::Digits(digits)) => digits,
        };
        // Fills the zeros of the form from the last digit on.
        let mut text: Vec<char> = FORM.chars().collect();
        for sign in text.iter_mut().rev() {
            if *sign == '0' {
                let digit = u32::try_from(digits % 10).unwrap_or(0);
                *sign = char::from_digit(digit, 10).unwrap_or('0');
                digits /= 10;
            }
        }
        CreatedText(Some(text.into_iter().collect()))
    }
}
