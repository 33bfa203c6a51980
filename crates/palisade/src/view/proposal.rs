//! Proposals in the documents of `explain`.

use serde::Serialize;

use crate::report::proposal::{EditTarget, Proposal, Proposals, ProposedEdit, Reach, ReachBlock};

/// A change of policies that allows a denied flow.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProposalView {
    kind: &'static str,
    actor: &'static str,
    edits: Vec<EditView>,
    allows: ReachView,
    denies: ReachView,
    #[serde(skip_serializing_if = "Option::is_none")]
    undecided: Option<u64>,
}

impl ProposalView {
    pub(super) fn new(proposal: Proposal) -> ProposalView {
        ProposalView {
            kind: "Proposal",
            actor: proposal.actor.name(),
            edits: proposal.edits.into_iter().map(EditView::new).collect(),
            allows: ReachView::new(proposal.allows),
            denies: ReachView::new(proposal.denies),
            undecided: Some(proposal.n_undecided).filter(|it| *it > 0),
        }
    }
}

/// Returns the edits of the first proposal, each as one text.
pub(super) fn changes(proposals: &Proposals) -> Vec<String> {
    let edits = proposals.list.first().into_iter().flat_map(|it| &it.edits);
    let text = |edit: &ProposedEdit| format!("{}:\n{}", edit.action, edit.lines.join("\n"));
    edits.map(text).collect()
}

/// An edit of one object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct EditView {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_file: Option<String>,
    object: String,
    action: String,
    manifest: String,
    patch: String,
}

impl EditView {
    fn new(edit: ProposedEdit) -> EditView {
        let (file, new_file) = match edit.target {
            EditTarget::File(name) => (Some(name), None),
            EditTarget::NewFile(name) => (None, Some(name)),
            EditTarget::Object => (None, None),
        };
        EditView {
            file,
            new_file,
            object: edit.object,
            action: edit.action,
            manifest: edit.lines.into_iter().map(|it| it + "\n").collect(),
            patch: edit.patch,
        }
    }
}

/// Pairs of endpoints whose flows change.
#[derive(Debug, Serialize)]
struct ReachView {
    pairs: u64,
    blocks: Vec<ReachBlockView>,
}

impl ReachView {
    fn new(reach: Reach) -> ReachView {
        ReachView {
            pairs: reach.n_pairs,
            blocks: reach.blocks.into_iter().map(ReachBlockView::new).collect(),
        }
    }
}

/// Flows from each of some endpoints to each of others.
#[derive(Debug, Serialize)]
struct ReachBlockView {
    from: Vec<String>,
    to: Vec<String>,
    ports: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<String>,
}

impl ReachBlockView {
    fn new(block: ReachBlock) -> ReachBlockView {
        ReachBlockView {
            from: block.from,
            to: block.to,
            ports: block.ports,
            family: block.family,
        }
    }
}
