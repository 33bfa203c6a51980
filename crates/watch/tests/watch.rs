//! What happens to files and directories is noticed, however it is done.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use palisade_watch::{Notice, Root, Watch};
use std::os::fd::AsFd;

/// Long enough for a machine that is busy.
const SOON: Duration = Duration::from_secs(2);
/// Long enough for a notice that should not come.
const MOMENT: Duration = Duration::from_millis(30);
const NEVER: Duration = Duration::from_secs(3600);

fn watch(path: &Path, recursive: bool) -> Watch {
    let path = path.to_owned();
    Watch::new(vec![Root { path, recursive }], NEVER).unwrap()
}

/// The names, below a directory, of everything that is noticed until nothing more is.
fn noticed(watch: &mut Watch, below: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut timeout = SOON;
    loop {
        match watch.wait(Some(timeout)).unwrap() {
            Notice::Nothing => return names,
            Notice::Changed(paths) => names.extend(paths.iter().map(|path| {
                let path = path.strip_prefix(below).unwrap();
                path.display().to_string()
            })),
            other @ (Notice::All | Notice::Stopped) => panic!("{other:?}"),
        }
        timeout = MOMENT;
    }
}

#[track_caller]
fn check(watch: &mut Watch, below: &Path, names: &[&str]) {
    let expected: BTreeSet<String> = names.iter().map(|it| (*it).to_owned()).collect();
    assert_eq!(noticed(watch, below), expected);
}

