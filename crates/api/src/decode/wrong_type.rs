//! Values of the wrong type: the message, and the help.

use palisade_core::text::ticked;

use super::{Decode, Unreadable};
use crate::input::ValueShape;
use crate::path::At;
use crate::problem::Code;

/// The type that a value must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Mapping,
    List,
    Text,
    Boolean,
    WholeNumber,
}

impl Expected {
    fn words(self) -> &'static str {
        match self {
            Expected::Mapping => "a mapping",
            Expected::List => "a list",
            Expected::Text => "a string",
            Expected::Boolean => "a boolean",
            Expected::WholeNumber => "a whole number",
        }
    }
}

impl Decode<'_, '_> {
    /// Reports that the next value has the wrong type, and skips it.
    pub(crate) fn wrong_type(&mut self, at: &At<'_>, expected: Expected) -> Unreadable {
        let shape = self.input.shape();
        self.misread |= self.shelters == 0;
        let hint = self.type_hint.take();
        if shape == ValueShape::Broken {
            return Unreadable;
        }
        let span = self.input.span();
        let written = self.written(span);
        let scalar = matches!(
            shape,
            ValueShape::Bool | ValueShape::Int | ValueShape::Number
        );
        let help = match hint {
            Some(hint) => hint.to_owned(),
            None if expected == Expected::Text && scalar => {
                let what = if shape == ValueShape::Bool {
                    "a boolean"
                } else {
                    "a number"
                };
                format!(
                    "put it in quotes; {} without quotes is {what}",
                    ticked(written)
                )
            }
            None if expected == Expected::WholeNumber && shape == ValueShape::Str => {
                let bare = written.trim_matches(['"', '\'']);
                if bare.parse::<i64>().is_ok() {
                    format!("remove the quotes: `{bare}`")
                } else {
                    String::new()
                }
            }
            None if expected == Expected::List && shape == ValueShape::Map => {
                match self.first_key() {
                    Some(key) => format!("put `- ` before {}", ticked(&key)),
                    None => "write `[]` for an empty list".to_owned(),
                }
            }
            None if expected == Expected::List => "put `- ` before each entry".to_owned(),
            None if expected == Expected::Boolean && shape == ValueShape::Str => {
                "write `true` or `false`, without quotes".to_owned()
            }
            None => String::new(),
        };
        // The search for the first key has read part of the mapping: only the rest is skipped.
        if !(expected == Expected::List && shape == ValueShape::Map && hint.is_none()) {
            self.input.skip();
        }
        let found = if shape == ValueShape::Null {
            "nothing".to_owned()
        } else if scalar {
            format!("{} {}", shape.describe(), ticked(written))
        } else {
            shape.describe().to_owned()
        };
        let message = format!("expected {}, found {found}", expected.words());
        if matches!(shape, ValueShape::Map | ValueShape::Seq) {
            // The span is only its first token, which does not show the whole value.
            self.push(Code::WrongType, at.text(), span, message, help, None);
        } else {
            self.report(Code::WrongType, at, span, message, help);
        }
        Unreadable
    }
}
