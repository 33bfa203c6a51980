//! A difference as CSV, and as Markdown for a comment on a pull request.

use std::io::Write;

use palisade_core::analysis::connect::diff::{Block, ChangeKind, OneSided};

use super::DiffReport;
use super::table::{by_culprit, group, ports, reason, totals};
use super::unseen::{is_destination, selects};
use crate::connectivity::lines::{csv_line, md_cell, md_head, md_line};
use crate::connectivity::names::Names;
use crate::draw::counted;

/// The most words in a cell of Markdown.
const MOST_WORDS: usize = 6;
/// The most blocks and endpoints in a comment: hosting services cut long comments off anywhere.
const MOST_BLOCKS: usize = 100;
const MOST_ENDS: usize = 50;

fn word(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Gained => "gained",
        ChangeKind::Lost => "lost",
        ChangeKind::Undecided => "undecided",
    }
}

/// Writes a block a line, with all endpoints of a group and all ports, separated by blanks.
pub(crate) fn csv(out: &mut impl Write, report: &DiffReport<'_>) -> std::io::Result<()> {
    let head = [
        "change",
        "from",
        "to",
        "ports",
        "family",
        "endpoint",
        "direction",
        "old",
        "new",
        "caused by",
    ];
    csv_line(out, &head)?;
    for block in &report.difference.blocks {
        let [old, new] = report.decided(block).map(|it| it.map(|it| it.words()));
        let cause = block.causes.first().map(|it| report.changed(*it).name);
        let endpoint = match block.one_sided {
            Some(OneSided::New) => "new",
            Some(OneSided::Gone) => "gone",
            None => "",
        };
        csv_line(
            out,
            &[
                word(block.kind),
                &report.names(block.from).join(" "),
                &report.names(block.to).join(" "),
                &block.ports.text().join(" "),
                &block.family.map(|it| it.to_string()).unwrap_or_default(),
                endpoint,
                block.decision.map_or("", |why| why.direction.key()),
                &old.unwrap_or_default(),
                &new.unwrap_or_default(),
                &cause.unwrap_or_default(),
            ],
        )?;
    }
    for unseen in report.unseen() {
        let set = selects(&unseen.set, usize::MAX);
        let [from, to] = if is_destination(unseen) {
            ["", &set]
        } else {
            [&set, ""]
        };
        let [old, new] = report.unseen_rules(unseen).map(|it| it.join(" "));
        csv_line(
            out,
            &[
                word(ChangeKind::Undecided),
                from,
                to,
                "",
                "",
                "symbolic",
                unseen.direction.key(),
                &old,
                &new,
                &report.changed(unseen.cause).name,
            ],
        )?;
    }
    Ok(())
}

/// Writes the totals first, and everything else folded.
pub(crate) fn md(
    out: &mut impl Write,
    report: &DiffReport<'_>,
    include_new: bool,
) -> std::io::Result<()> {
    let is_alarm = report.is_wider(include_new) || !report.unseen().is_empty();
    let sign = if report.is_same() {
        "\u{2705}"
    } else if is_alarm {
        "\u{26a0}\u{fe0f}"
    } else {
        "\u{2139}\u{fe0f}"
    };
    writeln!(out, "### {sign} Network policy: {}\n", totals(report))?;
    let common = report.difference.blocks.iter();
    let groups = by_culprit(report, common.filter(|it| it.one_sided.is_none()));
    if !groups.is_empty() {
        md_head(
            out,
            &["Changed", "Blocks gained", "Blocks lost", "Undecided"],
        )?;
        for (cause, (blocks, unseen)) in &groups {
            let name = cause.map(|it| report.changed(it));
            let name = name.map_or_else(
                || "several objects".to_owned(),
                |it| format!("{} ({})", it.name, it.change),
            );
            let count = |kind: ChangeKind| {
                let mut count = blocks.iter().filter(|it| it.kind == kind).count();
                if kind == ChangeKind::Undecided {
                    count += unseen.len();
                }
                if count == 0 {
                    "-".to_owned()
                } else {
                    count.to_string()
                }
            };
            let [gained, lost, undecided] =
                [ChangeKind::Gained, ChangeKind::Lost, ChangeKind::Undecided].map(count);
            md_line(out, &[&name, &gained, &lost, &undecided])?;
        }
        writeln!(out)?;
    }
    for (kind, title) in [
        (ChangeKind::Gained, "Allowed now, denied before"),
        (ChangeKind::Lost, "Denied now, allowed before"),
        (ChangeKind::Undecided, "Depends on an unknown address"),
    ] {
        let blocks: Vec<&Block> = report.blocks(kind, false).collect();
        details(out, report, title, &blocks)?;
    }
    absent(out, report)?;
    let one_sided = report.difference.blocks.iter();
    let one_sided: Vec<&Block> = one_sided.filter(|it| it.one_sided.is_some()).collect();
    details(out, report, "Flows of new or removed endpoints", &one_sided)?;
    endpoints(out, report)
}

