//! A program next to a bare parse of the same bytes, the runs taking turns.

use std::ffi::OsString;
use std::io::{Write as _, stderr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use palisade_generate::Written;

use crate::measure::{Output, measure};
use crate::report::{Input, Summary};

/// The programs, and where they write.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) own: PathBuf,
    pub(crate) palisade: PathBuf,
    pub(crate) log: PathBuf,
}

impl Programs {
    /// This program, and the chosen one or the one beside it. `dir` receives their output.
    pub(crate) fn find(palisade: Option<&Path>, dir: &Path) -> Result<Programs> {
        let own = std::env::current_exe().context("cannot find this program")?;
        let palisade = match palisade {
            Some(path) => path.to_owned(),
            None => own.with_file_name("palisade"),
        };
        ensure!(
            palisade.is_file(),
            "`{}` does not exist; build it with the same profile, or name one with `--palisade`",
            palisade.display()
        );
        Ok(Programs {
            own,
            palisade,
            log: dir.join("output.log"),
        })
    }
}

/// One input, for both programs.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) bare_command: &'static str,
    pub(crate) bare_path: PathBuf,
    /// What the bare parse must count.
    pub(crate) count: u64,
    /// The name of the measurement in the report.
    pub(crate) command: &'static str,
    pub(crate) args: Vec<OsString>,
    pub(crate) output: Output,
    pub(crate) written: Written,
}

/// Runs both programs on an input, several times each.
pub(crate) fn compare(case: &Case, runs: u32, programs: &Programs) -> Result<Input> {
    let Programs { own, palisade, log } = programs;
    let bare_args: [OsString; 2] = [case.bare_command.into(), case.bare_path.clone().into()];
    let (mut bare, mut measured) = (Vec::new(), Vec::new());
    for index in 1..=runs {
        progress(&format!("{}: run {index} of {runs}", case.name))?;
        let (run, printed) = measure(own, &bare_args, log, Output::Logged)?;
        let count: u64 = printed
            .trim()
            .parse()
            .context("the bare parse printed no count")?;
        ensure!(
            count == case.count,
            "the bare parse counted {count}, not {}",
            case.count
        );
        bare.push(run);
        let (run, _) = measure(palisade, &case.args, log, case.output)?;
        measured.push(run);
    }
    let bare = Summary::new(bare).context("no runs")?;
    let measured = Summary::new(measured).context("no runs")?;
    let Written {
        files,
        documents,
        objects,
        bytes,
    } = case.written;
    let ratio = measured.wall_seconds / bare.wall_seconds;
    Ok(Input {
        name: case.name,
        command: case.command,
        files,
        documents,
        objects,
        bytes,
        bare,
        measured,
        ratio,
    })
}

/// Prints the progress.
pub(crate) fn progress(text: &str) -> Result<()> {
    Ok(writeln!(stderr(), "{text}")?)
}
