//! Prints a difference for people.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anstyle::{AnsiColor, Style};
use palisade_core::analysis::connect::diff::{Block, ChangeKind, ChangedObject, OneSided, Unseen};
use palisade_core::answer::PortSet;

use super::DiffReport;
use crate::connectivity::ends::EndKind;
use crate::connectivity::names::Names;
use crate::draw::{clean, counted, painted};

const DIM: Style = Style::new().dimmed();
const BOLD: Style = Style::new().bold();
const GREEN: Style = AnsiColor::Green.on_default().bold();
const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();

/// The most words of a group, and of its ports.
const MOST_WORDS: usize = 6;
/// The most blocks of one changed object.
const MOST_BLOCKS: usize = 40;

/// How much is shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableExtent {
    pub(crate) words: usize,
    pub(crate) blocks: usize,
}

impl TableExtent {
    pub(crate) const SOME: TableExtent = TableExtent {
        words: MOST_WORDS,
        blocks: MOST_BLOCKS,
    };
    pub(crate) const ALL: TableExtent = TableExtent {
        words: usize::MAX,
        blocks: usize::MAX,
    };
}

/// Limits a list: `web`, `web, db and 4 more`.
pub(crate) fn few(words: &[String], most: usize) -> String {
    let words: Vec<String> = words.iter().map(|it| clean(it)).collect();
    match words.get(..most) {
        Some(shown) if words.len() > most => {
            format!("{} and {} more", shown.join(", "), words.len() - most)
        }
        _ => words.join(", "),
    }
}

/// The most bytes of names of a group; a longer list becomes counts.
const MOST_ROOM: usize = 400;

/// What a long group is counted by, in the order of the output.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum CountedKind {
    Service,
    Network,
    Node,
    Pod,
}

/// Names a group in a few words.
pub(crate) fn group(report: &DiffReport<'_>, names: &Names<'_>, id: u32, most: usize) -> String {
    let ends = report.difference.groups.get(id);
    let ends: Vec<u32> = ends.iter().map(|it| it.0).collect();
    let words = few(&names.of(&ends), most);
    if words.len() <= MOST_ROOM || most == usize::MAX {
        return words;
    }
    let mut spaces: BTreeSet<usize> = BTreeSet::new();
    let mut counts: BTreeMap<CountedKind, usize> = BTreeMap::new();
    for end in ends.iter().filter_map(|id| report.ends.get(*id)) {
        let kind = match end.kind {
            EndKind::Pod | EndKind::Template | EndKind::HostPod => {
                spaces.insert(end.space);
                CountedKind::Pod
            }
            EndKind::Node => CountedKind::Node,
            EndKind::Network => CountedKind::Network,
            EndKind::Service => CountedKind::Service,
        };
        *counts.entry(kind).or_default() += 1;
    }
    let words = counts.into_iter().map(|(kind, count)| match kind {
        CountedKind::Service => counted(count, "Service"),
        CountedKind::Network => counted(count, "network"),
        CountedKind::Node => counted(count, "node"),
        CountedKind::Pod => {
            let namespaces = counted(spaces.len(), "namespace");
            format!("{} in {namespaces}", counted(count, "pod"))
        }
    });
    words.collect::<Vec<String>>().join(", ")
}

/// Formats ports in a few words.
pub(crate) fn ports(ports: &PortSet, most: usize) -> String {
    if ports.is_everything() {
        return "any".to_owned();
    }
    crate::connectivity::ports::few(ports, most)
}

/// The blocks and the selections of one changed object.
type OfCulprit<'b> = (Vec<&'b Block>, Vec<&'b Unseen<'b>>);

/// Groups blocks, and what could not be compared, by the changed object that they come from, in
/// order.
pub(crate) fn by_culprit<'b>(
    report: &DiffReport<'b>,
    blocks: impl Iterator<Item = &'b Block>,
) -> BTreeMap<Option<ChangedObject>, OfCulprit<'b>> {
    let mut groups: BTreeMap<Option<ChangedObject>, OfCulprit<'b>> = BTreeMap::new();
    for block in blocks {
        let cause = block.causes.first().copied();
        groups.entry(cause).or_default().0.push(block);
    }
    for unseen in report.unseen() {
        groups.entry(Some(unseen.cause)).or_default().1.push(unseen);
    }
    groups
}

/// Returns the sign of a kind of change.
fn sign(kind: ChangeKind) -> (&'static str, Style) {
    match kind {
        ChangeKind::Gained => ("+", GREEN),
        ChangeKind::Lost => ("-", RED),
        ChangeKind::Undecided => ("?", YELLOW),
    }
}

/// Describes what decided: `was netpol/shop/db#ingress[0], now no policy`.
pub(crate) fn reason(report: &DiffReport<'_>, block: &Block) -> String {
    let words = match report.decided(block) {
        [Some(old), Some(new)] => format!("was {}, now {}", old.words(), new.words()),
        [Some(old), None] => format!("was {}", old.words()),
        [None, Some(new)] => format!("now {}", new.words()),
        [None, None] if block.kind == ChangeKind::Undecided => {
            "depends on an unknown address".to_owned()
        }
        [None, None] => String::new(),
    };
    let direction = block
        .decision
        .map(|decision| format!("{}: ", decision.direction));
    let example = if block.is_example {
        " (for example)"
    } else {
        ""
    };
    clean(&format!(
        "{}{words}{example}",
        direction.unwrap_or_default()
    ))
}

