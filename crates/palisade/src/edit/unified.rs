//! Edits as a unified diff.

use std::fmt::Write as _;

use super::TextEdit;

/// How many lines are shown around a change.
const CONTEXT: usize = 3;

/// Replaced lines, by their numbers from zero.
struct LineChange {
    from: usize,
    to: usize,
    /// The replacement.
    new: String,
}

/// Formats edits of a file as a unified diff. They must be in order and must not overlap.
pub(crate) fn unified(file: &str, text: &str, cuts: &[TextEdit]) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let changes = changes(text, &lines, cuts);
    let mut out = format!("--- {file}\n+++ {file}\n");
    let mut shift = 0isize;
    let mut rest = changes.as_slice();
    while let Some(first) = rest.first() {
        // Changes whose context overlaps share a hunk.
        let near = rest.windows(2).take_while(|pair| match pair {
            [a, b] => b.from <= a.to + 2 * CONTEXT,
            _ => false,
        });
        let count = near.count() + 1;
        let (hunk, others) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        rest = others;
        let end = hunk.last().map_or(first.to, |it| it.to);
        let from = first.from.saturating_sub(CONTEXT);
        let to = (end + CONTEXT).min(lines.len());
        let added: usize = hunk
            .iter()
            .map(|it| it.new.split_inclusive('\n').count())
            .sum();
        let removed: usize = hunk.iter().map(|it| it.to - it.from).sum();
        let (n_old, n_new) = (to - from, to - from + added - removed);
        let number = |start: usize, count: usize| start + usize::from(count > 0);
        let new_start = from.saturating_add_signed(shift);
        let _ = writeln!(
            out,
            "@@ -{},{n_old} +{},{n_new} @@",
            number(from, n_old),
            number(new_start, n_new),
        );
        let mut at = from;
        for change in hunk {
            print(&mut out, ' ', lines.get(at..change.from));
            print(&mut out, '-', lines.get(change.from..change.to));
            let new: Vec<&str> = change.new.split_inclusive('\n').collect();
            print(&mut out, '+', Some(&new));
            at = change.to;
        }
        print(&mut out, ' ', lines.get(at..to));
        shift += added.cast_signed() - removed.cast_signed();
    }
    out
}

/// Formats a new file as a unified diff.
pub(crate) fn of_new_file(file: &str, text: &str) -> String {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let n_lines = lines.len();
    let mut out = format!("--- /dev/null\n+++ {file}\n@@ -0,0 +1,{n_lines} @@\n");
    print(&mut out, '+', Some(&lines));
    out
}

fn print(out: &mut String, sign: char, lines: Option<&[&str]>) {
    for line in lines.unwrap_or_default() {
        out.push(sign);
        out.push_str(line);
        if !line.ends_with('\n') {
            out.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// Groups edits by the lines that they touch.
fn changes(text: &str, lines: &[&str], cuts: &[TextEdit]) -> Vec<LineChange> {
    let mut starts = vec![0];
    for line in lines {
        starts.push(starts.last().copied().unwrap_or(0) + line.len());
    }
    let line_of = |offset: usize| starts.partition_point(|it| *it <= offset).saturating_sub(1);
    let start_of = |line: usize| starts.get(line).copied().unwrap_or(text.len());
    let mut changes: Vec<(usize, usize, Vec<&TextEdit>)> = Vec::new();
    for cut in cuts {
        let from = line_of(cut.range.start);
        let last = line_of(cut.range.end);
        // An edit of whole lines ends at the start of a line that it leaves alone.
        let is_whole = start_of(last) == cut.range.end && start_of(from) == cut.range.start;
        // Inserted lines replace no line.
        let inserts_lines = cut.range.is_empty() && cut.insert.ends_with('\n');
        let to = if is_whole && (last > from || inserts_lines) {
            last
        } else {
            last + 1
        };
        let to = to.min(lines.len());
        match changes.last_mut() {
            Some((_, end, own)) if from <= *end => {
                *end = to.max(*end);
                own.push(cut);
            }
            _ => changes.push((from, to, vec![cut])),
        }
    }
    let changes = changes.into_iter().map(|(from, to, cuts)| {
        let mut new = String::new();
        let mut at = start_of(from);
        for cut in cuts {
            new += text.get(at..cut.range.start).unwrap_or_default();
            new += &cut.insert;
            at = cut.range.end;
        }
        new += text.get(at..start_of(to)).unwrap_or_default();
        LineChange { from, to, new }
    });
    changes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(range: std::ops::Range<usize>, insert: &str) -> TextEdit {
        TextEdit {
            range,
            insert: insert.to_owned(),
        }
    }

    #[test]
    fn changes_are_shown_with_what_is_around_them() {
        let text: String = (1..=20).map(|it| format!("line{it}\n")).collect();
        let two = text.find("line2\n").unwrap();
        let fifteen = text.find("line15").unwrap();
        let cuts = [
            cut(two..two + 6, ""),
            cut(fifteen + 4..fifteen + 6, "X\nnew"),
        ];
        let expected = "\
--- a.yaml
+++ a.yaml
@@ -1,5 +1,4 @@
 line1
-line2
 line3
 line4
 line5
@@ -12,7 +11,8 @@
 line12
 line13
 line14
-line15
+lineX
+new
 line16
 line17
 line18
";
        assert_eq!(unified("a.yaml", &text, &cuts), expected);
    }

    #[test]
    fn inserted_lines_replace_no_line() {
        let expected = "--- a\n+++ a\n@@ -1,2 +1,3 @@\n x\n+new\n y\n";
        assert_eq!(unified("a", "x\ny\n", &[cut(2..2, "new\n")]), expected);
        let expected = "--- a\n+++ a\n@@ -1,2 +1,3 @@\n x\n y\n+new\n";
        assert_eq!(unified("a", "x\ny\n", &[cut(4..4, "new\n")]), expected);
        let expected = "--- /dev/null\n+++ b\n@@ -0,0 +1,2 @@\n+x\n+y\n";
        assert_eq!(of_new_file("b", "x\ny\n"), expected);
    }

    #[test]
    fn a_file_that_ends_without_a_newline_says_so() {
        let expected = "--- a\n+++ a\n@@ -1,2 +1,2 @@\n x\n-y\n\\ No newline at end of file\n+z\n\\ No newline at end of file\n";
        assert_eq!(unified("a", "x\ny", &[cut(2..3, "z")]), expected);
    }
}
