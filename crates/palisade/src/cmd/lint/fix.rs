//! `--fix`: edits of files that remove a finding and change no verdict.
//!
//! This file plans a fix, as edits of a text and as a change of the model. `prove.rs` reads the
//! edited text and compares the models. Only proven fixes are written.

mod fixable;
mod prove;
mod rewrite;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use palisade_api::{Kind, Located, Object, PathStep, Source, SourceId, Span};
use palisade_core::analysis::lint::{Finding, FindingTarget};
use palisade_core::program::RulePlace;

use self::fixable::{Removal, Rewrite};
use self::prove::{ModelChange, prove};
use self::rewrite::{masked, related};
use crate::edit::input::EditInput;
use crate::edit::remove::{emptied, renamed, without_entry, without_item};
use crate::edit::{TextEdit, edited, unified, write};
use crate::findings::{FindingLocator, LintCode, LocatedFinding, peers_of};
use crate::sarif::Edit;
use crate::view::Placer;

/// The most fixes that are tried one by one if they cannot be proven together.
const MOST_TRIED: usize = 32;

/// The fixable findings, and their edits.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// For each finding the edits that fix it.
    pub(super) edits: Vec<Vec<Edit>>,
    /// The files as they would be.
    pub(super) files: Vec<NewFile>,
    /// Findings with a fixable code that are not fixed, and why.
    pub(super) refused: Vec<(usize, String)>,
}

impl Plan {
    /// Returns a plan that fixes none of `n_findings` findings.
    pub(super) fn none(n_findings: usize) -> Plan {
        Plan {
            edits: vec![Vec::new(); n_findings],
            ..Plan::default()
        }
    }
}

/// A file with all fixes in it.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) source: SourceId,
    pub(super) cuts: Vec<TextEdit>,
    pub(super) text: String,
}

/// An edit of one source, for one or more findings.
#[derive(Clone, Debug)]
struct Fix {
    findings: Vec<usize>,
    source: SourceId,
    cuts: Vec<TextEdit>,
    changes: Vec<ModelChange>,
}

/// The fix that a finding needs.
enum FixRequest {
    /// Replaces text by text with the same meaning; `None`: the layout does not permit it.
    Text(Option<Vec<TextEdit>>),
    Rule(RulePlace),
    /// Removes an item of a rule's peers: its index, and its peers in the model.
    Peer(RulePlace, usize, Vec<u32>),
}

/// Items of a list of peers by index: their peers in the model, and their findings.
type Items = BTreeMap<usize, (Vec<u32>, Vec<usize>)>;

/// Plans fixes of findings and proves them.
pub(super) fn plan(
    locator: &FindingLocator<'_>,
    known: &EditInput<'_>,
    findings: &[LocatedFinding],
) -> Plan {
    let planner = Planner {
        locator,
        known,
        findings,
    };
    let mut plan = Plan::none(findings.len());
    let fixes = planner.fixes(&mut plan.refused);
    let fixes = non_overlapping(fixes);
    let proven = proven(known, fixes, &mut plan.refused);
    for fix in &proven {
        for finding in &fix.findings {
            if let Some(edits) = plan.edits.get_mut(*finding) {
                edits.extend(fix.cuts.iter().map(|cut| Edit {
                    source: fix.source,
                    start: Span::new(cut.range.start, cut.range.end).start,
                    end: Span::new(cut.range.start, cut.range.end).end,
                    insert: cut.insert.clone(),
                }));
            }
        }
    }
    let mut files: BTreeMap<SourceId, Vec<TextEdit>> = BTreeMap::new();
    for fix in proven {
        files.entry(fix.source).or_default().extend(fix.cuts);
    }
    for (source, mut cuts) in files {
        cuts.sort_by_key(|cut| cut.range.start);
        let text = edited(known.text(source), &cuts);
        plan.files.push(NewFile { source, cuts, text });
    }
    plan.refused.sort();
    plan
}

/// Returns the proven fixes: all of them if they can be proven together, otherwise those that can
/// be proven one after the other.
fn proven(known: &EditInput<'_>, fixes: Vec<Fix>, refused: &mut Vec<(usize, String)>) -> Vec<Fix> {
    if fixes.is_empty() || prove(known, &fixes).is_ok() {
        return fixes;
    }
    let mut proven: Vec<Fix> = Vec::new();
    for (count, fix) in fixes.into_iter().enumerate() {
        proven.push(fix.clone());
        let proof = if count < MOST_TRIED {
            prove(known, &proven)
        } else {
            Err("too many fixes to try one by one")
        };
        if let Err(why) = proof {
            proven.pop();
            let why = |finding: &usize| (*finding, why.to_owned());
            refused.extend(fix.findings.iter().map(why));
        }
    }
    proven
}

