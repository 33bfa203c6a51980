//! Every command of `palisade-campaigns` runs at its smallest size and reports success. A command
//! that is not run for months stops working.

use std::process::ExitCode;

use palisade_need::Need;
use palisade_need::smallest::{Program, Smallest, smallest};

const NOTHING: &[Need] = &[];
const NAMESPACES: &[Need] = &[Need::NAMESPACES];

static PROGRAM: Program = Program {
    path: env!("CARGO_BIN_EXE_palisade-campaigns"),
    elsewhere: &[],
};

static ALL: &[Smallest] = &[
    Smallest {
        words: "advice --denied 5",
        needs: NOTHING,
        prints: &["# denied queries", "# proposals", " 0 mistakes"],
    },
    Smallest {
        words: "agree --verdicts 2000 --seed 5",
        needs: NOTHING,
        prints: &["# answers agree", " 0 differences"],
    },
    Smallest {
        words: "cells --cells 5000",
        needs: NOTHING,
        prints: &[
            "# cells of the fold equal single decisions",
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
        words: "differ --without-pods --pairs 20",
        needs: NOTHING,
        prints: &["# pairs without pods", "# reported as before", " 0 wrong"],
    },
    Smallest {
        words: "lint --seeds 5",
        needs: NOTHING,
        prints: &["# findings checked, 0 wrong, 0 missed"],
    },
    Smallest {
        words: "hostile --responses 200",
        needs: NOTHING,
        prints: &[
            "# seeds, # responses, # of them malformed",
            "# verdicts compared",
            "0 mistakes",
        ],
    },
    Smallest {
        words: "hostile --kernel --responses 100",
        needs: NAMESPACES,
        prints: &[
            "# seeds, # responses, # of them malformed",
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
        words: "packets --probes 500",
        needs: NAMESPACES,
        prints: &[
            "# packets compared, # of them predicted to be denied",
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
        words: "reboot --restarts 4 --outage 1",
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
];

fn main() -> ExitCode {
    smallest(&PROGRAM, ALL)
}
