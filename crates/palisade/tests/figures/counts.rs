//! Counts what the repository has: cases, codes, patches, decisions, and the constants of tests.

use std::path::{Path, PathBuf};

use super::{read, root};

/// The text after `const NAME: ... =`, up to the end of the statement.
fn definition(path: &str, name: &str) -> (String, String) {
    let text = read(path);
    let start = format!("const {name}: ");
    let found: Vec<&str> = text.split(start.as_str()).skip(1).collect();
    assert_eq!(found.len(), 1, "{path}: {name}");
    let (kind, rest) = found[0].split_once(" =").unwrap();
    // A list ends at its own bracket, which is alone or at the end of the line.
    let rest = rest.trim_start();
    let end = if rest.starts_with('[') && rest.lines().next().is_some_and(|it| it == "[") {
        rest.find("\n];")
    } else {
        rest.find(';')
    };
    let value = &rest[..end.unwrap_or_else(|| panic!("{path}: {name} has no end"))];
    (kind.to_owned(), value.to_owned())
}

fn plain(text: &str) -> usize {
    let digits = text.trim().replace('_', "");
    let digits = digits.parse();
    digits.unwrap_or_else(|_| panic!("{text} is no number"))
}

/// The value of a constant number.
pub(crate) fn constant(path: &str, name: &str) -> usize {
    plain(&definition(path, name).1)
}

/// The value of a constant text.
pub(crate) fn text_constant(path: &str, name: &str) -> String {
    definition(path, name).1.trim_matches('"').to_owned()
}

/// How many numbers a constant range has.
pub(crate) fn range(path: &str, name: &str) -> usize {
    let (_, value) = definition(path, name);
    let (start, end) = value.split_once("..").unwrap();
    plain(end) - plain(start)
}

/// The length of a constant array, as its type says, which the compiler holds to what is in it.
pub(crate) fn array(path: &str, name: &str) -> usize {
    let (kind, _) = definition(path, name);
    let length = kind.rsplit(';').next().unwrap();
    plain(length.trim_end_matches(']'))
}

/// The mistakes of `MISTAKES`, counted one by one.
pub(crate) fn mistakes_in_rulesets() -> usize {
    let path = "crates/campaigns/src/packets/wrong.rs";
    let (_, value) = definition(path, "MISTAKES");
    let lines = value.lines();
    let count = lines.filter(|it| it.starts_with("    mistake(")).count();
    assert_eq!(count, array(path, "MISTAKES"), "{path}");
    count
}

/// So many answers must agree, or the test fails.
pub(crate) fn answers_of_a_run() -> usize {
    let test = read("crates/campaigns/tests/agree.rs");
    let floor = test.split("assert!(verdicts >= ").nth(1).unwrap();
    plain(floor.split(',').next().unwrap())
}

