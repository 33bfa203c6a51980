//! The documents of `diff`.

use palisade_core::analysis::connect::diff::{
    Block, ChangeKind, OneSided, SelectedRole, Totals, Unseen,
};
use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};

use super::{API_VERSION, direction_name};
use crate::diff_report::unseen::selects;
use crate::diff_report::{Decided, DiffReport};

/// The difference between two clusters.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DiffView<'a> {
    api_version: &'static str,
    kind: &'static str,
    groups: GroupsView<'a>,
    gained: BlocksView<'a>,
    lost: BlocksView<'a>,
    undecided: BlocksView<'a>,
    endpoints: EndpointsView<'a>,
    changed: Vec<ChangedView>,
    pairs: PairsView,
    one_sided_pairs: PairsView,
}

impl<'a> DiffView<'a> {
    pub(crate) fn new(report: &'a DiffReport<'a>) -> DiffView<'a> {
        let [added, removed] = report.one_sided();
        let changed = report.all_changed().into_iter().map(|it| ChangedView {
            object: it.name,
            change: it.change,
        });
        DiffView {
            api_version: API_VERSION,
            kind: "Diff",
            groups: GroupsView(report),
            gained: BlocksView(report, ChangeKind::Gained),
            lost: BlocksView(report, ChangeKind::Lost),
            undecided: BlocksView(report, ChangeKind::Undecided),
            endpoints: EndpointsView { added, removed },
            changed: changed.collect(),
            pairs: PairsView::new(report.difference.totals),
            one_sided_pairs: PairsView::new(report.difference.one_sided_totals),
        }
    }
}

/// The endpoints that only one side has.
#[derive(Debug, Serialize)]
struct EndpointsView<'a> {
    added: Vec<&'a str>,
    removed: Vec<&'a str>,
}

/// A changed object.
#[derive(Debug, Serialize)]
struct ChangedView {
    object: String,
    change: &'static str,
}

/// The number of ordered pairs of endpoints with different flows.
#[derive(Debug, Serialize)]
struct PairsView {
    gained: u64,
    lost: u64,
    undecided: u64,
}

impl PairsView {
    fn new(totals: Totals) -> PairsView {
        PairsView {
            gained: totals.gained,
            lost: totals.lost,
            undecided: totals.undecided,
        }
    }
}

/// Writes groups one by one: all of them together may exceed memory.
#[derive(Debug)]
struct GroupsView<'a>(&'a DiffReport<'a>);

impl Serialize for GroupsView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let n_groups = self.0.difference.groups.len();
        let mut map = serializer.serialize_map(Some(n_groups))?;
        for group in (0..n_groups).filter_map(|it| u32::try_from(it).ok()) {
            map.serialize_entry(&group_name(group), &self.0.names(group))?;
        }
        map.end()
    }
}

fn group_name(number: u32) -> String {
    format!("g{}", u64::from(number) + 1)
}

#[derive(Debug)]
struct BlocksView<'a>(&'a DiffReport<'a>, ChangeKind);

impl Serialize for BlocksView<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let blocks = self.0.difference.blocks.iter();
        let mut list = serializer.serialize_seq(None)?;
        for block in blocks.filter(|it| it.kind == self.1) {
            list.serialize_element(&BlockView {
                from: group_name(block.from),
                to: group_name(block.to),
                about: AboutView::new(self.0, block),
            })?;
        }
        if self.1 == ChangeKind::Undecided {
            for unseen in self.0.unseen() {
                list.serialize_element(&UnseenView::new(self.0, unseen))?;
            }
        }
        list.end()
    }
}

#[derive(Debug, Serialize)]
struct BlockView {
    from: String,
    to: String,
    #[serde(flatten)]
    about: AboutView,
}

/// A single block, with its groups spelt out.
#[derive(Debug, Serialize)]
pub(crate) struct BlockLineView<'a> {
    change: &'static str,
    from: Vec<&'a str>,
    to: Vec<&'a str>,
    #[serde(flatten)]
    about: AboutView,
}

impl<'a> BlockLineView<'a> {
    pub(crate) fn new(report: &'a DiffReport<'_>, block: &Block) -> BlockLineView<'a> {
        BlockLineView {
            change: match block.kind {
                ChangeKind::Gained => "gained",
                ChangeKind::Lost => "lost",
                ChangeKind::Undecided => "undecided",
            },
            from: report.names(block.from),
            to: report.names(block.to),
            about: AboutView::new(report, block),
        }
    }
}

/// A selection that has no member in the input: a block without endpoints.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UnseenView {
    symbolic: bool,
    direction: &'static str,
    selects: String,
    selected_as: &'static str,
    policy: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    old_rules: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    new_rules: Vec<String>,
    caused_by: String,
}

impl UnseenView {
    fn new(report: &DiffReport<'_>, unseen: &Unseen<'_>) -> UnseenView {
        let [old_rules, new_rules] = report.unseen_rules(unseen);
        UnseenView {
            symbolic: true,
            direction: direction_name(unseen.direction),
            selects: selects(&unseen.set, usize::MAX),
            selected_as: match unseen.role {
                SelectedRole::Subject => "Subject",
                SelectedRole::Peer => "Peer",
            },
            policy: report.unseen_policy(unseen),
            old_rules,
            new_rules,
            caused_by: report.changed(unseen.cause).name,
        }
    }
}

/// The same on a line of its own.
#[derive(Debug, Serialize)]
pub(crate) struct UnseenLineView {
    change: &'static str,
    #[serde(flatten)]
    unseen: UnseenView,
}

impl UnseenLineView {
    pub(crate) fn new(report: &DiffReport<'_>, unseen: &Unseen<'_>) -> UnseenLineView {
        UnseenLineView {
            change: "undecided",
            unseen: UnseenView::new(report, unseen),
        }
    }
}

/// The ports and the causes of a block.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AboutView {
    ports: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    new_endpoint: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    gone_endpoint: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    old_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    old_policies: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    new_policies: Vec<String>,
    /// Whether the rules are those of one flow of the block; its other flows may have other rules.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    rules_of_example: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    caused_by: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also_caused_by: Vec<String>,
}

impl AboutView {
    fn new(report: &DiffReport<'_>, block: &Block) -> AboutView {
        let [old, new] = report.decided(block);
        let parts = |it: Option<Decided>| match it {
            Some(it) => (it.rule, Some(it.reason), it.policies),
            None => (None, None, Vec::new()),
        };
        let (old_rule, old_reason, old_policies) = parts(old);
        let (new_rule, new_reason, new_policies) = parts(new);
        let mut causes = block.causes.iter().map(|it| report.changed(*it).name);
        AboutView {
            ports: block.ports.text(),
            family: block.family.map(|it| it.to_string()),
            new_endpoint: block.one_sided == Some(OneSided::New),
            gone_endpoint: block.one_sided == Some(OneSided::Gone),
            direction: block.decision.map(|it| direction_name(it.direction)),
            old_rule,
            old_reason,
            old_policies,
            new_rule,
            new_reason,
            new_policies,
            rules_of_example: block.is_example,
            caused_by: causes.next(),
            also_caused_by: causes.collect(),
        }
    }
}
