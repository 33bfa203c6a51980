//! `palisade explain`: is a flow allowed, which rule decides, and what would allow it?

mod fix;

use std::io::Write;

use anyhow::bail;
use palisade_api::{Options, OtherPolicies};
use palisade_core::answer::{FlowEvaluator, FlowVerdict, join};
use palisade_core::compile::compile_policies;
use palisade_core::model::{Cluster, PolicyId};
use palisade_core::program::Program;
use palisade_core::query::{FlowQuery, PortQuery};
use rayon::prelude::*;

use crate::Outcome;
use crate::args::format::OutputFormat;
use crate::args::{Cli, ExplainArgs};
use crate::cluster::reported_other_policies;
use crate::edit::input::EditInput;
use crate::flows::{self, FlowLine, ParsedFlow};
use crate::live::{Scope, UnreadKind, named};
use crate::progress::Progress;
use crate::proposals::{MOST_BYTES, Proposer};
use crate::report::explain::{Detail, DryRun, Explainer, Explanation, ports_text};
use crate::report::flow::NamedFlow;
use crate::source::Inputs;
use crate::view::explanation::{ExplanationSetView, ExplanationView};
use crate::view::unread::{UnreadView, write_with};
use crate::view::{DocumentFormat, json};

/// Answers one flow query, or one on each line of a file.
pub(crate) fn run(args: &ExplainArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    let input = &args.cluster.input;
    let namespace = args.within.default(input)?;
    let lines = flows::lines(&args.flow, args.flows.as_deref(), input, &namespace)?;
    let relevant = named(flows::endpoints(&lines));
    let namespaces = &args.within.namespace;
    let scope = Scope::Everything;
    let inputs = crate::cluster::inputs(&args.cluster, cli, scope, &relevant, namespaces)?;
    let Some(manifests) = crate::cluster::objects(&args.cluster, cli, &inputs) else {
        return Ok(Outcome::Unanswered);
    };
    let lowered = crate::cluster::lowered(&args.cluster, cli, &inputs, &manifests)?;
    args.within.check(&lowered.cluster)?;
    let program = crate::cluster::compiled(cli, &lowered.cluster);
    let evaluator = FlowEvaluator::new(&lowered.cluster, &program);
    let audited = audited_programs(&lowered.cluster);
    let dry_runs = audited.iter().map(|(policy, program)| DryRunProgram {
        policy: *policy,
        evaluator: FlowEvaluator::new(&lowered.cluster, program),
    });
    let full_trail = cli.verbose || args.output == OutputFormat::Wide;
    // Near misses and proposals take time for each flow: they are for a single flow, or for -v.
    let why_not = args.flows.is_none() || full_trail;
    let detail = Detail {
        full_trail,
        why_not,
        for_text: args.output.is_text(),
    };
    let unread = crate::cluster::unread(&inputs, &manifests);
    let other_policies = reported_other_policies(cli, &inputs, &manifests);
    let learned = crate::cluster::learned(&args.cluster)?;
    let known = EditInput {
        sources: &inputs.sources,
        n_files: inputs.sources.len() - inputs.n_live,
        options: Options {
            as_pruned: input.as_pruned,
        },
        learned: &learned,
        budget: args.cluster.budget(),
        objects: &manifests.objects,
        problems: manifests.problems.iter().chain(&lowered.problems).collect(),
        cluster: &lowered.cluster,
    };
    let proposer = Proposer {
        known: &known,
        program: &program,
        roots: &input.filename,
        most_bytes: if full_trail || args.fix {
            usize::MAX
        } else {
            MOST_BYTES
        },
    };
    let answerer = Answerer {
        explainer: Explainer::new(&evaluator, &manifests.objects, &inputs.sources, detail)
            .with_unread(&unread),
        dry_runs: dry_runs.collect(),
        proposer: why_not.then_some(proposer),
        style: Style {
            output: args.output,
            bulk: args.flows.is_some(),
        },
    };
    if args.fix {
        return fix::run(&answerer, &proposer, lines, args.dry_run, cli);
    }
    let worst = print_all(&answerer, lines, (&inputs, other_policies), cli)?;
    if args.exit_zero && worst == Outcome::Findings {
        return Ok(Outcome::Clean);
    }
    Ok(worst)
}

