//! Parses flow queries: one on the command line, or one on each line of a file.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use palisade_core::query::{Endpoint, FlowQuery, FlowWords, PortQuery, QueryParseError};

use crate::args::InputArgs;
use crate::report::flow::NamedFlow;

/// A flow query, and the flow as it was written.
pub(crate) struct ParsedFlow {
    pub(crate) query: FlowQuery,
    pub(crate) flow: NamedFlow,
}

/// A line of a file of flows.
pub(crate) enum FlowLine {
    Query(ParsedFlow),
    Invalid(NamedFlow, String),
}

/// Returns the flow of the command line, or those of a file.
pub(crate) fn lines(
    typed: &[String],
    path: Option<&Path>,
    input: &InputArgs,
) -> anyhow::Result<Vec<FlowLine>> {
    let Some(path) = path else {
        let words: Vec<&str> = typed.iter().map(String::as_str).collect();
        return Ok(vec![FlowLine::Query(parse_flow(
            &words,
            Some(PortQuery::Any),
        )?)]);
    };
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
    } else {
        text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    Ok(parse(&text))
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

/// Parses the flows of a text, one a line.
pub(crate) fn parse(text: &str) -> Vec<FlowLine> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        lines.push(match parse_flow(&words, None) {
            Ok(parsed) => FlowLine::Query(parsed),
            Err(error) => {
                let word = |at: usize| words.get(at).map(|it| (*it).to_owned());
                let flow = NamedFlow {
                    source: word(0).unwrap_or_default(),
                    destination: word(1).unwrap_or_default(),
                    ..NamedFlow::default()
                };
                FlowLine::Invalid(flow, error.to_string())
            }
        });
    }
    lines
}

fn parse_flow(
    words: &[&str],
    without_port: Option<PortQuery>,
) -> Result<ParsedFlow, QueryParseError> {
    let words = FlowWords::new(words)?;
    let query = words.query(without_port)?;
    Ok(ParsedFlow {
        flow: NamedFlow::of_query(words, &query),
        query,
    })
}