/// Prints the whole difference.
pub(crate) fn print(
    out: &mut impl Write,
    report: &DiffReport<'_>,
    extent: TableExtent,
) -> std::io::Result<()> {
    let names = Names::new(&report.ends);
    let all = report.difference.blocks.iter();
    let common = by_culprit(report, all.clone().filter(|it| it.one_sided.is_none()));
    let mut is_first = true;
    for (cause, (blocks, unseen)) in &common {
        head(out, report, *cause, &mut is_first)?;
        list(out, report, &names, blocks, extent)?;
        absent(out, report, unseen, extent)?;
    }
    for (which, words) in [
        (OneSided::New, "flows of new endpoints"),
        (OneSided::Gone, "flows of removed endpoints"),
    ] {
        let blocks: Vec<&Block> = all
            .clone()
            .filter(|it| it.one_sided == Some(which))
            .collect();
        if !blocks.is_empty() {
            title(out, words, "", &mut is_first)?;
            list(out, report, &names, &blocks, extent)?;
        }
    }
    Ok(())
}

fn head(
    out: &mut impl Write,
    report: &DiffReport<'_>,
    cause: Option<ChangedObject>,
    is_first: &mut bool,
) -> std::io::Result<()> {
    match cause.map(|it| report.changed(it)) {
        Some(changed) => title(out, &clean(&changed.name), changed.change, is_first),
        None => title(out, "several objects", "changed", is_first),
    }
}

fn title(
    out: &mut impl Write,
    name: &str,
    change: &str,
    is_first: &mut bool,
) -> std::io::Result<()> {
    if !*is_first {
        writeln!(out)?;
    }
    *is_first = false;
    let line = format!("{} {change}", painted(BOLD, name));
    writeln!(out, "{}", line.trim_end())
}

fn list(
    out: &mut impl Write,
    report: &DiffReport<'_>,
    names: &Names<'_>,
    blocks: &[&Block],
    extent: TableExtent,
) -> std::io::Result<()> {
    for block in blocks.iter().take(extent.blocks) {
        let group = |id: u32| group(report, names, id, extent.words);
        let (sign, style) = sign(block.kind);
        let family = block.family.map_or(String::new(), |it| format!(" ({it})"));
        let ports = ports(&block.ports, extent.words);
        writeln!(
            out,
            "  {} {} -> {}  {}{family}",
            painted(style, sign),
            group(block.from),
            group(block.to),
            painted(style, &ports),
        )?;
        let reason = reason(report, block);
        if !reason.is_empty() {
            writeln!(out, "      {}", painted(DIM, &reason))?;
        }
    }
    if blocks.len() > extent.blocks {
        let more = blocks.len() - extent.blocks;
        writeln!(out, "    and {more} more blocks; -o wide shows all")?;
    }
    Ok(())
}

/// Prints what could not be compared, because the input does not have it.
fn absent(
    out: &mut impl Write,
    report: &DiffReport<'_>,
    all: &[&Unseen<'_>],
    extent: TableExtent,
) -> std::io::Result<()> {
    let (sign, style) = sign(ChangeKind::Undecided);
    for unseen in all.iter().take(extent.blocks) {
        let sentence = clean(&report.unseen_sentence(unseen, extent.words));
        writeln!(out, "  {} {sentence}", painted(style, sign))?;
        let reason = report.unseen_reason(unseen, extent.words);
        writeln!(out, "      {}", painted(DIM, &clean(&reason)))?;
    }
    if all.len() > extent.blocks {
        let more = all.len() - extent.blocks;
        writeln!(out, "    and {more} more selections; -o wide shows all")?;
    }
    Ok(())
}

/// Formats the totals: `12 pairs gained, 3 pairs lost; 2 objects changed`.
pub(crate) fn totals(report: &DiffReport<'_>) -> String {
    let totals = report.difference.totals;
    let n_changed = report.all_changed().len();
    let objects = counted(n_changed, "object");
    if n_changed == 0 {
        return "no object differs".to_owned();
    }
    let mut words = Vec::new();
    if totals.gained > 0 {
        words.push(format!("{} gained", counted(totals.gained, "pair")));
    }
    if totals.lost > 0 {
        words.push(format!("{} lost", counted(totals.lost, "pair")));
    }
    if totals.undecided > 0 {
        words.push(format!("{} undecided", counted(totals.undecided, "pair")));
    }
    let n_undecided = report.undecided_objects();
    if n_undecided > 0 {
        words.push(format!("{} undecided", counted(n_undecided, "object")));
    }
    let one_sided = report.difference.one_sided_totals;
    let n_one_sided = one_sided.gained + one_sided.lost + one_sided.undecided;
    if words.is_empty() && n_one_sided == 0 {
        return format!("{objects} changed; no flow changed");
    }
    if words.is_empty() {
        words.push("no flow between endpoints of both sides changed".to_owned());
    }
    format!("{}; {objects} changed", words.join(", "))
}
