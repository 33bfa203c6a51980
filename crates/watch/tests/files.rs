//! What files say is known, read again when it changes, and kept while it cannot be read.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use palisade_watch::{FileChanges, Files, Options, Root, WaitResult};

const SOON: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(60);

fn options() -> Options {
    Options {
        look_every: Duration::from_secs(3600),
        ..Options::default()
    }
}

fn open(paths: &[&Path], recursive: bool, options: Options) -> Files {
    let root = |path: &&Path| Root {
        path: path.to_path_buf(),
        recursive,
    };
    Files::open(paths.iter().map(root).collect(), options).unwrap()
}

/// The files as `name=content`, below a directory.
fn contents(files: &Files, below: &Path) -> Vec<String> {
    let show = |file: &palisade_watch::File| {
        let path = file.path.strip_prefix(below).unwrap();
        let text = String::from_utf8_lossy(&file.bytes).into_owned();
        format!("{}={text}", path.display())
    };
    files.iter().map(show).collect()
}

#[track_caller]
fn next(files: &mut Files) -> FileChanges {
    match files.wait(Some(SOON)).unwrap() {
        WaitResult::Changed(difference) => difference,
        other @ (WaitResult::Nothing | WaitResult::Stopped) => panic!("{other:?}"),
    }
}

/// Waits until the files hold something: a change may be seen in parts.
#[track_caller]
fn until(files: &mut Files, below: &Path, expected: &[&str]) {
    let deadline = Instant::now() + SOON;
    while contents(files, below) != expected {
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "{:?}", contents(files, below));
        files.wait(Some(left)).unwrap();
    }
}

#[track_caller]
fn nothing(files: &mut Files) {
    assert_eq!(files.wait(Some(MOMENT)).unwrap(), WaitResult::Nothing);
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

fn names(paths: &[PathBuf]) -> Vec<String> {
    let name = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(name).collect()
}

/// Replaces a file by another one, atomically.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, file).unwrap();
}

#[test]
fn files_are_in_order_and_others_are_skipped() {
    let (_kept, path) = directory();
    for name in [
        "b.yaml", "a.json", "z.yml.gz", "a.txt", ".h.yaml", "a.yaml~",
    ] {
        fs::write(path.join(name), name).unwrap();
    }
    fs::create_dir_all(path.join("m/.hidden")).unwrap();
    fs::write(path.join("m/c.yaml"), "c").unwrap();
    fs::write(path.join("m/.hidden/d.yaml"), "d").unwrap();
    symlink(&path, path.join("m/up")).unwrap();
    let files = open(&[&path], false, options());
    assert_eq!(
        contents(&files, &path),
        ["a.json=a.json", "b.yaml=b.yaml", "z.yml.gz=z.yml.gz"]
    );
    let files = open(&[&path], true, options());
    assert_eq!(
        contents(&files, &path),
        [
            "a.json=a.json",
            "b.yaml=b.yaml",
            "m/c.yaml=c",
            "z.yml.gz=z.yml.gz"
        ]
    );
    // In the order in which they are named, and a file by itself whatever its name.
    let (last, first) = (path.join("m"), path.join("a.txt"));
    let files = open(&[&first, &last], false, options());
    assert_eq!(contents(&files, &path), ["a.txt=a.txt", "m/c.yaml=c"]);
    assert_eq!(files.iter().map(|it| it.root).collect::<Vec<_>>(), [0, 1]);
    assert!(files.troubles().is_empty() && files.unwatched().is_empty());
}

#[test]
fn only_what_changed_is_read_again() {
    let (_kept, path) = directory();
    fs::write(path.join("a.yaml"), "a").unwrap();
    fs::write(path.join("b.yaml"), "b").unwrap();
    let mut files = open(&[&path], false, options());
    let before: Vec<Arc<Vec<u8>>> = files.iter().map(|it| Arc::clone(&it.bytes)).collect();
    replace(&path.join("b.yaml"), "c");
    let difference = next(&mut files);
    assert_eq!(names(&difference.changed), ["b.yaml"]);
    assert!(difference.gone.is_empty() && !difference.troubles);
    assert_eq!(contents(&files, &path), ["a.yaml=a", "b.yaml=c"]);
    assert!(Arc::ptr_eq(&before[0], &files.iter().next().unwrap().bytes));
}

