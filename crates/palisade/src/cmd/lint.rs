//! `palisade lint`: reports valid policies with a likely mistake.

mod fix;
mod print;
mod suppress;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use palisade_api::{Kind, Options, OtherPolicies, Problem, Severity, lower_within};
use palisade_core::analysis::lint::lint;
use palisade_core::model::Cluster;
use palisade_core::text::{nearest, ticked};
use rayon::prelude::*;

use self::fix::Plan;
use self::suppress::{Suppressed, suppress};
use crate::Outcome;
use crate::args::Cli;
use crate::args::format::OutputFormat;
use crate::args::lint::LintArgs;
use crate::args::live::require_namespaces;
use crate::cluster::report_other_policies;
use crate::draw::clean;
use crate::edit::input::EditInput;
use crate::edit::print_diff;
use crate::findings::{FindingLocator, LintCode, LocatedFinding, ids};
use crate::live::{RelevantKinds, Scope, UnreadKind};
use crate::progress::Progress;
use crate::report::unread::UnreadObject;
use crate::source::Inputs;

/// The most bytes of input for which fixes are proven without `--fix`: a proof reads the input
/// again.
const MOST_PROVEN_BY_DEFAULT: usize = 32 << 20;

/// The result of a run.
#[derive(Debug, Default)]
struct Report {
    findings: Vec<LocatedFinding>,
    suppressed: Vec<Suppressed>,
    /// The proven fixes.
    plan: Plan,
    /// The number of policies in the input.
    n_policies: usize,
    /// The policies without an effect.
    unread: Vec<UnreadObject>,
    /// The policies of other vendors.
    other_policies: OtherPolicies,
}

/// Reports the findings, and returns whether any of them counts.
pub(crate) fn run(args: &LintArgs, cli: &Cli) -> anyhow::Result<Outcome> {
    let filter = FindingFilter::new(args)?;
    let (scope, relevant) = (Scope::Everything, RelevantKinds::everything());
    if args.fix && args.cluster.input.filename.contains(&PathBuf::from("-")) {
        bail!("--fix cannot change standard input; name files with -f FILE or -f DIR");
    }
    let mut inputs = crate::cluster::inputs(&args.cluster, cli, scope, &relevant, &args.namespace)?;
    if args.fix {
        let Some(report) = report(args, cli, &inputs, &filter)? else {
            return Ok(Outcome::Unanswered);
        };
        for line in fix::refusals(&report.plan, &report.findings, &inputs.sources) {
            anstream::eprintln!("palisade: {}", clean(&line));
        }
        if args.dry_run {
            print_diff(&fix::show(&report.plan, &inputs.sources))?;
            return Ok(Outcome::Clean);
        }
        fix::write(&report.plan, &mut inputs.sources)?;
        if !cli.quiet {
            anstream::eprintln!("palisade: {}", fixed(&report.plan));
        }
    }
    let Some(report) = report(args, cli, &inputs, &filter)? else {
        return Ok(Outcome::Unanswered);
    };
    report_other_policies(cli, &report.other_policies, &mut anstream::stderr());
    print::print(args, cli, &inputs, &report)?;
    let least = args.fail_on.severity();
    let counts = |finding: &LocatedFinding| finding.severity() >= least;
    if !args.exit_zero && report.findings.iter().any(counts) {
        Ok(Outcome::Findings)
    } else {
        Ok(Outcome::Clean)
    }
}

/// Describes how many findings are fixed.
fn fixed(plan: &Plan) -> String {
    let findings = plan.edits.iter().filter(|edits| !edits.is_empty()).count();
    match (findings, plan.files.len()) {
        (0, _) => "nothing can be fixed".to_owned(),
        (1, _) => "fixed 1 finding".to_owned(),
        (many, 1) => format!("fixed {many} findings in 1 file"),
        (many, files) => format!("fixed {many} findings in {files} files"),
    }
}