/// Drops fixes that overlap an earlier one: a fix inside a larger one is a part of it.
fn non_overlapping(mut fixes: Vec<Fix>) -> Vec<Fix> {
    let extent = |fix: &Fix| {
        let start = fix.cuts.iter().map(|it| it.range.start).min();
        let end = fix.cuts.iter().map(|it| it.range.end).max();
        (start.unwrap_or(0), end.unwrap_or(0))
    };
    // Of two fixes with the same start, the larger comes first.
    fixes.sort_by_key(|fix| {
        let (start, end) = extent(fix);
        (fix.source, start, std::cmp::Reverse(end))
    });
    let mut kept: Vec<Fix> = Vec::new();
    for fix in fixes {
        let meets = kept
            .last()
            .is_some_and(|last| last.source == fix.source && extent(&fix).0 < extent(last).1);
        if !meets {
            kept.push(fix);
        }
    }
    kept
}

struct Planner<'p, 't, 'k> {
    locator: &'p FindingLocator<'t>,
    known: &'p EditInput<'k>,
    findings: &'p [LocatedFinding],
}

impl Planner<'_, '_, '_> {
    fn fixes(&self, refused: &mut Vec<(usize, String)>) -> Vec<Fix> {
        let mut fixes = Vec::new();
        let mut rules: BTreeMap<RulePlace, Vec<usize>> = BTreeMap::new();
        let mut peers: BTreeMap<RulePlace, Items> = BTreeMap::new();
        for (index, finding) in self.findings.iter().enumerate() {
            let Some(request) = self.request(finding) else {
                continue;
            };
            if let Some(why) = self.unchangeable(finding) {
                refused.push((index, why.to_owned()));
                continue;
            }
            match (request, finding.place) {
                (FixRequest::Text(Some(cuts)), Some((source, _))) => fixes.push(Fix {
                    findings: vec![index],
                    source,
                    cuts,
                    changes: Vec::new(),
                }),
                (FixRequest::Text(_), _) => refused.push((index, LAYOUT.to_owned())),
                (FixRequest::Rule(place), _) => {
                    if self.needs_removed_rule(finding, &rules) {
                        refused.push((index, NEEDS_REMOVED_RULE.to_owned()));
                    } else {
                        rules.entry(place).or_default().push(index);
                    }
                }
                (FixRequest::Peer(place, item, of_model), _) => {
                    let items = peers.entry(place).or_default();
                    let entry = items.entry(item).or_insert((of_model, Vec::new()));
                    entry.1.push(index);
                }
            }
        }
        for (place, items) in peers {
            let all: BTreeSet<usize> = self.items(place).unwrap_or_default();
            if rules.contains_key(&place) || items.keys().copied().collect::<BTreeSet<_>>() == all {
                // A rule without peers would match every endpoint: the whole rule is removed.
                let findings = items.into_values().flat_map(|(_, findings)| findings);
                rules.entry(place).or_default().extend(findings);
                continue;
            }
            for (item, (of_model, findings)) in items {
                let change = ModelChange::Peers(place, of_model);
                let cut = self.peer_item(place, item);
                self.push(&mut fixes, refused, findings, cut, vec![change]);
            }
        }
        self.rules(rules, &mut fixes, refused);
        fixes
    }

    /// Removes rules: one by one, or the whole list if no rule would remain.
    fn rules(
        &self,
        rules: BTreeMap<RulePlace, Vec<usize>>,
        fixes: &mut Vec<Fix>,
        refused: &mut Vec<(usize, String)>,
    ) {
        let mut lists: BTreeMap<_, BTreeMap<RulePlace, Vec<usize>>> = BTreeMap::new();
        for (place, findings) in rules {
            let list = lists.entry((place.policy, place.direction)).or_default();
            list.insert(place, findings);
        }
        for ((policy, direction), list) in lists {
            let of_model = self.known.cluster.policies.get(policy.0 as usize);
            let n_rules = of_model.map_or(0, |it| it.rules(direction).list.len());
            let whole = [PathStep::Field("spec"), PathStep::Field(direction.key())];
            if list.len() == n_rules {
                let changes = list.keys().map(|place| ModelChange::Rule(*place)).collect();
                let cut = list.keys().next().and_then(|place| {
                    let (object, text) = self.object(*place)?;
                    let cut = emptied(text, self.locator.locate(object, &whole)?)?;
                    Some((object.source, cut))
                });
                let findings = list.into_values().flatten().collect();
                self.push(fixes, refused, findings, cut, changes);
                continue;
            }
            for (place, findings) in list {
                let [spec, key] = whole;
                let path = [spec, key, PathStep::Index(place.index as usize)];
                let cut = self.object(place).and_then(|(object, text)| {
                    let cut = without_item(text, self.locator.locate(object, &path)?)?;
                    Some((object.source, cut))
                });
                self.push(
                    fixes,
                    refused,
                    findings,
                    cut,
                    vec![ModelChange::Rule(place)],
                );
            }
        }
    }

    fn push(
        &self,
        fixes: &mut Vec<Fix>,
        refused: &mut Vec<(usize, String)>,
        findings: Vec<usize>,
        cut: Option<(SourceId, TextEdit)>,
        changes: Vec<ModelChange>,
    ) {
        match cut {
            Some((source, cut)) => fixes.push(Fix {
                findings,
                source,
                cuts: vec![cut],
                changes,
            }),
            None => refused.extend(findings.into_iter().map(|it| (it, LAYOUT.to_owned()))),
        }
    }

    /// Returns the fix that a finding needs, if its code is fixable.
    fn request(&self, finding: &LocatedFinding) -> Option<FixRequest> {
        match (finding.code, &finding.finding) {
            (LintCode::Engine(_), Some(of_engine)) => self.removal(of_engine),
            (LintCode::Reading(code), _) => {
                let rewrite = Rewrite::of(code)?;
                Some(FixRequest::Text(self.rewritten(rewrite, finding)))
            }
            (LintCode::Engine(_), None) | (LintCode::Ignore(_), _) => None,
        }
    }

    /// Rewrites the text of a finding; `None`: the layout does not permit it.
    fn rewritten(&self, rewrite: Rewrite, finding: &LocatedFinding) -> Option<Vec<TextEdit>> {
        let (source, span) = finding.place?;
        let text = self.known.text(source);
        match rewrite {
            Rewrite::MaskedBlock => masked(text, span),
            Rewrite::RelationCase => related(text, span),
            Rewrite::SinglePort => self.single_port(finding),
            Rewrite::WithoutEntry => {
                let cut = without_entry(text, self.located(finding, &[])?)?;
                Some(vec![cut])
            }
        }
    }

    /// Returns the rule or peer whose removal fixes a finding of the engine.
    fn removal(&self, finding: &Finding) -> Option<FixRequest> {
        if !finding.always {
            return None;
        }
        match (Removal::of(finding.code)?, finding.at) {
            (Removal::Rule, FindingTarget::Rule(place)) => Some(FixRequest::Rule(place)),
            (Removal::Peer, FindingTarget::Peer(place, index)) => {
                let (object, _) = self.object(place)?;
                let (_, peers) = peers_of(object, place)?;
                let (item, _) = peers.get(index as usize)?;
                let of_item = peers.iter().enumerate().filter(|(_, it)| it.0 == *item);
                let of_model = of_item.filter_map(|(at, _)| u32::try_from(at).ok());
                let of_model: Vec<u32> = of_model.collect();
                // An item with several peers stays: its other peers may match.
                (of_model.len() == 1).then_some(FixRequest::Peer(place, *item, of_model))
            }
            (Removal::Rule | Removal::Peer, _) => None,
        }
    }

    /// Returns why an object cannot be edited.
    fn unchangeable(&self, finding: &LocatedFinding) -> Option<&'static str> {
        let (source, _) = finding.place?;
        let index = source.0 as usize;
        let name = self.known.sources.get(index).map_or("", Source::name);
        if index >= self.known.n_files {
            Some("it is in the cluster; --fix edits files")
        } else if name == "-" {
            Some("standard input cannot be changed")
        } else if name.ends_with(".gz") {
            Some("the file is compressed")
        } else {
            None
        }
    }

    /// Reports whether a rule is redundant only because of rules that this run removes.
    fn needs_removed_rule(
        &self,
        finding: &LocatedFinding,
        rules: &BTreeMap<RulePlace, Vec<usize>>,
    ) -> bool {
        let by = finding.finding.iter().flat_map(|it| &it.by);
        by.filter_map(|part| part.rule())
            .any(|rule| rules.contains_key(&rule))
    }

    fn object(&self, place: RulePlace) -> Option<(&Object<'_>, &str)> {
        let policy = self.known.cluster.policies.get(place.policy.0 as usize)?;
        let object = self.known.objects.get(policy.origin.0 as usize)?;
        Some((object, self.known.text(object.source)))
    }

    /// Returns the indexes of the items of a rule's peers.
    fn items(&self, place: RulePlace) -> Option<BTreeSet<usize>> {
        let (object, _) = self.object(place)?;
        let (_, peers) = peers_of(object, place)?;
        Some(peers.into_iter().map(|(item, _)| item).collect())
    }

    fn peer_item(&self, place: RulePlace, item: usize) -> Option<(SourceId, TextEdit)> {
        let (object, text) = self.object(place)?;
        let (field, _) = peers_of(object, place)?;
        let path = [
            PathStep::Field("spec"),
            PathStep::Field(place.direction.key()),
            PathStep::Index(place.index as usize),
            PathStep::Field(field),
            PathStep::Index(item),
        ];
        let cut = without_item(text, self.locator.locate(object, &path)?)?;
        Some((object.source, cut))
    }

    /// Locates the field of a finding, or a field below it.
    fn located(&self, finding: &LocatedFinding, below: &[PathStep<'_>]) -> Option<Located> {
        let object = self.known.objects.get(finding.object?)?;
        let mut path = steps(finding.path.as_deref()?)?;
        path.extend(below);
        self.locator.locate(object, &path)
    }

    /// Rewrites a range of one port to `portNumber`, which only AdminNetworkPolicies have.
    fn single_port(&self, finding: &LocatedFinding) -> Option<Vec<TextEdit>> {
        let object = self.known.objects.get(finding.object?)?;
        let is_admin = matches!(
            object.kind,
            Kind::AdminNetworkPolicy | Kind::BaselineAdminNetworkPolicy
        );
        let path = steps(finding.path.as_deref()?)?;
        if !is_admin || path.last() != Some(&PathStep::Field("portRange")) {
            return None;
        }
        let text = self.known.text(object.source);
        let range = self.located(finding, &[])?;
        let start = self.located(finding, &[PathStep::Field("start")])?;
        let end = self.located(finding, &[PathStep::Field("end")])?;
        let mut cuts = vec![
            renamed(text, range.key?, "portNumber")?,
            renamed(text, start.key?, "port")?,
            without_entry(text, end)?,
        ];
        cuts.sort_by_key(|cut| cut.range.start);
        Some(cuts)
    }
}

