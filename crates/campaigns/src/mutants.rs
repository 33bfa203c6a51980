//! Seeded mistakes as data: the patches of `crates/campaigns/mutants`, their first lines, and the
//! selection of a run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

/// The directory of the patches, from the root of the repository.
pub const PATCHES: &str = "crates/campaigns/mutants";

/// The prefix of a line with the arguments of a test command.
const FOUND_BY: &str = "found by:";

/// A seeded mistake: a patch with a description.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The patch.
    pub path: PathBuf,
    /// Its name, which starts with its number.
    pub name: String,
    /// Its unique number.
    pub number: u32,
    /// What it does, in a sentence.
    pub what: String,
    /// The tests that must detect it, in order; if empty, the default tests of the engine.
    pub found_by: Vec<Tests>,
}

/// Arguments of `cargo test`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tests {
    /// The arguments that select what to build.
    pub build: Vec<String>,
    /// The arguments of each test program: which of its tests to run.
    pub run: Vec<String>,
}

impl Tests {
    /// Parses a command line; arguments after `--` are for the test programs.
    pub fn parse(line: &str) -> Tests {
        let texts = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let line = format!(" {line} ");
        let (build, run) = line.split_once(" -- ").unwrap_or((&line, ""));
        Tests {
            build: texts(build),
            run: texts(run),
        }
    }
}

impl Mutant {
    /// Reads a patch and its first lines.
    pub fn read(path: &Path) -> Result<Mutant> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default();
        Mutant::parse(path, &name.to_string_lossy(), &text)
            .with_context(|| path.display().to_string())
    }

    fn parse(path: &Path, name: &str, text: &str) -> Result<Mutant> {
        let (number, slug) = name.split_once('-').context("the name has no number")?;
        ensure!(!slug.is_empty(), "the name is only a number");
        let number = number.parse().context("the name has no number")?;
        let head = text.lines().map_while(|line| line.strip_prefix("# "));
        let mut head = head.map(str::trim);
        let what = head.next().context("no description")?;
        let mut found_by = Vec::new();
        for line in head {
            let Some(tests) = line.strip_prefix(FOUND_BY) else {
                bail!("a line is neither a description nor a test command: {line}");
            };
            found_by.push(Tests::parse(tests));
        }
        Ok(Mutant {
            path: path.to_owned(),
            name: name.to_owned(),
            number,
            what: what.to_owned(),
            found_by,
        })
    }
}

/// All mistakes of a repository, by number.
pub fn all(root: &Path) -> Result<Vec<Mutant>> {
    let directory = root.join(PATCHES);
    let entries = fs::read_dir(&directory).with_context(|| directory.display().to_string())?;
    let mut mutants = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "patch") {
            mutants.push(Mutant::read(&path)?);
        }
    }
    mutants.sort_by(|a, b| (a.number, &a.name).cmp(&(b.number, &b.name)));
    Ok(mutants)
}

/// Chooses `n` mistakes by a seed, in their order. Each has the same chance, and a new mistake
/// hardly changes the choices of other seeds.
pub fn sample(mut mutants: Vec<Mutant>, n: usize, seed: &str) -> Vec<Mutant> {
    mutants.sort_by_key(|it| hash(&[seed, "/", &it.name]));
    mutants.truncate(n);
    mutants.sort_by(|a, b| (a.number, &a.name).cmp(&(b.number, &b.name)));
    mutants
}

/// FNV-1a with a final mix, which is stable across versions of libraries.
fn hash(texts: &[&str]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in texts.iter().flat_map(|slug| slug.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    }
    palisade_generate::Rng::new(hash).bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, text: &str) -> Result<Mutant> {
        Mutant::parse(Path::new("x.patch"), name, text)
    }

    #[test]
    fn the_first_lines_are_a_description_and_test_commands() {
        let text = "# All is open.\n# found by: -p a --test b -- --exact c d\n# found by: -p e --lib\n--- a/x\n# no line of the head\n";
        let mutant = parse("7-all-open", text).unwrap();
        assert_eq!((mutant.number, mutant.what.as_str()), (7, "All is open."));
        let [first, second] = mutant.found_by.as_slice() else {
            panic!("{:?}", mutant.found_by);
        };
        assert_eq!(first.build, ["-p", "a", "--test", "b"]);
        assert_eq!(first.run, ["--exact", "c", "d"]);
        assert_eq!(second.build, ["-p", "e", "--lib"]);
        assert_eq!(second.run, [""; 0]);
        for (name, text) in [
            ("open", "# All is open.\n"),
            ("7", "# All is open.\n"),
            ("7-", "# All is open.\n"),
            ("7-open", "--- a/x\n"),
            ("7-open", "# All is open.\n# And more.\n"),
        ] {
            assert!(parse(name, text).is_err(), "{name} {text}");
        }
    }

    #[test]
    fn a_seed_chooses_a_sample_and_many_seeds_choose_all() {
        let mutants: Vec<Mutant> = (0..50)
            .map(|it| parse(&format!("{it}-wrong"), "# Wrong.\n").unwrap())
            .collect();
        let chosen = |seed: &str| -> Vec<u32> {
            let some = sample(mutants.clone(), 5, seed);
            some.iter().map(|it| it.number).collect()
        };
        assert_eq!(chosen("4f3a9c1").len(), 5);
        assert_eq!(chosen("4f3a9c1"), chosen("4f3a9c1"));
        assert_ne!(chosen("4f3a9c1"), chosen("4f3a9c2"));
        assert!(chosen("4f3a9c1").is_sorted());
        let mut chosen_numbers: Vec<u32> =
            (0..100).flat_map(|it| chosen(&it.to_string())).collect();
        chosen_numbers.sort_unstable();
        chosen_numbers.dedup();
        assert_eq!(chosen_numbers.len(), 50);
        assert_eq!(sample(mutants.clone(), 80, "1").len(), 50);
    }
}
