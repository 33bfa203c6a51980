//! `palisade lint`: what is valid and probably not what was meant?

mod fix;
mod print;
mod suppress;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use palisade_api::{Options, Problem, Severity, lower_within};
use palisade_core::lint::lint;
use palisade_core::text::{nearest, ticked};
use rayon::prelude::*;

use self::fix::{FixInput, Plan};
use self::suppress::{Suppressed, suppress};
use crate::Outcome;
use crate::args::Cli;
use crate::args::lint::{LintArgs, LintOutput};
use crate::draw::clean;
use crate::findings::{FindingLocator, LintCode, LocatedFinding, ids};
use crate::live::{RelevantKinds, Scope};
use crate::progress::Progress;
use crate::source::Inputs;

/// So many bytes of input at most are read a second time to find out what can be fixed, unless fixes are asked for.
const MOST_PROVEN_UNASKED: usize = 32 << 20;

/// Everything that was found.
#[derive(Debug, Default)]
struct Report {
    findings: Vec<LocatedFinding>,
    suppressed: Vec<Suppressed>,
    /// What can be fixed.
    plan: Plan,
    /// How many policies were looked at.
    n_policies: usize,
}

/// Looks for findings, prints them, and answers whether there were any that count.
pub(crate) fn run(args: &LintArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    let chosen = FindingFilter::new(args)?;
    let (scope, matters) = (Scope::Everything, RelevantKinds::everything());
    if args.fix && args.cluster.input.filename.contains(&PathBuf::from("-")) {
        bail!("--fix changes files, and standard input is none: name files with -f FILE or -f DIR");
    }
    let mut inputs = crate::cluster::inputs(&args.cluster, cli, scope, &matters, &args.namespace)?;
    if args.fix {
        let Some(report) = report(args, cli, &inputs, &chosen)? else {
            return Ok(Outcome::Unanswered);
        };
        for line in fix::refusals(&report.plan, &report.findings, &inputs.sources) {
            anstream::eprintln!("palisade: {}", clean(&line));
        }
        if args.dry_run {
            let diff = fix::show(&report.plan, &inputs.sources);
            // What stands in a file is shown as it is to whoever reads it by program.
            let mut out = anstream::stdout();
            if out.is_terminal() {
                for line in diff.lines() {
                    writeln!(out, "{}", clean(line))?;
                }
            } else {
                write!(out, "{diff}")?;
            }
            out.flush()?;
            return Ok(Outcome::Clean);
        }
        fix::write(&report.plan, &mut inputs.sources)?;
        if !cli.quiet {
            anstream::eprintln!("palisade: {}", fixed(&report.plan));
        }
    }
    let Some(report) = report(args, cli, &inputs, &chosen)? else {
        return Ok(Outcome::Unanswered);
    };
    print::print(args, cli, &inputs, &report)?;
    let least = args.fail_on.severity();
    let counts = |told: &LocatedFinding| told.severity() >= least;
    if !args.exit_zero && report.findings.iter().any(counts) {
        Ok(Outcome::Findings)
    } else {
        Ok(Outcome::Clean)
    }
}

/// How much was fixed.
fn fixed(plan: &Plan) -> String {
    let findings = plan.edits.iter().filter(|edits| !edits.is_empty()).count();
    match (findings, plan.files.len()) {
        (0, _) => "nothing can be fixed".to_owned(),
        (1, _) => "fixed 1 finding".to_owned(),
        (many, 1) => format!("fixed {many} findings in 1 file"),
        (many, files) => format!("fixed {many} findings in {files} files"),
    }
}

/// Reads, lowers, compiles and looks; `None` if the input has errors, which have been told.
fn report(
    args: &LintArgs,
    cli: &Cli,
    inputs: &Inputs,
    chosen: &FindingFilter,
) -> anyhow::Result<Option<Report>> {
    let Some(manifests) = crate::cluster::objects(&args.cluster, cli, inputs) else {
        return Ok(None);
    };
    let learned = crate::cluster::learned(&args.cluster)?;
    let lowered = Progress::during("putting it together", !cli.quiet, || {
        lower_within(&manifests.objects, learned.clone(), args.cluster.budget())
    });
    let cluster = &lowered.cluster;
    let program = crate::cluster::compiled(cli, cluster);
    let found = Progress::during("looking for findings", !cli.quiet, || {
        lint(cluster, &program)
    });
    let ids = ids(&manifests.objects);
    let new_teller = || {
        FindingLocator::new(
            cluster,
            &manifests.objects,
            &inputs.sources,
            Arc::clone(&ids),
        )
    };
    let teller = new_teller();
    let remarkable = |problem: &&Problem| problem.severity() < Severity::Error;
    let problems = manifests.problems.iter().chain(&lowered.problems);
    let problems = problems.filter(remarkable);
    // To find a place, the object is read again. Who does that looks at the whole text first, so that each thread
    // has one part.
    let part = found.len().div_ceil(rayon::current_num_threads()).max(1);
    let told = found.par_chunks(part).flat_map_iter(|found| {
        let teller = new_teller();
        let told: Vec<LocatedFinding> = found.iter().map(|it| teller.finding(it)).collect();
        told
    });
    let mut findings: Vec<LocatedFinding> = told.collect();
    findings.extend(problems.map(|it| teller.problem(it)));
    let mut suppressed = suppress(&manifests.objects, &mut findings);
    findings.retain(|told| chosen.has(told));
    suppressed.retain(|it| chosen.has(&it.finding));
    findings.sort_by(|a, b| order(a).cmp(&order(b)));
    suppressed.sort_by(|a, b| order(&a.finding).cmp(&order(&b.finding)));
    let known = FixInput {
        sources: &inputs.sources,
        n_files: inputs.sources.len() - inputs.n_live,
        options: Options {
            as_pruned: args.cluster.input.as_pruned,
        },
        learned: &learned,
        budget: args.cluster.budget(),
        objects: &manifests.objects,
        problems: manifests.problems.iter().chain(&lowered.problems).collect(),
        cluster,
    };
    // To prove a fix, everything is read once more; of a large input nobody wants that unasked.
    let is_small = inputs.bytes() <= MOST_PROVEN_UNASKED;
    let plan = if args.fix || args.output == LintOutput::Sarif || is_small {
        fix::plan(&teller, &known, &findings)
    } else {
        Plan::none(findings.len())
    };
    Ok(Some(Report {
        plan,
        findings,
        suppressed,
        n_policies: cluster.policies.len(),
    }))
}

/// By place; what stands nowhere comes last.
fn order(told: &LocatedFinding) -> impl Ord + '_ {
    let place = told
        .place
        .map(|(source, span)| (source, span.start, span.end));
    (place.is_none(), place, told.code.name(), &told.message)
}

/// Which findings are wanted.
struct FindingFilter {
    only: Vec<LintCode>,
    ignore: Vec<LintCode>,
    namespaces: Vec<String>,
}

impl FindingFilter {
    fn new(args: &LintArgs) -> anyhow::Result<FindingFilter> {
        let all = LintCode::all();
        let codes = |texts: &[String]| {
            let codes = texts.iter().map(|text| code(&all, text.trim()));
            codes.collect::<anyhow::Result<Vec<LintCode>>>()
        };
        Ok(FindingFilter {
            only: codes(&args.only)?,
            ignore: codes(&args.ignore)?,
            namespaces: args.namespace.clone(),
        })
    }

    fn has(&self, told: &LocatedFinding) -> bool {
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
