//! `-o`: the output formats, and those of each command.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command, Error};

use crate::view::DocumentFormat;

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// A table or sentences, for people.
    Table,
    /// The same with all details.
    Wide,
    /// A matrix, for people.
    Matrix,
    /// Comma-separated values.
    Csv,
    /// Markdown.
    Md,
    /// One document.
    Document(DocumentFormat),
    /// One JSON value a line.
    Jsonl,
    /// SARIF.
    Sarif,
    /// A graph for Graphviz.
    Dot,
    /// A drawing.
    Svg,
    /// A page.
    Html,
}

const JSON: OutputFormat = OutputFormat::Document(DocumentFormat::Json);
const YAML: OutputFormat = OutputFormat::Document(DocumentFormat::Yaml);

impl OutputFormat {
    /// Returns the value of `-o`.
    fn name(self) -> &'static str {
        match self {
            OutputFormat::Table => "table",
            OutputFormat::Wide => "wide",
            OutputFormat::Matrix => "matrix",
            OutputFormat::Csv => "csv",
            OutputFormat::Md => "md",
            OutputFormat::Document(DocumentFormat::Json) => "json",
            OutputFormat::Document(DocumentFormat::Yaml) => "yaml",
            OutputFormat::Jsonl => "jsonl",
            OutputFormat::Sarif => "sarif",
            OutputFormat::Dot => "dot",
            OutputFormat::Svg => "svg",
            OutputFormat::Html => "html",
        }
    }

    /// Reports whether the output is text for people, which may have colours.
    pub(crate) fn is_text(self) -> bool {
        match self {
            OutputFormat::Table | OutputFormat::Wide | OutputFormat::Matrix => true,
            OutputFormat::Csv
            | OutputFormat::Md
            | OutputFormat::Document(_)
            | OutputFormat::Jsonl
            | OutputFormat::Sarif
            | OutputFormat::Dot
            | OutputFormat::Svg
            | OutputFormat::Html => false,
        }
    }

    /// Returns the format of the document, if the output is one.
    pub(crate) fn document(self) -> Option<DocumentFormat> {
        match self {
            OutputFormat::Document(form) => Some(form),
            OutputFormat::Table
            | OutputFormat::Wide
            | OutputFormat::Matrix
            | OutputFormat::Csv
            | OutputFormat::Md
            | OutputFormat::Jsonl
            | OutputFormat::Sarif
            | OutputFormat::Dot
            | OutputFormat::Svg
            | OutputFormat::Html => None,
        }
    }

    /// Returns the error for a format that the command does not have.
    pub(crate) fn unsupported(self) -> anyhow::Error {
        anyhow::anyhow!("`{}` is not a format of this command", self.name())
    }
}

/// The formats of a command, in the order of its help, each with its description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Formats(&'static [(OutputFormat, &'static str)]);

/// The formats of answers: `explain` and `affecting`.
pub(crate) const ANSWER: Formats = Formats(&[
    (OutputFormat::Table, "For people"),
    (OutputFormat::Wide, "For people, with all details of -v"),
    (JSON, "One document"),
    (OutputFormat::Jsonl, "One answer a line"),
    (YAML, "The same document as json"),
]);

/// The formats of `check`.
pub(crate) const CHECK: Formats = Formats(&[
    (
        OutputFormat::Table,
        "For people: the line, the position and the help",
    ),
    (OutputFormat::Wide, "One line a problem"),
    (JSON, "One document"),
    (OutputFormat::Jsonl, "One problem a line"),
    (YAML, "The same document as json"),
    (OutputFormat::Sarif, "SARIF 2.1.0, for code scanning"),
]);

/// The formats of `lint`.
pub(crate) const LINT: Formats = Formats(&[
    (
        OutputFormat::Table,
        "For people: the line, the position and the help",
    ),
    (OutputFormat::Wide, "One line a finding"),
    (JSON, "One document"),
    (OutputFormat::Jsonl, "One finding a line"),
    (YAML, "The same document as json"),
    (OutputFormat::Sarif, "SARIF 2.1.0, for code scanning"),
]);

/// The formats of `lab`.
pub(crate) const LAB: Formats = Formats(&[
    (
        OutputFormat::Table,
        "For people: a matrix of sources and destinations",
    ),
    (OutputFormat::Wide, "For people: every flow"),
    (JSON, "One document"),
    (OutputFormat::Jsonl, "One flow a line"),
    (YAML, "The same document as json"),
]);

/// The formats of `connectivity`.
pub(crate) const CONNECTIVITY: Formats = Formats(&[
    (OutputFormat::Table, "For people: blocks of groups"),
    (
        OutputFormat::Wide,
        "For people: blocks with all their members and ports",
    ),
    (
        OutputFormat::Matrix,
        "For people: a matrix of sources and destinations",
    ),
    (OutputFormat::Csv, "For spreadsheets"),
    (OutputFormat::Md, "A table in Markdown"),
    (JSON, "One document"),
    (OutputFormat::Jsonl, "One block or pair a line"),
    (YAML, "The same document as json"),
    (OutputFormat::Dot, "A graph for Graphviz"),
    (OutputFormat::Svg, "A drawing"),
    (
        OutputFormat::Html,
        "A page with a map and a matrix that can be searched",
    ),
]);

/// The formats of `diff`.
pub(crate) const DIFF: Formats = Formats(&[
    (OutputFormat::Table, "For people"),
    (OutputFormat::Wide, "For people, with all members and ports"),
    (JSON, "One document"),
    (OutputFormat::Jsonl, "One block a line"),
    (YAML, "The same document as json"),
    (OutputFormat::Csv, "For spreadsheets"),
    (OutputFormat::Md, "For a comment on a pull request"),
]);

/// The formats of `crds`.
pub(crate) const CRDS: Formats = Formats(&[(YAML, "One document a CRD"), (JSON, "One list")]);

impl Formats {
    fn values(self) -> impl Iterator<Item = PossibleValue> {
        let values = self.0.iter();
        values.map(|(format, help)| PossibleValue::new(format.name()).help(*help))
    }
}

impl TypedValueParser for Formats {
    type Value = OutputFormat;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OutputFormat, Error> {
        let names = PossibleValuesParser::new(self.values());
        // A text that is not UTF-8 is an unknown value like any other.
        let text = value.to_string_lossy().into_owned();
        let name = names.parse(command, arg, text.into())?;
        let mut formats = self.0.iter().map(|(format, _)| *format);
        let found = formats.find(|format| format.name() == name);
        found.ok_or_else(|| Error::new(clap::error::ErrorKind::InvalidValue).with_cmd(command))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.values()))
    }
}
