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

/// The words of both sides of a row.
type Sides = (Vec<String>, Vec<String>);

/// The cards of both sides by their numbers, the ports between them, and the lines.
struct Layers {
    left: Vec<(usize, Card)>,
    /// A card for each line.
    ports: Vec<Card>,
    right: Vec<(usize, Card)>,
    lines: Vec<Line>,
}

/// The horizontal positions of the layers, and the size of the drawing.
struct Layout {
    left_width: f64,
    ports_x: f64,
    ports_width: f64,
    right_x: f64,
    right_width: f64,
    width: f64,
    height: f64,
}

/// Draws the rows.
pub(super) fn drawing(answer: &Answer<'_>, rows: &[Row]) -> String {
    let mut layers = Layers::new(answer, rows);
    let height = layers.arrange();
    let layout = layers.layout(height);
    let mut body = String::from(MARKERS);
    layout.heads(&mut body);
    layers.draw_lines(&mut body, answer, &layout);
    for (_, card) in &layers.left {
        boxed(&mut body, card, MARGIN, layout.left_width);
    }
    for (_, card) in &layers.right {
        boxed(&mut body, card, layout.right_x, layout.right_width);
    }
    if layers.lines.is_empty() {
        let (x, y) = (layout.width / 2.0, TOP + 20.0);
        body += &format!(
            "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"middle\">nothing is allowed</text>\n"
        );
    }
    document(
        layout.width,
        TOP + layout.height + MARGIN,
        "Connectivity between endpoints, by port",
        &body,
    )
}

impl Layers {
    fn new(answer: &Answer<'_>, rows: &[Row]) -> Layers {
        let names = Names::new(&answer.ends);
        let named: Vec<Sides> = rows
            .iter()
            .map(|row| row.few_words(answer, &names, MOST_WORDS))
            .collect();
        // Sides with the same words share a card.
        let mut cards: Vec<&Vec<String>> = named.iter().flat_map(|(from, to)| [from, to]).collect();
        cards.sort();
        cards.dedup();
        let number = |words: &Vec<String>| cards.binary_search(&words).unwrap_or(usize::MAX);
        let lines = named.iter().zip(rows).map(|((from, to), row)| Line {
            from: number(from),
            to: number(to),
            reach: row.reach,
        });
        let lines: Vec<Line> = lines.collect();
        let ports = lines.iter().map(|line| {
            let text = answer.reaches.get(line.reach).text(MOST_PORTS);
            let words: Vec<String> = text.split(", ").map(str::to_owned).collect();
            let mut card = Card::new(folded(&words, 30));
            card.height = card.lines.len() as f64 * LINE + 6.0;
            card
        });
        Layers {
            left: sources(&named, &lines),
            ports: ports.collect(),
            right: destinations(&named, &lines),
            lines,
        }
    }

    /// Stacks the cards of each layer around a common middle, and returns the height.
    fn arrange(&mut self) -> f64 {
        let heights = [
            stacked(self.left.iter_mut().map(|it| &mut it.1), GAP),
            stacked(self.ports.iter_mut(), GAP * 0.75),
            stacked(self.right.iter_mut().map(|it| &mut it.1), GAP),
        ];
        let height = heights.into_iter().fold(40.0, f64::max);
        let shift = |own: f64| TOP + (height - own) / 2.0;
        let [left_shift, ports_shift, right_shift] = heights.map(shift);
        self.left.iter_mut().for_each(|it| it.1.top += left_shift);
        self.ports.iter_mut().for_each(|it| it.top += ports_shift);
        self.right.iter_mut().for_each(|it| it.1.top += right_shift);
        height
    }

    fn layout(&self, height: f64) -> Layout {
        let widest = |widths: &mut dyn Iterator<Item = f64>| widths.fold(60.0, f64::max);
        let left_width = widest(&mut self.left.iter().map(|it| it.1.width()));
        let ports_width = widest(&mut self.ports.iter().map(Card::width));
        let right_width = widest(&mut self.right.iter().map(|it| it.1.width()));
        let ports_x = MARGIN + left_width + BEND;
        let right_x = ports_x + ports_width + BEND;
        Layout {
            left_width,
            ports_x,
            ports_width,
            right_x,
            right_width,
            width: right_x + right_width + MARGIN,
            height,
        }
    }

