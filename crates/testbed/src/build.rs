//! Builds the pinned programs with Go, once, into the user's cache.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::binaries::{API, Binaries, IMAGES, KUBERNETES, Missing, Program, REST, cache};
use crate::error::{Error, Result, at};
use crate::image::image;

/// What to build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The programs of an API server.
    Api,
    /// The programs and images of a whole cluster.
    Cluster,
}

/// Builds missing programs, and reports its progress. A program gets its name when it is complete,
/// never before.
pub fn build(extent: Extent, report: &mut dyn Write) -> Result<Binaries> {
    let directory = cache();
    fs::create_dir_all(&directory).map_err(at("make", &directory))?;
    let rest = if extent == Extent::Api { &[] } else { REST };
    let programs = API.iter().chain(rest);
    let absent: Vec<&Program> = programs
        .filter(|it| !directory.join(it.name).is_file())
        .collect();
    if !absent.is_empty() {
        go_version()?;
        let work = tempfile::Builder::new()
            .prefix(".build-")
            .tempdir_in(&directory);
        let work = work.map_err(at("make a directory in", &directory))?;
        for (number, program) in absent.iter().enumerate() {
            let started = Instant::now();
            print(
                report,
                &format!("{} of {}: {} …", number + 1, absent.len(), program.name),
            );
            compile(program, work.path(), &directory)?;
            print(
                report,
                &format!("{} in {} s", program.name, started.elapsed().as_secs()),
            );
        }
    }
    if extent == Extent::Cluster {
        for name in IMAGES {
            let path = directory.join(name);
            if !path.is_file() {
                let bytes = image(name, &directory)?;
                let mut file = tempfile::NamedTempFile::new_in(&directory)
                    .map_err(at("make a file in", &directory))?;
                file.write_all(&bytes).map_err(at("write", &path))?;
                let renamed = file.persist(&path).map_err(|it| it.error);
                renamed.map_err(at("write", &path))?;
                print(report, &format!("{name} made"));
            }
        }
    }
    Ok(Binaries::at(directory))
}

/// Prints a line; an error of the output is ignored.
fn print(report: &mut dyn Write, text: &str) {
    let _ = writeln!(report, "palisade-testbed: {text}");
}

fn go_version() -> Result<()> {
    let found = Command::new("go")
        .arg("version")
        .stdout(Stdio::null())
        .status();
    if found.is_ok_and(|it| it.success()) {
        return Ok(());
    }
    Err(Error::Missing(Missing {
        what: "Go not found; it builds the programs of Kubernetes".to_owned(),
        remedy: "install `go` 1.26 or later on the path".to_owned(),
    }))
}

/// Builds one program from its module, which is written to a directory first.
fn compile(program: &Program, work: &Path, directory: &Path) -> Result<()> {
    let module = work.join("modules").join(program.module.name);
    fs::create_dir_all(&module).map_err(at("make", &module))?;
    for (name, text) in program.module.files {
        let path = module.join(name);
        fs::write(&path, text).map_err(at("write", &path))?;
    }
    let (output, at_last) = (work.join(program.name), directory.join(program.name));
    let version = "k8s.io/component-base/version";
    let release = KUBERNETES.trim_start_matches('v');
    let mut numbers = release.split('.');
    let (major, minor) = (numbers.next().unwrap_or("1"), numbers.next().unwrap_or("0"));
    let flags = format!(
        "-s -w -X {version}.gitVersion={KUBERNETES} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    );
    let mut go = Command::new("go");
    go.args(["build", "-mod=readonly", "-p=2", "-ldflags", &flags, "-o"])
        .arg(&output)
        .arg(program.package)
        .current_dir(&module)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-trimpath -buildvcs=false")
        .env("GOWORK", "off")
        .env("GOTOOLCHAIN", "local")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let status = go.status().map_err(|source| Error::Run {
        program: "go".to_owned(),
        source,
    })?;
    if !status.success() {
        return Err(Error::Failed {
            program: format!("go build {}", program.package),
            output: "its output is above".to_owned(),
        });
    }
    fs::rename(&output, &at_last).map_err(at("write", &at_last))
}
