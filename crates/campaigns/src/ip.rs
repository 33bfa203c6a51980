//! Runs the program `ip`.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Runs `ip` in the network namespace of the calling thread.
pub(crate) fn ip(args: &str) -> Result<String> {
    let output = Command::new("ip").args(args.split(' ')).output();
    let output = output.context("the program `ip` is needed")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {args}: {}", stderr.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
