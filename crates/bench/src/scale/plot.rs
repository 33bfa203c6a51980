//! A drawing of how time grows with the number of pods, both axes logarithmic.

use std::fmt::Write as _;

use super::report::{Point, fold_name};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 660.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 452.0;

/// The clusters that lines lead through: each step of size changes everything. The others have as
/// many pods as one of these.
const LINE: [&str; 4] = ["S20", "R", "L", "X"];

/// Colours that differ on white and on black, and for people who see few colours.
const COLOURS: [&str; 7] = [
    "#7f7f7f", "#2a7de1", "#b8860b", "#d1495b", "#12915c", "#8a5cf0", "#e07a1f",
];

struct Series {
    name: String,
    /// Name and pods of the cluster, and seconds.
    places: Vec<(String, f64, f64)>,
}

/// The drawing as SVG.
pub(super) fn plot(points: &[Point]) -> String {
    let series = series(points);
    let places = || series.iter().flat_map(|it| &it.places);
    let x = Axis::over(places().map(|it| it.1), LEFT, RIGHT).with_margin();
    let y = Axis::over(places().map(|it| it.2), BOTTOM, TOP).at_powers();
    let mut svg = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title">
<title id="title">Time of each step against the number of pods</title>
<style>
  svg {{ font: 13px system-ui, sans-serif; }}
  .paper {{ fill: #ffffff; }} text {{ fill: #1f2328; }} .soft {{ fill: #59636e; }}
  .grid {{ stroke: #d1d9e0; stroke-width: 1; }} .line {{ fill: none; stroke-width: 2; }}
  @media (prefers-color-scheme: dark) {{
    .paper {{ fill: #0d1117; }} text {{ fill: #f0f6fc; }} .soft {{ fill: #9198a1; }}
    .grid {{ stroke: #3d444d; }}
  }}
</style>
<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>
<text x="{LEFT}" y="24" font-size="16">How time grows with the cluster</text>
<text class="soft" x="{LEFT}" y="42">seconds, one thread unless stated; quietest run; both axes logarithmic</text>
"##
    );
    grid(&mut svg, &x, &y);
    names(&mut svg, points, &x);
    for (index, series) in series.iter().enumerate() {
        let colour = COLOURS
            .get(index % COLOURS.len())
            .copied()
            .unwrap_or("#7f7f7f");
        draw(&mut svg, series, colour, (&x, &y));
    }
    legend(&mut svg, &series, &y);
    svg.push_str("</svg>\n");
    svg
}

fn series(points: &[Point]) -> Vec<Series> {
    let mut all = Vec::new();
    let mut add = |name: &str, seconds: &dyn Fn(&Point) -> Option<f64>| {
        let places = points.iter().filter_map(|point| {
            let seconds = seconds(point)?;
            (seconds > 0.0).then(|| (point.name.clone(), point.pods as f64, seconds))
        });
        let places: Vec<(String, f64, f64)> = places.collect();
        if !places.is_empty() {
            all.push(Series {
                name: name.to_owned(),
                places,
            });
        }
    };
    add("bare JSON parse", &|point| {
        Some(point.bare_parse.wall_seconds)
    });
    for step in ["read", "lower", "compile"] {
        add(step, &|point| {
            point.step(step).map(|it| it.spent.wall_seconds)
        });
    }
    for threads in [1, 2] {
        let name = fold_name(threads);
        let label = format!(
            "whole cluster, {threads} thread{}",
            if threads > 1 { "s" } else { "" }
        );
        add(&label, &|point| {
            point.step(&name).map(|it| it.spent.wall_seconds)
        });
    }
    add("palisade explain", &|point| {
        point.explain.map(|it| it.spent.wall_seconds)
    });
    all
}

/// A logarithmic axis.
struct Axis {
    first: f64,
    last: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        let (mut first, mut last) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values {
            (first, last) = (first.min(value.log10()), last.max(value.log10()));
        }
        if first > last {
            (first, last) = (0.0, 1.0);
        }
        Axis {
            first,
            last,
            from,
            to,
        }
    }

    fn with_margin(self) -> Axis {
        Axis {
            first: self.first - 0.15,
            last: self.last + 0.15,
            ..self
        }
    }

    fn at_powers(self) -> Axis {
        let first = self.first.floor();
        Axis {
            first,
            last: self.last.ceil().max(first + 1.0),
            ..self
        }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.log10() - self.first) / (self.last - self.first);
        self.from + share * (self.to - self.from)
    }

    fn powers(&self) -> impl Iterator<Item = f64> {
        let (first, last) = (self.first.ceil() as i32, self.last.floor() as i32);
        (first..=last).map(|exponent| 10_f64.powi(exponent))
    }
}

fn grid(svg: &mut String, x: &Axis, y: &Axis) {
    for value in y.powers() {
        let (at, label) = (y.at(value), duration(value));
        let _ = writeln!(
            svg,
            r#"<line class="grid" x1="{LEFT}" y1="{at:.1}" x2="{RIGHT}" y2="{at:.1}"/><text class="soft" x="{:.1}" y="{:.1}" text-anchor="end">{label}</text>"#,
            LEFT - 8.0,
            at + 4.0
        );
    }
    for value in x.powers() {
        let (at, label) = (x.at(value), count(value));
        let _ = writeln!(
            svg,
            r#"<line class="grid" x1="{at:.1}" y1="{TOP}" x2="{at:.1}" y2="{BOTTOM}"/><text class="soft" x="{at:.1}" y="{:.1}" text-anchor="middle">{label}</text>"#,
            BOTTOM + 18.0
        );
    }
    let _ = writeln!(
        svg,
        r#"<text class="soft" x="{:.1}" y="{:.1}" text-anchor="middle">pods</text>"#,
        (LEFT + RIGHT) / 2.0,
        BOTTOM + 54.0
    );
}

/// The names of the clusters, below the axis; those with as many pods share a line.
fn names(svg: &mut String, points: &[Point], x: &Axis) {
    let mut by_pods: Vec<(u64, Vec<&str>)> = Vec::new();
    for point in points {
        match by_pods.iter_mut().find(|(pods, _)| *pods == point.pods) {
            Some((_, names)) => names.push(&point.name),
            None => by_pods.push((point.pods, vec![&point.name])),
        }
    }
    for (pods, names) in by_pods {
        let (at, names) = (x.at(pods as f64), names.join(", "));
        let _ = writeln!(
            svg,
            r#"<text x="{at:.1}" y="{:.1}" text-anchor="middle">{names}</text>"#,
            BOTTOM + 36.0
        );
    }
}

fn draw(svg: &mut String, series: &Series, colour: &str, (x, y): (&Axis, &Axis)) {
    let mut line: Vec<&(String, f64, f64)> = Vec::new();
    for place in &series.places {
        let (cx, cy) = (x.at(place.1), y.at(place.2));
        let on_line = LINE.contains(&place.0.as_str());
        let fill = if on_line { colour } else { "none" };
        if on_line {
            line.push(place);
        }
        let _ = writeln!(
            svg,
            r#"<circle cx="{cx:.1}" cy="{cy:.1}" r="3.5" fill="{fill}" stroke="{colour}" stroke-width="1.5"><title>{} at {}: {}</title></circle>"#,
            series.name,
            place.0,
            duration(place.2)
        );
    }
    line.sort_by(|a, b| a.1.total_cmp(&b.1));
    let places: Vec<String> = line
        .iter()
        .map(|place| format!("{:.1},{:.1}", x.at(place.1), y.at(place.2)))
        .collect();
    let _ = writeln!(
        svg,
        r#"<polyline class="line" stroke="{colour}" points="{}"/>"#,
        places.join(" ")
    );
}

/// Names at the right ends of the lines, moved apart where they would meet.
fn legend(svg: &mut String, series: &[Series], y: &Axis) {
    let mut labels: Vec<(f64, usize)> = Vec::new();
    for (index, series) in series.iter().enumerate() {
        let last = series.places.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        labels.extend(last.map(|place| (y.at(place.2), index)));
    }
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = TOP;
    for (wanted, index) in labels {
        let at = wanted.max(free);
        free = at + 18.0;
        let colour = COLOURS
            .get(index % COLOURS.len())
            .copied()
            .unwrap_or("#7f7f7f");
        let name = series
            .get(index)
            .map(|it| it.name.as_str())
            .unwrap_or_default();
        let _ = writeln!(
            svg,
            r#"<rect x="{:.1}" y="{:.1}" width="10" height="10" rx="2" fill="{colour}"/><text x="{:.1}" y="{:.1}">{name}</text>"#,
            RIGHT + 14.0,
            at - 5.0,
            RIGHT + 30.0,
            at + 4.0
        );
    }
}

fn duration(seconds: f64) -> String {
    let (number, unit) = match seconds {
        s if s < 0.999e-3 => (s * 1e6, "µs"),
        s if s < 0.999 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    if number < 9.95 && (number - number.round()).abs() > 0.05 {
        format!("{number:.1} {unit}")
    } else {
        format!("{number:.0} {unit}")
    }
}

fn count(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{:.0}M", n / 1e6),
        n if n >= 1e3 => format!("{:.0}k", n / 1e3),
        n => format!("{n:.0}"),
    }
}
