//! Plans are read off the program, class by class.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::groups::{GroupDrafts, PeerDraft, SubjectRule};
use super::merge::{RulePart, merge};
use super::named::Ports;
use super::registry::GroupRole;
use super::registry::{GroupRegistry, WholeCluster};
use super::{
    MERGE_OVER, MergedUnion, Plan, PodChains, PortCondition, RuleChain, RuleChainId, Step,
};
use crate::compile::count;
use crate::model::{Cluster, PodId, PortMatch};
use crate::net::{PortRange, Protocol};
use crate::policy::{Action, Direction, Tier, Verdict};
use crate::program::{
    Class, NONE, Owner, Program, Rule, RuleId, Table, direction_index, table_index,
};

/// What a node has to enforce. A node that no pod names gets an empty plan.
pub fn plan(cluster: &Cluster<'_>, program: &Program, node: &str) -> Plan {
    plan_merging(cluster, program, node, MERGE_OVER)
}

/// [`plan`], where unions of more steps than `merge_over` are asked at once.
pub fn plan_merging(
    cluster: &Cluster<'_>,
    program: &Program,
    node: &str,
    merge_over: usize,
) -> Plan {
    let book = WholeCluster::new(cluster, program);
    let mut bodies = ChainInterner {
        planner: Planner::new(cluster, program, book, merge_over),
        chains: BTreeMap::new(),
        ids: HashMap::new(),
        of_class: FxHashMap::default(),
    };
    let mut pods = BTreeMap::new();
    for (index, pod) in cluster.pods.iter().enumerate() {
        let id = PodId(count(index));
        let class = program.class_id(id);
        let (true, Some(class)) = (pod.node == Some(node), class) else {
            continue;
        };
        let addresses = pod.addresses.iter().copied();
        let own = addresses.filter(|it| program.owner(*it) == Some(Owner::Pod(id)));
        let addresses: Vec<IpAddr> = own.collect();
        if addresses.is_empty() {
            continue;
        }
        let faced = PodChains {
            egress: bodies.of(class, Direction::Egress),
            ingress: bodies.of(class, Direction::Ingress),
        };
        pods.extend(addresses.into_iter().map(|address| (address, faced)));
    }
    let ChainInterner {
        planner,
        chains: bodies,
        ..
    } = bodies;
    let named: BTreeSet<_> = bodies.values().flat_map(|it| it.groups()).collect();
    let mut groups = planner.into_registry().groups;
    groups.retain(|id, _| named.contains(id));
    Plan {
        groups,
        chains: bodies,
        pods,
    }
}

/// The bodies so far; equal ones have one number.
struct ChainInterner<'p, 'a> {
    planner: Planner<'p, 'a, WholeCluster<'p>>,
    chains: BTreeMap<RuleChainId, Arc<RuleChain>>,
    ids: HashMap<Arc<RuleChain>, RuleChainId>,
    /// What is known of a class of pods, for each direction.
    of_class: FxHashMap<(u32, Direction), Option<RuleChainId>>,
}

impl ChainInterner<'_, '_> {
    fn of(&mut self, class: u32, direction: Direction) -> Option<RuleChainId> {
        if let Some(known) = self.of_class.get(&(class, direction)) {
            return *known;
        }
        let admin = self.planner.admin(class, direction);
        let union = self.planner.union(class, direction);
        let rest = union.unwrap_or_else(|| self.planner.baseline(class, direction));
        let id = rest.after(admin, direction).map(|body| {
            if let Some(known) = self.ids.get(&body) {
                return *known;
            }
            let (id, body) = (RuleChainId(count(self.chains.len())), Arc::new(body));
            self.chains.insert(id, Arc::clone(&body));
            self.ids.insert(body, id);
            id
        });
        self.of_class.insert((class, direction), id);
        id
    }
}

/// What comes after the Admin tier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AfterAdmin {
    pub(crate) merged: MergedUnion,
    pub(crate) steps: Vec<Arc<Step>>,
    pub(crate) verdict: Verdict,
}

impl AfterAdmin {
    /// The whole of what a subject has to face; `None`: there is nothing to ask, and everything is
    /// allowed.
    pub(crate) fn after(self, admin: Vec<Arc<Step>>, direction: Direction) -> Option<RuleChain> {
        let AfterAdmin {
            merged,
            steps,
            verdict: end,
        } = self;
        let is_nothing = admin.is_empty() && steps.is_empty() && end == Verdict::Allow;
        (!is_nothing).then_some(RuleChain {
            direction,
            admin,
            merged,
            rest: steps,
            verdict: end,
        })
    }
}

/// What a step depends on: its rule, and, if it does, the subject's namespace and port map.
type StepKey = (RuleId, u32, u32);

/// A rule for a subject.
type PendingStep<'p, 'a> = (StepKey, SubjectRule<'p, 'a>, Arc<RulePart>);