#[track_caller]
fn check_nothing(watch: &mut Watch) {
    assert_eq!(watch.wait(Some(MOMENT)).unwrap(), Notice::Nothing);
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

#[test]
fn without_changes_there_are_no_events() {
    let (_kept, path) = directory();
    fs::write(path.join("a.yaml"), "a").unwrap();
    let mut watch = watch(&path, true);
    check_nothing(&mut watch);
    // Reading is nothing either.
    fs::read(path.join("a.yaml")).unwrap();
    fs::read_dir(&path).unwrap().for_each(drop);
    check_nothing(&mut watch);
}

#[test]
fn files_are_made_written_renamed_and_removed() {
    let (_kept, path) = directory();
    let mut watch = watch(&path, false);
    fs::write(path.join("a.yaml"), "a").unwrap();
    check(&mut watch, &path, &["a.yaml"]);
    fs::write(path.join("a.yaml"), "b").unwrap();
    check(&mut watch, &path, &["a.yaml"]);
    fs::rename(path.join("a.yaml"), path.join("b.json.gz")).unwrap();
    check(&mut watch, &path, &["a.yaml", "b.json.gz"]);
    fs::remove_file(path.join("b.json.gz")).unwrap();
    check(&mut watch, &path, &["b.json.gz"]);
}

#[test]
fn temporary_files_of_editors_are_skipped() {
    let (_kept, path) = directory();
    fs::write(path.join("a.yaml"), "a").unwrap();
    let mut watch = watch(&path, true);
    for name in [
        ".a.yaml.swp",
        "a.yaml~",
        "4913",
        "#a.yaml#",
        ".a.yaml",
        "notes.txt",
    ] {
        fs::write(path.join(name), "x").unwrap();
    }
    fs::create_dir(path.join(".git")).unwrap();
    fs::write(path.join(".git/a.yaml"), "x").unwrap();
    check_nothing(&mut watch);
    // What they do in the end: another file under the same name.
    fs::rename(path.join("4913"), path.join("a.yaml")).unwrap();
    check(&mut watch, &path, &["a.yaml"]);
}

#[test]
fn a_file_is_followed_by_its_name() {
    let (_kept, path) = directory();
    let file = path.join("flows.txt");
    fs::write(&file, "a").unwrap();
    fs::write(path.join("other.yaml"), "a").unwrap();
    let mut watch = watch(&file, false);
    fs::write(path.join("other.yaml"), "b").unwrap();
    check_nothing(&mut watch);
    fs::write(&file, "b").unwrap();
    check(&mut watch, &path, &["flows.txt"]);
    fs::write(path.join("new"), "c").unwrap();
    fs::rename(path.join("new"), &file).unwrap();
    check(&mut watch, &path, &["flows.txt"]);
    fs::remove_file(&file).unwrap();
    check(&mut watch, &path, &["flows.txt"]);
    fs::write(&file, "d").unwrap();
    check(&mut watch, &path, &["flows.txt"]);
}

#[test]
fn subdirectories_are_read_with_recursive() {
    let (_kept, path) = directory();
    let (mut deep, mut flat) = (watch(&path, true), watch(&path, false));
    fs::create_dir_all(path.join("new/below")).unwrap();
    fs::write(path.join("new/below/a.yaml"), "a").unwrap();
    let names = noticed(&mut deep, &path);
    assert!(names.contains("new"), "{names:?}");
    // They are watched from now on.
    fs::write(path.join("new/below/a.yaml"), "b").unwrap();
    check(&mut deep, &path, &["new/below/a.yaml"]);
    fs::remove_dir_all(path.join("new")).unwrap();
    assert!(noticed(&mut deep, &path).contains("new"));
    check_nothing(&mut flat);
}

#[test]
fn files_of_a_new_directory_are_not_missed() {
    let (_kept, path) = directory();
    let mut deep = watch(&path, true);
    for round in 0..50 {
        let below = path.join(format!("{round}"));
        fs::create_dir(&below).unwrap();
        let Notice::Changed(_) = deep.wait(Some(SOON)).unwrap() else {
            panic!("nothing was noticed");
        };
        fs::write(below.join("a.yaml"), "a").unwrap();
        let name = format!("{round}/a.yaml");
        check(&mut deep, &path, &[&name]);
    }
}

/// Makes a new set of files the current one, as a node does with a mounted ConfigMap.
fn mount(path: &Path, version: &str, text: &str) {
    let own = path.join(version);
    fs::create_dir(&own).unwrap();
    fs::write(own.join("shop.yaml"), text).unwrap();
    symlink(version, path.join("..data_tmp")).unwrap();
    fs::rename(path.join("..data_tmp"), path.join("..data")).unwrap();
}

#[test]
fn a_mounted_config_map_is_followed_through_its_links() {
    for recursive in [false, true] {
        let (_kept, path) = directory();
        mount(&path, "..1", "one");
        symlink("..data/shop.yaml", path.join("shop.yaml")).unwrap();
        let mut watch = watch(&path, recursive);
        for version in ["..2", "..3"] {
            mount(&path, version, version);
            check(&mut watch, &path, &["shop.yaml"]);
        }
        fs::remove_dir_all(path.join("..2")).unwrap();
        check_nothing(&mut watch);
        fs::write(path.join("..3/shop.yaml"), "in place").unwrap();
        check(&mut watch, &path, &["shop.yaml"]);
    }
}

#[test]
fn a_directory_is_created_again() {
    let (_kept, path) = directory();
    let own = path.join("a/b");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("a.yaml"), "a").unwrap();
    let mut watch = watch(&own, false);
    for _ in 0..3 {
        fs::remove_dir_all(path.join("a")).unwrap();
        assert!(noticed(&mut watch, &path).contains("a/b"));
        fs::create_dir_all(&own).unwrap();
        assert!(noticed(&mut watch, &path).contains("a/b"));
        fs::write(own.join("a.yaml"), "b").unwrap();
        check(&mut watch, &path, &["a/b/a.yaml"]);
    }
}

#[test]
fn a_directory_is_replaced() {
    let (_kept, path) = directory();
    let (own, other) = (path.join("own"), path.join("other"));
    fs::create_dir(&own).unwrap();
    fs::create_dir(&other).unwrap();
    let mut watch = watch(&own, false);
    fs::rename(&own, path.join("old")).unwrap();
    fs::rename(&other, &own).unwrap();
    check(&mut watch, &path, &["own"]);
    fs::write(path.join("old/a.yaml"), "a").unwrap();
    check_nothing(&mut watch);
    fs::write(own.join("a.yaml"), "a").unwrap();
    check(&mut watch, &path, &["own/a.yaml"]);
}

