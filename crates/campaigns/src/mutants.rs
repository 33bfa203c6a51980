//! Seeded mistakes as data: patches of `crates/campaigns/mutants`, what they say of themselves, and which of them a run takes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

/// Where the patches are, from the root of the repository.
pub const PATCHES: &str = "crates/campaigns/mutants";

/// What stands before the arguments of a command that finds a mistake.
const FOUND_BY: &str = "found by:";

/// A mistake: a patch, and what its first lines say.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The patch.
    pub path: PathBuf,
    /// Its name, which starts with its number.
    pub name: String,
    /// Its number, which no other has.
    pub number: u32,
    /// What is wrong, in a sentence.
    pub what: String,
    /// The tests that should find it, one command after the other; none: those that every mistake of the engine is tried with.
    pub found_by: Vec<Tests>,
}

/// Tests, as they are told to `cargo test`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tests {
    /// What is built.
    pub build: Vec<String>,
    /// What each program gets: which of its tests are run.
    pub run: Vec<String>,
}

impl Tests {
    /// Takes a command line apart; what stands behind `--` is for the programs.
    pub fn parse(line: &str) -> Tests {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let line = format!(" {line} ");
        let (build, run) = line.split_once(" -- ").unwrap_or((&line, ""));
        Tests {
            build: words(build),
            run: words(run),
        }
    }
}

impl Mutant {
    /// Reads the lines that stand before a patch.
    pub fn read(path: &Path) -> Result<Mutant> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default();
        Mutant::parse(path, &name.to_string_lossy(), &text)
            .with_context(|| path.display().to_string())
    }

    fn parse(path: &Path, name: &str, text: &str) -> Result<Mutant> {
        let (number, word) = name.split_once('-').context("its name has no number")?;
        ensure!(!word.is_empty(), "its name is a number only");
        let number = number.parse().context("its name has no number")?;
        let head = text.lines().map_while(|line| line.strip_prefix("# "));
        let mut head = head.map(str::trim);
        let what = head.next().context("it does not say what is wrong")?;
        let mut found_by = Vec::new();
        for line in head {
            let Some(tests) = line.strip_prefix(FOUND_BY) else {
                bail!("a line says neither what is wrong nor what finds it: {line}");
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

/// So many of the mistakes, chosen by a seed, in their order. Each mistake has the same chance, and adding one
/// changes little of what other seeds choose.
pub fn sample(mut mutants: Vec<Mutant>, n: usize, seed: &str) -> Vec<Mutant> {
    mutants.sort_by_key(|it| hash(&[seed, "/", &it.name]));
    mutants.truncate(n);
    mutants.sort_by(|a, b| (a.number, &a.name).cmp(&(b.number, &b.name)));
    mutants
}

/// FNV-1a and a last stir, so that it is the same with every version of every library.
fn hash(words: &[&str]) -> u64 {
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    for byte in words.iter().flat_map(|word| word.bytes()) {
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
    fn the_first_lines_say_what_is_wrong_and_what_finds_it() {
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
    fn a_seed_chooses_and_in_the_long_run_everyone_is_chosen() {
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
        let mut seen: Vec<u32> = (0..100).flat_map(|it| chosen(&it.to_string())).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 50);
        assert_eq!(sample(mutants.clone(), 80, "1").len(), 50);
    }
}