    /// Draws each line from its source through its ports to its destination.
    fn draw_lines(&self, body: &mut String, answer: &Answer<'_>, layout: &Layout) {
        let Layout {
            left_width,
            ports_x,
            ports_width,
            right_x,
            ..
        } = *layout;
        let left_of: BTreeMap<usize, &Card> = self.left.iter().map(|it| (it.0, &it.1)).collect();
        let right_of: BTreeMap<usize, &Card> = self.right.iter().map(|it| (it.0, &it.1)).collect();
        for (line, card) in self.lines.iter().zip(&self.ports) {
            let look = look(answer.reaches.get(line.reach).state());
            let (Some(from), Some(to)) = (left_of.get(&line.from), right_of.get(&line.to)) else {
                continue;
            };
            let (start, middle, end) = (MARGIN + left_width, card.middle(), right_x - 2.0);
            let (centre, half) = (ports_x + ports_width / 2.0, card.width() / 2.0 - 4.0);
            let before = (ports_x, middle, centre - half);
            curve(body, look, (start, from.middle()), before, "");
            let tip = format!(" marker-end=\"url(#tip-{look})\"");
            let end_of_ports = ports_x + ports_width;
            straight(body, look, (centre + half, end_of_ports), middle);
            let to = (end, to.middle(), end);
            curve(body, look, (end_of_ports, middle), to, &tip);
            texts(body, card, centre, 3.0, &format!("ports {look}"));
        }
    }
}

impl Layout {
    /// Draws the heads of the layers.
    fn heads(&self, body: &mut String) {
        for (x, head) in [
            (MARGIN + self.left_width / 2.0, "from"),
            (self.ports_x + self.ports_width / 2.0, "ports"),
            (self.right_x + self.right_width / 2.0, "to"),
        ] {
            let text = format!(
                "<text class=\"head\" x=\"{x:.0}\" y=\"30\" text-anchor=\"middle\">{head}</text>\n"
            );
            *body += &text;
        }
    }
}

fn side_card(words: &[String]) -> Card {
    Card::new(folded(words, 34))
}

/// Returns a card for each source, in the order of their first lines.
fn sources(named: &[Sides], lines: &[Line]) -> Vec<(usize, Card)> {
    let mut cards: BTreeMap<usize, (usize, Card)> = BTreeMap::new();
    for (at, ((from, _), line)) in named.iter().zip(lines).enumerate() {
        let card = cards.entry(line.from);
        card.or_insert_with(|| (at, side_card(from)));
    }
    let mut cards: Vec<(usize, (usize, Card))> = cards.into_iter().collect();
    cards.sort_by_key(|(_, (first, _))| *first);
    cards
        .into_iter()
        .map(|(id, (_, card))| (id, card))
        .collect()
}

/// Returns a card for each destination. A destination has about the mean height of its sources,
/// which makes fewer lines cross.
fn destinations(named: &[Sides], lines: &[Line]) -> Vec<(usize, Card)> {
    let mean = |number: usize| {
        let places = lines.iter().enumerate().filter(|(_, it)| it.to == number);
        let places: Vec<usize> = places.map(|(place, _)| place).collect();
        places.iter().sum::<usize>() as f64 / places.len().max(1) as f64
    };
    let mut cards: BTreeMap<usize, (f64, Card)> = BTreeMap::new();
    for ((_, to), line) in named.iter().zip(lines) {
        let card = cards.entry(line.to);
        card.or_insert_with(|| (mean(line.to), side_card(to)));
    }
    let mut cards: Vec<(usize, (f64, Card))> = cards.into_iter().collect();
    cards.sort_by(|(a, (a_mean, _)), (b, (b_mean, _))| a_mean.total_cmp(b_mean).then(a.cmp(b)));
    cards
        .into_iter()
        .map(|(id, (_, card))| (id, card))
        .collect()
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
        State::Mixed | State::Closed | State::NotEvaluated => "mixed",
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
