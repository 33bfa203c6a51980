//! Compares the exact findings of `lint` with their definitions, applied to every flow of small
//! random clusters. The reference uses the model and the order of evaluation, and nothing of the
//! compiled form. It shares reading and lowering with the engine, which `agree` compares with the
//! oracle.

pub mod campaign;
mod expect;
mod reference;
mod shrink;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use palisade_api::{Options, Source, lower, read};
use palisade_core::EndName;
use palisade_core::analysis::affect::{Decider, Witness};
use palisade_core::analysis::lint::{Code, Finding, FindingDetail, FindingTarget, lint};
use palisade_core::compile::compile;
use palisade_core::model::{Cluster, PodId};
use palisade_core::policy::Direction;
use palisade_core::program::RulePlace;
use palisade_oracle::generate::scenario;
use serde_json::Value;

use self::expect::Expected;
use self::reference::ReferenceCluster;
use palisade_generate::Rng;

/// The compared codes.
const CODES: [Code; 13] = [
    Code::Tie,
    Code::TieOverlap,
    Code::TieConflict,
    Code::Shadowed,
    Code::Unreachable,
    Code::NeverMatches,
    Code::SelectsNothing,
    Code::PeerMatchesNothing,
    Code::RedundantRule,
    Code::RedundantPolicy,
    Code::Overridden,
    Code::OverriddenPartly,
    Code::PassNoEffect,
];

/// The comparison of one cluster.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// The number of right findings of each code.
    pub right: BTreeMap<&'static str, u64>,
    /// Unexpected findings, and findings with wrong details.
    pub wrong: Vec<String>,
    /// Missing findings.
    pub missed: Vec<String>,
}

impl Compared {
    /// Whether no finding is wrong or missing.
    pub fn is_right(&self) -> bool {
        self.wrong.is_empty() && self.missed.is_empty()
    }
}

/// The objects of a seed: a scenario of the oracle with more repeated rules and ties.
pub fn objects(seed: u64) -> (Vec<Value>, Vec<(String, IpAddr)>) {
    let scenario = scenario(seed, 0);
    let mut rng = Rng::new(seed ^ 0x5f37_59df);
    let mut objects = scenario.objects;
    densify(&mut rng, &mut objects);
    (objects, scenario.dns)
}

/// Repeats rules, in their own policy and in others of the kind, and equalizes priorities.
fn densify(rng: &mut Rng, objects: &mut [Value]) {
    let is_policy = |object: &Value| {
        let kind = object["kind"].as_str().unwrap_or_default();
        kind.ends_with("NetworkPolicy")
    };
    let policies = (0..objects.len()).filter(|at| objects.get(*at).is_some_and(is_policy));
    let policies: Vec<usize> = policies.collect();
    for at in &policies {
        let at = *at;
        for key in ["ingress", "egress"] {
            let other = rng.pick(&policies);
            let from = if rng.chance(50) { at } else { other };
            let Some(source) = objects.get(from).filter(|it| {
                let own = objects.get(at);
                own.is_some_and(|own| {
                    own["kind"] == it["kind"] && own["apiVersion"] == it["apiVersion"]
                })
            }) else {
                continue;
            };
            let rules = source.pointer(&format!("/spec/{key}"));
            let rules = rules.and_then(Value::as_array).cloned().unwrap_or_default();
            let n = u64::try_from(rules.len()).unwrap_or(0);
            let index = usize::try_from(rng.below(n)).unwrap_or(0);
            let Some(mut rule) = rules.get(index).cloned().filter(|_| rng.chance(50)) else {
                continue;
            };
            if let Some(fields) = rule.as_object_mut() {
                fields.remove("name");
                if rng.chance(30) {
                    fields.remove("ports");
                }
                if rng.chance(30) && fields.contains_key("action") {
                    let action = rng.pick(&["Accept", "Deny", "Pass", "Allow"]);
                    fields.insert("action".to_owned(), action.into());
                }
            }
            let list = objects.get_mut(at);
            let list = list.and_then(|it| it.pointer_mut(&format!("/spec/{key}")));
            if let Some(list) = list.and_then(Value::as_array_mut) {
                let n = u64::try_from(list.len()).unwrap_or(0);
                let place = usize::try_from(rng.below(n + 1)).unwrap_or(0);
                list.insert(place, rule);
            }
        }
        if let Some(spec) = objects
            .get_mut(at)
            .and_then(|it| it["spec"].as_object_mut())
            && spec.contains_key("priority")
            && rng.chance(40)
        {
            spec.insert("priority".to_owned(), rng.below(3).into());
        }
    }
}

