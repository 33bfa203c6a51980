//! What a test can need.

use crate::look;

/// Something that not every machine has.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// Its word in `PALISADE_REQUIRE`.
    pub word: &'static str,
    /// Its name in messages.
    pub what: &'static str,
    /// How to get it.
    pub how: &'static str,
    /// Checks whether the machine has it; the error is the reason.
    pub look: fn() -> Result<(), String>,
}

impl Need {
    /// The right to create network namespaces.
    pub const NAMESPACES: Need = Need {
        word: "namespaces",
        what: "network namespaces",
        how: "run as root, or allow user namespaces",
        look: look::namespaces,
    };

    /// Root of the machine.
    pub const ROOT: Need = Need {
        word: "root",
        what: "root",
        how: "run as root",
        look: look::root,
    };

    /// A kernel whose nftables have owned tables that survive their owner.
    pub const OWNED_TABLES: Need = Need {
        word: "owned-tables",
        what: "Linux 6.9 or newer",
        how: "boot a newer kernel",
        look: || look::kernel(6, 9),
    };

    /// The program `ip`.
    pub const IP: Need = Need {
        word: "ip",
        what: "the program `ip`",
        how: "apt-get install iproute2",
        look: || look::program("ip"),
    };

    /// The program `git`.
    pub const GIT: Need = Need {
        word: "git",
        what: "the program `git`",
        how: "apt-get install git",
        look: || look::program("git"),
    };

    /// Instruction counts.
    pub const VALGRIND: Need = Need {
        word: "valgrind",
        what: "valgrind",
        how: "apt-get install valgrind",
        look: || look::program("valgrind"),
    };

    /// A headless browser.
    pub const BROWSER: Need = Need {
        word: "browser",
        what: "a browser",
        how: "apt-get install chromium",
        look: || look::program("chromium"),
    };
}
