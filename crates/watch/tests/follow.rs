//! Whatever is done to a tree of files, what is known of it becomes what it is, by notices alone.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use palisade_watch::{Files, Options, Root};

const SOON: Duration = Duration::from_secs(2);

/// Numbers that look random and are always the same.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    /// A directory, of a few.
    fn directory(&mut self, path: &Path) -> PathBuf {
        let names = [
            "own", "own", "own/a", "own/a/b", "own/c", "own/l", "own/.h", "beyond", "beyond/d",
        ];
        path.join(self.of(&names))
    }

    fn file(&mut self, path: &Path) -> PathBuf {
        let name = self.of(&["x.yaml", "y.json", "z.yml.gz", "no.txt", ".h.yaml"]);
        self.directory(path).join(name)
    }
}

/// Does something, which may fail: then it was not possible.
fn act(chance: &mut Chance, path: &Path, round: usize) -> String {
    let (one, other) = (chance.directory(path), chance.directory(path));
    let (file, to) = (chance.file(path), chance.file(path));
    let is_own = |it: &Path| it.ends_with("own");
    match chance.below(12) {
        0..=2 => {
            let _ = fs::write(&file, round.to_string());
            format!("write {}", file.display())
        }
        3 => {
            let new = file.with_extension("new");
            let _ = fs::write(&new, round.to_string()).and_then(|()| fs::rename(new, &file));
            format!("replace {}", file.display())
        }
        4 => {
            let _ = fs::remove_file(&file);
            format!("remove {}", file.display())
        }
        5 => {
            let _ = fs::rename(&file, &to);
            format!("rename {} {}", file.display(), to.display())
        }
        6 | 7 => {
            let _ = fs::create_dir_all(&one);
            let _ = fs::write(one.join("x.yaml"), round.to_string());
            format!("make {}", one.display())
        }
        8 if !is_own(&one) => {
            let _ = fs::remove_dir_all(&one).or_else(|_| fs::remove_file(&one));
            format!("remove {}", one.display())
        }
        9 if !is_own(&one) && !is_own(&other) => {
            let _ = fs::rename(&one, &other);
            format!("rename {} {}", one.display(), other.display())
        }
        10 => {
            let (new, link) = (path.join("new"), path.join("own/l"));
            let _ = symlink(&one, &new).and_then(|()| fs::rename(&new, link));
            let _ = fs::remove_file(new);
            format!("link own/l {}", one.display())
        }
        11 => {
            let new = path.join("new");
            let _ = symlink(&file, &new).and_then(|()| fs::rename(&new, &to));
            let _ = fs::remove_file(new);
            format!("link {} {}", to.display(), file.display())
        }
        _ => "nothing".to_owned(),
    }
}

fn contents(files: &Files) -> Vec<(PathBuf, String)> {
    let show = |file: &palisade_watch::File| {
        let text = String::from_utf8_lossy(&file.bytes).into_owned();
        (file.path.clone(), text)
    };
    files.iter().map(show).collect()
}

fn follow(seed: u64, recursive: bool) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    let root = Root {
        path: path.join("own"),
        recursive,
    };
    fs::create_dir_all(path.join("own/a")).unwrap();
    fs::create_dir_all(path.join("beyond")).unwrap();
    let options = Options {
        quiet: Duration::from_millis(1),
        look_every: Duration::from_secs(3600),
        ..Options::default()
    };
    let open = || Files::open(vec![root.clone()], options).unwrap();
    let mut files = open();
    let mut chance = Chance(seed);
    let mut done = Vec::new();
    for round in 0..60 {
        for _ in 0..=chance.below(4) {
            done.push(act(&mut chance, &path, round));
        }
        let expected = open();
        let deadline = Instant::now() + SOON;
        while contents(&files) != contents(&expected) || !files.troubles().is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero(),
                "seed {seed}: {:#?}\nis not {:#?}\n{:?}\n{done:#?}",
                contents(&files),
                contents(&expected),
                files.troubles(),
            );
            files.wait(Some(left)).unwrap();
        }
    }
}

#[test]
fn every_operation_on_files_is_noticed() {
    for seed in 1..=6 {
        follow(seed, seed % 3 != 0);
    }
}
