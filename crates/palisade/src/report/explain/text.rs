//! The text of an explanation: the verdict, both directions, the rule and its text, and remedies.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use palisade_core::answer::{DirectionAnswer, DirectionVerdict, FlowVerdict, Reason};
use palisade_core::decide::{Absence, Cause, Exemption};
use palisade_core::explain::StepOutcome;
use palisade_core::policy::Verdict;

use super::{
    DirectionReport, DryRun, EvaluatedEnds, Evaluation, Explanation, Failure, Position, RuleName,
    RuleReport, StepReport,
};
use crate::draw::{clean, painted};
use crate::report::flow::NamedFlow;
use crate::report::unread::UnreadAtFlow;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GREEN: Style = AnsiColor::Green.on_default().bold();
const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();

/// The most lines of a rule that are shown.
const RULE_LINES: usize = 12;

/// The most isolating policies that are shown with their position.
const MOST_POSITIONS: usize = 3;

impl Explanation<'_> {
    /// Formats the explanation.
    pub fn text(&self) -> String {
        self.answer_text() + &unread_text(&self.unread)
    }

    /// Formats the explanation without the unreadable policies.
    fn answer_text(&self) -> String {
        if let Some(error) = &self.error {
            let (from, to) = (clean(&self.flow.source), clean(&self.flow.destination));
            return format!("Unknown  {from} -> {to}\n  {}\n", clean(error));
        }
        let mut text = match self.answers.first() {
            None => self.flow_text(),
            Some(part) if part.flow.ports.is_some() => ports_text(&self.answers),
            Some(_) => self.split_text(),
        };
        for DryRun { policy, verdict } in &self.dry_run {
            text += &format!(
                "  {} is in audit mode; enforced, the verdict would be {}\n",
                clean(policy),
                verdict.name()
            );
        }
        if self.n_backends > 1 {
            let n_backends = self.n_backends;
            writeln!(text, "  {n_backends} backends have this verdict").unwrap_or_default();
        }
        for note in &self.notes {
            writeln!(text, "  {} {}", painted(BOLD, "note:"), note.message()).unwrap_or_default();
        }
        text += &self.proposals.text(self.with_reach);
        text
    }

    /// Formats flows with different verdicts, one after the other.
    fn split_text(&self) -> String {
        let mut text = String::new();
        let word = painted(verdict_style(self.verdict), self.verdict.name());
        let n_flows = self.answers.len();
        let flow = painted(BOLD, &self.head().text());
        writeln!(
            text,
            "{word}  {flow}: its {n_flows} flows have different verdicts\n"
        )
        .unwrap_or_default();
        for part in &self.answers {
            text += &indented(&part.flow_text(), "  ");
            text.push('\n');
        }
        text
    }

    fn flow_text(&self) -> String {
        let mut text = String::new();
        let word = painted(verdict_style(self.verdict), self.verdict.name());
        let flow = painted(BOLD, &self.head().text_with_family());
        writeln!(text, "{word}  {flow}").unwrap_or_default();
        let mut rows = Vec::new();
        for report in [&self.egress, &self.ingress].into_iter().flatten() {
            let Some(evaluation) = &report.evaluation else {
                continue;
            };
            let Some(ends) = &evaluation.ends else {
                continue;
            };
            let mut lines = direction_lines(report, evaluation, ends);
            lines.extend(evaluation.full_trail.iter().flatten().map(step_line));
            let label = format!("{} of {}", report.direction, clean(&ends.subject));
            rows.push((label, report.answer, lines));
        }
        let width = rows.iter().map(|(label, ..)| label.chars().count()).max();
        let width = width.unwrap_or(0);
        for (label, side, lines) in rows {
            let word = side_word(side);
            let style = side_style(side);
            let mut lines = lines.into_iter();
            let first = lines.next().unwrap_or_default();
            writeln!(
                text,
                "  {label:width$}  {}  {first}",
                painted(style, &format!("{word:5}"))
            )
            .unwrap_or_default();
            // The indentation, the label, the verdict of five characters, and a gap after each.
            let indent = " ".repeat(width + 11);
            for line in lines {
                writeln!(text, "{indent}{line}").unwrap_or_default();
            }
        }
        text
    }

    fn head(&self) -> &NamedFlow {
        self.head.as_ref().unwrap_or(&self.flow)
    }
}