#[test]
fn a_file_of_the_same_size_and_time_is_read() {
    let (_kept, path) = directory();
    let file = path.join("a.yaml");
    fs::write(&file, "0").unwrap();
    let mut files = open(&[&path], false, options());
    for round in 1..=9 {
        fs::write(&file, round.to_string()).unwrap();
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(std::time::UNIX_EPOCH)
            .unwrap();
        until(&mut files, &path, &[&format!("a.yaml={round}")]);
    }
}

#[test]
fn the_same_bytes_are_no_change() {
    let (_kept, path) = directory();
    let file = path.join("a.yaml");
    fs::write(&file, "a").unwrap();
    let mut files = open(&[&path], false, options());
    // Another file, with the same in it.
    replace(&file, "a");
    nothing(&mut files);
}

#[test]
fn a_deleted_file_is_removed() {
    let (_kept, path) = directory();
    fs::create_dir(path.join("below")).unwrap();
    fs::write(path.join("a.yaml"), "a").unwrap();
    fs::write(path.join("below/b.yaml"), "b").unwrap();
    let mut files = open(&[&path], true, options());
    fs::remove_file(path.join("a.yaml")).unwrap();
    assert_eq!(names(&next(&mut files).gone), ["a.yaml"]);
    fs::remove_dir_all(path.join("below")).unwrap();
    until(&mut files, &path, &[]);
    assert!(files.troubles().is_empty(), "{:?}", files.troubles());
}

#[test]
fn an_unreadable_file_keeps_its_last_content() {
    let (_kept, path) = directory();
    let file = path.join("a.yaml");
    fs::write(&file, "good").unwrap();
    let mut files = open(&[&path], false, options());
    // A file that opens and cannot be read, by any user.
    symlink("/proc/self/mem", path.join("new")).unwrap();
    fs::rename(path.join("new"), &file).unwrap();
    let difference = next(&mut files);
    assert!(difference.troubles && difference.changed.is_empty());
    assert_eq!(contents(&files, &path), ["a.yaml=good"]);
    assert_eq!(files.troubles()[0].path, file);
    nothing(&mut files);
    replace(&file, "better");
    let difference = next(&mut files);
    assert_eq!(
        (names(&difference.changed), difference.troubles),
        (vec!["a.yaml".to_owned()], true)
    );
    assert!(files.troubles().is_empty());
}

#[test]
fn a_file_that_was_never_read_is_only_reported() {
    let (_kept, path) = directory();
    symlink("/proc/self/mem", path.join("a.yaml")).unwrap();
    fs::write(path.join("b.yaml"), "b").unwrap();
    let files = open(&[&path], false, options());
    assert_eq!(contents(&files, &path), ["b.yaml=b"]);
    assert_eq!(files.troubles().len(), 1);
}

#[test]
fn a_missing_root_keeps_its_files() {
    let (_kept, path) = directory();
    let own = path.join("own");
    fs::create_dir(&own).unwrap();
    fs::write(own.join("a.yaml"), "a").unwrap();
    fs::write(own.join("b.yaml"), "b").unwrap();
    let mut files = open(&[&own], false, options());
    fs::rename(&own, path.join("away")).unwrap();
    let difference = next(&mut files);
    assert!(
        difference.troubles && difference.gone.is_empty(),
        "{difference:?}"
    );
    assert_eq!(files.troubles()[0].path, own);
    assert_eq!(files.troubles()[0].error.kind(), ErrorKind::NotFound);
    assert_eq!(contents(&files, &own), ["a.yaml=a", "b.yaml=b"]);
    // Another in its place: what it does not have is gone.
    fs::create_dir(path.join("new")).unwrap();
    fs::write(path.join("new/a.yaml"), "c").unwrap();
    fs::rename(path.join("new"), &own).unwrap();
    until(&mut files, &own, &["a.yaml=c"]);
    assert!(files.troubles().is_empty());
}

#[test]
fn a_root_may_be_created_later() {
    let (_kept, path) = directory();
    let own = path.join("own");
    let mut files = open(&[&own], false, options());
    assert_eq!((files.iter().count(), files.troubles().len()), (0, 1));
    fs::create_dir(&own).unwrap();
    fs::write(own.join("a.yaml"), "a").unwrap();
    until(&mut files, &own, &["a.yaml=a"]);
    assert!(files.troubles().is_empty());
}

#[test]
fn a_file_is_read_after_its_writer_closes_it() {
    // On a busy machine a writer may be delayed for longer than the reader waits; that is no
    // failure.
    assert!((0..20).any(|_| is_read_when_written()), "always held up");
}