/// Answers the queries, prints the answers, and returns the worst outcome.
fn print_all(
    answerer: &Answerer<'_>,
    lines: Vec<FlowLine>,
    (inputs, other_policies): (&Inputs, OtherPolicies),
    cli: &Cli,
) -> anyhow::Result<Outcome> {
    let style = answerer.style;
    let mut printer = Printer {
        style,
        out: std::io::BufWriter::with_capacity(1 << 16, stream(style.output)),
        set: Vec::new(),
        missing: inputs.missing.clone(),
        other_policies,
    };
    let wanted = !cli.quiet && style.bulk;
    let progress = Progress::counting("answering", lines.len(), wanted);
    let mut worst = Outcome::Clean;
    let mut lines = lines.into_iter().peekable();
    while lines.peek().is_some() {
        // Flows are evaluated in parallel and printed in order. A batch bounds the memory for
        // answers.
        let batch: Vec<FlowLine> = lines.by_ref().take(BATCH).collect();
        let answered: Vec<anyhow::Result<Printed<'_>>> = batch
            .into_par_iter()
            .map(|line| answerer.answer(line))
            .collect();
        for answered in answered {
            let (printed, outcome) = answered?;
            for piece in printed {
                printer.print(piece)?;
            }
            worst = worse(worst, outcome);
            progress.add(1);
        }
    }
    progress.finish();
    printer.finish()?;
    Ok(worst)
}

fn worse(one: Outcome, other: Outcome) -> Outcome {
    std::cmp::max_by_key(one, other, |it| it.code())
}

/// An audited policy, and an evaluator as if it were enforced.
struct DryRunProgram<'c> {
    policy: PolicyId,
    evaluator: FlowEvaluator<'c>,
}

/// Compiles a program for each audited policy, as if that policy were enforced.
fn audited_programs(cluster: &Cluster<'_>) -> Vec<(PolicyId, Program)> {
    let policies = cluster.policies.iter().enumerate();
    let audited = policies.filter(|(_, policy)| policy.audited);
    let audited = audited.filter_map(|(index, _)| u32::try_from(index).ok().map(PolicyId));
    let program = |id: PolicyId| {
        let program = compile_policies(cluster, &|its, policy| !policy.audited || its == id);
        (id, program)
    };
    audited.map(program).collect()
}

/// Returns the verdicts of the audited policies that would decide the flow.
fn dry_run(dry_runs: &[DryRunProgram<'_>], query: &FlowQuery) -> Vec<DryRun> {
    let found = dry_runs.iter().filter_map(|it| {
        let answer = it.evaluator.answer(query).ok()?;
        let outcome = answer.outcome;
        let deciding = [outcome.egress.deciding, outcome.ingress.deciding];
        let mut deciding = deciding.into_iter().flatten();
        let decides = deciding.any(|decider| {
            let policies = decider.policies(it.evaluator.program);
            policies.contains(&it.policy)
        });
        decides.then(|| DryRun {
            policy: it.evaluator.cluster.policy_name(it.policy),
            verdict: outcome.verdict,
        })
    });
    found.collect()
}

/// How many flows are answered before they are printed.
const BATCH: usize = 4096;

/// Something to print: text for people or a line of JSON, or a part of one document.
enum PrintedAnswer<'t> {
    Text(String),
    Part(Box<ExplanationView<'t>>),
    /// Parts that are a document of their own.
    Set(Vec<ExplanationView<'t>>),
}

/// Parts to print, and their outcome.
type Printed<'t> = (Vec<PrintedAnswer<'t>>, Outcome);

/// Answers queries.
struct Answerer<'t> {
    explainer: Explainer<'t>,
    dry_runs: Vec<DryRunProgram<'t>>,
    /// Proposes changes for denied flows, if they are requested.
    proposer: Option<Proposer<'t>>,
    style: Style,
}

impl<'t> Answerer<'t> {
    fn answer(&self, line: FlowLine) -> anyhow::Result<Printed<'t>> {
        let style = self.style;
        let ParsedFlow { query, flow, place } = match line {
            FlowLine::Query(parsed) => *parsed,
            FlowLine::Invalid(flow, error) => return style.unanswered(flow, error),
        };
        if query.port == PortQuery::Any {
            return any_port(&self.explainer, style, flow, (&query, place));
        }
        let answer = match self.explainer.evaluator().answer(&query) {
            Ok(answer) => answer,
            Err(error) => return style.unanswered(flow, ParsedFlow::error(place, &error)),
        };
        let proposals = self.proposer.map(|it| it.proposals(&query, &answer));
        let explanation = Explanation {
            dry_run: dry_run(&self.dry_runs, &query),
            proposals: proposals.map(|it| it.report()).unwrap_or_default(),
            ..self.explainer.explanation(flow, &answer)
        };
        let outcome = of(answer.outcome.verdict);
        Ok((vec![style.printed(explanation)?], outcome))
    }
}

