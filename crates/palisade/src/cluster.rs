//! Objects for the commands that ask about a cluster: read, judged, lowered.

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;

use anyhow::Context;
use palisade_api::{Lowered, Manifests, Options, Problem, Severity, lower_within};
use palisade_core::compile::compile;
use palisade_core::model::Cluster;
use palisade_core::program::Program;

use crate::args::{Cli, ClusterArgs};
use crate::draw::Drawing;
use crate::live::overlay::read_over;
use crate::live::{Needs, RelevantKinds, Scope, check_unread};
use crate::progress::Progress;
use crate::source::{Inputs, collect};
use crate::view::Placed;

/// Opens and reads everything that was named.
pub(crate) fn inputs(
    args: &ClusterArgs,
    cli: &Cli,
    scope: Scope,
    matters: &RelevantKinds,
    namespaces: &[String],
) -> anyhow::Result<Inputs> {
    let needs = Needs { scope, namespaces };
    let inputs = collect(&args.input, cli, &needs)?;
    require_readable(args, &inputs, matters)?;
    Ok(inputs)
}

/// Fails if something that an answer depends on could not be read, and tells what else could not.
pub(crate) fn require_readable(
    args: &ClusterArgs,
    inputs: &Inputs,
    matters: &RelevantKinds,
) -> anyhow::Result<()> {
    if let Some((path, error)) = inputs.unreadable.first() {
        anyhow::bail!("cannot read {path}: {error}");
    }
    check_unread(
        &inputs.missing,
        matters,
        args.lenient,
        &mut anstream::stderr(),
    )
}

/// The objects of the inputs; `None` if there are errors, which have been told.
pub(crate) fn objects<'a>(
    args: &ClusterArgs,
    cli: &Cli,
    inputs: &'a Inputs,
) -> Option<Manifests<'a>> {
    objects_reporting_to(args, cli, inputs, &mut anstream::stderr())
}

/// [`objects`], telling what there is to tell to somebody else.
pub(crate) fn objects_reporting_to<'a>(
    args: &ClusterArgs,
    cli: &Cli,
    inputs: &'a Inputs,
    told: &mut dyn Write,
) -> Option<Manifests<'a>> {
    let progress = Progress::new(inputs.bytes(), !cli.quiet);
    objects_counting(args, cli, inputs, told, &progress)
}

/// [`objects_telling`], as a part of what a bar shows.
pub(crate) fn objects_counting<'a>(
    args: &ClusterArgs,
    cli: &Cli,
    inputs: &'a Inputs,
    told: &mut dyn Write,
    progress: &Progress,
) -> Option<Manifests<'a>> {
    let options = Options {
        as_pruned: args.input.as_pruned,
    };
    let manifests = read_over(&inputs.sources, inputs.n_live, options, &|bytes| {
        progress.add(bytes);
    });
    progress.finish();
    let errors = manifests.problems.iter().filter(|it| it.is_error()).count();
    if errors == 0 {
        return Some(manifests);
    }
    if args.lenient {
        if !cli.quiet {
            let _ = writeln!(
                told,
                "palisade: {errors} error{} in the input; going on: rules that cannot be read fail closed, \
                 objects and documents that cannot be read have no effect",
                if errors == 1 { "" } else { "s" }
            );
        }
        return Some(manifests);
    }
    let least = Severity::Error;
    print_problems(told, inputs, &manifests.problems, least, 20);
    let _ = writeln!(
        told,
        "palisade: the input has {errors} error{}; correct it, or go on with --lenient, where what cannot be read fails closed",
        if errors == 1 { "" } else { "s" }
    );
    None
}

/// What the objects mean; what is remarkable about them together is told.
pub(crate) fn lowered<'o>(
    args: &ClusterArgs,
    cli: &Cli,
    inputs: &Inputs,
    manifests: &'o Manifests<'_>,
) -> anyhow::Result<Lowered<'o>> {
    let learned = learned(args)?;
    let told = &mut anstream::stderr();
    Ok(lowered_reporting_to(
        args, learned, cli, inputs, manifests, told,
    ))
}

/// What the objects mean, together with what names have resolved to. What is remarkable is told to
/// somebody.
pub(crate) fn lowered_reporting_to<'o>(
    args: &ClusterArgs,
    learned: Vec<(String, IpAddr)>,
    cli: &Cli,
    inputs: &Inputs,
    manifests: &'o Manifests<'_>,
    told: &mut dyn Write,
) -> Lowered<'o> {
    let lowered = Progress::during("putting it together", !cli.quiet, || {
        lower_within(&manifests.objects, learned, args.budget())
    });
    let least = if cli.verbose {
        Severity::Info
    } else {
        Severity::Warning
    };
    if !cli.quiet {
        print_problems(told, inputs, &lowered.problems, least, 20);
    }
    lowered
}

/// The program of a cluster.
pub(crate) fn compiled(cli: &Cli, cluster: &Cluster<'_>) -> Program {
    Progress::during("compiling", !cli.quiet, || compile(cluster))
}

/// Draws the first problems of a severity.
fn print_problems(
    told: &mut dyn Write,
    inputs: &Inputs,
    problems: &[Problem],
    least: Severity,
    most: usize,
) {
    let problems: Vec<Problem> = problems
        .iter()
        .filter(|problem| problem.severity() >= least)
        .cloned()
        .collect();
    let shown = problems.get(..most.min(problems.len())).unwrap_or_default();
    let drawing = Drawing::new(&inputs.sources);
    for problem in &Placed::all(&inputs.sources, shown) {
        let _ = writeln!(told, "{}\n", drawing.draw(problem));
    }
    if problems.len() > most {
        let more = problems.len() - most;
        let _ = writeln!(
            told,
            "palisade: and {more} more; `palisade check` shows all\n"
        );
    }
}

/// Reads what names have resolved to.
pub(crate) fn learned(args: &ClusterArgs) -> anyhow::Result<Vec<(String, IpAddr)>> {
    let Some(path) = &args.dns else {
        return Ok(Vec::new());
    };
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    learned_of(path, &text)
}

/// What names have resolved to, by the text of a file: lines of `NAME ADDRESS`.
pub(crate) fn learned_of(path: &Path, text: &str) -> anyhow::Result<Vec<(String, IpAddr)>> {
    let mut learned = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] => {}
            [name, address] => {
                let address: IpAddr = address.parse().with_context(|| {
                    let address = palisade_core::text::ticked(address);
                    let (file, line) = (path.display(), number + 1);
                    format!("{file}:{line}: {address} is not an IP address")
                })?;
                learned.push(((*name).to_owned(), address.to_canonical()));
            }
            _ => anyhow::bail!(
                "{}:{}: a line is `NAME ADDRESS`",
                path.display(),
                number + 1
            ),
        }
    }
    Ok(learned)
}
