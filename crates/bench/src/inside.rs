//! Going on in network namespaces, for campaigns and benchmarks.

use anyhow::{Context as _, Result};
use palisade_lab::privilege::{Privilege, ProcessRole, RequiredPrivilege, ended_like, enter};

/// Goes on in network namespaces of this program's own. The process outside, which only waits for the one inside, ends
/// here as that one did.
pub fn go_inside(want: RequiredPrivilege) -> Result<Privilege> {
    let entered = enter(want).context("cannot make network namespaces")?;
    Ok(inside(entered))
}

/// By what right the process inside is there; the one outside ends here.
pub fn inside(entered: ProcessRole) -> Privilege {
    match entered {
        ProcessRole::Inside(privilege) => privilege,
        ProcessRole::Ended(status) => std::process::exit(i32::from(ended_like(status))),
    }
}
