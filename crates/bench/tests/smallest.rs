//! Every benchmark and campaign runs, at its smallest size, and says that what it looked at was right. What nobody runs
//! for months stops working.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "common/program.rs"]
mod program;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use palisade_need::{Need, Test, run_in_turn};
use palisade_testbed::{API_SERVER, CLUSTER};

/// A command at its smallest size, what it needs, and what it has to print beside exiting with 0. A number sign stands for a
/// number that is not 0.
struct Smallest {
    words: &'static str,
    needs: &'static [Need],
    prints: &'static [&'static str],
}

const NOTHING: &[Need] = &[];
const NAMESPACES: &[Need] = &[Need::NAMESPACES];

const ALL: &[Smallest] = &[
    Smallest {
        words: "agree --verdicts 2000 --seed 5",
        needs: NOTHING,
        prints: &["# answers agree", " 0 differences"],
    },
    Smallest {
        words: "cells --cells 5000",
        needs: NOTHING,
        prints: &[
            "# cells of the fold are what is decided one by one",
            " 0 differences",
        ],
    },
    Smallest {
        words: "differ --flows 5000",
        needs: NOTHING,
        prints: &[
            "# flows before and after a change",
            "# of them different",
            " 0 mistakes",
        ],
    },
    Smallest {
        words: "lint --seeds 5",
        needs: NOTHING,
        prints: &["# findings checked, 0 wrong, 0 missed"],
    },
    Smallest {
        words: "hostile --answers 200",
        needs: NOTHING,
        prints: &[
            "# seeds, # answers, # of them broken",
            "# verdicts compared",
            "0 mistakes",
        ],
    },
    Smallest {
        words: "hostile --kernel --answers 100",
        needs: NAMESPACES,
        prints: &[
            "# seeds, # answers, # of them broken",
            "# verdicts compared",
            "0 mistakes",
        ],
    },
    Smallest {
        words: "simulate --seeds 20",
        needs: NOTHING,
        prints: &[
            "# packets after transactions",
            "# verdicts compared",
            "0 mistakes",
        ],
    },
    Smallest {
        words: "check --runs 1 --files 30 --list-size 1",
        needs: NOTHING,
        prints: &["bare parse", "palisade check", "ratio"],
    },
    Smallest {
        words: "verdict --runs 1 --pods 200 --policies 40 --flows 2000",
        needs: NOTHING,
        prints: &["NetworkPolicyRule", "AdminRule"],
    },
    Smallest {
        words: "explain --runs 1 --pods 100 --policies 50 --flows 100",
        needs: NOTHING,
        prints: &["palisade explain", "ratio"],
    },
    Smallest {
        words: "live --point S20 --events 20",
        needs: NOTHING,
        prints: &["cluster-wide policy", "NetworkPolicy of a local pod"],
    },
    Smallest {
        words: "judge --point S --runs 1",
        needs: NOTHING,
        prints: &["diff, one NetworkPolicy", "lint"],
    },
    Smallest {
        words: "scale --points S --runs 1 --threads 2 --flows 1000",
        needs: NOTHING,
        prints: &["G1", "G7"],
    },
    Smallest {
        words: "generate S --pods 20 --namespaces 3 --network-policies 5 --admin-policies 2",
        needs: NOTHING,
        prints: &["\"kind\":\"NetworkPolicy\"", "# objects"],
    },
    Smallest {
        words: "read examples --runs 1",
        needs: NOTHING,
        prints: &[
            "yaml: # bytes to trees",
            "yaml: # bytes to objects, 2 threads",
        ],
    },
    // A peer that allows nothing differs: the comparison can fail.
    Smallest {
        words: "peers --netpol-analyzer PEER --workloads 10 --runs 1",
        needs: NOTHING,
        prints: &["# answers compared, # differ"],
    },
    Smallest {
        words: "packets --probes 500",
        needs: NAMESPACES,
        prints: &[
            "# packets compared, # of them to be denied",
            "0 differences",
        ],
    },
    Smallest {
        words: "faults fragments",
        needs: NAMESPACES,
        prints: &["# arrived, 0 leaked, 0 lost, # packets"],
    },
    Smallest {
        words: "spoof --packets 4000",
        needs: &[Need::NAMESPACES, Need::IP],
        prints: &[
            "as another pod of the node: # sent, # arrived",
            "with their own address: # sent, # arrived",
            "4000 packets with a false sender, 0 arrived; 0 mistakes",
        ],
    },
    Smallest {
        words: "reboot --times 4 --away 1",
        needs: NAMESPACES,
        prints: &[
            "control, --boot-policy open: # restarts",
            "from the agent's start on: # denied packets sent, # passed",
            "4 restarts, # denied packets after the first table, 0 passed; # probes, 0 lost; 0 mistakes",
        ],
    },
    Smallest {
        words: "facts established --connections 20 --changes 1",
        needs: NAMESPACES,
        prints: &["0 leaked, 0 lost"],
    },
    Smallest {
        words: "facts frames",
        needs: &[Need::NAMESPACES, Need::IP],
        prints: &["# findings, 0 differ"],
    },
    Smallest {
        words: "served --pods 200 --policies 20 --seconds 2 --writes 3",
        needs: &[API_SERVER, Need::ROOT],
        prints: &["# writes: answered", "at the end # MB over the runtime"],
    },
    Smallest {
        words: "whole --changes 1 --restarts 0 --outage 0",
        needs: &[CLUSTER],
        prints: &["# flows compared, 0 differ"],
    },
];

