//! Proposes changes that allow a denied query, and proves each by applying it.
//!
//! A proof edits the texts of the manifests, reads and compiles them again, evaluates the query,
//! and compares the two clusters. A proposal that cannot be proven is dropped.

mod draft;
mod rules;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::bail;
use palisade_api::{Manifests, Source, SourceId, lower_within};
use palisade_core::analysis::connect::diff::{ChangeKind, Limits, Version, diff};
use palisade_core::analysis::proposals::{PolicyEdit, plans};
use palisade_core::answer::{Answer, FlowEvaluator, FlowVerdict};
use palisade_core::compile::compile;
use palisade_core::decide::Cause;
use palisade_core::policy::{Direction, Verdict};
use palisade_core::program::Program;
use palisade_core::query::FlowQuery;
use rayon::prelude::*;

use self::draft::{Draft, Drafter};
use crate::diff_report::DiffReport;
use crate::draw::clean;
pub use crate::edit::input::EditInput;
use crate::edit::{unified, write};
use crate::live::overlay::read_over;
use crate::report::proposal::{
    Actor, EditTarget, Proposal, Proposals, ProposedEdit, Reach, ReachBlock,
};

/// The most bytes of input for which plans are proven without a request: a proof reads it again.
pub const MOST_BYTES: usize = 64 << 20;

/// The most plans that are proven for a larger input.
const MOST_OF_LARGE: usize = 2;

/// A proven proposal, and the files that carry it out.
#[derive(Debug)]
pub struct Proven {
    /// The proposal, for output.
    pub proposal: Proposal,
    draft: Draft,
}

impl Proven {
    /// Returns the changed texts, by their sources, and the new files.
    pub fn files(&self) -> (&BTreeMap<SourceId, String>, &[(PathBuf, String)]) {
        (&self.draft.texts, &self.draft.new_files)
    }

    /// Returns the change as a unified diff; an object outside of files as a JSON patch.
    pub fn diff(&self) -> String {
        let edits = self.proposal.edits.iter();
        let diffs = edits.map(|edit| match &edit.target {
            EditTarget::File(_) => edit.patch.clone(),
            EditTarget::NewFile(name) => unified::of_new_file(name, &edit.patch),
            EditTarget::Object => format!("# {}\n{}\n", edit.object, edit.patch),
        });
        diffs.collect()
    }

    /// Writes the files, and returns their names.
    pub fn write(&self, known: &EditInput<'_>) -> anyhow::Result<Vec<String>> {
        let of_object = |it: &&ProposedEdit| it.target == EditTarget::Object;
        if let Some(edit) = self.proposal.edits.iter().find(of_object) {
            bail!(
                "{} is not in a file that can be changed; apply the patch that --dry-run prints with \
                 `kubectl patch --type=json`",
                clean(&edit.object)
            );
        }
        let mut names = Vec::new();
        for (id, text) in &self.draft.texts {
            let Some(source) = known.sources.get(id.0 as usize) else {
                continue;
            };
            write::replace(Path::new(source.name()), source.text(), text)?;
            names.push(source.name().to_owned());
        }
        for (path, text) in &self.draft.new_files {
            write::create(path, text)?;
            names.push(path.display().to_string());
        }
        Ok(names)
    }
}

/// The proposals of a query.
#[derive(Debug, Default)]
pub struct ProvenProposals {
    /// The proposals, best first.
    pub list: Vec<Proven>,
    must_act: Option<String>,
    is_omitted: bool,
}

impl ProvenProposals {
    /// Returns the values for output.
    pub fn report(&self) -> Proposals {
        Proposals {
            list: self.list.iter().map(|it| it.proposal.clone()).collect(),
            must_act: self.must_act.clone(),
            is_omitted: self.is_omitted,
        }
    }
}

/// What proposals are made from.
#[derive(Clone, Copy, Debug)]
pub struct Proposer<'k> {
    /// The input.
    pub known: &'k EditInput<'k>,
    /// The compiled policies of the input.
    pub program: &'k Program,
    /// The paths that the user named.
    pub roots: &'k [PathBuf],
    /// The most bytes of input for which plans are proven.
    pub most_bytes: usize,
}

