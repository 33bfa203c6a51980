//! `palisade lab exec` and `palisade lab shell`: a command in a pod or node of a running lab.

use std::process::Command;

use anyhow::{Context, bail};
use palisade_core::text::{nearest, ticked};
use palisade_lab::lab::Lab;
use palisade_lab::privilege::ended_like;
use palisade_lab::topology::Location;
use palisade_lab::visit::{RunningLab, announce, run_in, running};

use crate::Outcome;
use crate::args::LabVisit;
use crate::draw::clean;

/// Runs a command in a pod or node of a lab.
pub(super) fn run(visit: &LabVisit) -> anyhow::Result<Outcome> {
    let (place, lab, command_line) = match visit {
        LabVisit::Exec {
            place,
            lab,
            command,
        } => (place, *lab, command.clone()),
        LabVisit::Shell { place, lab } => {
            let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
            (place, *lab, vec![shell])
        }
    };
    let labs = running();
    let lab = chosen(&labs, lab)?;
    let found = lab.places.iter().find(|(name, _)| name == place);
    let Some((_, path)) = found else {
        let names: Vec<&str> = lab.places.iter().map(|(name, _)| name.as_str()).collect();
        let help = match nearest(place, &names) {
            Some(name) => format!("; did you mean {}?", ticked(name)),
            None => {
                let names: Vec<String> = names.iter().map(|name| ticked(name)).collect();
                format!("; it has {}", names.join(", "))
            }
        };
        bail!("the lab has no {}{help}", ticked(place));
    };
    let (program, arguments) = command_line.split_first().context("missing command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    let status = run_in(lab, path, command)
        .with_context(|| format!("cannot run {} in {}", ticked(program), ticked(place)))?;
    Ok(Outcome::Ended(ended_like(status)))
}

fn chosen(labs: &[RunningLab], process: Option<u32>) -> anyhow::Result<&RunningLab> {
    match (process, labs) {
        (Some(process), labs) => labs
            .iter()
            .find(|it| it.process == process)
            .with_context(|| format!("process {process} runs no lab")),
        (None, [only]) => Ok(only),
        (None, []) => bail!("no lab is running; start one with `palisade lab -f DIR --keep`"),
        (None, several) => {
            let processes: Vec<String> = several.iter().map(|it| it.process.to_string()).collect();
            bail!(
                "several labs are running; choose with --lab: {}",
                processes.join(", ")
            )
        }
    }
}

/// Keeps a lab running until a signal ends it.
pub(super) fn keep(lab: &Lab, places: &[(String, Location)]) -> anyhow::Result<()> {
    let _announced = announce(lab.world(), places)?;
    let example = places.first().map_or("NS/POD", |(name, _)| name.as_str());
    anstream::eprintln!(
        "palisade: the lab runs until Ctrl-C; in another terminal: palisade lab shell {}",
        clean(example)
    );
    loop {
        std::thread::park();
    }
}
