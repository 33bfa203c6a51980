//! A shell that waits for the end of this process and removes its testbed, also after SIGKILL.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use crate::error::{Error, Result};
use crate::home::{Home, LEDGER};

/// Reads until the kernel closes the other end of its input. Then kills the processes of the
/// ledger, each only if it still has the recorded start time, and removes the directory.
const SCRIPT: &str = r#"
while read -r _; do :; done
while read -r word pid start name; do
  [ "$word" = process ] || continue
  read -r stat < "/proc/$pid/stat" || continue
  set -- ${stat##*)}
  [ "${20}" = "$start" ] && kill -KILL "$pid"
done < "$LEDGER"
rm -rf -- "$HOME_OF_TESTBED"
"#;

/// The shell; it acts when this is dropped, or when the process ends in any way.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
}

impl Guard {
    /// Starts to guard a testbed without namespaces.
    pub(crate) fn over(home: &Home) -> Result<Guard> {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", SCRIPT])
            .env("LEDGER", home.file(LEDGER))
            .env("HOME_OF_TESTBED", &home.directory)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0);
        let child = command.spawn().map_err(|source| Error::Run {
            program: "/bin/sh".to_owned(),
            source,
        })?;
        Ok(Guard { child })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // It ends by itself now that its input has ended.
        let _ = self.child.wait();
    }
}