const LAYOUT: &str = "the layout around it cannot be edited safely";
const NEEDS_REMOVED_RULE: &str = "it needs a rule that this run removes; run --fix again";

/// Parses a field path in the form of kubectl.
fn steps(path: &str) -> Option<Vec<PathStep<'_>>> {
    let mut steps = Vec::new();
    for word in path.split('.') {
        let mut parts = word.split('[');
        steps.push(PathStep::Field(parts.next()?));
        for index in parts {
            let index = index.strip_suffix(']')?.parse().ok()?;
            steps.push(PathStep::Index(index));
        }
    }
    Some(steps)
}

/// Formats the edits as a unified diff.
pub(super) fn show(plan: &Plan, sources: &[Source]) -> String {
    let shown = plan.files.iter().filter_map(|file| {
        let source = sources.get(file.source.0 as usize)?;
        Some(unified::unified(source.name(), source.text(), &file.cuts))
    });
    shown.collect()
}

/// Writes the edited files, and replaces their sources in memory.
pub(super) fn write(plan: &Plan, sources: &mut [Source]) -> anyhow::Result<()> {
    for file in &plan.files {
        let Some(source) = sources.get_mut(file.source.0 as usize) else {
            continue;
        };
        let name = source.name().to_owned();
        write::replace(Path::new(&name), source.text(), &file.text)?;
        *source = Source::new(name, file.text.clone().into_bytes());
    }
    Ok(())
}

/// Lists the findings that are not fixed, one line each.
pub(super) fn refusals(
    plan: &Plan,
    findings: &[LocatedFinding],
    sources: &[Source],
) -> Vec<String> {
    let mut placer = Placer::new(sources);
    let lines = plan.refused.iter().filter_map(|(index, why)| {
        let finding = findings.get(*index)?;
        let (source, span) = finding.place?;
        let (file, (line, column), _) = placer.place(source, span.start);
        let code = finding.code.name();
        Some(format!(
            "{file}:{line}:{column}: {code} is not fixed: {why}"
        ))
    });
    lines.collect()
}
