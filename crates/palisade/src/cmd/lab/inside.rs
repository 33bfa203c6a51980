//! Where a lab runs: in a process with namespaces of its own. What only the process outside can read is handed to it.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::os::fd::AsRawFd;

use anyhow::Context;
use nix::sys::memfd::{MFdFlags, memfd_create};
use palisade_lab::privilege::{ProcessRole, RequiredPrivilege, ended_like, enter_with, is_inside};

use crate::Outcome;
use crate::args::{Cli, LabArgs};
use crate::live::{Live, Needs, Scope};
use crate::source::read_live;
use crate::view::handover::HandoverView;

/// Which of the two processes this is.
pub(super) enum LabProcess {
    /// The one with namespaces, and what the other one read of the live cluster.
    Inside(Live),
    /// The other one; the work has been done.
    Outside(Outcome),
}

/// The open file with what was read of the live cluster, by number.
const HANDED: &str = "PALISADE_HANDED";

/// Goes on in namespaces. There is no way from there to an API server, so that a live cluster is read before.
pub(super) fn enter(args: &LabArgs, cli: &Cli) -> anyhow::Result<LabProcess> {
    let input = &args.cluster.input;
    let handed = if input.is_live() && !is_inside() {
        let needs = Needs {
            scope: Scope::Everything,
            namespaces: &[],
        };
        Some(written(&read_live(input, cli, &needs)?)?)
    } else {
        None
    };
    let entered = enter_with(RequiredPrivilege::Any, |command| match &handed {
        Some(file) => {
            command.env(HANDED, file.as_raw_fd().to_string());
        }
        None => {
            command.env_remove(HANDED);
        }
    });
    match entered.context("cannot make network namespaces")? {
        ProcessRole::Ended(status) => Ok(LabProcess::Outside(Outcome::Ended(ended_like(status)))),
        ProcessRole::Inside(_) if input.is_live() => Ok(LabProcess::Inside(read()?)),
        ProcessRole::Inside(_) => Ok(LabProcess::Inside(Live::default())),
    }
}

/// A file in memory, which the other process inherits.
fn written(live: &Live) -> anyhow::Result<File> {
    let context = "cannot hand over what the cluster has";
    let file = memfd_create("palisade-cluster", MFdFlags::empty()).context(context)?;
    let file = File::from(file);
    let mut out = BufWriter::new(&file);
    serde_json::to_writer(&mut out, &HandoverView::new(live)).context(context)?;
    out.flush().context(context)?;
    drop(out);
    Ok(file)
}

fn read() -> anyhow::Result<Live> {
    let context = "cannot take over what the cluster has";
    let number = std::env::var(HANDED).context(context)?;
    let number: u32 = number.parse().context(context)?;
    let file = File::open(format!("/proc/self/fd/{number}")).context(context)?;
    let view: HandoverView<'_> = serde_json::from_reader(BufReader::new(file)).context(context)?;
    view.live().context(context)
}
