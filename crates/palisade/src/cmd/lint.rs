//! `palisade lint`: what is valid and probably not what was meant?

mod print;
mod suppress;

use anyhow::bail;
use palisade_api::{Problem, Severity, lower};
use palisade_core::lint::lint;
use palisade_core::text::{nearest, ticked};

use self::suppress::{Suppressed, suppress};
use crate::Outcome;
use crate::args::Cli;
use crate::args::lint::LintArgs;
use crate::findings::{LintCode, Teller, Told};
use crate::live::{Matters, Scope};
use crate::progress::Progress;
use crate::sarif::Edit;
use crate::source::Inputs;

/// Everything that was found.
#[derive(Debug, Default)]
struct Report {
    findings: Vec<Told>,
    suppressed: Vec<Suppressed>,
    /// For each finding the edits that fix it, if that is proven to be safe.
    edits: Vec<Vec<Edit>>,
    /// How many policies were looked at.
    n_policies: usize,
}

/// Looks for findings, prints them, and answers whether there were any that count.
pub(crate) fn run(args: &LintArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    let chosen = Chosen::new(args)?;
    let (scope, matters) = (Scope::Everything, Matters::everything());
    let inputs = crate::cluster::inputs(&args.cluster, cli, scope, &matters, &args.namespace)?;
    let Some(report) = report(args, cli, &inputs, &chosen)? else {
        return Ok(Outcome::Unanswered);
    };
    print::print(args, cli, &inputs, &report)?;
    let least = args.fail_on.severity();
    let counts = |told: &Told| told.severity() >= least;
    if !args.exit_zero && report.findings.iter().any(counts) {
        Ok(Outcome::Findings)
    } else {
        Ok(Outcome::Clean)
    }
}

/// Reads, lowers, compiles and looks; `None` if the input has errors, which have been told.
fn report(
    args: &LintArgs,
    cli: &Cli,
    inputs: &Inputs,
    chosen: &Chosen,
) -> anyhow::Result<Option<Report>> {
    let Some(manifests) = crate::cluster::objects(&args.cluster, cli, inputs) else {
        return Ok(None);
    };
    let learned = crate::cluster::learned(&args.cluster)?;
    let lowered = Progress::during("putting it together", !cli.quiet, || {
        lower(&manifests.objects, learned)
    });
    let cluster = &lowered.cluster;
    let program = crate::cluster::compiled(cli, cluster);
    let found = Progress::during("looking for findings", !cli.quiet, || {
        lint(cluster, &program)
    });
    let teller = Teller::new(cluster, &manifests.objects, &inputs.sources);
    let remarkable = |problem: &&Problem| problem.severity() < Severity::Error;
    let problems = manifests.problems.iter().chain(&lowered.problems);
    let problems = problems.filter(remarkable);
    let mut findings: Vec<Told> = found.iter().map(|it| teller.finding(it)).collect();
    findings.extend(problems.map(|it| teller.problem(it)));
    let mut suppressed = suppress(&manifests.objects, &mut findings);
    findings.retain(|told| chosen.has(told));
    suppressed.retain(|it| chosen.has(&it.told));
    findings.sort_by(|a, b| order(a).cmp(&order(b)));
    suppressed.sort_by(|a, b| order(&a.told).cmp(&order(&b.told)));
    Ok(Some(Report {
        edits: vec![Vec::new(); findings.len()],
        findings,
        suppressed,
        n_policies: cluster.policies.len(),
    }))
}

/// By place; what stands nowhere comes last.
fn order(told: &Told) -> impl Ord + '_ {
    let place = told
        .place
        .map(|(source, span)| (source, span.start, span.end));
    (place.is_none(), place, told.code.name(), &told.message)
}

/// Which findings are wanted.
struct Chosen {
    only: Vec<LintCode>,
    ignore: Vec<LintCode>,
    namespaces: Vec<String>,
}

impl Chosen {
    fn new(args: &LintArgs) -> anyhow::Result<Chosen> {
        let all = LintCode::all();
        let codes = |texts: &[String]| {
            let codes = texts.iter().map(|text| code(&all, text.trim()));
            codes.collect::<anyhow::Result<Vec<LintCode>>>()
        };
        Ok(Chosen {
            only: codes(&args.only)?,
            ignore: codes(&args.ignore)?,
            namespaces: args.namespace.clone(),
        })
    }

    fn has(&self, told: &Told) -> bool {
        let here = |namespace: &String| self.namespaces.contains(namespace);
        (self.only.is_empty() || self.only.contains(&told.code))
            && !self.ignore.contains(&told.code)
            && (self.namespaces.is_empty() || told.namespace.as_ref().is_some_and(here))
    }
}

fn code(all: &[LintCode], text: &str) -> anyhow::Result<LintCode> {
    let found = all.iter().find(|it| it.name().eq_ignore_ascii_case(text));
    let Some(found) = found else {
        let names: Vec<&str> = all.iter().map(|it| it.name()).collect();
        let help = match nearest(text, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "docs/lint.md lists them".to_owned(),
        };
        bail!("there is no code {}; {help}", ticked(text));
    };
    Ok(*found)
}
