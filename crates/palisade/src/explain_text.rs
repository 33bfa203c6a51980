//! The text output of `explain`: the verdict, both directions, the rule and its text, and remedies.

use std::fmt::Write as _;

use anstyle::{AnsiColor, Style};
use palisade_core::analysis::remedy::remedies;
use palisade_core::answer::{
    Answer, DirectionAnswer, DirectionVerdict, FlowAnswer, FlowVerdict, PortAnswer, Reason,
};
use palisade_core::decide::{Absence, Cause, Exemption};
use palisade_core::explain::StepOutcome;
use palisade_core::policy::{Direction, Verdict};
use palisade_core::program::RulePlace;

use crate::draw::{clean, painted};
use crate::remedy_text;
use crate::view::explanation::{ExplainContext, FlowView, verdict};

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GREEN: Style = AnsiColor::Green.on_default().bold();
const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();

/// The most lines of a rule that are shown.
const RULE_LINES: usize = 12;

/// The most isolating policies that are shown with their position.
const MOST_POSITIONS: usize = 3;

fn verdict_style(verdict: FlowVerdict) -> Style {
    match verdict {
        FlowVerdict::Allow => GREEN,
        FlowVerdict::Deny => RED,
        FlowVerdict::Mixed | FlowVerdict::Unknown => YELLOW,
    }
}

/// Formats a flow: `shop/web -> shop/db tcp/5432`.
fn flow_text(flow: &FlowView) -> String {
    let mut text = format!("{} -> {}", clean(&flow.source), clean(&flow.destination));
    if let Some(protocol) = &flow.protocol {
        let protocol = match protocol.parse::<u8>() {
            Ok(number) => format!("ip/{number}"),
            Err(_) => protocol.to_ascii_lowercase(),
        };
        match flow.port {
            Some(port) => write!(text, " {protocol}/{port}"),
            None => write!(text, " {protocol}"),
        }
        .unwrap_or_default();
    }
    if let Some(family) = &flow.family {
        write!(text, " ({family})").unwrap_or_default();
    }
    if let Some(via) = &flow.via {
        write!(text, " via {}", clean(via)).unwrap_or_default();
    }
    text
}

