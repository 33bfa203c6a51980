//! Reads, validates and lowers objects for the commands that evaluate a cluster.

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;

use anyhow::Context;
use palisade_api::{Lowered, Manifests, Options, OtherPolicies, Problem, Severity, lower_within};
use palisade_core::compile::compile;
use palisade_core::model::Cluster;
use palisade_core::program::Program;

use crate::args::format::OutputFormat;
use crate::args::{Cli, ClusterArgs};
use crate::draw::{Drawing, clean};
use crate::live::overlay::read_over;
use crate::live::{Needs, RelevantKinds, Scope, check_unread};
use crate::progress::Progress;
use crate::report::unread::{self, UnreadObject};

use crate::source::{Inputs, collect};
use crate::view::{Placed, Placer};

/// Opens and reads every input.
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

/// Fails if the answer depends on unreadable input, and reports other unreadable input.
pub(crate) fn require_readable(
    args: &ClusterArgs,
    inputs: &Inputs,
    matters: &RelevantKinds,
) -> anyhow::Result<()> {
    if let Some((path, error)) = inputs.unreadable.first() {
        anyhow::bail!("cannot read {}: {error}", clean(path));
    }
    check_unread(
        &inputs.missing,
        matters,
        args.lenient,
        &mut anstream::stderr(),
    )
}

/// Returns the objects of the inputs; `None` if they have errors, which it prints.
pub(crate) fn objects<'a>(
    args: &ClusterArgs,
    cli: &Cli,
    inputs: &'a Inputs,
) -> Option<Manifests<'a>> {
    objects_reporting_to(args, cli, inputs, &mut anstream::stderr())
}

/// Like [`objects`], with messages written to `messages`.
pub(crate) fn objects_reporting_to<'a>(
    args: &ClusterArgs,
    cli: &Cli,
    inputs: &'a Inputs,
    messages: &mut dyn Write,
) -> Option<Manifests<'a>> {
    let progress = Progress::new(inputs.bytes(), !cli.quiet);
    objects_counting(args, cli, inputs, messages, &progress)
}

/// Like [`objects_reporting_to`], as a part of the work of a progress bar.
pub(crate) fn objects_counting<'a>(
    args: &ClusterArgs,
    cli: &Cli,
    inputs: &'a Inputs,
    messages: &mut dyn Write,
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
                messages,
                "palisade: {errors} error{} in the input; continuing: unreadable rules fail closed, \
                 unreadable objects and documents have no effect",
                if errors == 1 { "" } else { "s" }
            );
        }
        return Some(manifests);
    }
    let least = Severity::Error;
    print_problems(messages, inputs, &manifests.problems, least, 20);
    let _ = writeln!(
        messages,
        "palisade: the input has {errors} error{}; correct it, or add --lenient, which makes unreadable rules fail closed",
        if errors == 1 { "" } else { "s" }
    );
    None
}

/// Returns the policies that the answer ignores, because they are unreadable.
pub(crate) fn unread(inputs: &Inputs, manifests: &Manifests<'_>) -> Vec<UnreadObject> {
    let mut placer = Placer::new(&inputs.sources);
    let unread = palisade_api::unread(manifests).into_iter();
    let unread = unread.map(|unread| {
        let problem = &unread.problem;
        let (file, (line, _), _) = placer.place(problem.source, problem.span.start);
        UnreadObject {
            file: file.to_owned(),
            line,
            unread,
        }
    });
    unread.collect()
}

/// Counts the policies of other vendors in the input, which no answer takes into account.
pub(crate) fn other_policies(inputs: &Inputs, manifests: &Manifests<'_>) -> OtherPolicies {
    let mut found = palisade_api::other_policies(manifests);
    for (kind, count) in &inputs.other_policies {
        *found.entry(*kind).or_default() += count;
    }
    found
}

/// Reports policies of other vendors.
pub(crate) fn report_other_policies(cli: &Cli, found: &OtherPolicies, messages: &mut dyn Write) {
    if let Some(line) = crate::report::other_policies::line(found).filter(|_| !cli.quiet) {
        let _ = writeln!(messages, "palisade: {line}");
    }
}

/// Counts the policies of other vendors in the input, and reports them.
pub(crate) fn reported_other_policies(
    cli: &Cli,
    inputs: &Inputs,
    manifests: &Manifests<'_>,
) -> OtherPolicies {
    let found = other_policies(inputs, manifests);
    report_other_policies(cli, &found, &mut anstream::stderr());
    found
}

/// Prints a line for the unreadable policies: at the end of a text, and on standard error for
/// formats that have no place for it.
pub(crate) fn print_unread(
    out: &mut dyn Write,
    output: OutputFormat,
    unread: &[UnreadObject],
) -> anyhow::Result<()> {
    match unread::line(unread) {
        Some(line) if output.is_text() => writeln!(out, "note: {line}")?,
        Some(line) if output.document().is_none() => anstream::eprintln!("palisade: {line}"),
        Some(_) | None => {}
    }
    Ok(())
}

/// Lowers the objects to the model, and prints the problems of their combination.
pub(crate) fn lowered<'o>(
    args: &ClusterArgs,
    cli: &Cli,
    inputs: &Inputs,
    manifests: &'o Manifests<'_>,
) -> anyhow::Result<Lowered<'o>> {
    let learned = learned(args)?;
    let messages = &mut anstream::stderr();
    Ok(lowered_reporting_to(
        args, learned, cli, inputs, manifests, messages,
    ))
}

/// Lowers the objects with the learned addresses of names, and writes problems to `messages`.
pub(crate) fn lowered_reporting_to<'o>(
    args: &ClusterArgs,
    learned: Vec<(String, IpAddr)>,
    cli: &Cli,
    inputs: &Inputs,
    manifests: &'o Manifests<'_>,
    messages: &mut dyn Write,
) -> Lowered<'o> {
    let lowered = Progress::during("building the model", !cli.quiet, || {
        lower_within(&manifests.objects, learned, args.budget())
    });
    let least = if cli.verbose {
        Severity::Info
    } else {
        Severity::Warning
    };
    if !cli.quiet {
        print_problems(messages, inputs, &lowered.problems, least, 20);
    }
    lowered
}

/// Compiles a cluster.
pub(crate) fn compiled(cli: &Cli, cluster: &Cluster<'_>) -> Program {
    Progress::during("compiling", !cli.quiet, || compile(cluster))
}

/// Draws the first `most` problems of at least a severity.
fn print_problems(
    messages: &mut dyn Write,
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
        let _ = writeln!(messages, "{}\n", drawing.draw(problem));
    }
    if problems.len() > most {
        let more = problems.len() - most;
        let _ = writeln!(
            messages,
            "palisade: and {more} more; `palisade check` shows all\n"
        );
    }
}

/// Reads the file of `--dns`.
pub(crate) fn learned(args: &ClusterArgs) -> anyhow::Result<Vec<(String, IpAddr)>> {
    let Some(path) = &args.dns else {
        return Ok(Vec::new());
    };
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    learned_of(path, &text)
}

/// Parses the addresses of names from the text of a file: lines of `NAME ADDRESS`.
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
                // An IPv4-mapped IPv6 address counts as IPv4, as in the model.
                learned.push(((*name).to_owned(), address.to_canonical()));
            }
            _ => anyhow::bail!(
                "{}:{}: a line must be `NAME ADDRESS`",
                path.display(),
                number + 1
            ),
        }
    }
    Ok(learned)
}