/// A step may have so many conditions in a union that is asked step by step, on average.
const CONDITIONS_OF_A_STEP: usize = 4;

/// Reads what classes have to face off their program. The tiers can be asked for one by one, each of a
/// program that has only the policies of that tier.
pub(crate) struct Planner<'p, 'a, B> {
    cluster: &'p Cluster<'a>,
    program: &'p Program,
    groups: GroupDrafts<'p, 'a, B>,
    merge_over: usize,
    parts: FxHashMap<StepKey, Option<Arc<RulePart>>>,
    steps: FxHashMap<StepKey, Arc<Step>>,
}

impl<'p, 'a, B: GroupRegistry> Planner<'p, 'a, B> {
    pub(crate) fn new(
        cluster: &'p Cluster<'a>,
        program: &'p Program,
        book: B,
        merge_over: usize,
    ) -> Planner<'p, 'a, B> {
        Planner {
            cluster,
            program,
            groups: GroupDrafts::new(cluster, program, book),
            merge_over,
            parts: FxHashMap::default(),
            steps: FxHashMap::default(),
        }
    }

    pub(crate) fn into_registry(self) -> B {
        self.groups.registry
    }

    /// The Admin tier.
    pub(crate) fn admin(&mut self, class: u32, direction: Direction) -> Vec<Arc<Step>> {
        self.ordered(class, Tier::Admin, direction, None)
    }

    /// The NetworkPolicies; `None`: none isolates the class.
    pub(crate) fn union(&mut self, class: u32, direction: Direction) -> Option<AfterAdmin> {
        let index = direction_index(direction);
        let subject = self.program.classes.get(class as usize)?;
        let union = subject.unions.get(index).copied()?;
        let union = self.program.unions.get(index)?.get(union as usize)?;
        let rules = union.rules.iter();
        let parts = rules.filter_map(|rule| self.part(subject, *rule));
        let parts: Vec<PendingStep<'p, 'a>> = parts.collect();
        let (merged, steps) = if self.is_large(&parts) {
            let parts: Vec<_> = parts.into_iter().map(|(_, at, part)| (at, part)).collect();
            merge(&parts, &mut self.groups)
        } else {
            let steps = parts.iter();
            let steps = steps.map(|(key, asker, part)| self.step_of(*key, *asker, part));
            (MergedUnion::default(), steps.collect())
        };
        Some(AfterAdmin {
            merged,
            steps,
            verdict: Verdict::Deny,
        })
    }

    /// The Baseline tier, for classes that no NetworkPolicy isolates.
    pub(crate) fn baseline(&mut self, class: u32, direction: Direction) -> AfterAdmin {
        let index = direction_index(direction);
        let subject = self.program.classes.get(class as usize);
        let isolation = subject.and_then(|it| it.default_isolations.get(index).copied());
        let isolated = isolation.is_some_and(|it| it != NONE);
        let table = self.program.table(Tier::Baseline, direction);
        let stop = isolated.then_some(table.group_end);
        let mut steps = self.ordered(class, Tier::Baseline, direction, stop);
        for step in &mut steps {
            // Behind the Baseline tier there is only the default, which allows (D10).
            if step.action == Action::Pass {
                *step = Arc::new(Step {
                    action: Action::Accept,
                    ..Step::clone(step)
                });
            }
        }
        AfterAdmin {
            merged: MergedUnion::default(),
            steps,
            verdict: if isolated {
                Verdict::Deny
            } else {
                Verdict::Allow
            },
        }
    }

    /// The rules of an ordered tier that select a class, those up to a bit.
    fn ordered(
        &mut self,
        class: u32,
        tier: Tier,
        direction: Direction,
        stop: Option<u32>,
    ) -> Vec<Arc<Step>> {
        let Some(subject) = self.program.classes.get(class as usize) else {
            return Vec::new();
        };
        let table: &Table = self.program.table(tier, direction);
        let row = subject.subject_rows.get(table_index(tier, direction));
        let Some(row) = row.copied().filter(|row| *row != 0) else {
            return Vec::new();
        };
        let words = table.subjects.row(row).iter().enumerate();
        let bits = words.flat_map(|(word, bits)| {
            let set = (0..64).filter(move |bit| bits >> bit & 1 == 1);
            set.map(move |bit| word * 64 + bit)
        });
        let bits = bits.filter(|bit| stop.is_none_or(|stop| *bit < stop as usize));
        let rules = bits.filter_map(|bit| table.rules.get(bit));
        let steps = rules.filter_map(|id| self.step(subject, *id));
        steps.collect()
    }