/// Writes a file bit by bit, which is read when it is whole. `false`: it could not be written
/// without a pause.
fn is_read_when_written() -> bool {
    let (_kept, path) = directory();
    let patient = Options {
        quiet: Duration::from_millis(300),
        most_quiet: Duration::from_secs(5),
        ..options()
    };
    let mut files = open(&[&path], false, patient);
    let file = path.join("a.yaml");
    let writing = std::thread::spawn(move || {
        let mut longest = Duration::ZERO;
        let mut last = Instant::now();
        let mut file = fs::File::create(file).unwrap();
        for part in ["one ", "two ", "three"] {
            file.write_all(part.as_bytes()).unwrap();
            longest = longest.max(last.elapsed());
            last = Instant::now();
            std::thread::sleep(Duration::from_millis(20));
        }
        longest
    });
    next(&mut files);
    if writing.join().unwrap() > Duration::from_millis(200) {
        return false;
    }
    assert_eq!(contents(&files, &path), ["a.yaml=one two three"]);
    nothing(&mut files);
    true
}

#[test]
fn a_file_that_stays_open_for_writing_is_read() {
    let (_kept, path) = directory();
    let file = path.join("a.yaml");
    let mut files = open(&[&path], false, options());
    let over = Arc::new(AtomicBool::new(false));
    let is_over = Arc::clone(&over);
    let writing = std::thread::spawn(move || {
        for round in 0..20_000 {
            fs::write(&file, round.to_string()).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    });
    next(&mut files);
    assert!(!writing.is_finished(), "it was read when it was whole");
    over.store(true, Ordering::Relaxed);
    writing.join().unwrap();
}

#[test]
fn changes_without_inotify_events_are_found_by_polling() {
    let (_kept, path) = directory();
    let (own, elsewhere) = (path.join("own"), path.join("elsewhere"));
    fs::create_dir(&own).unwrap();
    fs::write(own.join("a.yaml"), "a").unwrap();
    // Another name of the same file: directories do not tell what happens by the names of others.
    fs::hard_link(own.join("a.yaml"), &elsewhere).unwrap();
    let mut quiet = open(&[&own], false, options());
    let often = Options {
        look_every: Duration::from_millis(50),
        ..options()
    };
    let mut looking = open(&[&own], false, often);
    fs::write(&elsewhere, "b").unwrap();
    nothing(&mut quiet);
    until(&mut looking, &own, &["a.yaml=b"]);
}

#[test]
fn a_mounted_config_map_changes_as_one() {
    let (_kept, path) = directory();
    let mount = |version: &str| {
        fs::create_dir(path.join(version)).unwrap();
        fs::write(path.join(version).join("a.yaml"), version).unwrap();
        fs::write(path.join(version).join("b.yaml"), version).unwrap();
        symlink(version, path.join("..data_tmp")).unwrap();
        fs::rename(path.join("..data_tmp"), path.join("..data")).unwrap();
    };
    mount("..1");
    symlink("..data/a.yaml", path.join("a.yaml")).unwrap();
    symlink("..data/b.yaml", path.join("b.yaml")).unwrap();
    let mut files = open(&[&path], true, options());
    assert_eq!(contents(&files, &path), ["a.yaml=..1", "b.yaml=..1"]);
    mount("..2");
    assert_eq!(names(&next(&mut files).changed), ["a.yaml", "b.yaml"]);
    assert_eq!(contents(&files, &path), ["a.yaml=..2", "b.yaml=..2"]);
}

#[test]
fn a_device_is_read_once_and_not_to_its_end() {
    let (_kept, path) = directory();
    let short = Options {
        most_bytes: 16,
        ..options()
    };
    let mut files = open(&[Path::new("/dev/zero"), &path], false, short);
    assert_eq!(files.iter().next().unwrap().bytes.len(), 17);
    fs::write(path.join("a.yaml"), "a").unwrap();
    let difference = next(&mut files);
    assert_eq!(names(&difference.changed), ["a.yaml"]);
}

#[test]
fn waiting_can_be_ended() {
    let (_kept, path) = directory();
    let mut files = open(&[&path], false, options());
    let stopper = files.stopper();
    let waiting = std::thread::spawn(move || files.wait(None).unwrap());
    stopper.stop();
    assert_eq!(waiting.join().unwrap(), WaitResult::Stopped);
}
