//! Sources on the left, destinations on the right, and between them the allowed ports.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::super::Answer;
use super::super::names::Names;
use super::super::ports::State;
use super::super::rows::Row;
use super::{document, escaped, folded, width_of};

const LINE: f64 = 18.0;
const PAD: f64 = 10.0;
const GAP: f64 = 16.0;
const MARGIN: f64 = 24.0;
const TOP: f64 = 54.0;
const BEND: f64 = 90.0;
/// The most words of a group, and of its ports.
const MOST_WORDS: usize = 5;
const MOST_PORTS: usize = 5;

/// A line from a card to a card.
struct Line {
    from: usize,
    to: usize,
    reach: usize,
}

/// A group, or a set of ports, with its position.
struct Card {
    lines: Vec<String>,
    top: f64,
    height: f64,
}

impl Card {
    fn new(lines: Vec<String>) -> Card {
        let height = lines.len() as f64 * LINE + 2.0 * PAD - 4.0;
        Card {
            lines,
            top: 0.0,
            height,
        }
    }

    fn middle(&self) -> f64 {
        self.top + self.height / 2.0
    }

    fn width(&self) -> f64 {
        let widths = self.lines.iter().map(|it| width_of(it));
        widths.fold(0.0, f64::max) + 2.0 * PAD
    }
}

/// Stacks cards, and returns the height of the stack.
fn stacked<'c>(cards: impl Iterator<Item = &'c mut Card>, gap: f64) -> f64 {
    let mut top = 0.0;
    for card in cards {
        card.top = top;
        top += card.height + gap;
    }
    (top - gap).max(0.0)
}

/// Draws the rows.
pub(super) fn drawing(answer: &Answer<'_>, rows: &[Row]) -> String {
    let names = Names::new(&answer.ends);
    let named: Vec<(Vec<String>, Vec<String>)> = rows
        .iter()
        .map(|row| row.few_words(answer, &names, MOST_WORDS))
        .collect();
    // Sides with the same words share a card.
    let mut cards: Vec<&Vec<String>> = named.iter().flat_map(|(from, to)| [from, to]).collect();
    cards.sort();
    cards.dedup();
    let place = |words: &Vec<String>| cards.binary_search(&words).unwrap_or(usize::MAX);
    let card = |words: &[String]| Card::new(folded(words, 34));
    let mut sources: BTreeMap<usize, (usize, Card)> = BTreeMap::new();
    let mut destinations: BTreeMap<usize, (f64, Card)> = BTreeMap::new();
    let mut blocks: Vec<Line> = Vec::new();
    for ((from, to), row) in named.iter().zip(rows) {
        blocks.push(Line {
            from: place(from),
            to: place(to),
            reach: row.reach,
        });
    }
    let mut ports: Vec<Card> = Vec::new();
    for (at, ((from, to), block)) in named.iter().zip(&blocks).enumerate() {
        sources
            .entry(block.from)
            .or_insert_with(|| (at, card(from)));
        // A destination has about the mean height of its sources, which makes fewer lines cross.
        let mean = || {
            let places = blocks
                .iter()
                .enumerate()
                .filter(|(_, it)| it.to == block.to);
            let places: Vec<usize> = places.map(|(place, _)| place).collect();
            places.iter().sum::<usize>() as f64 / places.len().max(1) as f64
        };
        destinations
            .entry(block.to)
            .or_insert_with(|| (mean(), card(to)));
        let text = answer.reaches.get(block.reach).text(MOST_PORTS);
        let words: Vec<String> = text.split(", ").map(str::to_owned).collect();
        let mut lines = Card::new(folded(&words, 30));
        lines.height = lines.lines.len() as f64 * LINE + 6.0;
        ports.push(lines);
    }
    let mut left: Vec<(usize, usize, Card)> = sources
        .into_iter()
        .map(|(group, (first, card))| (group, first, card))
        .collect();
    left.sort_by_key(|it| it.1);
    let mut right: Vec<(usize, f64, Card)> = destinations
        .into_iter()
        .map(|(group, (mean, card))| (group, mean, card))
        .collect();
    right.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    let heights = [
        stacked(left.iter_mut().map(|it| &mut it.2), GAP),
        stacked(ports.iter_mut(), GAP * 0.75),
        stacked(right.iter_mut().map(|it| &mut it.2), GAP),
    ];
    let height = heights.into_iter().fold(40.0, f64::max);
    let shift = |own: f64| TOP + (height - own) / 2.0;
    let [left_shift, ports_shift, right_shift] = heights.map(shift);
    left.iter_mut().for_each(|it| it.2.top += left_shift);
    ports.iter_mut().for_each(|it| it.top += ports_shift);
    right.iter_mut().for_each(|it| it.2.top += right_shift);
    let widest = |widths: &mut dyn Iterator<Item = f64>| widths.fold(60.0, f64::max);
    let left_width = widest(&mut left.iter().map(|it| it.2.width()));
    let ports_width = widest(&mut ports.iter().map(Card::width));
    let right_width = widest(&mut right.iter().map(|it| it.2.width()));
    let ports_x = MARGIN + left_width + BEND;
    let right_x = ports_x + ports_width + BEND;
    let width = right_x + right_width + MARGIN;
    let mut body = String::from(MARKERS);
    for (x, head) in [
        (MARGIN + left_width / 2.0, "from"),
        (ports_x + ports_width / 2.0, "ports"),
        (right_x + right_width / 2.0, "to"),
    ] {
        let text = format!(
            "<text class=\"head\" x=\"{x:.0}\" y=\"30\" text-anchor=\"middle\">{head}</text>\n"
        );
        body += &text;
    }
    let left_of: BTreeMap<usize, &Card> = left.iter().map(|it| (it.0, &it.2)).collect();
    let right_of: BTreeMap<usize, &Card> = right.iter().map(|it| (it.0, &it.2)).collect();
    for (block, card) in blocks.iter().zip(&ports) {
        let look = look(answer.reaches.get(block.reach).state());
        let (Some(from), Some(to)) = (left_of.get(&block.from), right_of.get(&block.to)) else {
            continue;
        };
        let (start, middle, end) = (MARGIN + left_width, card.middle(), right_x - 2.0);
        let (centre, half) = (ports_x + ports_width / 2.0, card.width() / 2.0 - 4.0);
        let before = (ports_x, middle, centre - half);
        curve(&mut body, look, (start, from.middle()), before, "");
        let tip = format!(" marker-end=\"url(#tip-{look})\"");
        let end_of_ports = ports_x + ports_width;
        straight(&mut body, look, (centre + half, end_of_ports), middle);
        curve(
            &mut body,
            look,
            (end_of_ports, middle),
            (end, to.middle(), end),
            &tip,
        );
        texts(&mut body, card, centre, 3.0, &format!("ports {look}"));
    }
    for (_, _, card) in &left {
        boxed(&mut body, card, MARGIN, left_width);
    }
    for (_, _, card) in &right {
        boxed(&mut body, card, right_x, right_width);
    }
    if blocks.is_empty() {
        let (x, y) = (width / 2.0, TOP + 20.0);
        body += &format!(
            "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"middle\">nothing is allowed</text>\n"
        );
    }
    document(
        width,
        TOP + height + MARGIN,
        "Connectivity between endpoints, by port",
        &body,
    )
}