/// Compares the findings of a seed's cluster.
pub fn compare(seed: u64) -> Compared {
    let (objects, dns) = objects(seed);
    compare_objects(&objects, &dns)
}

/// Compares the findings for some objects.
pub fn compare_objects(objects: &[Value], dns: &[(String, IpAddr)]) -> Compared {
    let text = serde_json::to_vec(objects).unwrap_or_default();
    let sources = [Source::new("objects.json", text)];
    let manifests = read(&sources, Options::default(), &|_| {});
    let lowered = lower(&manifests.objects, dns.to_vec());
    let cluster = &lowered.cluster;
    let program = compile(cluster);
    let mut compared = Compared::default();
    let Some(reference) = ReferenceCluster::new(cluster, &program) else {
        return compared;
    };
    if cluster.pods.is_empty() {
        return compared;
    }
    let found = lint(cluster, &program);
    let found: Vec<&Finding> = found.iter().filter(|it| CODES.contains(&it.code)).collect();
    let expected = reference.expected();
    compare_findings(&reference, &found, &expected, &mut compared);
    compared
}

fn compare_findings(
    reference: &ReferenceCluster<'_>,
    found: &[&Finding],
    expected: &Expected,
    compared: &mut Compared,
) {
    let cluster = reference.cluster;
    let mut reported: BTreeSet<(Code, FindingTarget)> = BTreeSet::new();
    let mut pairs: BTreeMap<(Code, FindingTarget), BTreeSet<Decider>> = BTreeMap::new();
    for finding in found {
        let key = (finding.code, finding.at);
        reported.insert(key);
        let text = || describe(cluster, finding.code, finding.at);
        let mistakes = mistakes(reference, finding, expected.get(&key));
        for mistake in &mistakes {
            compared.wrong.push(format!("{}: {mistake}", text()));
        }
        if mistakes.is_empty() {
            *compared.right.entry(finding.code.name()).or_default() += 1;
        }
        if let (FindingTarget::Policy(first), FindingDetail::Others(others)) =
            (finding.at, &finding.detail)
        {
            let others = others.iter().filter_map(|it| match it {
                FindingTarget::Policy(it) => Some(*it),
                FindingTarget::Subject(_)
                | FindingTarget::Rule(_)
                | FindingTarget::Peer(..)
                | FindingTarget::Port(..)
                | FindingTarget::Namespace(_)
                | FindingTarget::Pod(_)
                | FindingTarget::Service(_) => None,
            });
            let deciders = others.chain([first]);
            let deciders = deciders.map(|it| Decider::Isolation(it, Direction::Ingress));
            pairs.entry(key).or_default().extend(deciders);
        }
    }
    for (key, by) in expected {
        if !reported.contains(key) {
            compared.missed.push(describe(cluster, key.0, key.1));
        }
        if matches!(key.0, Code::TieConflict | Code::TieOverlap)
            && let Some(by) = by
            && reported.contains(key)
            && pairs.get(key) != Some(by)
        {
            compared
                .wrong
                .push(format!("{}: other pairs", describe(cluster, key.0, key.1)));
        }
    }
}

