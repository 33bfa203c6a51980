//! `palisade explain`: is this flow allowed, which rule decides, and why not?

use std::io::{Read, Write};

use anyhow::{Context, bail};
use palisade_core::answer::{Answer, Answered, Respondent};
use palisade_core::compile::compile;
use palisade_core::question::{Endpoint, PortQuery, Question};

use crate::Outcome;
use crate::args::{AnswerOutput, Cli, ExplainArgs};
use crate::view::explanation::{ExplanationView, FlowView, Telling};

/// Answers one question, or one on every line of a file.
pub(crate) fn run(args: &ExplainArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    let questions = questions(args)?;
    let inputs = crate::cluster::inputs(&args.cluster)?;
    let Some(manifests) = crate::cluster::objects(&args.cluster, cli, &inputs) else {
        return Ok(Outcome::Unanswered);
    };
    let lowered = crate::cluster::lowered(&args.cluster, cli, &inputs, &manifests)?;
    let program = compile(&lowered.cluster);
    let respondent = Respondent::new(&lowered.cluster, &program);
    let full = cli.verbose || args.output == AnswerOutput::Wide;
    let telling = Telling::new(&respondent, &manifests.objects, &inputs.sources, full);
    let mut out = std::io::BufWriter::new(anstream::stdout());
    let mut worst = Outcome::Clean;
    for question in questions {
        let outcome = match question {
            Ok(asked) => {
                let answer = respondent.answer(&asked.question);
                match answer {
                    Ok(answer) => {
                        let outcome = of(&answer);
                        print(args, &mut out, &telling.explanation(asked.flow, &answer))?;
                        outcome
                    }
                    Err(error) => {
                        if args.flows.is_none() {
                            bail!("{error}");
                        }
                        print(
                            args,
                            &mut out,
                            &Telling::unanswered(asked.flow, error.to_string()),
                        )?;
                        Outcome::Unanswered
                    }
                }
            }
            Err((line, error)) => {
                let words: Vec<&str> = line.split_whitespace().collect();
                let flow = FlowView {
                    source: (*words.first().unwrap_or(&"")).to_owned(),
                    destination: (*words.get(1).unwrap_or(&"")).to_owned(),
                    ..FlowView::default()
                };
                print(args, &mut out, &Telling::unanswered(flow, error))?;
                Outcome::Unanswered
            }
        };
        worst = match (worst, outcome) {
            (Outcome::Unanswered, _) | (_, Outcome::Unanswered) => Outcome::Unanswered,
            (Outcome::Findings, _) | (_, Outcome::Findings) => Outcome::Findings,
            (Outcome::Clean, Outcome::Clean) => Outcome::Clean,
        };
    }
    out.flush()?;
    if args.exit_zero && worst == Outcome::Findings {
        return Ok(Outcome::Clean);
    }
    Ok(worst)
}

/// A question and the flow as it was asked for.
struct Asked {
    question: Question,
    flow: FlowView,
}

/// A question, or a line that is none and why.
type Line = Result<Asked, (String, String)>;

fn questions(args: &ExplainArgs) -> anyhow::Result<Vec<Line>> {
    let Some(path) = &args.flows else {
        let words: Vec<&str> = args.flow.iter().map(String::as_str).collect();
        return Ok(vec![Ok(asked(&words)?)]);
    };
    let mut text = String::new();
    if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_string(&mut text)?;
    } else {
        text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
    }
    let mut lines = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        lines.push(asked(&words).map_err(|error| (line.to_owned(), error.to_string())));
    }
    Ok(lines)
}

fn asked(words: &[&str]) -> anyhow::Result<Asked> {
    let (words, via) = match words {
        [words @ .., "via", via] => (words, Some(*via)),
        words => (words, None),
    };
    let (source, destination, port) = match words {
        [source, destination] => (source, destination, PortQuery::Any),
        [source, destination, port] => (source, destination, PortQuery::parse(port)?),
        _ => bail!("a flow is written `SRC DST PORT`, or `SRC DST PORT via ENDPOINT`"),
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

fn of(answer: &Answer) -> Outcome {
    match answer.outcome.verdict {
        Answered::Allow => Outcome::Clean,
        Answered::Deny | Answered::Mixed | Answered::Unknown => Outcome::Findings,
    }
}

fn print(
    args: &ExplainArgs,
    out: &mut impl Write,
    explanation: &ExplanationView,
) -> anyhow::Result<()> {
    match args.output {
        AnswerOutput::Table | AnswerOutput::Wide | AnswerOutput::Json => {
            serde_json::to_writer_pretty(&mut *out, explanation)?;
            writeln!(out)?;
        }
        AnswerOutput::Jsonl => {
            serde_json::to_writer(&mut *out, explanation)?;
            writeln!(out)?;
        }
        AnswerOutput::Yaml => write!(out, "{}", serde_saphyr::to_string(explanation)?)?,
    }
    Ok(())
}
