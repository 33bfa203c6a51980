//! `palisade lab`: the cluster in network namespaces, with its policies in the kernel, and packets.

mod inside;
mod round;
mod visit;
mod watch;

use std::io::Write;

use palisade_api::OtherPolicies;
use palisade_core::query::DEFAULT_NAMESPACE;

use self::inside::{LabProcess, enter};
use self::round::RoundInput;
use crate::Outcome;
use crate::args::format::OutputFormat;
use crate::args::{Cli, LabArgs};
use crate::flows;
use crate::live::{RelevantKinds, UnreadKind};
use crate::report::lab::{self, Round};
use crate::source::{collected, files_named};
use crate::view::lab::{LabReportView, ProbeView};
use crate::view::{AnswerLimits, json, write_limited};

/// Builds the cluster, enforces its policies, and compares predictions with packets.
pub(crate) fn run(args: &LabArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    if let Some(visit) = &args.visit {
        return visit::run(visit);
    }
    let input = &args.cluster.input;
    if args.watch {
        files_named(input)?;
    }
    let live = match enter(args, cli)? {
        LabProcess::Inside(live) => live,
        LabProcess::Outside(outcome) => return Ok(outcome),
    };
    if args.watch {
        return watch::run(args, cli);
    }
    let flows = match &args.flows {
        Some(path) => Some(flows::lines(&[], Some(path), input, DEFAULT_NAMESPACE)?),
        None => None,
    };
    let inputs = collected(input, || Ok(live))?;
    crate::cluster::require_readable(&args.cluster, &inputs, &RelevantKinds::everything())?;
    let missing = inputs.missing.clone();
    let round_input = RoundInput {
        flows,
        inputs,
        learned: crate::cluster::learned(&args.cluster)?,
    };
    let mut running = None;
    let messages = &mut anstream::stderr();
    let Some(round) = round::go(args, cli, round_input, &mut running, messages)? else {
        return Ok(Outcome::Unanswered);
    };
    print(args, cli, &round, &missing)?;
    if let (true, Some(running)) = (args.keep, &running) {
        visit::keep(&running.lab, &running.places)?;
    }
    Ok(if round.probes.iter().any(|probe| probe.is_invalid) {
        Outcome::Unanswered
    } else if !round.is_measured() && !args.keep {
        // A lab with --keep may serve visits alone.
        anstream::eprintln!("palisade: no flow could be measured with packets");
        Outcome::Unanswered
    } else {
        compared(args, &round)
    })
}

/// Returns `Clean` if all predictions match the packets, or with `--exit-zero`.
fn compared(args: &LabArgs, round: &Round) -> Outcome {
    if round.n_differences() > 0 && !args.exit_zero {
        Outcome::Findings
    } else {
        Outcome::Clean
    }
}

fn print(args: &LabArgs, cli: &Cli, round: &Round, missing: &[UnreadKind]) -> anyhow::Result<()> {
    if args.output.is_text() {
        let text = lab::text(round, None, has_lines(args), cli.quiet);
        write!(anstream::stdout(), "{text}")?;
        return Ok(());
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match args.output.document() {
        Some(form) => {
            let report = LabReportView::new(round, None);
            let limits = AnswerLimits {
                missing,
                unread: &[],
                // The report has the key already.
                other_policies: &OtherPolicies::new(),
            };
            write_limited(&mut out, form, &report, limits)?;
        }
        None => {
            for probe in &round.probes {
                json::write(&mut out, &ProbeView::new(probe))?;
                writeln!(out)?;
            }
        }
    }
    out.flush()?;
    Ok(())
}

/// Whether every flow gets a line.
fn has_lines(args: &LabArgs) -> bool {
    args.flows.is_some() || args.output == OutputFormat::Wide
}