impl Proposer<'_> {
    /// Proposes changes that allow a query, the ones that change least first.
    pub fn proposals(&self, query: &FlowQuery, answer: &Answer) -> ProvenProposals {
        if answer.outcome.verdict == FlowVerdict::Allow {
            return ProvenProposals::default();
        }
        let drafter = Drafter {
            known: self.known,
            roots: self.roots,
        };
        let mut plans = plans(self.known.cluster, self.program, answer);
        let n_bytes: usize = self.known.sources.iter().map(|it| it.text().len()).sum();
        if n_bytes > self.most_bytes {
            return ProvenProposals {
                is_omitted: !plans.is_empty(),
                ..ProvenProposals::default()
            };
        }
        if n_bytes > MOST_BYTES {
            plans.truncate(MOST_OF_LARGE);
        }
        let n_queried = queried_pairs(answer);
        let prove = |plan: &Vec<PolicyEdit<'_>>| {
            let draft = drafter.draft(plan)?;
            self.prove(draft, query, n_queried)
        };
        let mut list: Vec<Proven> = plans.par_iter().filter_map(prove).collect();
        list.sort_by_key(|Proven { proposal, .. }| {
            let changed = proposal.allows.n_pairs + proposal.denies.n_pairs + proposal.n_undecided;
            (changed, proposal.edits.len(), proposal.actor)
        });
        let for_developers = list.iter().any(|it| it.proposal.actor == Actor::Developer);
        ProvenProposals {
            must_act: (!for_developers).then(|| self.must_act(answer)).flatten(),
            list,
            is_omitted: false,
        }
    }

    /// Says why no NetworkPolicy can allow the flow, if that is so.
    fn must_act(&self, answer: &Answer) -> Option<String> {
        let causes = answer.flows.iter().flat_map(|flow| {
            let outcomes = Direction::BOTH.map(|it| flow.outcome.direction(it).cause);
            outcomes.into_iter().flatten()
        });
        let mut rules = causes.filter_map(|cause| {
            let denies = matches!(cause, Cause::AdminRule(Verdict::Deny, _));
            cause.rule().filter(|_| denies)
        });
        let rule = self.program.place(rules.next()?)?;
        let cluster = self.known.cluster;
        let (rule, policy) = (cluster.rule_name(rule), cluster.policy_name(rule.policy));
        Some(format!(
            "no NetworkPolicy can allow it: {rule} denies before NetworkPolicies are evaluated; an \
             administrator of the cluster must change {policy}"
        ))
    }

    fn prove(&self, draft: Draft, query: &FlowQuery, n_queried: u64) -> Option<Proven> {
        let known = self.known;
        let mut sources: Vec<Source> = Vec::with_capacity(known.sources.len());
        for (index, source) in known.sources.iter().enumerate() {
            let id = SourceId(u32::try_from(index).ok()?);
            sources.push(match draft.texts.get(&id) {
                Some(text) => Source::new(source.name(), text.clone().into_bytes()),
                None => source.clone(),
            });
        }
        let n_live = sources.len().checked_sub(known.n_files)?;
        for (path, text) in &draft.new_files {
            let name = path.display().to_string();
            sources.insert(known.n_files, Source::new(name, text.clone().into_bytes()));
        }
        let Manifests {
            objects, problems, ..
        } = read_over(&sources, n_live, known.options, &|_| {});
        let lowered = lower_within(&objects, known.learned.to_vec(), known.budget);
        if known.has_new(problems.iter().chain(&lowered.problems)) {
            return None;
        }
        let program = compile(&lowered.cluster);
        let evaluator = FlowEvaluator::new(&lowered.cluster, &program);
        let answer = evaluator.answer(query).ok()?;
        if answer.outcome.verdict != FlowVerdict::Allow {
            return None;
        }
        let version = |cluster, program| Version { cluster, program };
        let difference = diff(
            version(known.cluster, self.program),
            version(&lowered.cluster, &program),
            Limits::default(),
            &|_, _| {},
        )
        .ok()?;
        let report = DiffReport::new(&difference);
        let proposal = Proposal {
            actor: draft.actor(),
            allows: reach(&report, ChangeKind::Gained, difference.totals.gained),
            denies: reach(&report, ChangeKind::Lost, difference.totals.lost),
            n_undecided: difference.totals.undecided,
            n_queried,
            edits: draft.edits.clone(),
        };
        Some(Proven { proposal, draft })
    }
}

/// Returns the number of ordered pairs of the flows that the query stands for and that are denied.
fn queried_pairs(answer: &Answer) -> u64 {
    let denied = answer
        .flows
        .iter()
        .filter(|it| it.outcome.verdict != FlowVerdict::Allow);
    let pairs: std::collections::BTreeSet<_> =
        denied.map(|it| (it.source, it.destination)).collect();
    pairs.len() as u64
}

fn reach(report: &DiffReport<'_>, kind: ChangeKind, n_pairs: u64) -> Reach {
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    let blocks = report.difference.blocks.iter();
    let blocks = blocks.filter(|it| it.kind == kind).map(|it| ReachBlock {
        from: owned(report.names(it.from)),
        to: owned(report.names(it.to)),
        ports: it.ports.text(),
        family: it.family.map(|it| it.to_string()),
    });
    Reach {
        n_pairs,
        blocks: blocks.collect(),
    }
}

#[cfg(test)]
mod tests {
    use palisade_api::{Options, read};
    use palisade_core::budget::Budget;

    use super::*;

    const CLUSTER: &str = "apiVersion: v1
kind: Pod
metadata: {name: a, namespace: x}
status: {podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a, namespace: x}
spec: {}
";

    fn report(most_bytes: usize) -> Proposals {
        let sources = [Source::new("a.yaml", CLUSTER.as_bytes().to_vec())];
        let options = Options::default();
        let manifests = read(&sources, options, &|_| {});
        let lowered = lower_within(&manifests.objects, Vec::new(), Budget::default());
        let program = compile(&lowered.cluster);
        let known = EditInput {
            sources: &sources,
            n_files: 1,
            options,
            learned: &[],
            budget: Budget::default(),
            objects: &manifests.objects,
            problems: manifests.problems.iter().chain(&lowered.problems).collect(),
            cluster: &lowered.cluster,
        };
        let proposer = Proposer {
            known: &known,
            program: &program,
            roots: &[],
            most_bytes,
        };
        let query = FlowQuery::parse("203.0.113.7 x/a tcp/80").unwrap();
        let evaluator = FlowEvaluator::new(&lowered.cluster, &program);
        let answer = evaluator.answer(&query).unwrap();
        proposer.proposals(&query, &answer).report()
    }

    #[test]
    fn a_large_input_is_not_read_again_without_a_request() {
        let small = report(MOST_BYTES);
        assert!(!small.list.is_empty() && !small.is_omitted);
        let large = report(CLUSTER.len() - 1);
        assert!(large.list.is_empty() && large.is_omitted);
        assert!(
            large.text(false).contains("add -v"),
            "{}",
            large.text(false)
        );
    }
}
