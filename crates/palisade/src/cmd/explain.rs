//! `palisade explain`: is this flow allowed, which rule decides, and why not?

use std::io::{Read, Write};

use anyhow::{Context, bail};
use palisade_core::answer::{Answered, Respondent, Unanswerable, join};
use palisade_core::compile::{compile, compile_policies};
use palisade_core::model::{Cluster, PolicyId};
use palisade_core::program::Program;
use palisade_core::question::{Endpoint, PortQuery, Question, QuestionError};

use crate::Outcome;
use crate::args::{AnswerOutput, Cli, ExplainArgs};
use crate::draw::clean;
use crate::progress::Progress;
use crate::view::explanation::{
    DryRunView, ExplanationSetView, ExplanationView, FlowView, Telling, verdict,
};

/// Answers one question, or one on every line of a file.
pub(crate) fn run(args: &ExplainArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    let lines = lines(args)?;
    let inputs = crate::cluster::inputs(&args.cluster)?;
    let Some(manifests) = crate::cluster::objects(&args.cluster, cli, &inputs) else {
        return Ok(Outcome::Unanswered);
    };
    let lowered = crate::cluster::lowered(&args.cluster, cli, &inputs, &manifests)?;
    let program = compile(&lowered.cluster);
    let respondent = Respondent::new(&lowered.cluster, &program);
    let audited = audited_programs(&lowered.cluster);
    let dry_runs: Vec<DryRun<'_>> = audited
        .iter()
        .map(|(policy, program)| DryRun {
            policy: *policy,
            respondent: Respondent::new(&lowered.cluster, program),
        })
        .collect();
    let full_trail = cli.verbose || args.output == AnswerOutput::Wide;
    // Near misses and changes are for one flow, or for whoever wants to read more.
    let why_not = args.flows.is_none() || full_trail;
    let (objects, sources) = (&manifests.objects, &inputs.sources);
    let telling = Telling::new(&respondent, objects, sources, full_trail, why_not);
    let mut printer = Printer {
        output: args.output,
        out: std::io::BufWriter::new(anstream::stdout()),
        set: Vec::new(),
        bulk: args.flows.is_some(),
    };
    let progress = Progress::new(lines.len(), !cli.quiet && args.flows.is_some());
    let mut worst = Outcome::Clean;
    for line in lines {
        let outcome = match line {
            Line::Asked(asked) => answer(&telling, &dry_runs, &mut printer, asked)?,
            Line::Wrong(flow, error) => {
                let unanswered = Telling::unanswered(flow, error);
                printer.print(unanswered, String::new)?;
                Outcome::Unanswered
            }
        };
        worst = worse(worst, outcome);
        progress.add(1);
    }
    progress.finish();
    printer.finish()?;
    if args.exit_zero && worst == Outcome::Findings {
        return Ok(Outcome::Clean);
    }
    Ok(worst)
}

fn worse(one: Outcome, other: Outcome) -> Outcome {
    match (one, other) {
        (Outcome::Unanswered, _) | (_, Outcome::Unanswered) => Outcome::Unanswered,
        (Outcome::Findings, _) | (_, Outcome::Findings) => Outcome::Findings,
        (Outcome::Clean, Outcome::Clean) => Outcome::Clean,
    }
}

/// A policy that is only audited, and the answers as if it were enforced.
struct DryRun<'c> {
    policy: PolicyId,
    respondent: Respondent<'c>,
}

/// For each policy that is only audited, the program with it.
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