impl ExplainContext<'_> {
    /// Formats an answer.
    pub(crate) fn answer_text(&self, queried: &FlowView, answer: &Answer) -> String {
        let mut text = String::new();
        if answer.is_split() {
            let style = verdict_style(answer.outcome.verdict);
            let word = painted(style, verdict(answer.outcome.verdict));
            let n_flows = answer.flows.len();
            let flow = painted(BOLD, &flow_text(queried));
            writeln!(
                text,
                "{word}  {flow}: its {n_flows} flows have different verdicts\n"
            )
            .unwrap_or_default();
            for single in &answer.flows {
                text += &indented(&self.flow_text(&self.single_flow(single), single), "  ");
                text.push('\n');
            }
            return text;
        }
        let Some(single) = answer.flows.first() else {
            return text;
        };
        let mut flow = FlowView {
            family: None,
            ..queried.clone()
        };
        if answer.flows.len() == 1 && single.via.is_some() {
            flow = self.single_flow(single);
            flow.family = None;
        } else if answer.flows.len() == 1 && flow.port.is_none() && flow.ports.is_empty() {
            flow = flow.carrying(single.transport);
        }
        self.flow_text(&flow, single)
    }

    /// Formats every set of ports with its answer.
    pub(crate) fn ports_text(&self, queried: &FlowView, answers: &[PortAnswer]) -> String {
        let mut text = String::new();
        let plainly = self.plainly();
        for PortAnswer { ports, answer } in answers {
            let words = if ports.is_everything() {
                "every port and protocol".to_owned()
            } else {
                ports.text().join(", ")
            };
            writeln!(text, "{}", painted(BOLD, &words)).unwrap_or_default();
            let queried = &FlowView {
                ports: ports.text(),
                ..queried.clone()
            };
            text += &indented(&plainly.answer_text(queried, answer), "  ");
            text.push('\n');
        }
        text
    }

    fn flow_text(&self, flow: &FlowView, single: &FlowAnswer) -> String {
        let outcome = &single.outcome;
        let mut text = String::new();
        let word = painted(verdict_style(outcome.verdict), verdict(outcome.verdict));
        writeln!(text, "{word}  {}", painted(BOLD, &flow_text(flow))).unwrap_or_default();
        let mut rows = Vec::new();
        for direction in [Direction::Egress, Direction::Ingress] {
            let side = outcome.direction(direction);
            let endpoint = match direction {
                Direction::Egress => single.source,
                Direction::Ingress => single.destination,
            };
            let mut lines = self.side_lines(side, direction, single);
            if self.full_trail {
                lines.extend(self.trail_lines(side, direction, single));
            }
            let label = format!("{direction} of {}", clean(&self.end_name(endpoint)));
            rows.push((label, side, lines));
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
        text += &self.remedy_lines(single);
        text
    }

    fn remedy_lines(&self, single: &FlowAnswer) -> String {
        let mut text = String::new();
        let denials = self.denials(single);
        let (cluster, program) = (self.respondent.cluster, self.respondent.program);
        let found = remedies(cluster, program, single, &denials);
        for (index, remedy) in found.iter().enumerate() {
            let head = if index == 0 { "to allow it:" } else { "and:" };
            let lines = remedy_text::change(self, single, remedy);
            let mut lines = lines.into_iter();
            let first = lines.next().unwrap_or_default();
            writeln!(text, "  {} {first}", painted(BOLD, head)).unwrap_or_default();
            for line in lines {
                writeln!(text, "      {line}").unwrap_or_default();
            }
        }
        text
    }

    /// Formats what decided a direction, and the rule that came nearest to allowing the flow.
    fn side_lines(
        &self,
        side: DirectionAnswer,
        direction: Direction,
        single: &FlowAnswer,
    ) -> Vec<String> {
        let Some(cause) = side.cause else {
            return self.unsettled_lines(side, direction, single);
        };
        let program = self.respondent.program;
        let mut lines = Vec::new();
        match cause {
            Cause::AdminRule(verdict, rule) | Cause::BaselineRule(verdict, rule) => {
                if let Some(place) = program.place(rule) {
                    lines.push(format!("{} {} it", self.rule_head(place), does(verdict)));
                    lines.extend(self.closed_line(place));
                    lines.extend(self.rule_text(place));
                }
            }
            Cause::NetworkPolicyRule(rule) => {
                if let Some(place) = program.place(rule) {
                    lines.push(format!("{} allows it", self.rule_head(place)));
                    lines.extend(self.rule_text(place));
                }
            }
            Cause::Isolation(id) | Cause::DefaultIsolation(id) => {
                let policies = program.isolation(id);
                let cluster = self.respondent.cluster;
                let rules = policies
                    .iter()
                    .filter_map(|id| cluster.policies.get(id.0 as usize));
                let n_rules: usize = rules.map(|it| it.rules(direction).list.len()).sum();
                let names = self.policies(side);
                let names: Vec<String> = names.iter().map(|name| clean(name)).collect();
                let them = match (n_rules, names.len()) {
                    (0, 1) => "it has no rules".to_owned(),
                    (0, _) => "they have no rules".to_owned(),
                    (1, 1) => "its one rule does not match".to_owned(),
                    (n, 1) => format!("none of its {n} rules matches"),
                    (1, _) => "their one rule does not match".to_owned(),
                    (n, _) => format!("none of their {n} rules matches"),
                };
                lines.push(format!("isolated by {}; {them}", names.join(", ")));
                let positions = policies.iter().filter_map(|id| self.policy_position(*id));
                let positions: Vec<String> = positions
                    .take(MOST_POSITIONS)
                    .map(|it| format!("{}:{}", clean(it.file), it.line))
                    .collect();
                if !positions.is_empty() {
                    lines.push(painted(DIM, &format!("at {}", positions.join(", "))));
                }
                for name in self.over_budget(side) {
                    let name = clean(&name);
                    lines.push(format!(
                        "{name} does not fit into the budget of its namespace; none of its rules has an effect"
                    ));
                }
            }
            Cause::Default => lines.push(self.default_line(direction, single)),
            Cause::Exempt(Exemption::NodeLocal) => {
                lines.push("traffic from a pod's own node is always allowed".to_owned());
            }
            Cause::Exempt(Exemption::SelfAddress) => {
                lines.push("a pod always reaches itself".to_owned());
            }
            Cause::Exempt(Exemption::NeighborDiscovery) => {
                lines.push("neighbor discovery is exempt".to_owned());
            }
            Cause::Exempt(Exemption::Reply) => {
                lines.push("a reply of an allowed connection".to_owned());
            }
            Cause::NotApplicable(Absence::HostNetwork) => {
                lines.push("a host-network pod, which policies do not select".to_owned());
            }
            Cause::NotApplicable(Absence::Node) => {
                lines.push("a node, which policies do not select".to_owned());
            }
            Cause::NotApplicable(Absence::External) => {
                lines.push("outside the cluster".to_owned());
            }
        }
        for step in program.trail(&single.flow, direction, cause) {
            if step.outcome == StepOutcome::Passed {
                lines.push(format!("after Pass by {}", self.rule_head(step.rule)));
            }
        }
        if let Some(miss) = self.miss(single, direction, cause) {
            lines.push(format!(
                "nearest: {}",
                remedy_text::miss(self, single, direction, &miss)
            ));
            lines.extend(self.rule_text(miss.rule));
        }
        lines
    }

    fn default_line(&self, direction: Direction, single: &FlowAnswer) -> String {
        let steps = self
            .respondent
            .program
            .full_trail(&single.flow, direction, Cause::Default);
        if steps.is_empty() {
            format!("no policy applies to its {direction}")
        } else {
            "no rule matches, and no policy isolates it".to_owned()
        }
    }

    fn unsettled_lines(
        &self,
        side: DirectionAnswer,
        direction: Direction,
        single: &FlowAnswer,
    ) -> Vec<String> {
        let other = match direction {
            Direction::Ingress => single.source,
            Direction::Egress => single.destination,
        };
        let other = clean(&self.end_name(other));
        let line = match (side.verdict, side.reason) {
            (DirectionVerdict::Unknown, _) => {
                format!("depends on the unknown address of {other}")
            }
            (_, Some(Reason::NetworkPolicyRule | Reason::AdminRule | Reason::BaselineRule)) => {
                format!("for every address of {other}; the address determines the rule")
            }
            _ => format!("for every address of {other}"),
        };
        vec![line]
    }

    fn trail_lines(
        &self,
        side: DirectionAnswer,
        direction: Direction,
        single: &FlowAnswer,
    ) -> Vec<String> {
        let Some(cause) = side.cause else {
            return Vec::new();
        };
        let steps = self
            .respondent
            .program
            .full_trail(&single.flow, direction, cause);
        let line = |step: palisade_core::explain::Step| {
            let what = match step.outcome {
                StepOutcome::Matched => "matches and decides",
                StepOutcome::Passed => "matches: Pass",
                StepOutcome::PeerDiffers => "does not match: peer",
                StepOutcome::PortDiffers => "does not match: port",
                StepOutcome::BothDiffer => "does not match: peer, port",
                StepOutcome::AlsoMatches => "also matches",
            };
            painted(
                DIM,
                &format!("evaluated: {} {what}", clean(&self.rule_id(step.rule))),
            )
        };
        steps.into_iter().map(line).collect()
    }

    /// Formats a rule: `cnp/tenants#ingress[0] (no-blue)`.
    fn rule_head(&self, place: RulePlace) -> String {
        let policy = self
            .respondent
            .cluster
            .policies
            .get(place.policy.0 as usize);
        let rule = policy.and_then(|it| it.rules(place.direction).list.get(place.index as usize));
        let id = clean(&self.rule_id(place));
        match rule.and_then(|rule| rule.name) {
            Some(name) => format!("{id} ({})", clean(name)),
            None => id,
        }
    }

    fn closed_line(&self, place: RulePlace) -> Option<String> {
        let policy = self
            .respondent
            .cluster
            .policies
            .get(place.policy.0 as usize)?;
        let rule = policy
            .rules(place.direction)
            .list
            .get(place.index as usize)?;
        let why = if policy.is_over_budget {
            "the policy does not fit into the budget of its namespace; none of its rules has an effect"
        } else {
            "the rule has an unreadable field; it fails closed"
        };
        rule.failed_closed.then(|| why.to_owned())
    }

    /// Formats the position of a rule and its text.
    fn rule_text(&self, place: RulePlace) -> Vec<String> {
        let Some(position) = self.rule_position(place) else {
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

fn does(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allows",
        Verdict::Deny => "denies",
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