/// The mistakes of a finding.
fn mistakes(
    reference: &ReferenceCluster<'_>,
    finding: &Finding,
    expected: Option<&Option<BTreeSet<Decider>>>,
) -> Vec<String> {
    let mut mistakes = Vec::new();
    let is_exact = matches!(finding.code, Code::Shadowed | Code::Overridden) && !finding.always;
    match expected {
        // Findings that always hold are also reported for rules that match nothing now.
        None if finding.code == Code::Shadowed && finding.always => {}
        None => mistakes.push("is unexpected".to_owned()),
        Some(Some(by)) if is_exact && !by.iter().eq(&finding.by) => {
            mistakes.push(format!("by {:?} instead of {by:?}", finding.by));
        }
        Some(_) => {}
    }
    if let (Code::Shadowed, true, FindingTarget::Rule(place)) =
        (finding.code, finding.always, finding.at)
        && !reference.is_covered(place, &finding.by)
    {
        mistakes.push("does not always hold".to_owned());
    }
    if let Some(witness) = &finding.witness {
        mistakes.extend(check_witness(reference, finding, witness));
    } else if !finding.always
        && matches!(
            finding.code,
            Code::Shadowed
                | Code::TieConflict
                | Code::Overridden
                | Code::OverriddenPartly
                | Code::PassNoEffect
                | Code::RedundantRule
                | Code::Unreachable
        )
    {
        mistakes.push("has no witness".to_owned());
    }
    mistakes
}

/// Checks that the rule, or both rules, of a finding match its witness.
fn check_witness(
    reference: &ReferenceCluster<'_>,
    finding: &Finding,
    witness: &Witness,
) -> Option<String> {
    let rules: Vec<RulePlace> = match finding.at {
        FindingTarget::Rule(place) => vec![place],
        FindingTarget::Policy(_) if finding.code == Code::TieConflict => {
            if finding.by.len() != 2 {
                return Some(format!("by {:?}", finding.by));
            }
            finding.by.iter().filter_map(|it| it.rule()).collect()
        }
        FindingTarget::Policy(_)
        | FindingTarget::Subject(_)
        | FindingTarget::Peer(..)
        | FindingTarget::Port(..)
        | FindingTarget::Namespace(_)
        | FindingTarget::Pod(_)
        | FindingTarget::Service(_) => return None,
    };
    let direction = rules.first()?.direction;
    let (subject, peer) = match direction {
        Direction::Ingress => (witness.destination, witness.source),
        Direction::Egress => (witness.source, witness.destination),
    };
    let EndName::Pod(subject) = subject else {
        return Some("the subject of the witness is no pod".to_owned());
    };
    let at = |place: &RulePlace| reference.rules.iter().position(|it| it.place == *place);
    let all = reference.matching(
        direction,
        PodId(subject.0),
        (peer, witness.family),
        witness.flow.traffic,
    );
    let has_match = all.iter().any(|mask| {
        let mut places = rules.iter().map(at);
        places.all(|at| at.is_some_and(|at| mask & 1 << at != 0))
    });
    (!has_match).then(|| format!("the rules do not match the witness: {witness:?}"))
}

impl ReferenceCluster<'_> {
    /// Whether these rules together match every flow that a rule matches.
    fn is_covered(&self, place: RulePlace, by: &[Decider]) -> bool {
        let at = |place: RulePlace| self.rules.iter().position(|it| it.place == place);
        let by = by.iter().filter_map(|it| at(it.rule()?));
        let by = by.fold(0_u128, |mask, at| mask | 1 << at);
        let Some(at) = at(place) else {
            return false;
        };
        let mut cells = self.cells.iter();
        cells.all(|cell| cell.mask & 1 << at == 0 || cell.mask & by != 0)
    }
}

fn describe(cluster: &Cluster<'_>, code: Code, at: FindingTarget) -> String {
    let rule = |it: RulePlace| {
        format!(
            "{}#{}[{}]",
            cluster.policy_name(it.policy),
            it.direction,
            it.index
        )
    };
    let at = match at {
        FindingTarget::Policy(it) => cluster.policy_name(it),
        FindingTarget::Subject(it) => format!("{} (subject)", cluster.policy_name(it)),
        FindingTarget::Rule(it) => rule(it),
        FindingTarget::Peer(it, peer) => format!("{} peer {peer}", rule(it)),
        FindingTarget::Port(it, port) => format!("{} port {port}", rule(it)),
        FindingTarget::Namespace(_) | FindingTarget::Pod(_) | FindingTarget::Service(_) => {
            format!("{at:?}")
        }
    };
    format!("{code} {at}")
}
