//! A repository of git in a temporary directory.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A repository with a branch `main`.
pub(crate) struct Repository {
    directory: TempDir,
}

/// A program, with nothing of this machine's but where programs are; `palisade` is the one under
/// test.
pub(crate) fn program(name: &str, directory: &Path) -> Command {
    let binary = Path::new(env!("CARGO_BIN_EXE_palisade"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", binary.parent().unwrap().display());
    let mut command = Command::new(name);
    command
        .current_dir(directory)
        .env_clear()
        .env("PATH", path)
        .env("LANG", "C.UTF-8")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_AUTHOR_NAME", "author")
        .env("GIT_AUTHOR_EMAIL", "author@example.com")
        .env("GIT_COMMITTER_NAME", "author")
        .env("GIT_COMMITTER_EMAIL", "author@example.com");
    command
}

pub(crate) fn make_executable(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

impl Repository {
    pub(crate) fn new() -> Repository {
        let directory = tempfile::tempdir().unwrap();
        let repository = Repository { directory };
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        repository
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// What git prints.
    #[track_caller]
    pub(crate) fn git(&self, args: &[&str]) -> String {
        let output = program("git", self.path()).args(args).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?}: {error}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Writes a file, and says where it is.
    pub(crate) fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Copies a file, or the files of a directory, of the repository that is tested.
    pub(crate) fn copy(&self, from: &str, to: &str) {
        let from = crate::root().join(from);
        if from.is_file() {
            let text = std::fs::read_to_string(&from).unwrap();
            self.write(to, &text);
            return;
        }
        for file in from.read_dir().unwrap() {
            let file = file.unwrap().path();
            let name = file.file_name().unwrap().to_str().unwrap();
            let text = std::fs::read_to_string(&file).unwrap();
            self.write(&format!("{to}/{name}"), &text);
        }
    }

    pub(crate) fn commit(&self, message: &str) {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "-m", message]);
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.path().join(path).exists()
    }

    /// A clone with the last commit only, as a checkout makes it by default.
    pub(crate) fn shallow_clone(&self) -> TempDir {
        let clone = tempfile::tempdir().unwrap();
        let address = format!("file://{}", self.path().display());
        let target = clone.path().to_str().unwrap();
        self.git(&["clone", "--quiet", "--depth=1", &address, target]);
        clone
    }
}
