//! Prints blocks and matrices for people.

use std::fmt::Write as _;
use std::io::Write;

use anstyle::{AnsiColor, Style};
use palisade_core::analysis::connect::Summary;

use super::kinds::Unit;
use super::names::Names;
use super::ports::{Ports, State};
use super::rows::{plain_rows, rows};
use super::{Answer, Table};
use crate::draw::{clean, painted};

const DIM: Style = Style::new().dimmed();
const GREEN: Style = AnsiColor::Green.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();

/// The width at which a column of names is wrapped.
const WIDTH: usize = 38;
const PORTS_WIDTH: usize = 36;
/// The most words of a group, and of its ports.
const MOST_WORDS: usize = 6;
const MOST_PORTS: usize = 6;

/// Both sides of a row, and its ports, in lines.
type TableRow = (Vec<String>, Vec<String>, Vec<(State, String)>);

/// Prints a table of the blocks.
pub(crate) fn blocks(
    out: &mut impl Write,
    answer: &Answer<'_>,
    wide: bool,
    governed_only: bool,
) -> std::io::Result<()> {
    let (most_words, most_ports) = if wide {
        (usize::MAX, usize::MAX)
    } else {
        (MOST_WORDS, MOST_PORTS)
    };
    let cell = |words: &[String]| {
        let words: Vec<String> = words.iter().map(|word| clean(word)).collect();
        wrapped(&words, WIDTH)
    };
    let ports = |reach: usize| port_lines(answer.reaches.get(reach), most_ports);
    let Some(rows) = rows(answer, governed_only) else {
        head(out, [WIDTH; 2])?;
        for (from, to, reach) in plain_rows(answer, most_words) {
            row(out, [WIDTH; 2], &(cell(&from), cell(&to), ports(reach)))?;
        }
        return Ok(());
    };
    let names = Names::new(&answer.ends);
    let listed = |ends: &[u32]| {
        let labels = ends.iter().map(|id| answer.ends.label(*id).to_owned());
        labels.collect::<Vec<String>>()
    };
    let named = rows.into_iter().map(|it| {
        let (from, to) = if wide && it.from.len().max(it.to.len()) <= MOST_LISTED {
            (listed(&it.from), listed(&it.to))
        } else {
            it.few_words(answer, &names, most_words)
        };
        (cell(&from), cell(&to), ports(it.reach))
    });
    let named: Vec<TableRow> = named.collect();
    let width = |lines: &mut dyn Iterator<Item = &String>, head: usize| {
        let widths = lines.map(|it| it.chars().count());
        widths.max().unwrap_or(0).max(head)
    };
    let widths = [
        width(&mut named.iter().flat_map(|it| &it.0), 4),
        width(&mut named.iter().flat_map(|it| &it.1), 2),
    ];
    head(out, widths)?;
    let mut last: Vec<String> = Vec::new();
    for (from, to, ports) in named {
        // A source that continues is not repeated.
        let front = if last == from {
            Vec::new()
        } else {
            from.clone()
        };
        row(out, widths, &(front, to, ports))?;
        last = from;
    }
    Ok(())
}

fn head(out: &mut impl Write, [from, to]: [usize; 2]) -> std::io::Result<()> {
    let head = format!("{:from$}    {:to$}  PORTS", "FROM", "TO");
    writeln!(out, "{}", painted(DIM, &head))
}

fn row(out: &mut impl Write, widths: [usize; 2], row: &TableRow) -> std::io::Result<()> {
    let [from_width, to_width] = widths;
    let (from, to, ports) = row;
    let height = from.len().max(to.len()).max(ports.len()).max(1);
    for line in 0..height {
        let cell = |lines: &[String]| lines.get(line).cloned().unwrap_or_default();
        let arrow = if line == 0 { "->" } else { "  " };
        let front = format!("{:from_width$} {arrow} {:to_width$}", cell(from), cell(to));
        match ports.get(line) {
            Some((state, words)) => writeln!(out, "{front}  {}", painted(style(*state), words))?,
            None => writeln!(out, "{}", front.trim_end())?,
        }
    }
    Ok(())
}

/// Larger groups are named and not listed, also with `-o wide`.
const MOST_LISTED: usize = 500;

fn style(state: State) -> Style {
    match state {
        State::Open | State::Some => GREEN,
        State::Mixed => YELLOW,
        State::Closed | State::NotEvaluated => DIM,
    }
}