/// What the audited policies that would have decided would have said.
fn dry_run(dry_runs: &[DryRun<'_>], question: &Question) -> Vec<DryRunView> {
    let said = dry_runs.iter().filter_map(|it| {
        let answer = it.respondent.answer(question).ok()?;
        let outcome = answer.outcome;
        let behind = [outcome.egress.behind, outcome.ingress.behind];
        let mut behind = behind.into_iter().flatten();
        let decides = behind.any(|it_is| {
            let policies = it_is.policies(it.respondent.program);
            policies.contains(&it.policy)
        });
        decides.then(|| DryRunView {
            policy: it.respondent.cluster.policy_name(it.policy),
            verdict: verdict(outcome.verdict),
        })
    });
    said.collect()
}

fn answer(
    telling: &Telling<'_>,
    dry_runs: &[DryRun<'_>],
    printer: &mut Printer,
    asked: Asked,
) -> anyhow::Result<Outcome> {
    let Asked { question, flow } = asked;
    if question.port == PortQuery::Any {
        let answers = match telling.respondent.answer_ports(&question) {
            Ok(answers) => answers,
            Err(error) => return printer.unanswered(flow, &error),
        };
        let outcome = join(&answers).map_or(Outcome::Unanswered, |it| of(it.verdict));
        if printer.bulk {
            let told = || telling.tell_ports(&flow, &answers);
            printer.print(telling.any_port(flow.clone(), &answers), told)?;
        } else {
            let told = || telling.tell_ports(&flow, &answers);
            printer.print_set(telling.port_sets(&flow, &answers), told)?;
        }
        return Ok(outcome);
    }
    match telling.respondent.answer(&question) {
        Ok(answer) => {
            let dry_run = dry_run(dry_runs, &question);
            match printer.output {
                AnswerOutput::Table | AnswerOutput::Wide => {
                    let mut text = telling.tell(&flow, &answer);
                    for DryRunView { policy, verdict } in dry_run {
                        text += &format!(
                            "  {} is only audited; enforced, the answer would be {verdict}\n",
                            clean(&policy)
                        );
                    }
                    printer.text(&text)?;
                }
                AnswerOutput::Json | AnswerOutput::Jsonl | AnswerOutput::Yaml => {
                    let view = telling.explanation(flow, &answer);
                    printer.view(view.with_dry_run(dry_run))?;
                }
            }
            Ok(of(answer.outcome.verdict))
        }
        Err(error) => printer.unanswered(flow, &error),
    }
}

fn of(verdict: Answered) -> Outcome {
    match verdict {
        Answered::Allow => Outcome::Clean,
        Answered::Deny | Answered::Mixed | Answered::Unknown => Outcome::Findings,
    }
}

/// A question and the flow as it was asked for.
struct Asked {
    question: Question,
    flow: FlowView,
}

/// A line of a file of flows.
enum Line {
    Asked(Asked),
    Wrong(FlowView, String),
}

fn lines(args: &ExplainArgs) -> anyhow::Result<Vec<Line>> {
    let Some(path) = &args.flows else {
        let words: Vec<&str> = args.flow.iter().map(String::as_str).collect();
        return Ok(vec![Line::Asked(asked(&words, true)?)]);
    };
    let mut text = String::new();
    if path.as_os_str() == "-" {
        let reads_objects = |it: &std::path::PathBuf| it.as_os_str() == "-";
        if args.cluster.input.filename.iter().any(reads_objects) {
            bail!("standard input can hold the objects or the flows, not both");
        }
        std::io::stdin()
            .lock()
            .read_to_string(&mut text)
            .context("cannot read the flows from standard input")?;
    } else {
        text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            continue;
        }
        lines.push(match asked(&words, false) {
            Ok(asked) => Line::Asked(asked),
            Err(error) => {
                let word = |at: usize| words.get(at).map(|it| (*it).to_owned());
                let flow = FlowView {
                    source: word(0).unwrap_or_default(),
                    destination: word(1).unwrap_or_default(),
                    ..FlowView::default()
                };
                Line::Wrong(flow, error.to_string())
            }
        });
    }
    Ok(lines)
}

fn asked(words: &[&str], port_is_optional: bool) -> Result<Asked, QuestionError> {
    let (words, via) = match words {
        [words @ .., "via", via] => (words, Some(*via)),
        words => (words, None),
    };
    let (source, destination, port) = match words {
        [source, destination] if port_is_optional => (source, destination, PortQuery::Any),
        [source, destination, port] => (source, destination, PortQuery::parse(port)?),
        _ => return Err(QuestionError::Words),
    };
    let mut flow = FlowView {
        source: (*source).to_owned(),
        destination: (*destination).to_owned(),
        via: via.map(str::to_owned),
        ..FlowView::default()
    };
    match &port {
        PortQuery::Number(protocol, number) => {
            flow.protocol = Some(protocol.name().to_owned());
            flow.port = Some(number.get());
        }
        PortQuery::Name(protocol, _) => flow.protocol = Some(protocol.name().to_owned()),
        PortQuery::Icmp => flow.protocol = Some("ICMP".to_owned()),
        PortQuery::Icmp6(_) => flow.protocol = Some("ICMPv6".to_owned()),
        PortQuery::Ip(number) => flow.protocol = Some(number.to_string()),
        PortQuery::Any => {}
    }
    Ok(Asked {
        question: Question {
            source: Endpoint::parse(source)?,
            destination: Endpoint::parse(destination)?,
            port,
            via: via.map(Endpoint::parse).transpose()?,
        },
        flow,
    })
}

/// Prints answers in the form that was asked for.
struct Printer {
    output: AnswerOutput,
    out: std::io::BufWriter<anstream::AutoStream<std::io::Stdout>>,
    /// What one document will hold.
    set: Vec<ExplanationView>,
    bulk: bool,
}

impl Printer {
    fn unanswered(&mut self, flow: FlowView, error: &Unanswerable) -> anyhow::Result<Outcome> {
        if !self.bulk {
            bail!("{error}");
        }
        let told = format!("{error}\n");
        self.print(Telling::unanswered(flow, error.to_string()), || told)?;
        Ok(Outcome::Unanswered)
    }

    /// Prints one explanation; `told` is its text for people.
    fn print(
        &mut self,
        view: ExplanationView,
        told: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        match self.output {
            AnswerOutput::Table | AnswerOutput::Wide => {
                if let Some(error) = view.error() {
                    let flow = clean(&view.flow_words());
                    return self.text(&format!("Unknown  {flow}\n  {}\n", clean(error)));
                }
                self.text(&told())
            }
            AnswerOutput::Json | AnswerOutput::Jsonl | AnswerOutput::Yaml => self.view(view),
        }
    }

    /// Prints explanations that are one answer.
    fn print_set(
        &mut self,
        views: Vec<ExplanationView>,
        told: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        match self.output {
            AnswerOutput::Table | AnswerOutput::Wide => self.text(&told()),
            AnswerOutput::Jsonl => views.into_iter().try_for_each(|view| self.view(view)),
            AnswerOutput::Json => {
                serde_json::to_writer_pretty(&mut self.out, &ExplanationSetView::new(views))?;
                Ok(writeln!(self.out)?)
            }
            AnswerOutput::Yaml => {
                let yaml = serde_saphyr::to_string(&ExplanationSetView::new(views))?;
                Ok(write!(self.out, "{yaml}")?)
            }
        }
    }

    fn text(&mut self, text: &str) -> anyhow::Result<()> {
        write!(self.out, "{text}")?;
        if self.bulk {
            writeln!(self.out)?;
        }
        Ok(())
    }

    fn view(&mut self, view: ExplanationView) -> anyhow::Result<()> {
        match self.output {
            AnswerOutput::Jsonl => {
                serde_json::to_writer(&mut self.out, &view)?;
                writeln!(self.out)?;
            }
            _ if self.bulk => self.set.push(view),
            AnswerOutput::Yaml => write!(self.out, "{}", serde_saphyr::to_string(&view)?)?,
            AnswerOutput::Json | AnswerOutput::Table | AnswerOutput::Wide => {
                serde_json::to_writer_pretty(&mut self.out, &view)?;
                writeln!(self.out)?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<()> {
        let set = std::mem::take(&mut self.set);
        let one_document = matches!(self.output, AnswerOutput::Json | AnswerOutput::Yaml);
        if self.bulk && one_document {
            self.bulk = false;
            self.print_set(set, String::new)?;
        }
        self.out.flush()?;
        Ok(())
    }
}
