//! The text output of `affecting`: policies by precedence, then the overrides.

mod policy;

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use palisade_core::policy::{Direction, Verdict};

use super::{
    EnforcementState, NamedRule, Override, OverridePart, PodReport, PolicyTier, SelectingPolicy,
};
use crate::draw::{clean, painted};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GREEN: Style = AnsiColor::Green.on_default().bold();
const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();

/// How many pods or rules are listed without `-o wide`.
const SHOWN_PODS: usize = 12;
const SHOWN_RULES: usize = 4;

/// Appends a line. Writing to a string cannot fail.
fn line(text: &mut String, line: &str) {
    let line = line.trim_end();
    writeln!(text, "{line}").unwrap_or_default();
}

impl PodReport {
    /// Formats the policies that select a pod; with `wide`, each rule has its own line.
    pub fn text(&self, wide: bool) -> String {
        let mut text = String::new();
        line(&mut text, &painted(BOLD, &clean(&self.endpoint)));
        if !self.pods.is_empty() {
            let shown = if wide { usize::MAX } else { SHOWN_PODS };
            line(&mut text, &format!("pods: {}", listed(&self.pods, shown)));
        }
        if self.host_network {
            line(
                &mut text,
                "This is a host-network pod: no policy selects it.",
            );
            return text;
        }
        for (direction, head) in [
            (Direction::Egress, "EGRESS, what it sends"),
            (Direction::Ingress, "INGRESS, what it receives"),
        ] {
            let policies = self.policies(direction);
            text.push('\n');
            if policies.is_empty() {
                let head = painted(BOLD, head);
                line(
                    &mut text,
                    &format!("{head}: no policy; everything is allowed"),
                );
                continue;
            }
            line(&mut text, &painted(BOLD, head));
            table(&mut text, policies, wide);
            line(&mut text, &format!("  {}", painted(DIM, rest(policies))));
            overridden(&mut text, policies);
        }
        text
    }
}

/// Prints the table of policies; with `wide` each rule has its own line.
fn table(text: &mut String, entries: &[SelectingPolicy], wide: bool) {
    let mut rows = vec![Row::plain(["TIER", "PRIORITY", "POLICY", "RULES", "STATE"])];
    for row in &mut rows {
        row.style = Some(DIM);
    }
    for entry in entries {
        let place = match &entry.policy.position {
            Some((file, line)) if wide => format!("{}:{line}", clean(file)),
            Some(_) | None => String::new(),
        };
        let priority = entry.policy.priority.map(|it| it.to_string());
        rows.push(Row {
            cells: [
                entry.policy.tier.name().to_owned(),
                priority.unwrap_or_default(),
                clean(&entry.policy.name),
                if wide {
                    isolation(entry).to_owned()
                } else {
                    rules(entry)
                },
                state_word(entry.state).to_owned(),
            ],
            place,
            style: None,
            state: Some(state_style(entry.state)),
        });
        for rule in entry.rules.iter().filter(|_| wide) {
            let mut words = format!("[{}]", rule.rule.place.index);
            for word in rule.action.iter().chain(&rule.name) {
                write!(words, " {}", clean(word)).unwrap_or_default();
            }
            if rule.failed_closed {
                words += " (failed closed)";
            }
            let decides = rule.decides || entry.state == EnforcementState::DryRun;
            let state = if decides { "" } else { "never decides" };
            rows.push(Row {
                place: rule.line.map(|it| format!("line {it}")).unwrap_or_default(),
                style: Some(DIM),
                ..Row::plain(["", "", "", &words, state])
            });
        }
    }
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(&row.cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in &rows {
        line(text, &format!("  {}", row.drawn(widths)));
    }
}

/// A line of the table.
struct Row {
    cells: [String; 5],
    place: String,
    /// The style of the whole line.
    style: Option<Style>,
    /// The style of the last column.
    state: Option<Style>,
}

impl Row {
    fn plain(cells: [&str; 5]) -> Row {
        Row {
            cells: cells.map(str::to_owned),
            place: String::new(),
            style: None,
            state: None,
        }
    }

    fn drawn(&self, widths: [usize; 5]) -> String {
        let [tier, priority, policy, rules, state] = &self.cells;
        let [
            tier_width,
            priority_width,
            policy_width,
            rules_width,
            state_width,
        ] = widths;
        let front = format!(
            "{tier:tier_width$}  {priority:>priority_width$}  {policy:policy_width$}  {rules:rules_width$}  "
        );
        // Only words are painted: painted blanks at the end of a line would survive trimming.
        let last = match self.state {
            Some(style) => painted(style, state),
            None => state.clone(),
        };
        if self.place.is_empty() {
            return match self.style {
                Some(style) => painted(style, format!("{front}{last}").trim_end()),
                None => format!("{front}{last}"),
            };
        }
        let blanks = " ".repeat(state_width.saturating_sub(state.chars().count()) + 2);
        let place = painted(DIM, &self.place);
        match self.style {
            Some(style) => format!(
                "{}{blanks}{place}",
                painted(style, &format!("{front}{last}"))
            ),
            None => format!("{front}{last}{blanks}{place}"),
        }
    }
}

fn state_word(state: EnforcementState) -> &'static str {
    match state {
        EnforcementState::InForce => "in force",
        EnforcementState::PartlyOverridden => "partly overridden",
        EnforcementState::Overridden => "overridden",
        EnforcementState::NeverDecides => "never decides",
        EnforcementState::DryRun => "dry run, not enforced",
    }
}

