//! The text output of `affecting` for a policy.

use std::fmt::Write as _;

use super::{BOLD, DIM, SHOWN_PODS, line, listed, painted, short, verdicts};
use crate::draw::clean;
use crate::view::affecting::{AffectedByView, OverrideView, ReachView};

/// Prints what a policy overrides, and what overrides it.
pub(in crate::cmd::affecting) fn policy(view: &AffectedByView, wide: bool) -> String {
    let mut text = String::new();
    let mut place = match view.tier {
        "NetworkPolicy" => "a NetworkPolicy".to_owned(),
        tier => format!("{tier} tier"),
    };
    if let Some(priority) = view.priority {
        write!(place, ", priority {priority}").unwrap_or_default();
    }
    if !view.isolates.is_empty() {
        let isolates = view.isolates.join(" and ").to_ascii_lowercase();
        write!(place, ", isolates for {isolates}").unwrap_or_default();
    }
    if view.dry_run {
        place += ", dry run: evaluated as if it were enforced";
    }
    let name = painted(BOLD, &clean(&view.policy));
    line(&mut text, &format!("{name}  {place}"));
    if let (Some(file), Some(at)) = (&view.file, view.line) {
        line(
            &mut text,
            &painted(DIM, &format!("at {}:{at}", clean(file))),
        );
    }
    text.push('\n');
    subjects(&mut text, view, wide);
    if view.directions.is_empty() {
        line(&mut text, "It has no rules and no effect.");
    }
    if view.subjects.is_empty() || view.directions.is_empty() {
        return text;
    }
    section(&mut text, "Overrides", &view.overrides, |it| {
        let (own, it_would) = (own_part(it), other_part(it));
        let does = does(it, it.own_isolation, it.own_rules.len());
        let would = if it.verdict == "Allow" {
            "deny"
        } else {
            "allow"
        };
        format!(
            "{own} here {does} what {it_would} there would {would}: {}",
            override_line(it)
        )
    });
    section(&mut text, "Overridden by", &view.overridden_by, |it| {
        let (own, its) = (own_part(it), other_part(it));
        let does = does(it, it.isolation, it.rules.len());
        let would = if it.verdict == "Allow" {
            "deny"
        } else {
            "allow"
        };
        format!(
            "{its} there {does} what {own} here would {would}: {}",
            override_line(it)
        )
    });
    if !view.defers_to.is_empty() {
        section(&mut text, "Defers to", &view.defers_to, |it| {
            let (own, its) = (own_part(it), other_part(it));
            let passes = does(it, false, it.own_rules.len());
            let does = decides(it, it.isolation || it.rules.len() == 1);
            format!(
                "{own} here {passes} what {its} there {does}: {}",
                override_line(it)
            )
        });
    }
    if !view.out_of_reach.is_empty() {
        text.push('\n');
        line(
            &mut text,
            &painted(
                BOLD,
                "Not evaluated, because a NetworkPolicy isolates the pod",
            ),
        );
        for reach in &view.out_of_reach {
            line(&mut text, &format!("  {}", out_of_reach(reach, wide)));
        }
    }
    text
}

fn subjects(text: &mut String, view: &AffectedByView, wide: bool) {
    let counted = |count: usize, what: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {what}{plural}")
    };
    if view.subjects.is_empty() {
        line(text, "It selects no pod in the input.");
        return;
    }
    let pods = counted(view.subjects.len(), "pod");
    let namespaces = counted(view.namespaces.len(), "namespace");
    let most = if wide { usize::MAX } else { SHOWN_PODS };
    let names = listed(&view.namespaces, most);
    let head = painted(BOLD, "Selects");
    line(text, &format!("{head} {pods} of {namespaces} ({names})"));
    if wide {
        for pod in &view.subjects {
            line(text, &format!("  {}", clean(pod)));
        }
    } else {
        line(text, &format!("  {}", listed(&view.subjects, most)));
    }
}

/// Prints the overrides between the policy and others, grouped by the other policy.
fn section(
    text: &mut String,
    head: &str,
    links: &[OverrideView],
    sentence: impl Fn(&OverrideView) -> String,
) {
    text.push('\n');
    if links.is_empty() {
        line(text, &format!("{} nothing", painted(BOLD, head)));
        return;
    }
    line(text, &painted(BOLD, head));
    let mut last = "";
    for link in links {
        if link.policy != last {
            line(text, &format!("  {}", clean(&link.policy)));
            last = &link.policy;
        }
        line(text, &format!("    {}", sentence(link)));
    }
}

fn own_part(it: &OverrideView) -> String {
    if it.own_isolation {
        return format!("{} isolation", it.direction.to_ascii_lowercase());
    }
    short(&it.own_rules)
}

fn other_part(it: &OverrideView) -> String {
    if it.isolation {
        return format!("{} isolation", it.direction.to_ascii_lowercase());
    }
    short(&it.rules)
}

/// Returns the verb for the policy that is evaluated first.
fn does(it: &OverrideView, isolation: bool, n_rules: usize) -> &'static str {
    let one = isolation || n_rules == 1;
    match (it.passes && !isolation, one) {
        (true, true) => "passes on",
        (true, false) => "pass on",
        (false, one) => decides(it, one),
    }
}

fn decides(it: &OverrideView, one: bool) -> &'static str {
    match (it.verdict, one) {
        ("Allow", true) => "allows",
        ("Allow", false) => "allow",
        (_, true) => "denies",
        (_, false) => "deny",
    }
}

/// Returns the witness, with its verdict where the sentence does not state it.
fn override_line(it: &OverrideView) -> String {
    let flow = it.witness.words();
    if it.passes {
        let (is, _) = verdicts(it);
        return format!("{flow} is {is}");
    }
    flow
}

fn out_of_reach(reach: &ReachView, wide: bool) -> String {
    let most = if wide { usize::MAX } else { SHOWN_PODS };
    format!(
        "{} for {}: {}",
        clean(&reach.policy),
        reach.direction.to_ascii_lowercase(),
        listed(&reach.subjects, most)
    )
}
