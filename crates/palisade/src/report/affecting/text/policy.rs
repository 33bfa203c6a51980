//! The text output of `affecting` for a policy.

use std::fmt::Write as _;

use palisade_core::policy::{Direction, Verdict};

use super::super::{Override, OverridePart, PolicyReport, PolicyTier, Unreached};
use super::{BOLD, DIM, SHOWN_PODS, line, listed, painted, short, verdicts};
use crate::draw::{clean, counted};

impl PolicyReport {
    /// Formats what a policy overrides, and what overrides it.
    pub fn text(&self, wide: bool) -> String {
        let mut text = String::new();
        self.head(&mut text);
        text.push('\n');
        self.selected(&mut text, wide);
        if self.directions.is_empty() {
            line(&mut text, "It has no rules and no effect.");
        }
        if self.subjects.is_empty() || self.directions.is_empty() {
            return text;
        }
        section(&mut text, "Overrides", &self.overrides, overrides);
        section(
            &mut text,
            "Overridden by",
            &self.overridden_by,
            overridden_by,
        );
        if !self.defers_to.is_empty() {
            section(&mut text, "Defers to", &self.defers_to, defers_to);
        }
        self.unreached(&mut text, wide);
        text
    }

    fn head(&self, text: &mut String) {
        let mut place = match self.policy.tier {
            PolicyTier::NetworkPolicy => "a NetworkPolicy".to_owned(),
            tier @ (PolicyTier::Admin | PolicyTier::Baseline) => format!("{} tier", tier.name()),
        };
        if let Some(priority) = self.policy.priority {
            write!(place, ", priority {priority}").unwrap_or_default();
        }
        if !self.isolates.is_empty() {
            let isolates: Vec<&str> = self.isolates.iter().map(|it| it.key()).collect();
            write!(place, ", isolates for {}", isolates.join(" and ")).unwrap_or_default();
        }
        if self.dry_run {
            place += ", dry run: evaluated as if it were enforced";
        }
        let name = painted(BOLD, &clean(&self.policy.name));
        line(text, &format!("{name}  {place}"));
        if let Some((file, at)) = &self.policy.position {
            line(text, &painted(DIM, &format!("at {}:{at}", clean(file))));
        }
    }

    fn selected(&self, text: &mut String, wide: bool) {
        if self.subjects.is_empty() {
            line(text, "It selects no pod in the input.");
            return;
        }
        let pods = number_of(self.subjects.len(), "pod");
        let namespaces = number_of(self.namespaces.len(), "namespace");
        let most = if wide { usize::MAX } else { SHOWN_PODS };
        let names = listed(&self.namespaces, most);
        let head = painted(BOLD, "Selects");
        line(text, &format!("{head} {pods} of {namespaces} ({names})"));
        if wide {
            for pod in &self.subjects {
                line(text, &format!("  {}", clean(pod)));
            }
        } else {
            line(text, &format!("  {}", listed(&self.subjects, most)));
        }
    }

    fn unreached(&self, text: &mut String, wide: bool) {
        if self.out_of_reach.is_empty() {
            return;
        }
        text.push('\n');
        let head = "Not evaluated, because a NetworkPolicy isolates the pod";
        line(text, &painted(BOLD, head));
        let most = if wide { usize::MAX } else { SHOWN_PODS };
        for Unreached {
            policy,
            direction,
            subjects,
        } in &self.out_of_reach
        {
            let policy = clean(policy);
            let subjects = listed(subjects, most);
            line(text, &format!("  {policy} for {direction}: {subjects}"));
        }
    }
}

fn number_of(count: usize, what: &str) -> String {
    counted(count as u64, what)
}

/// Formats the overrides between the policy and others, grouped by the other policy.
fn section(
    text: &mut String,
    head: &str,
    links: &[Override],
    sentence: impl Fn(&Override) -> String,
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

fn overrides(it: &Override) -> String {
    format!(
        "{} of this policy {} what {} would {}: {}",
        part(&it.own, it.direction),
        does(it, &it.own),
        part(&it.other, it.direction),
        opposite(it),
        witness(it)
    )
}

fn overridden_by(it: &Override) -> String {
    format!(
        "{} {} what {} of this policy would {}: {}",
        part(&it.other, it.direction),
        does(it, &it.other),
        part(&it.own, it.direction),
        opposite(it),
        witness(it)
    )
}

fn defers_to(it: &Override) -> String {
    format!(
        "{} of this policy {} what {} {}: {}",
        part(&it.own, it.direction),
        verb(it, it.passes, it.own.rules.len() == 1),
        part(&it.other, it.direction),
        decides(it.verdict, is_one(&it.other)),
        witness(it)
    )
}

/// Names the part of a policy that takes part in an override.
fn part(part: &OverridePart, direction: Direction) -> String {
    if part.isolation {
        return format!("{direction} isolation");
    }
    short(&part.rules)
}

fn is_one(part: &OverridePart) -> bool {
    part.isolation || part.rules.len() == 1
}

/// Returns the verb for the policy that is evaluated first.
fn does(it: &Override, part: &OverridePart) -> &'static str {
    verb(it, it.passes && !part.isolation, is_one(part))
}

fn verb(it: &Override, passes: bool, one: bool) -> &'static str {
    match (passes, one) {
        (true, true) => "passes",
        (true, false) => "pass",
        (false, one) => decides(it.verdict, one),
    }
}

fn decides(verdict: Verdict, one: bool) -> &'static str {
    match (verdict, one) {
        (Verdict::Allow, true) => "allows",
        (Verdict::Allow, false) => "allow",
        (Verdict::Deny, true) => "denies",
        (Verdict::Deny, false) => "deny",
    }
}

/// Returns the verb for the verdict without the override.
fn opposite(it: &Override) -> &'static str {
    match it.verdict {
        Verdict::Allow => "deny",
        Verdict::Deny => "allow",
    }
}

/// Returns the witness, with its verdict where the sentence does not state it.
fn witness(it: &Override) -> String {
    let flow = it.witness.text();
    if it.passes {
        let (is, _) = verdicts(it);
        return format!("{flow} is {is}");
    }
    flow
}