/// Not in the table: `.ci/run` runs it in a release build, whose instructions are the ones that are held.
const BY_CI: &str = "count";
/// Not in the table: a test of its own reads its whole report.
const BY_A_TEST: &str = "dataplane";
/// Not in the table: the test of a cluster, which has one, does a part of it.
const BY_THE_CLUSTER: &str = "attack";

fn main() -> ExitCode {
    let complete = Test::new("every_command_is_here", every_command_is_here);
    let commands = ALL
        .iter()
        .map(|it| Test::new(it.words, || check(it)).needs(it.needs));
    run_in_turn([complete].into_iter().chain(commands))
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..").canonicalize().unwrap()
}

fn bench() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade-bench"));
    command.current_dir(root());
    command
}

fn every_command_is_here() {
    let help = bench().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help
        .split("Commands:\n")
        .nth(1)
        .unwrap()
        .split("\n\n")
        .next()
        .unwrap();
    let named = commands
        .lines()
        .filter_map(|it| it.strip_prefix("  ")?.split(' ').next());
    let named: BTreeSet<&str> = named.filter(|it| !it.is_empty() && *it != "help").collect();
    let run = ALL.iter().filter_map(|it| it.words.split(' ').next());
    let run: BTreeSet<&str> = run.chain([BY_CI, BY_A_TEST, BY_THE_CLUSTER]).collect();
    assert_eq!(named, run);
    assert!(
        root()
            .join(format!("crates/bench/tests/{BY_A_TEST}.rs"))
            .is_file()
    );
    let cluster = root().join("crates/bench/tests/cluster.rs");
    let cluster = std::fs::read_to_string(cluster).unwrap();
    assert!(cluster.contains(&format!("palisade_bench::{BY_THE_CLUSTER}::")));
    let ci = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    assert!(
        ci.contains(&format!("palisade-bench -- {BY_CI} --expect")),
        "{ci}"
    );
}

fn check(smallest: &Smallest) {
    program::palisade();
    let directory = tempfile::tempdir().unwrap();
    let peer = directory.path().join("peer");
    std::fs::write(&peer, "#!/bin/sh\necho src,dst,conn\n").unwrap();
    std::fs::set_permissions(&peer, PermissionsExt::from_mode(0o755)).unwrap();
    let words = smallest.words.split(' ').map(|it| match it {
        "PEER" => peer.to_str().unwrap(),
        other => other,
    });
    let output = bench().args(words).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for wanted in smallest.prints {
        assert!(has(&said, wanted), "no {wanted:?} in\n{said}");
    }
}

/// Whether a text has words; a number sign stands for any number but 0.
fn has(text: &str, words: &str) -> bool {
    let mut parts = words.split('#');
    let first = parts.next().unwrap();
    let rest: Vec<&str> = parts.collect();
    text.match_indices(first).any(|(at, _)| {
        let mut behind = &text[at + first.len()..];
        rest.iter().all(|part| {
            let digits = behind.find(|c: char| !c.is_ascii_digit() && c != '.');
            let digits = digits.unwrap_or(behind.len());
            let is_number = behind[..digits].parse::<f64>().is_ok_and(|it| it > 0.0);
            match behind[digits..].strip_prefix(part) {
                Some(next) if is_number => {
                    behind = next;
                    true
                }
                Some(_) | None => false,
            }
        })
    })
}