fn state_style(state: EnforcementState) -> Style {
    match state {
        EnforcementState::InForce => GREEN,
        EnforcementState::PartlyOverridden => YELLOW,
        EnforcementState::Overridden => RED,
        EnforcementState::NeverDecides | EnforcementState::DryRun => DIM,
    }
}

fn isolation(entry: &SelectingPolicy) -> &'static str {
    match (entry.isolates, entry.over_budget) {
        (true, true) => "isolates; over budget",
        (true, false) => "isolates",
        (false, _) => "",
    }
}

/// `[0] Accept, [1] Deny`, or for policies that isolate `isolates; allows [0] [1]`.
fn rules(entry: &SelectingPolicy) -> String {
    if entry.over_budget {
        return "isolates; over budget".to_owned();
    }
    let rules = &entry.rules;
    let shown = rules.iter().take(SHOWN_RULES);
    let shown = shown.map(|rule| {
        let index = rule.rule.place.index;
        match &rule.action {
            Some(action) => format!("[{index}] {}", clean(action)),
            None => format!("[{index}]"),
        }
    });
    let mut words: Vec<String> = shown.collect();
    if rules.len() > SHOWN_RULES {
        words.push(format!("and {} more", rules.len() - SHOWN_RULES));
    }
    match (entry.isolates, words.is_empty()) {
        (true, true) => "isolates; allows nothing".to_owned(),
        (true, false) => format!("isolates; allows {}", words.join(" ")),
        (false, _) => words.join(", "),
    }
}

/// States the order of evaluation, and the verdict of all other flows.
fn rest(entries: &[SelectingPolicy]) -> &'static str {
    let isolates = |tier: PolicyTier| {
        let mut entries = entries.iter();
        entries
            .any(|it| it.isolates && it.policy.tier == tier && it.state != EnforcementState::DryRun)
    };
    if isolates(PolicyTier::NetworkPolicy) {
        "Evaluated from top to bottom, for this direction only. NetworkPolicies isolate the pod: a flow that\n  reaches them and that none of them allows is denied."
    } else if isolates(PolicyTier::Baseline) {
        "Evaluated from top to bottom, for this direction only. DefaultNetworkPolicies isolate the pod: a flow\n  that reaches them and that none of them allows is denied."
    } else {
        "Evaluated from top to bottom, for this direction only. A flow that none of them decides is allowed."
    }
}

fn overridden(text: &mut String, entries: &[SelectingPolicy]) {
    for entry in entries.iter().filter(|it| !it.overridden_by.is_empty()) {
        text.push('\n');
        let policy = painted(BOLD, &clean(&entry.policy.name));
        line(text, &format!("  {policy} is overridden by"));
        for it in &entry.overridden_by {
            let how = match (it.other.isolation, it.passes) {
                (true, _) => "isolation".to_owned(),
                (false, true) => format!("{}, Pass", short(&it.other.rules)),
                (false, false) => short(&it.other.rules),
            };
            let own = match &it.own {
                OverridePart {
                    isolation: true, ..
                } => "by isolation".to_owned(),
                OverridePart { rules, .. } => format!("by {}", short(rules)),
            };
            let (is, would_be) = verdicts(it);
            let flow = it.witness.text();
            let other = clean(&it.policy);
            line(
                text,
                &format!("    {other} ({how}): {flow} is {is}, not {would_be} {own}"),
            );
        }
    }
}

/// Returns the verdict of the flow, and the verdict without the override.
fn verdicts(it: &Override) -> (String, &'static str) {
    match it.verdict {
        Verdict::Allow => (painted(GREEN, "allowed"), "denied"),
        Verdict::Deny => (painted(RED, "denied"), "allowed"),
    }
}

/// `ingress[0], ingress[2]`: rules without their policy.
fn short(rules: &[NamedRule]) -> String {
    let shown = rules.iter().take(SHOWN_RULES);
    let shown = shown.map(|rule| format!("{}[{}]", rule.place.direction, rule.place.index));
    let mut words: Vec<String> = shown.collect();
    if rules.len() > SHOWN_RULES {
        words.push(format!("{} more", rules.len() - SHOWN_RULES));
    }
    words.join(", ")
}

fn listed(names: &[String], most: usize) -> String {
    let shown = names.iter().take(most).map(|name| clean(name));
    let mut words: Vec<String> = shown.collect();
    if names.len() > most {
        let more = names.len() - most;
        words.push(format!("and {more} more (-o wide lists all)"));
    }
    words.join(", ")
}