/// Answers a query without a port: one answer for each set of ports.
fn any_port<'t>(
    explainer: &Explainer<'t>,
    style: Style,
    flow: NamedFlow,
    (query, place): (&FlowQuery, Option<String>),
) -> anyhow::Result<Printed<'t>> {
    let answers = match explainer.evaluator().answer_ports(query) {
        Ok(answers) => answers,
        Err(error) => return style.unanswered(flow, ParsedFlow::error(place, &error)),
    };
    let outcome = join(&answers).map_or(Outcome::Unanswered, |it| of(it.verdict));
    let printed = if style.is_text() {
        let sets = explainer.port_sets(&flow, &answers);
        vec![PrintedAnswer::Text(ports_text(&sets))]
    } else if style.bulk {
        vec![style.printed(explainer.any_port(flow, &answers))?]
    } else {
        let sets = explainer.port_sets(&flow, &answers).into_iter();
        if style.output == OutputFormat::Jsonl {
            sets.map(|it| style.printed(it))
                .collect::<anyhow::Result<_>>()?
        } else {
            vec![PrintedAnswer::Set(
                sets.map(ExplanationView::from).collect(),
            )]
        }
    };
    Ok((printed, outcome))
}

fn of(verdict: FlowVerdict) -> Outcome {
    match verdict {
        FlowVerdict::Allow => Outcome::Clean,
        FlowVerdict::Deny | FlowVerdict::Mixed | FlowVerdict::Unknown => Outcome::Findings,
    }
}

/// The output format.
#[derive(Clone, Copy)]
struct Style {
    output: OutputFormat,
    /// Whether there may be several answers.
    bulk: bool,
}

/// Prints answers.
struct Printer<'t> {
    style: Style,
    out: std::io::BufWriter<Box<dyn Write>>,
    /// The explanations of one document.
    set: Vec<ExplanationView<'t>>,
    /// The kinds that the cluster refused to list.
    missing: Vec<UnreadKind>,
    /// The policies of other vendors.
    other_policies: OtherPolicies,
}

/// Returns the output stream. Only text has colours; anstream would search all of a JSON document
/// for them.
fn stream(output: OutputFormat) -> Box<dyn Write> {
    if output.is_text() {
        Box::new(anstream::stdout())
    } else {
        Box::new(std::io::stdout().lock())
    }
}

impl Style {
    /// Reports whether the output is text for people.
    fn is_text(&self) -> bool {
        self.output.is_text()
    }

    /// Returns the format of the document.
    fn document(&self) -> anyhow::Result<DocumentFormat> {
        let form = self.output.document();
        form.ok_or_else(|| self.output.unsupported())
    }

    /// Reports a query that cannot be answered: an error for a single flow, an answer for one of
    /// several.
    fn unanswered<'t>(&self, flow: NamedFlow, error: String) -> anyhow::Result<Printed<'t>> {
        if !self.bulk {
            bail!("{error}");
        }
        let unanswered = self.printed(Explanation::unanswered(flow, error))?;
        Ok((vec![unanswered], Outcome::Unanswered))
    }

    /// Formats an explanation: text, a line, or a part of the document.
    fn printed<'t>(&self, explanation: Explanation<'t>) -> anyhow::Result<PrintedAnswer<'t>> {
        if self.is_text() {
            return Ok(PrintedAnswer::Text(explanation.text()));
        }
        let view = ExplanationView::from(explanation);
        if self.output == OutputFormat::Jsonl {
            let mut line = Vec::new();
            json::write(&mut line, &view)?;
            line.push(b'\n');
            return Ok(PrintedAnswer::Text(String::from_utf8(line)?));
        }
        Ok(PrintedAnswer::Part(Box::new(view)))
    }
}

impl<'t> Printer<'t> {
    fn print(&mut self, printed: PrintedAnswer<'t>) -> anyhow::Result<()> {
        match printed {
            PrintedAnswer::Text(text) => {
                write!(self.out, "{text}")?;
                if self.style.bulk && self.style.is_text() {
                    writeln!(self.out)?;
                }
                Ok(())
            }
            PrintedAnswer::Part(view) if self.style.bulk => {
                self.set.push(*view);
                Ok(())
            }
            PrintedAnswer::Part(mut view) => {
                let form = self.style.document()?;
                // The view has the key already.
                let missing = self.missing.iter().map(UnreadView::kind);
                view.unread.splice(0..0, missing);
                write_with(&mut self.out, form, &view, (&[], &self.other_policies))
            }
            PrintedAnswer::Set(views) => self.print_set(views),
        }
    }

    fn print_set(&mut self, views: Vec<ExplanationView<'t>>) -> anyhow::Result<()> {
        let form = self.style.document()?;
        let set = ExplanationSetView::new(views);
        let mut unread: Vec<_> = self.missing.iter().map(UnreadView::kind).collect();
        unread.extend(set.unread());
        write_with(&mut self.out, form, &set, (&unread, &self.other_policies))
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let set = std::mem::take(&mut self.set);
        if self.style.bulk && self.style.output.document().is_some() {
            self.print_set(set)?;
        }
        self.out.flush()?;
        Ok(())
    }
}