/// Reads, lowers, compiles and evaluates the input; `None` if it has errors, which are printed.
fn report(
    args: &LintArgs,
    cli: &Cli,
    inputs: &Inputs,
    filter: &FindingFilter,
) -> anyhow::Result<Option<Report>> {
    let Some(manifests) = crate::cluster::objects(&args.cluster, cli, inputs) else {
        return Ok(None);
    };
    let learned = crate::cluster::learned(&args.cluster)?;
    let lowered = Progress::during("building the model", !cli.quiet, || {
        lower_within(&manifests.objects, learned.clone(), args.cluster.budget())
    });
    let cluster = &lowered.cluster;
    filter.check(inputs, cluster)?;
    let program = crate::cluster::compiled(cli, cluster);
    let found = Progress::during("looking for findings", !cli.quiet, || {
        lint(cluster, &program)
    });
    let ids = ids(&manifests.objects);
    let new_locator = || {
        FindingLocator::new(
            cluster,
            &manifests.objects,
            &inputs.sources,
            Arc::clone(&ids),
        )
    };
    let locator = new_locator();
    let remarkable = |problem: &&Problem| problem.severity() < Severity::Error;
    let problems = manifests.problems.iter().chain(&lowered.problems);
    let problems = problems.filter(remarkable);
    // A locator reads an object again to find a field, and first indexes the whole source. One
    // large part for each thread keeps the number of locators low.
    let part = found.len().div_ceil(rayon::current_num_threads()).max(1);
    let located = found.par_chunks(part).flat_map_iter(|found| {
        let locator = new_locator();
        let located: Vec<LocatedFinding> = found.iter().map(|it| locator.finding(it)).collect();
        located
    });
    let mut findings: Vec<LocatedFinding> = located.collect();
    findings.extend(problems.map(|it| locator.problem(it)));
    let mut suppressed = suppress(&manifests.objects, &mut findings);
    findings.retain(|finding| filter.has(finding));
    suppressed.retain(|it| filter.has(&it.finding));
    findings.sort_by(|a, b| order(a).cmp(&order(b)));
    suppressed.sort_by(|a, b| order(&a.finding).cmp(&order(&b.finding)));
    let known = EditInput {
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
    // A proof reads the whole input again, which takes too long for a large input unless it is
    // requested.
    let is_small = inputs.bytes() <= MOST_PROVEN_BY_DEFAULT;
    let plan = if args.fix || args.output == OutputFormat::Sarif || is_small {
        fix::plan(&locator, &known, &findings)
    } else {
        Plan::none(findings.len())
    };
    Ok(Some(Report {
        plan,
        findings,
        suppressed,
        n_policies: cluster.policies.len(),
        unread: crate::cluster::unread(inputs, &manifests),
        other_policies: crate::cluster::other_policies(inputs, &manifests),
    }))
}

/// Orders findings by position; findings without one come last.
fn order(finding: &LocatedFinding) -> impl Ord + '_ {
    let place = finding
        .place
        .map(|(source, span)| (source, span.start, span.end));
    (
        place.is_none(),
        place,
        finding.code.name(),
        &finding.message,
    )
}

/// The filter of `--only`, `--ignore` and `-n`.
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

    /// Fails if a namespace of `-n` does not exist: findings in it would silently be none.
    fn check(&self, inputs: &Inputs, cluster: &Cluster<'_>) -> anyhow::Result<()> {
        let is_unread = |it: &UnreadKind| it.resource.kind == Kind::Namespace && it.read.is_empty();
        if inputs.missing.iter().any(is_unread) {
            // A namespace without objects may exist.
            return Ok(());
        }
        require_namespaces(cluster, &self.namespaces)
    }

    fn has(&self, finding: &LocatedFinding) -> bool {
        let here = |namespace: &String| self.namespaces.contains(namespace);
        (self.only.is_empty() || self.only.contains(&finding.code))
            && !self.ignore.contains(&finding.code)
            && (self.namespaces.is_empty() || finding.namespace.as_ref().is_some_and(here))
    }
}

fn code(all: &[LintCode], text: &str) -> anyhow::Result<LintCode> {
    let found = all.iter().find(|it| it.name().eq_ignore_ascii_case(text));
    let Some(found) = found else {
        let names: Vec<&str> = all.iter().map(|it| it.name()).collect();
        let help = match nearest(text, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "docs/reference/lint.md lists them".to_owned(),
        };
        bail!("code {} not found; {help}", ticked(text));
    };
    Ok(*found)
}
