//! Parses flow queries: one on the command line, or one on each line of a file.

use std::fmt::Display;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use palisade_core::query::{Endpoint, FlowQuery, FlowWords, PortQuery, QueryParseError};

use crate::args::InputArgs;
use crate::draw::clean;
use crate::report::flow::NamedFlow;

/// A flow query, and the flow as it was written.
pub(crate) struct ParsedFlow {
    pub(crate) query: FlowQuery,
    pub(crate) flow: NamedFlow,
    /// The file and the line, as `flows.txt:3`.
    pub(crate) place: Option<String>,
}

impl ParsedFlow {
    /// Adds the place of the flow to an error.
    pub(crate) fn error(place: Option<String>, error: &dyn Display) -> String {
        match place {
            Some(place) => format!("{place}: {error}"),
            None => error.to_string(),
        }
    }
}

/// A line of a file of flows.
pub(crate) enum FlowLine {
    Query(Box<ParsedFlow>),
    Invalid(NamedFlow, String),
}

/// Returns the flow of the command line, or those of a file. Endpoints without a namespace are in
/// `namespace`.
pub(crate) fn lines(
    typed: &[String],
    path: Option<&Path>,
    input: &InputArgs,
    namespace: &str,
) -> anyhow::Result<Vec<FlowLine>> {
    let Some(path) = path else {
        let words: Vec<&str> = typed.iter().map(String::as_str).collect();
        let parsed = parse_flow(&words, namespace)?;
        return Ok(vec![FlowLine::Query(Box::new(parsed))]);
    };
    let mut name = clean(&path.display().to_string());
    let mut text = String::new();
    if path.as_os_str() == "-" {
        let reads_objects = |it: &std::path::PathBuf| it.as_os_str() == "-";
        if input.filename.iter().any(reads_objects) {
            bail!("only one argument can be `-`");
        }
        std::io::stdin()
            .lock()
            .read_to_string(&mut text)
            .context("cannot read the flows from standard input")?;
        "standard input".clone_into(&mut name);
    } else {
        text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(parse(&name, &text, namespace))
}

/// Returns every endpoint that the flows name.
pub(crate) fn endpoints(lines: &[FlowLine]) -> impl Iterator<Item = &Endpoint> {
    lines.iter().flat_map(|line| {
        let query = match line {
            FlowLine::Query(parsed) => Some(&parsed.query),
            FlowLine::Invalid(..) => None,
        };
        query.into_iter().flat_map(|it| {
            let endpoints = [&it.source, &it.destination];
            endpoints.into_iter().chain(it.via.as_ref())
        })
    })
}

/// Parses the flows of a text, one a line. `name` is the file of the text.
pub(crate) fn parse(name: &str, text: &str, namespace: &str) -> Vec<FlowLine> {
    let mut lines = Vec::new();
    for (number, line) in (1usize..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        let place = Some(format!("{name}:{number}"));
        lines.push(match parse_flow(&words, namespace) {
            Ok(parsed) => FlowLine::Query(Box::new(ParsedFlow { place, ..parsed })),
            Err(error) => {
                let word = |at: usize| words.get(at).map(|it| (*it).to_owned());
                let flow = NamedFlow {
                    source: word(0).unwrap_or_default(),
                    destination: word(1).unwrap_or_default(),
                    ..NamedFlow::default()
                };
                FlowLine::Invalid(flow, ParsedFlow::error(place, &error))
            }
        });
    }
    lines
}

fn parse_flow(words: &[&str], namespace: &str) -> Result<ParsedFlow, QueryParseError> {
    let words = FlowWords::new(words)?;
    let query = words.query(Some(PortQuery::Any), namespace)?;
    Ok(ParsedFlow {
        flow: NamedFlow::of_query(words, &query),
        query,
        place: None,
    })
}
