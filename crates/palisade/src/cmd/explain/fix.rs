//! `explain --fix`: writes the first proposal.

use anyhow::bail;

use super::Answerer;
use crate::Outcome;
use crate::args::Cli;
use crate::draw::clean;
use crate::edit::print_diff;
use crate::flows::{FlowLine, ParsedFlow};
use crate::proposals::Proposer;
use crate::report::explain::Explanation;
use palisade_core::answer::FlowVerdict;
use palisade_core::query::PortQuery;

/// Answers a single query, and writes its first proposal, or shows it.
pub(super) fn run(
    answerer: &Answerer<'_>,
    proposer: &Proposer<'_>,
    lines: Vec<FlowLine>,
    dry_run: bool,
    cli: &Cli,
) -> anyhow::Result<Outcome> {
    let Some(FlowLine::Query(parsed)) = lines.into_iter().next() else {
        bail!("--fix needs a flow: SRC DST PORT");
    };
    let ParsedFlow { query, flow, .. } = *parsed;
    if query.port == PortQuery::Any {
        bail!("--fix needs a port, as in `tcp/8080`");
    }
    let answer = answerer.explainer.evaluator().answer(&query)?;
    if answer.outcome.verdict == FlowVerdict::Allow {
        if !cli.quiet {
            anstream::eprintln!("palisade: the flow is allowed; nothing to change");
        }
        return Ok(Outcome::Clean);
    }
    let proposals = proposer.proposals(&query, &answer);
    let Some(first) = proposals.list.first() else {
        let explanation = Explanation {
            proposals: proposals.report(),
            ..answerer.explainer.explanation(flow, &answer)
        };
        anstream::print!("{}", explanation.text());
        bail!("no change of a policy that allows the flow was found");
    };
    if dry_run {
        print_diff(&first.diff())?;
        return Ok(Outcome::Clean);
    }
    let written = first.write(proposer.known)?;
    if !cli.quiet {
        anstream::eprintln!(
            "palisade: the flow is allowed now; changed {}",
            clean(&written.join(", "))
        );
    }
    Ok(Outcome::Clean)
}
