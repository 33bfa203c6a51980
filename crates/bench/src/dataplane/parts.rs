//! Rulesets without one part, to measure its cost. They do not enforce the policies.

use std::fmt;
use std::sync::Arc;

use palisade_core::plan::Plan;
use palisade_nft::node::Settings;
use palisade_nft::ruleset::{Match, Rule, Ruleset, Statement, Verdict, state};

/// A part of a ruleset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The counters of all rules.
    Counters,
    /// The check that a packet comes from the interface of its source address.
    OwnAddresses,
    /// The checks of segments without a connection, and of ICMP errors.
    MidStream,
    /// The check that a chain without a verdict does not accept.
    FailClosed,
    /// The Admin tier.
    Admin,
    /// Everything behind the fast path: every packet gets the current generation.
    Evaluation,
    /// Every rule of the base chain.
    EveryRule,
}

impl Part {
    /// The parts of rulesets with some settings.
    pub(super) fn of(settings: &Settings) -> impl Iterator<Item = Part> {
        let checks_senders = settings.checks_senders();
        let is_there = move |it: &Part| checks_senders || *it != Part::OwnAddresses;
        Part::ALL.into_iter().filter(is_there)
    }

    const ALL: [Part; 7] = [
        Part::Counters,
        Part::OwnAddresses,
        Part::MidStream,
        Part::FailClosed,
        Part::Admin,
        Part::Evaluation,
        Part::EveryRule,
    ];

    /// Removes a part of the plan.
    pub(super) fn leave_out_of_plan(self, plan: &mut Plan) {
        if self == Part::Admin {
            let chains = plan.chains.values_mut();
            chains.for_each(|chain| Arc::make_mut(chain).admin.clear());
        }
    }

    /// Removes a part of the ruleset.
    pub(super) fn leave_out(self, ruleset: &mut Ruleset) {
        for chain in &mut ruleset.chains {
            if self == Part::Counters {
                for rule in &mut chain.rules {
                    let is_counter = |it: &Statement| *it == Statement::Counter;
                    rule.statements.retain(|it| !is_counter(it));
                }
            }
            if chain.hook.is_none() {
                continue;
            }
            if self == Part::OwnAddresses {
                let rules = chain.rules.iter_mut();
                rules.for_each(|rule| rule.matches.retain(|it| *it != Match::ReverseRoute));
            }
            let last = chain.rules.len().saturating_sub(1);
            let rules = std::mem::take(&mut chain.rules).into_iter().enumerate();
            let kept = rules.filter(|(place, rule)| match self {
                Part::Counters | Part::Admin => true,
                Part::OwnAddresses => !looks_up(rule, "elsewhere") && !jumps(rule, "senders"),
                Part::MidStream => !matches_state(rule),
                Part::FailClosed => !looks_up(rule, "judged-"),
                Part::Evaluation => [0, last].contains(place),
                Part::EveryRule => false,
            });
            chain.rules = kept.map(|(_, rule)| rule).collect();
        }
    }
}

/// Whether a rule has a lookup in a set whose name has a prefix.
fn looks_up(rule: &Rule, word: &str) -> bool {
    let mut matches = rule.matches.iter();
    matches.any(|it| matches!(it, Match::Lookup { set, .. } if set.as_str().starts_with(word)))
}

/// Whether a rule jumps to another chain and returns.
fn jumps(rule: &Rule, word: &str) -> bool {
    let mut statements = rule.statements.iter();
    statements
        .any(|it| matches!(it, Statement::Verdict(Verdict::Jump(chain)) if chain.as_str() == word))
}

/// Whether a rule matches packets of state new or related.
fn matches_state(rule: &Rule) -> bool {
    let first = rule.matches.first();
    let states = [Match::CtState(state::NEW), Match::CtState(state::RELATED)];
    first.is_some_and(|first| states.contains(first))
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Counters => "counters",
            Part::OwnAddresses => "own addresses",
            Part::MidStream => "mid-stream",
            Part::FailClosed => "fail-closed",
            Part::Admin => "Admin tier",
            Part::Evaluation => "evaluation",
            Part::EveryRule => "every rule",
        })
    }
}