fn details(
    out: &mut impl Write,
    report: &DiffReport<'_>,
    title: &str,
    blocks: &[&Block],
) -> std::io::Result<()> {
    if blocks.is_empty() {
        return Ok(());
    }
    let names = Names::new(&report.ends);
    let n_blocks = counted(blocks.len(), "block");
    writeln!(out, "<details><summary>{title}: {n_blocks}</summary>\n")?;
    md_head(out, &["From", "To", "Ports", "Why", "Because of"])?;
    for block in blocks.iter().take(MOST_BLOCKS) {
        let group = |id: u32| group(report, &names, id, MOST_WORDS);
        let family = block.family.map_or(String::new(), |it| format!(" ({it})"));
        let cause = block.causes.first().map(|it| report.changed(*it).name);
        md_line(
            out,
            &[
                &group(block.from),
                &group(block.to),
                &format!("{}{family}", ports(&block.ports, MOST_WORDS)),
                &reason(report, block),
                &cause.unwrap_or_default(),
            ],
        )?;
    }
    if blocks.len() > MOST_BLOCKS {
        let more = blocks.len() - MOST_BLOCKS;
        writeln!(out, "\nand {more} more; `palisade diff -o wide` shows all")?;
    }
    writeln!(out, "\n</details>\n")
}

/// Writes the selections that have no member in the input.
fn absent(out: &mut impl Write, report: &DiffReport<'_>) -> std::io::Result<()> {
    let all = report.unseen();
    if all.is_empty() {
        return Ok(());
    }
    let n_selections = counted(all.len(), "selection");
    writeln!(
        out,
        "<details><summary>Not compared, because the input lacks it: {n_selections}</summary>\n"
    )?;
    md_head(out, &["Selected", "Why", "Because of"])?;
    for unseen in all.iter().take(MOST_BLOCKS) {
        md_line(
            out,
            &[
                &report.unseen_sentence(unseen, MOST_WORDS),
                &report.unseen_reason(unseen, MOST_WORDS),
                &report.changed(unseen.cause).name,
            ],
        )?;
    }
    if all.len() > MOST_BLOCKS {
        let more = all.len() - MOST_BLOCKS;
        writeln!(out, "\nand {more} more; `palisade diff -o wide` shows all")?;
    }
    writeln!(out, "\n</details>\n")
}

fn endpoints(out: &mut impl Write, report: &DiffReport<'_>) -> std::io::Result<()> {
    let lists = report.one_sided();
    for (title, names) in ["New endpoints", "Removed endpoints"]
        .into_iter()
        .zip(lists)
    {
        if names.is_empty() {
            continue;
        }
        writeln!(
            out,
            "<details><summary>{title}: {}</summary>\n",
            names.len()
        )?;
        for name in names.iter().take(MOST_ENDS) {
            writeln!(out, "- {}", md_cell(name))?;
        }
        if names.len() > MOST_ENDS {
            writeln!(out, "- and {} more", names.len() - MOST_ENDS)?;
        }
        writeln!(out, "\n</details>\n")?;
    }
    Ok(())
}
