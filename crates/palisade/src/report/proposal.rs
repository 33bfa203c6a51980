//! Proposals: changes of policies that allow a denied flow, and what else they change.

use std::fmt::Write as _;

use crate::draw::{clean, counted};

/// A change of policies that allows a denied flow. It was applied, and the flow evaluated again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The edits, of which all are necessary.
    pub edits: Vec<ProposedEdit>,
    /// The role of the people who may make the change.
    pub actor: Actor,
    /// The pairs of endpoints with a flow that the change allows, the queried ones included.
    pub allows: Reach,
    /// The pairs of endpoints with a flow that the change denies.
    pub denies: Reach,
    /// The number of pairs for which an unknown address decides whether the change matters.
    pub n_undecided: u64,
    /// The number of pairs of the query.
    pub n_queried: u64,
}

/// Who may change an object, by convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Actor {
    /// The developers of a namespace: they write NetworkPolicies.
    Developer,
    /// The administrators of the cluster: they write cluster-wide policies.
    Administrator,
}

impl Actor {
    /// Returns the name in every output.
    pub fn name(self) -> &'static str {
        match self {
            Actor::Developer => "Developer",
            Actor::Administrator => "Administrator",
        }
    }
}

/// An edit of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedEdit {
    /// Where the object is.
    pub target: EditTarget,
    /// The object: `netpol/shop/db`.
    pub object: String,
    /// What to do, without the lines to paste: `add this ingress rule to netpol/shop/db`.
    pub action: String,
    /// The lines to paste, as block YAML.
    pub lines: Vec<String>,
    /// The edit for programs: a unified diff of the file, the text of the new file, or else a JSON
    /// patch of the object.
    pub patch: String,
}

/// The place of an edited object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EditTarget {
    /// A file of the input.
    File(String),
    /// A file that does not exist yet.
    NewFile(String),
    /// An object of the live cluster, of standard input or of a compressed file.
    Object,
}

/// Pairs of endpoints whose flows change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// The number of ordered pairs.
    pub n_pairs: u64,
    /// The flows.
    pub blocks: Vec<ReachBlock>,
}

/// Flows from each of some endpoints to each of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReachBlock {
    /// The sources.
    pub from: Vec<String>,
    /// The destinations.
    pub to: Vec<String>,
    /// The ports.
    pub ports: Vec<String>,
    /// The family, if the flows of the other one do not change.
    pub family: Option<String>,
}

/// The proposals for a query, best first, and why there is none for some people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposals {
    /// The proposals: those that change less come first.
    pub list: Vec<Proposal>,
    /// Why developers cannot allow the flow, and who can.
    pub must_act: Option<String>,
    /// Whether the input was too large to look for proposals without a request.
    pub is_omitted: bool,
}

/// The most words of a list of endpoints or ports.
const MOST_WORDS: usize = 6;

impl Proposals {
    /// Formats the best proposal, and the best one for developers if that is another.
    pub fn text(&self, with_reach: bool) -> String {
        let mut text = String::new();
        let first = self.list.first();
        let for_developers = self.list.iter().find(|it| it.actor == Actor::Developer);
        if let Some(first) = first {
            text += &first.text("to allow it:", with_reach);
        }
        if let Some(other) = for_developers.filter(|it| Some(*it) != first) {
            text += &other.text("with NetworkPolicies only:", with_reach);
        }
        if self.is_omitted {
            text += "  the input is large; add -v to find changes that allow the flow\n";
        }
        if let Some(must_act) = &self.must_act {
            let _ = writeln!(text, "  {}", clean(must_act));
        }
        text
    }
}

impl Proposal {
    fn text(&self, head: &str, with_reach: bool) -> String {
        let mut text = String::new();
        for (index, edit) in self.edits.iter().enumerate() {
            let head = if index == 0 { head } else { "and:" };
            let place = match &edit.target {
                EditTarget::NewFile(file) => format!(" as {}", clean(file)),
                EditTarget::File(_) | EditTarget::Object => String::new(),
            };
            let head = crate::draw::painted(anstyle::Style::new().bold(), head);
            let _ = writeln!(text, "  {head} {}{place}:", clean(&edit.action));
            for line in &edit.lines {
                let _ = writeln!(text, "      {}", clean(line));
            }
        }
        let _ = writeln!(text, "    {}", self.consequences());
        if with_reach {
            for (sign, reach) in [('+', &self.allows), ('-', &self.denies)] {
                for block in &reach.blocks {
                    let _ = writeln!(text, "      {sign} {}", clean(&block.text()));
                }
            }
        }
        text
    }

    /// Describes the other flows that the change allows and denies.
    fn consequences(&self) -> String {
        let mut parts = Vec::new();
        let others = self.allows.n_pairs.saturating_sub(self.n_queried);
        if others > 0 {
            parts.push(format!("also allows {}", pairs(others, "other pair")));
        }
        if self.denies.n_pairs > 0 {
            parts.push(format!("denies {}", pairs(self.denies.n_pairs, "pair")));
        }
        if self.n_undecided > 0 {
            let pairs = pairs(self.n_undecided, "pair");
            parts.push(format!("may change {pairs} with unknown addresses"));
        }
        if parts.is_empty() {
            return "changes nothing else".to_owned();
        }
        parts.join("; ")
    }
}

fn pairs(count: u64, noun: &str) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), noun)
}

impl ReachBlock {
    fn text(&self) -> String {
        let few = |words: &[String]| match words.get(..MOST_WORDS) {
            Some(shown) if words.len() > MOST_WORDS => {
                format!("{} and {} more", shown.join(", "), words.len() - MOST_WORDS)
            }
            _ => words.join(", "),
        };
        let family = self.family.iter().map(|it| format!(" ({it})"));
        format!(
            "{} -> {} {}{}",
            few(&self.from),
            few(&self.to),
            few(&self.ports),
            family.collect::<String>()
        )
    }
}