#[test]
fn a_link_changes_its_target() {
    let (_kept, path) = directory();
    fs::create_dir_all(path.join("one")).unwrap();
    fs::create_dir_all(path.join("two")).unwrap();
    symlink("one", path.join("current")).unwrap();
    let mut watch = watch(&path.join("current"), true);
    fs::write(path.join("one/a.yaml"), "a").unwrap();
    check(&mut watch, &path, &["current/a.yaml"]);
    symlink("two", path.join("next")).unwrap();
    fs::rename(path.join("next"), path.join("current")).unwrap();
    check(&mut watch, &path, &["current"]);
    fs::write(path.join("two/a.yaml"), "a").unwrap();
    check(&mut watch, &path, &["current/a.yaml"]);
    fs::write(path.join("one/a.yaml"), "b").unwrap();
    check_nothing(&mut watch);
}

#[test]
fn links_that_lead_in_circles_do_no_harm() {
    let (_kept, path) = directory();
    symlink("b.yaml", path.join("a.yaml")).unwrap();
    symlink("a.yaml", path.join("b.yaml")).unwrap();
    symlink(".", path.join("again")).unwrap();
    let mut watch = watch(&path, true);
    check_nothing(&mut watch);
    fs::write(path.join("c.yaml"), "c").unwrap();
    check(&mut watch, &path, &["c.yaml"]);
}

#[test]
fn a_missing_path_may_be_created() {
    let (_kept, path) = directory();
    let own = path.join("not/yet/here");
    let mut watch = watch(&own, true);
    check_nothing(&mut watch);
    fs::create_dir_all(&own).unwrap();
    check(&mut watch, &path, &["not/yet/here"]);
    fs::write(own.join("a.yaml"), "a").unwrap();
    check(&mut watch, &path, &["not/yet/here/a.yaml"]);
}

#[test]
fn an_overflow_of_the_queue_reads_everything() {
    let (_kept, path) = directory();
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let mut watch = watch(&path, false);
    let (one, other) = (path.join("a.yaml"), path.join("b.yaml"));
    fs::write(&one, "a").unwrap();
    for _ in 0..=limit / 2 {
        fs::rename(&one, &other).unwrap();
        fs::rename(&other, &one).unwrap();
    }
    assert_eq!(watch.wait(Some(SOON)).unwrap(), Notice::All);
    // It goes on as before.
    while watch.wait(Some(MOMENT)).unwrap() != Notice::Nothing {}
    fs::write(&other, "b").unwrap();
    check(&mut watch, &path, &["b.yaml"]);
}

#[test]
fn all_files_are_checked_periodically() {
    let (_kept, path) = directory();
    let root = Root {
        path,
        recursive: false,
    };
    let mut watch = Watch::new(vec![root], Duration::from_millis(40)).unwrap();
    let started = Instant::now();
    assert_eq!(watch.wait(None).unwrap(), Notice::All);
    assert!(started.elapsed() >= Duration::from_millis(30));
    assert_eq!(watch.wait(Some(SOON)).unwrap(), Notice::All);
}

#[test]
fn waiting_can_be_ended_from_outside() {
    let (_kept, path) = directory();
    let mut watch = watch(&path, false);
    let stopper = watch.stopper();
    let waiting = std::thread::spawn(move || {
        let first = watch.wait(None).unwrap();
        (first, watch.wait(None).unwrap())
    });
    stopper.stop();
    assert_eq!(waiting.join().unwrap(), (Notice::Stopped, Notice::Stopped));
}

#[test]
fn the_watch_has_a_file_descriptor_to_poll() {
    let (_kept, path) = directory();
    let mut watch = watch(&path, false);
    let is_ready = |watch: &Watch, time: u16| {
        let mut polled = [PollFd::new(watch.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::from(time)).unwrap() == 1
    };
    // The directories above are shared: events of other programs there are read and skipped.
    let becomes_calm = |watch: &mut Watch| {
        (0..200).any(|_| {
            let is_calm = !is_ready(watch, 10);
            if !is_calm {
                let _ = watch.wait(Some(Duration::from_millis(1))).unwrap();
            }
            is_calm
        })
    };
    assert!(becomes_calm(&mut watch));
    fs::write(path.join("a.yaml"), "a").unwrap();
    assert!(is_ready(&watch, 2_000));
    check(&mut watch, &path, &["a.yaml"]);
    assert!(becomes_calm(&mut watch));
    watch.stopper().stop();
    assert!(is_ready(&watch, 2_000));
}