/// Formats the explanations of sets of ports, each below its ports.
pub fn ports_text(sets: &[Explanation<'_>]) -> String {
    let mut text = String::new();
    for set in sets {
        let words = match &set.flow.ports {
            Some(ports) if !ports.is_everything() => ports.text().join(", "),
            Some(_) | None => "every port and protocol".to_owned(),
        };
        writeln!(text, "{}", painted(BOLD, &words)).unwrap_or_default();
        text += &indented(&set.answer_text(), "  ");
        text.push('\n');
    }
    // Once for all ports.
    let unread = UnreadAtFlow::joined(sets.iter().flat_map(|it| &it.unread));
    text + &unread_text(&unread)
}

fn unread_text(unread: &[UnreadAtFlow<'_>]) -> String {
    let notes = UnreadAtFlow::notes(unread).into_iter();
    let notes = notes.map(|note| format!("  {} {note}\n", painted(BOLD, "note:")));
    notes.collect()
}

fn verdict_style(verdict: FlowVerdict) -> Style {
    match verdict {
        FlowVerdict::Allow => GREEN,
        FlowVerdict::Deny => RED,
        FlowVerdict::Mixed | FlowVerdict::Unknown => YELLOW,
    }
}

/// Formats what decided a direction, and the rule that came nearest to allowing the flow.
fn direction_lines(
    report: &DirectionReport<'_>,
    evaluation: &Evaluation<'_>,
    ends: &EvaluatedEnds,
) -> Vec<String> {
    let Some(cause) = report.cause() else {
        return vec![unsettled_line(report, ends)];
    };
    let mut lines = cause_lines(report, ends, cause);
    for step in &evaluation.trail {
        if step.outcome == StepOutcome::Passed {
            lines.push(format!("after Pass by {}", rule_head(&step.rule)));
        }
    }
    if let Some(miss) = &evaluation.nearest_miss {
        lines.push(format!("nearest: {}", miss.message));
        lines.extend(excerpt(miss.position));
    }
    lines
}

fn cause_lines(report: &DirectionReport<'_>, ends: &EvaluatedEnds, cause: Cause) -> Vec<String> {
    let line = match cause {
        Cause::AdminRule(verdict, _) | Cause::BaselineRule(verdict, _) => {
            return report
                .rule
                .iter()
                .flat_map(|rule| rule_lines(rule, verdict))
                .collect();
        }
        Cause::NetworkPolicyRule(_) => {
            return report
                .rule
                .iter()
                .flat_map(|rule| allowing_lines(rule))
                .collect();
        }
        Cause::Isolation(_) | Cause::DefaultIsolation(_) => return isolation_lines(report),
        Cause::Default if ends.has_rules => "no rule matches, and no policy isolates it",
        Cause::Default => return vec![format!("no policy applies to its {}", report.direction)],
        Cause::Exempt(Exemption::NodeLocal) => "traffic from a pod's own node is always allowed",
        Cause::Exempt(Exemption::SelfAddress) => "a pod always reaches itself",
        Cause::Exempt(Exemption::NeighborDiscovery) => "neighbor discovery is exempt",
        Cause::Exempt(Exemption::Reply) => "a reply of an allowed connection",
        Cause::NotApplicable(Absence::HostNetwork) => {
            "a host-network pod, which policies do not select"
        }
        Cause::NotApplicable(Absence::Node) => "a node, which policies do not select",
        Cause::NotApplicable(Absence::External) => "outside the cluster",
    };
    vec![line.to_owned()]
}

fn rule_lines(rule: &RuleReport<'_>, verdict: Verdict) -> Vec<String> {
    let does = match verdict {
        Verdict::Allow => "allows",
        Verdict::Deny => "denies",
    };
    let mut lines = vec![format!("{} {does} it", rule_head(&rule.name))];
    lines.extend(rule.failure.map(|failure| match failure {
        Failure::OverBudget => {
            "the policy does not fit into the budget of its namespace; none of its rules has an effect".to_owned()
        }
        Failure::Unreadable => "the rule has an unreadable field; it fails closed".to_owned(),
    }));
    lines.extend(excerpt(rule.position));
    lines
}

fn allowing_lines(rule: &RuleReport<'_>) -> Vec<String> {
    let mut lines = vec![format!("{} allows it", rule_head(&rule.name))];
    lines.extend(excerpt(rule.position));
    lines
}

/// Formats the policies that isolate a pod.
fn isolation_lines(report: &DirectionReport<'_>) -> Vec<String> {
    let names = report.policy_names(|_| true);
    let names: Vec<String> = names.into_iter().map(clean).collect();
    let n_rules: usize = report.policies.iter().map(|it| it.n_rules).sum();
    let them = match (n_rules, names.len()) {
        (0, 1) => "it has no rules".to_owned(),
        (0, _) => "they have no rules".to_owned(),
        (1, 1) => "its one rule does not match".to_owned(),
        (n, 1) => format!("none of its {n} rules matches"),
        (1, _) => "their one rule does not match".to_owned(),
        (n, _) => format!("none of their {n} rules matches"),
    };
    let mut lines = vec![format!("isolated by {}; {them}", names.join(", "))];
    let positions = report.policies.iter().filter_map(|it| it.position);
    let positions: Vec<String> = positions
        .take(MOST_POSITIONS)
        .map(|it| format!("{}:{}", clean(it.file), it.line))
        .collect();
    if !positions.is_empty() {
        lines.push(painted(DIM, &format!("at {}", positions.join(", "))));
    }
    for name in report.policy_names(|it| it.is_over_budget) {
        lines.push(format!(
            "{} does not fit into the budget of its namespace; none of its rules has an effect",
            clean(name)
        ));
    }
    lines
}

fn unsettled_line(report: &DirectionReport<'_>, ends: &EvaluatedEnds) -> String {
    let other = clean(&ends.peer);
    match (report.answer.verdict, report.reason()) {
        (DirectionVerdict::Unknown, _) => {
            format!("depends on the unknown address of {other}")
        }
        (_, Some(Reason::NetworkPolicyRule | Reason::AdminRule | Reason::BaselineRule)) => {
            format!("for every address of {other}; the address determines the rule")
        }
        _ => format!("for every address of {other}"),
    }
}

fn step_line(step: &StepReport<'_>) -> String {
    let what = match step.outcome {
        StepOutcome::Matched => "matches and decides",
        StepOutcome::Passed => "matches: Pass",
        StepOutcome::PeerDiffers => "does not match: peer",
        StepOutcome::PortDiffers => "does not match: port",
        StepOutcome::BothDiffer => "does not match: peer, port",
        StepOutcome::AlsoMatches => "also matches",
    };
    painted(DIM, &format!("evaluated: {} {what}", clean(&step.rule.id)))
}

/// Formats a rule: `cnp/tenants#ingress[0] (no-blue)`.
fn rule_head(rule: &RuleName<'_>) -> String {
    let id = clean(&rule.id);
    match rule.name {
        Some(name) => format!("{id} ({})", clean(name)),
        None => id,
    }
}

/// Formats the position of a rule and its text.
fn excerpt(position: Option<Position<'_>>) -> Vec<String> {
    let Some(position) = position else {
        return Vec::new();
    };
    let at = format!("{}:{}", clean(position.file), position.line);
    let mut lines = vec![painted(DIM, &format!("at {at}"))];
    let text = item_lines(position.rest);
    let shown = text.iter().take(RULE_LINES);
    lines.extend(shown.map(|line| painted(DIM, &format!("| {}", clean(&shortened(line))))));
    if text.len() > RULE_LINES {
        lines.push(painted(DIM, "| ..."));
    }
    lines
}

/// Returns the word for the verdict of a direction.
fn side_word(side: DirectionAnswer) -> &'static str {
    match side.verdict {
        DirectionVerdict::Exempt => "Allow",
        DirectionVerdict::NotApplicable => "-",
        DirectionVerdict::Allow
        | DirectionVerdict::Deny
        | DirectionVerdict::Mixed
        | DirectionVerdict::Unknown => side.verdict.name(),
    }
}

fn side_style(side: DirectionAnswer) -> Style {
    match side.verdict {
        DirectionVerdict::Allow | DirectionVerdict::Exempt => GREEN,
        DirectionVerdict::NotApplicable => DIM,
        DirectionVerdict::Deny => RED,
        DirectionVerdict::Mixed | DirectionVerdict::Unknown => YELLOW,
    }
}

fn indented(text: &str, indent: &str) -> String {
    let lines = text.lines().map(|line| format!("{indent}{line}\n"));
    lines.collect()
}

/// Returns the lines of a list item without their common indentation: its first line and the deeper
/// lines after it. In JSON and in brackets that is one line.
fn item_lines(text: &str) -> Vec<String> {
    let mut lines = text.lines();
    let Some(first) = lines.next() else {
        return Vec::new();
    };
    let depth = first.len() - first.trim_start().len();
    let mut item = vec![first.get(depth..).unwrap_or_default().trim_end().to_owned()];
    for line in lines {
        let its = line.len() - line.trim_start().len();
        if line.trim().is_empty() || its <= depth || line.starts_with("---") {
            break;
        }
        item.push(line.get(depth..).unwrap_or_default().trim_end().to_owned());
    }
    item
}

/// Cuts a long line: JSON is often one line.
fn shortened(line: &str) -> String {
    const WIDTH: usize = 100;
    let mut text: String = line.chars().take(WIDTH).collect();
    if line.chars().nth(WIDTH).is_some() {
        text.push('…');
    }
    text
}