const MARKERS: &str = "\
<defs>
<marker id=\"tip-open\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\"><path class=\"tip open\" d=\"M0 0.5L8 4L0 7.5z\"/></marker>
<marker id=\"tip-some\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\"><path class=\"tip some\" d=\"M0 0.5L8 4L0 7.5z\"/></marker>
<marker id=\"tip-mixed\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\"><path class=\"tip mixed\" d=\"M0 0.5L8 4L0 7.5z\"/></marker>
</defs>
";

fn look(state: State) -> &'static str {
    match state {
        State::Open => "open",
        State::Some => "some",
        State::Mixed | State::Closed | State::Unasked => "mixed",
    }
}

/// Draws a curve from a point to another, and a line on to the start of a text.
fn curve(body: &mut String, look: &str, from: (f64, f64), to: (f64, f64, f64), tip: &str) {
    let ((x1, y1), (x2, y2, x3)) = (from, to);
    let middle = (x1 + x2) / 2.0;
    let on = if x3 > x2 {
        format!("H{x3:.1}")
    } else {
        String::new()
    };
    writeln!(
        body,
        "<path class=\"line {look}\" d=\"M{x1:.1} {y1:.1}C{middle:.1} {y1:.1} {middle:.1} {y2:.1} {x2:.1} {y2:.1}{on}\"{tip}/>"
    )
    .unwrap_or_default();
}

fn straight(body: &mut String, look: &str, (x1, x2): (f64, f64), y: f64) {
    if x2 > x1 {
        writeln!(
            body,
            "<path class=\"line {look}\" d=\"M{x1:.1} {y:.1}H{x2:.1}\"/>"
        )
        .unwrap_or_default();
    }
}

fn boxed(body: &mut String, card: &Card, x: f64, width: f64) {
    let (top, height) = (card.top, card.height);
    writeln!(
        body,
        "<rect class=\"box\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"7\"/>"
    )
    .unwrap_or_default();
    texts(body, card, x + width / 2.0, PAD - 2.0, "");
}

fn texts(body: &mut String, card: &Card, x: f64, pad: f64, class: &str) {
    for (at, line) in card.lines.iter().enumerate() {
        let y = card.top + pad + LINE * (at as f64 + 0.75);
        let line = escaped(line);
        writeln!(
            body,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{line}</text>"
        )
        .unwrap_or_default();
    }
}