    /// Whether a union is asked at once.
    fn is_large(&self, parts: &[PendingStep<'p, 'a>]) -> bool {
        let most = self.merge_over.saturating_mul(CONDITIONS_OF_A_STEP);
        let conditions = parts.iter().map(|(_, _, part)| part.conditions());
        let excepts_much =
            |part: &RulePart| part.peers.as_ref().is_some_and(PeerDraft::excepts_much);
        parts.len() > self.merge_over
            || conditions.fold(0, usize::saturating_add) > most
            || parts.iter().any(|(_, _, part)| excepts_much(part))
    }

    /// A rule of an ordered tier as a step; `None`: it can match nothing.
    fn step(&mut self, subject: &'p Class, id: RuleId) -> Option<Arc<Step>> {
        let (key, asker, part) = self.part(subject, id)?;
        Some(self.step_of(key, asker, &part))
    }

    fn step_of(&mut self, key: StepKey, asker: SubjectRule<'p, 'a>, part: &RulePart) -> Arc<Step> {
        if let Some(known) = self.steps.get(&key) {
            return Arc::clone(known);
        }
        let step = Arc::new(part.step(asker, &mut self.groups));
        self.steps.insert(key, Arc::clone(&step));
        step
    }

    /// A rule for a subject; `None`: it can match nothing.
    fn part(&mut self, subject: &'p Class, id: RuleId) -> Option<PendingStep<'p, 'a>> {
        let rule = self.program.rules.get(id.0 as usize)?;
        let is_related = rule.sets.of(&self.program.lists.sets).iter().any(|set| {
            let relation = self.program.set_relations.get(*set as usize);
            relation.is_some_and(Option::is_some)
        });
        let has_names = !rule.names.of(&self.program.lists.names).is_empty();
        let own_names = has_names && rule.place.direction == Direction::Ingress;
        let key = (
            id,
            if is_related { subject.namespace } else { NONE },
            if own_names { subject.port_map } else { NONE },
        );
        let cluster = self.cluster;
        let effect = cluster.effect(rule.place)?;
        let asker = SubjectRule {
            subject,
            rule,
            peers: effect.peers.as_deref().unwrap_or_default(),
        };
        let part = match self.parts.get(&key) {
            Some(known) => known.clone(),
            None => {
                let ports = effect.ports.as_deref();
                let part = self.new_part(asker, id, ports).map(Arc::new);
                self.parts.insert(key, part.clone());
                part
            }
        };
        Some((key, asker, part?))
    }

    fn new_part(
        &mut self,
        asker: SubjectRule<'p, 'a>,
        id: RuleId,
        ports: Option<&[PortMatch<'_>]>,
    ) -> Option<RulePart> {
        let SubjectRule { subject, rule, .. } = asker;
        let ports = match ports {
            None => None,
            Some(ports) => {
                let ports = self.ports(subject, rule, ports);
                Some(ports).filter(|ports| ports.len() > 0).map(Some)?
            }
        };
        let ends = if rule.any_peer {
            None
        } else {
            let ends = self.groups.peer_draft(asker);
            Some(ends).filter(|ends| !ends.is_empty()).map(Some)?
        };
        Some(RulePart {
            rule: self.groups.registry.rule(id, rule.place),
            action: rule.action,
            ports,
            peers: ends,
        })
    }

    /// The ports of a rule. Names stand for the subject's own ports where it is the destination, and
    /// otherwise for the ports of each other end (D33).
    fn ports(&mut self, subject: &Class, rule: &Rule, ports: &[PortMatch<'_>]) -> Ports {
        let mut conditions = Vec::new();
        let mut elsewhere = Vec::new();
        // The program has its names in the order of the rule.
        let mut names = rule.names.of(&self.program.lists.names).iter();
        for port in ports {
            let name = match port {
                PortMatch::Numbers(protocol, range) => {
                    conditions.push(PortCondition {
                        protocol: *protocol,
                        range: *range,
                        at: None,
                    });
                    continue;
                }
                PortMatch::Named(_, name) => name,
            };
            let Some(named) = names.next() else { continue };
            let fits = |protocol: Protocol| named.protocol.is_none_or(|it| it == protocol);
            match rule.place.direction {
                Direction::Ingress => {
                    let map = self.program.port_map(subject);
                    let entries = map.into_iter().flat_map(|map| &map.entries);
                    let entries = entries.filter(|entry| entry.names.contains(&named.name));
                    let entries = entries.filter(|entry| fits(entry.protocol));
                    conditions.extend(entries.map(|entry| PortCondition {
                        protocol: entry.protocol,
                        range: PortRange::single(entry.port),
                        at: None,
                    }));
                }
                Direction::Egress => {
                    let role = GroupRole::of(rule.action);
                    self.groups.learn(named.name, name, role);
                    elsewhere.push((named.name, named.protocol));
                }
            }
        }
        Ports::new(
            conditions,
            elsewhere,
            GroupRole::of(rule.action),
            &self.groups,
        )
    }
}
