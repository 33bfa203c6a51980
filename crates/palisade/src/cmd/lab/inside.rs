//! Runs a lab in a process with its own namespaces. The outer process hands over what only it can
//! read.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::os::fd::AsRawFd;

use anyhow::Context;
use nix::sys::memfd::{MFdFlags, memfd_create};
use palisade_lab::privilege::{ProcessRole, RequiredPrivilege, ended_like, enter_with, is_inside};

use crate::Outcome;
use crate::args::{Cli, LabArgs};
use crate::live::{LiveInput, Needs, Scope};
use crate::source::read_live;
use crate::view::handover::HandoverView;

/// Which of the two processes this is.
pub(super) enum LabProcess {
    /// The inner process, with the live cluster that the outer process read.
    Inside(LiveInput),
    /// The outer process, after the inner process did the work.
    Outside(Outcome),
}

/// The environment variable with the number of the descriptor of the live cluster.
const HANDOVER_FD: &str = "PALISADE_HANDED";

/// Continues in namespaces. They have no route to an API server: a live cluster is read before.
pub(super) fn enter(args: &LabArgs, cli: &Cli) -> anyhow::Result<LabProcess> {
    let input = &args.cluster.input;
    let handover = if input.is_live() && !is_inside() {
        let needs = Needs {
            scope: Scope::Everything,
            namespaces: &[],
        };
        Some(written(&read_live(input, cli, &needs)?)?)
    } else {
        None
    };
    let entered = enter_with(RequiredPrivilege::Any, |command| match &handover {
        Some(file) => {
            command.env(HANDOVER_FD, file.as_raw_fd().to_string());
        }
        None => {
            command.env_remove(HANDOVER_FD);
        }
    });
    match entered.context("cannot make network namespaces")? {
        ProcessRole::Ended(status) => Ok(LabProcess::Outside(Outcome::Ended(ended_like(status)))),
        ProcessRole::Inside(_) if input.is_live() => Ok(LabProcess::Inside(read()?)),
        ProcessRole::Inside(_) => Ok(LabProcess::Inside(LiveInput::default())),
    }
}

/// Writes the cluster to a file in memory that the inner process inherits.
fn written(live: &LiveInput) -> anyhow::Result<File> {
    let context = "cannot hand over the objects of the cluster";
    // Without MFD_CLOEXEC: the descriptor must survive the exec of the inner process.
    let file = memfd_create("palisade-cluster", MFdFlags::empty()).context(context)?;
    let file = File::from(file);
    let mut out = BufWriter::new(&file);
    serde_json::to_writer(&mut out, &HandoverView::new(live)).context(context)?;
    out.flush().context(context)?;
    drop(out);
    Ok(file)
}

fn read() -> anyhow::Result<LiveInput> {
    let context = "cannot receive the objects of the cluster";
    let number = std::env::var(HANDOVER_FD).context(context)?;
    let number: u32 = number.parse().context(context)?;
    let file = File::open(format!("/proc/self/fd/{number}")).context(context)?;
    let view: HandoverView<'_> = serde_json::from_reader(BufReader::new(file)).context(context)?;
    view.live().context(context)
}
