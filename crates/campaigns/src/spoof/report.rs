//! Counts packets, and compares them with the documentation.

use std::collections::BTreeMap;
use std::fmt;

use palisade_core::net::Family;

use super::claims::{ALL_PAYLOADS, Claim, Payload};

/// Packets sent and arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Sent.
    pub(super) sent: u64,
    /// Arrived anywhere.
    pub(super) arrived: u64,
}

impl Count {
    /// Adds packets.
    pub(super) fn add(&mut self, sent: u64, arrived: u64) {
        self.sent += sent;
        self.arrived += arrived;
    }

    fn all_arrived(self) -> bool {
        self.sent > 0 && self.sent == self.arrived
    }
}

/// The agent's `--false-sender`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// The default: the first packets of connections are checked.
    Drop,
    /// Every packet is checked.
    DropEvery,
    /// No packet is checked: the control.
    Allow,
}

impl Mode {
    /// The value of `--false-sender`.
    pub(super) fn value(self) -> &'static str {
        match self {
            Mode::Drop => "drop",
            Mode::DropEvery => "drop-every",
            Mode::Allow => "allow",
        }
    }
}

/// The packets of one mode.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) mode: Mode,
    /// By the owner of the source address.
    pub(super) claims: BTreeMap<Claim, Count>,
    /// By payload, and whether the packet is IPv6.
    pub(super) payloads: BTreeMap<(Payload, bool), Count>,
    /// IPv6 router advertisements and redirects of pods to their node, from their own addresses.
    pub(super) routers: Count,
    /// IPv4 redirects from pods' own addresses: not dropped, but ignored.
    pub(super) redirects: Count,
    /// Routes changed by a redirect.
    pub(super) redirected: u64,
    /// Packets injected into connections of others.
    pub(super) injected: Count,
    /// Packets with the address of a pod on the sender's own bridge: a documented limit.
    pub(super) same_bridge: Count,
    /// The same, injected into connections.
    pub(super) injected_same_bridge: Count,
    /// Packets of pods with their own addresses.
    pub(super) honest: Count,
    /// Later fragments of packets that must be dropped.
    pub(super) later_fragments: u64,
    /// The first packets with a wrong outcome.
    pub(super) examples: Vec<String>,
}

impl Tally {
    /// An empty tally.
    pub(super) fn new(mode: Mode) -> Tally {
        Tally {
            mode,
            claims: BTreeMap::new(),
            payloads: BTreeMap::new(),
            routers: Count::default(),
            redirects: Count::default(),
            redirected: 0,
            injected: Count::default(),
            same_bridge: Count::default(),
            injected_same_bridge: Count::default(),
            honest: Count::default(),
            later_fragments: 0,
            examples: Vec::new(),
        }
    }

    /// All packets with a false sender that must be dropped.
    pub(super) fn spoofed(&self) -> Count {
        let mut all = Count::default();
        for count in self.claims.values() {
            all.add(count.sent, count.arrived);
        }
        all.add(self.routers.sent, self.routers.arrived);
        if self.mode == Mode::DropEvery {
            all.add(self.injected.sent, self.injected.arrived);
        }
        all
    }

    /// Records a packet with a wrong outcome.
    pub(super) fn example(&mut self, message: impl FnOnce() -> String) {
        if self.examples.len() < 10 {
            self.examples.push(message());
        }
    }

    /// The differences from the documentation.
    fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        let mut check = |holds: bool, message: &str| {
            if !holds {
                mistakes.push(format!("--false-sender={}: {message}", self.mode.value()));
            }
        };
        check(
            self.honest.all_arrived(),
            "packets with their own address were lost",
        );
        check(self.redirected == 0, "a redirect changed a route");
        if self.mode == Mode::Allow {
            for (claim, count) in &self.claims {
                let passes = count.arrived > 0 || !claim.passes_unchecked();
                check(
                    passes,
                    &format!(
                        "none of {} arrived without a check: the test shows nothing",
                        claim
                    ),
                );
            }
            for payload in ALL_PAYLOADS {
                for family in Family::BOTH {
                    let is_ipv6 = family == Family::V6;
                    let count = self.payloads.get(&(payload, is_ipv6));
                    let has_family = is_ipv6 || payload != Payload::Advertisement;
                    check(
                        !has_family || count.is_some_and(|it| it.arrived > 0),
                        &format!(
                            "no {payload} of {family:?} arrived without a check: the test shows nothing"
                        ),
                    );
                }
            }
        } else {
            check(self.spoofed().sent > 0, "no packet was sent");
            check(
                self.spoofed().arrived == 0 && self.later_fragments == 0,
                "packets with a false sender arrived",
            );
        }
        if self.mode == Mode::Drop {
            check(
                self.injected.arrived > 0,
                "no packet can be injected into connections: --false-sender=drop-every shows nothing",
            );
        }
        mistakes
    }
}

/// The result of the campaign.
#[derive(Debug)]
pub struct Report {
    pub(super) tallies: Vec<Tally>,
    pub(super) seconds: f64,
}

impl Report {
    /// The differences from the documentation.
    pub fn mistakes(&self) -> Vec<String> {
        self.tallies.iter().flat_map(Tally::mistakes).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "--false-sender={}:", self.mode.value())?;
        let of = |f: &mut fmt::Formatter<'_>, message: &str, count: &Count| {
            if count.sent == 0 {
                return Ok(());
            }
            writeln!(
                f,
                "  {message}: {} sent, {} arrived",
                count.sent, count.arrived
            )
        };
        for (claim, count) in &self.claims {
            of(f, &format!("as {claim}"), count)?;
        }
        let advertised = "advertisements and redirects of pods to their node, own address";
        of(f, advertised, &self.routers)?;
        of(f, "into connections of others", &self.injected)?;
        for ((payload, is_ipv6), count) in &self.payloads {
            let family = if *is_ipv6 { "IPv6" } else { "IPv4" };
            of(f, &format!("of these {payload}, {family}"), count)?;
        }
        of(
            f,
            "limit: as a pod on the sender's own bridge",
            &self.same_bridge,
        )?;
        of(
            f,
            "limit: the same, into its connections",
            &self.injected_same_bridge,
        )?;
        let redirects = "IPv4 redirects from the own address, which change no route";
        of(f, redirects, &self.redirects)?;
        of(f, "with their own address", &self.honest)?;
        for example in &self.examples {
            writeln!(f, "  WRONG: {example}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut checked = Count::default();
        for tally in &self.tallies {
            write!(f, "{tally}")?;
            if tally.mode != Mode::Allow {
                let spoofed = tally.spoofed();
                checked.add(spoofed.sent, spoofed.arrived);
            }
        }
        let mistakes = self.mistakes();
        for mistake in &mistakes {
            writeln!(f, "MISTAKE: {mistake}")?;
        }
        write!(
            f,
            "{} packets with a false sender, {} arrived; {} mistakes; {:.1} s",
            checked.sent,
            checked.arrived,
            mistakes.len(),
            self.seconds
        )
    }
}