/// Formats ports in lines.
fn port_lines(ports: &Ports, most: usize) -> Vec<(State, String)> {
    let mut lines = Vec::new();
    for (state, text) in ports.short(most) {
        let words: Vec<String> = text.split(", ").map(str::to_owned).collect();
        lines.extend(
            wrapped(&words, PORTS_WIDTH)
                .into_iter()
                .map(|it| (state, it)),
        );
    }
    lines
}

/// Joins words with commas, in lines of about a width.
fn wrapped(words: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut pieces: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let comma = if at + 1 < words.len() { "," } else { "" };
        let word = format!("{word}{comma}");
        // A word that is too long for a line is wrapped at its blanks.
        if word.chars().count() > width {
            pieces.extend(word.split(' ').map(str::to_owned));
        } else {
            pieces.push(word);
        }
    }
    for word in pieces {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < width => {
                write!(line, " {word}").unwrap_or_default();
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// Formats the totals as a sentence.
pub(crate) fn totals(totals: &Summary) -> String {
    let Summary {
        endpoints,
        allowed,
        denied,
        mixed,
        unknown,
        no_family,
    } = *totals;
    let pairs = allowed + denied + mixed + unknown + no_family;
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let mut text = format!(
        "{} pod{}, {} pair{}",
        grouped(endpoints),
        plural(endpoints),
        grouped(pairs),
        plural(pairs),
    );
    let mut lead = ": ";
    for (count, what) in [
        (allowed, "open on every port"),
        (mixed, "in part"),
        (denied, "closed"),
        (unknown, "unknown"),
        (no_family, "without a common family of addresses"),
    ] {
        if count > 0 {
            write!(text, "{lead}{} {what}", grouped(count)).unwrap_or_default();
            lead = ", ";
        }
    }
    text
}

/// Formats a number with commas: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// More classes than these are drawn by namespace.
pub(crate) const MOST_DRAWN: usize = 60;
/// More namespaces than these are not drawn.
const MOST_SPACES: usize = 150;

/// Returns the number of units of a matrix, if there are too many.
pub(crate) fn too_many(table: &Table) -> Option<usize> {
    let units = table.kinds.units(&table.ends, MOST_DRAWN).len();
    (units > MOST_SPACES).then_some(units)
}

/// Prints the matrix: rows are sources, columns are destinations.
pub(crate) fn matrix(out: &mut impl Write, table: &Table) -> std::io::Result<()> {
    let units = table.kinds.units(&table.ends, MOST_DRAWN);
    let all: Vec<Vec<State>> = units
        .iter()
        .map(|from| {
            let states = units.iter().map(|to| {
                let share = table.kinds.between(&table.reaches, from, to);
                share.state
            });
            states.collect()
        })
        .collect();
    let is_evaluated = |state: &State| *state != State::NotEvaluated;
    let rows: Vec<(&Unit, &Vec<State>)> = units.iter().zip(&all).collect();
    let rows: Vec<(&Unit, &Vec<State>)> = rows
        .into_iter()
        .filter(|(_, states)| states.iter().any(is_evaluated))
        .collect();
    let is_column = |at: &usize| {
        rows.iter()
            .any(|(_, states)| states.get(*at).is_some_and(is_evaluated))
    };
    let columns: Vec<usize> = (0..units.len()).filter(is_column).collect();
    let width = rows
        .iter()
        .map(|(unit, _)| clean(&unit.label).chars().count());
    let width = width.max().unwrap_or(0);
    writeln!(
        out,
        "from \\ to: + every port   o some ports   - none   ? mixed or unknown\n"
    )?;
    for (number, column) in columns.iter().enumerate() {
        let bars = painted(DIM, &" |".repeat(number));
        let label = units.get(*column).map_or("", |unit| &unit.label);
        writeln!(out, "{:width$}{bars} {}", "", clean(label))?;
    }
    for (unit, states) in rows {
        let mut line = format!("{:<width$}", clean(&unit.label));
        for column in &columns {
            let state = states.get(*column).copied().unwrap_or(State::NotEvaluated);
            line += &format!(" {}", sign(state));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn sign(state: State) -> String {
    match state {
        State::Open => painted(GREEN, "+"),
        State::Some => painted(GREEN, "o"),
        State::Mixed => painted(YELLOW, "?"),
        State::Closed => painted(DIM, "-"),
        State::NotEvaluated => " ".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn words_go_on_below() {
        let words = ["aaa", "bbb", "ccc"].map(str::to_owned);
        assert_eq!(wrapped(&words, 9), ["aaa, bbb,", "ccc"]);
        assert_eq!(wrapped(&words, 3), ["aaa,", "bbb,", "ccc"]);
    }
}