fn directories(path: &Path) -> Vec<PathBuf> {
    let entries = path.read_dir().unwrap().map(|it| it.unwrap().path());
    let mut found: Vec<PathBuf> = entries.filter(|it| it.is_dir()).collect();
    found.sort();
    found
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

fn cases() -> Vec<PathBuf> {
    let groups = directories(&root().join("cases"));
    let cases = groups.iter().flat_map(|it| directories(it));
    cases.collect()
}

/// The files with questions: one for each step of a case, its first one included.
fn steps() -> Vec<PathBuf> {
    let mut steps = Vec::new();
    for case in cases() {
        for step in [vec![case.clone()], directories(&case)].concat() {
            let flows = step.join("flows.txt");
            assert!(flows.is_file(), "{}", flows.display());
            steps.push(flows);
        }
    }
    steps
}

pub(crate) fn case_directories() -> usize {
    cases().len()
}

pub(crate) fn case_steps() -> usize {
    steps().len()
}

/// Lines with a question and its answer; cases/README.md has their form.
pub(crate) fn case_questions() -> usize {
    let files = steps().into_iter();
    let files = files.map(|it| std::fs::read_to_string(it).unwrap());
    let questions = files.map(|text| {
        let lines = text.lines().map(|line| {
            let line = line.split(" #").next().unwrap().trim();
            !line.starts_with('#') && line.contains(" : ")
        });
        lines.filter(|it| *it).count()
    });
    questions.sum()
}

/// The largest number of the cases of a group: 50 of `e50`.
pub(crate) fn largest_case(group: &str, letter: char) -> usize {
    let cases = directories(&root().join("cases").join(group));
    let numbers = cases.iter().filter_map(|it| {
        let rest = name(it).strip_prefix(letter)?;
        rest.split('-').next()?.parse().ok()
    });
    numbers.max().unwrap()
}

/// The largest number of a decision in the model.
pub(crate) fn decisions() -> usize {
    let model = read("docs/reference/model.md");
    let numbers = model.lines().filter_map(|line| {
        let rest = line.strip_prefix("- **D")?;
        rest.split("**").next()?.parse().ok()
    });
    numbers.max().unwrap()
}

/// The first line of each row of a table of codes, which has as many directories of examples.
fn codes(page: &str, examples: &str) -> usize {
    let page_text = read(page);
    let rows = page_text.lines().filter_map(|line| {
        let code = line.strip_prefix("| [")?.split(']').next()?;
        // Tables of other pages' codes lead there.
        line.contains(&format!("](#{})", code.to_lowercase()))
            .then(|| code.to_owned())
    });
    let mut codes: Vec<String> = rows.collect();
    codes.sort();
    codes.dedup();
    let found = directories(&root().join(examples));
    let found: Vec<&str> = found.iter().map(|it| name(it)).collect();
    assert_eq!(codes, found, "{page} and {examples}");
    codes.len()
}

pub(crate) fn codes_of_problems() -> usize {
    codes("docs/reference/problems.md", "crates/api/tests/problems")
}

pub(crate) fn codes_of_lint() -> usize {
    codes("docs/reference/lint.md", "crates/palisade/tests/lint")
}

/// The rows of the table under a heading.
pub(crate) fn rows_of_table(text: &str, heading: &str) -> usize {
    let table = text.split(heading).nth(1);
    let table = table.unwrap_or_else(|| panic!("there is no table {heading}"));
    let rows = table.lines().skip(2).take_while(|it| it.starts_with('|'));
    rows.count()
}

/// The tests of a program with its own list: lines of a name and a function.
pub(crate) fn tests_of_group(path: &str) -> usize {
    let text = read(path);
    let main = text.split("fn main()").nth(1).unwrap();
    let main = main.split("\n}").next().unwrap();
    let tests = main.lines().filter(|it| it.trim().starts_with("(\""));
    let count = tests.count();
    assert!(count > 0, "{path} has no list of tests");
    count
}

/// The patches of seeded mistakes: names, and what their first lines say.
pub(crate) fn patches() -> Vec<(String, String)> {
    let directory = root().join("crates/campaigns/mutants");
    let entries = directory.read_dir().unwrap().map(|it| it.unwrap().path());
    let mut patches: Vec<PathBuf> = entries.collect();
    patches.sort();
    let patches = patches.iter().map(|path| {
        let name = name(path).strip_suffix(".patch");
        let name = name.unwrap_or_else(|| panic!("{} is no patch", path.display()));
        let text = std::fs::read_to_string(path).unwrap();
        let first = text.lines().next().unwrap_or_default();
        let words = first.strip_prefix("# ");
        let words = words.unwrap_or_else(|| panic!("{name} does not say what is wrong"));
        (name.to_owned(), words.to_owned())
    });
    patches.collect()
}

/// The seeded mistakes that remove a whole capability.
pub(crate) fn breakages() -> usize {
    let patches = patches().into_iter();
    patches.filter(|it| it.0.contains("-breakage-")).count()
}

pub(crate) fn fuzz_targets() -> usize {
    let directory = root().join("fuzz/fuzz_targets");
    directory.read_dir().unwrap().count()
}

/// The ways in which a response is broken: all variants but `None`.
pub(crate) fn response_faults() -> usize {
    let text = read("crates/campaigns/src/simulate/hostile/fault.rs");
    let variants = text
        .split("enum ResponseFault {\n    None,")
        .nth(1)
        .unwrap();
    let variants = variants.split('}').next().unwrap();
    variants.matches(',').count()
}

/// The table of seeded mistakes: name, what is wrong, what has caught it.
pub(crate) fn table_of_mistakes() -> Vec<(String, String, String)> {
    let page = read("docs/internals/testing.md");
    let mut rows = Vec::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split(" | ").collect();
        if let [name, words, caught] = cells.as_slice()
            && let Some(name) = name.strip_prefix("| ")
            && name.starts_with(|it: char| it.is_ascii_digit())
            && name.contains('-')
            && !name.contains(' ')
        {
            let caught = caught.trim_end_matches('|').trim();
            rows.push((name.to_owned(), (*words).to_owned(), caught.to_owned()));
        }
    }
    rows
}

/// The mistakes that no case notices, as the table has them.
pub(crate) fn found_by_oracle_alone() -> usize {
    let rows = table_of_mistakes();
    let alone = rows.iter().filter(|it| it.2.starts_with("agree: "));
    alone.count()
}

/// The kinds that an agent follows in every cluster.
pub(crate) fn kinds_of_agents() -> usize {
    let text = read("crates/kube/src/resource.rs");
    let list = text.split("pub fn of_agents(").nth(1).unwrap();
    let list = list.split("let kinds = [").nth(1).unwrap();
    let list = list.split(']').next().unwrap();
    list.matches("Kind::").count()
}
