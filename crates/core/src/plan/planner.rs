//! Reads plans off the program, class by class.

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

/// Returns the plan of a node. A node that no pod names has an empty plan.
pub fn plan(cluster: &Cluster<'_>, program: &Program, node: &str) -> Plan {
    plan_merging(cluster, program, node, MERGE_OVER)
}

/// Returns the plan of a node; unions of more steps than `merge_over` are merged.
pub fn plan_merging(
    cluster: &Cluster<'_>,
    program: &Program,
    node: &str,
    merge_over: usize,
) -> Plan {
    let registry = WholeCluster::new(cluster, program);
    let mut interner = ChainInterner {
        planner: Planner::new(cluster, program, registry, merge_over),
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
        // An address that another pod owns (D82) must lead to the chains of that pod only.
        let addresses = pod.addresses.iter().copied();
        let own = addresses.filter(|it| program.owner(*it) == Some(Owner::Pod(id)));
        let addresses: Vec<IpAddr> = own.collect();
        if addresses.is_empty() {
            continue;
        }
        let chains = PodChains {
            egress: interner.of(class, Direction::Egress),
            ingress: interner.of(class, Direction::Ingress),
        };
        pods.extend(addresses.into_iter().map(|address| (address, chains)));
    }
    let ChainInterner {
        planner, chains, ..
    } = interner;
    // Merging builds groups that only became parts of others. No step names them.
    let named: BTreeSet<_> = chains.values().flat_map(|it| it.groups()).collect();
    let mut groups = planner.into_registry().groups;
    groups.retain(|id, _| named.contains(id));
    Plan {
        groups,
        chains,
        pods,
    }
}

/// The rule chains so far. Equal chains have the same number.
struct ChainInterner<'p, 'a> {
    planner: Planner<'p, 'a, WholeCluster<'p>>,
    chains: BTreeMap<RuleChainId, Arc<RuleChain>>,
    ids: HashMap<Arc<RuleChain>, RuleChainId>,
    /// The rule chain of each class and direction so far.
    of_class: FxHashMap<(u32, Direction), Option<RuleChainId>>,
}

impl ChainInterner<'_, '_> {
    fn of(&mut self, class: u32, direction: Direction) -> Option<RuleChainId> {
        if let Some(known) = self.of_class.get(&(class, direction)) {
            return *known;
        }
        let admin = self.planner.admin(class, direction);
        // NetworkPolicies that isolate a class replace the Baseline tier in that direction (D12).
        let union = self.planner.union(class, direction);
        let rest = union.unwrap_or_else(|| self.planner.baseline(class, direction));
        let id = rest.after(admin, direction).map(|chain| {
            if let Some(known) = self.ids.get(&chain) {
                return *known;
            }
            let (id, chain) = (RuleChainId(count(self.chains.len())), Arc::new(chain));
            self.chains.insert(id, Arc::clone(&chain));
            self.ids.insert(chain, id);
            id
        });
        self.of_class.insert((class, direction), id);
        id
    }
}

/// The part of a rule chain after the Admin tier.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AfterAdmin {
    pub(crate) merged: MergedUnion,
    pub(crate) steps: Vec<Arc<Step>>,
    pub(crate) verdict: Verdict,
}

impl AfterAdmin {
    /// Returns the rule chain of a subject; `None`: it has no rules and allows everything.
    pub(crate) fn after(self, admin: Vec<Arc<Step>>, direction: Direction) -> Option<RuleChain> {
        let AfterAdmin {
            merged,
            steps,
            verdict,
        } = self;
        let allows_all = admin.is_empty() && steps.is_empty() && verdict == Verdict::Allow;
        (!allows_all).then_some(RuleChain {
            direction,
            admin,
            merged,
            rest: steps,
            verdict,
        })
    }
}

/// What a step depends on: its rule, and the subject's namespace and port map. `NONE`: any.
type StepKey = (RuleId, u32, u32);

/// A rule for a subject, which is not a step yet.
type PendingStep<'p, 'a> = (StepKey, SubjectRule<'p, 'a>, Arc<RulePart>);

/// The most conditions that a step may have on average in a union that is evaluated step by step.
// Each condition is a rule of the kernel. Without this bound a single policy of 20,000 port ranges
// would be as many rules, which every denied packet passes.
const CONDITIONS_OF_A_STEP: usize = 4;

/// Reads the rules of classes off their program. Each tier can be read by itself, also from a
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
        registry: B,
        merge_over: usize,
    ) -> Planner<'p, 'a, B> {
        Planner {
            cluster,
            program,
            groups: GroupDrafts::new(cluster, program, registry),
            merge_over,
            parts: FxHashMap::default(),
            steps: FxHashMap::default(),
        }
    }

    pub(crate) fn into_registry(self) -> B {
        self.groups.registry
    }

    /// Returns the steps of the Admin tier.
    pub(crate) fn admin(&mut self, class: u32, direction: Direction) -> Vec<Arc<Step>> {
        self.ordered(class, Tier::Admin, direction, None)
    }

    /// Returns the steps of the NetworkPolicies; `None`: none of them isolates the class.
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
            let steps = steps.map(|(key, rule, part)| self.step_of(*key, *rule, part));
            (MergedUnion::default(), steps.collect())
        };
        Some(AfterAdmin {
            merged,
            steps,
            verdict: Verdict::Deny,
        })
    }

    /// Returns the steps of the Baseline tier, for classes that no NetworkPolicy isolates.
    pub(crate) fn baseline(&mut self, class: u32, direction: Direction) -> AfterAdmin {
        let index = direction_index(direction);
        let subject = self.program.classes.get(class as usize);
        let isolation = subject.and_then(|it| it.default_isolations.get(index).copied());
        let isolated = isolation.is_some_and(|it| it != NONE);
        let table = self.program.table(Tier::Baseline, direction);
        // Rules after the default policies never apply to pods that these isolate (D62).
        let stop = isolated.then_some(table.group_end);
        let mut steps = self.ordered(class, Tier::Baseline, direction, stop);
        for step in &mut steps {
            // After the Baseline tier only the default follows, which allows (D10).
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

    /// Returns the steps of an ordered tier that apply to a class, up to a bit.
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
        // The subject's row alone: peers and ports become conditions of the steps.
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

    /// Whether a union is merged.
    fn is_large(&self, parts: &[PendingStep<'p, 'a>]) -> bool {
        let most = self.merge_over.saturating_mul(CONDITIONS_OF_A_STEP);
        let conditions = parts.iter().map(|(_, _, part)| part.conditions());
        let excepts_much =
            |part: &RulePart| part.peers.as_ref().is_some_and(PeerDraft::excepts_much);
        parts.len() > self.merge_over
            || conditions.fold(0, usize::saturating_add) > most
            || parts.iter().any(|(_, _, part)| excepts_much(part))
    }

    /// Returns a rule of an ordered tier as a step; `None`: it can match nothing.
    fn step(&mut self, subject: &'p Class, id: RuleId) -> Option<Arc<Step>> {
        let (key, subject_rule, part) = self.part(subject, id)?;
        Some(self.step_of(key, subject_rule, &part))
    }

    fn step_of(
        &mut self,
        key: StepKey,
        subject_rule: SubjectRule<'p, 'a>,
        part: &RulePart,
    ) -> Arc<Step> {
        if let Some(known) = self.steps.get(&key) {
            return Arc::clone(known);
        }
        let step = Arc::new(part.step(subject_rule, &mut self.groups));
        self.steps.insert(key, Arc::clone(&step));
        step
    }

    /// Returns a rule for a subject; `None`: it can match nothing.
    fn part(&mut self, subject: &'p Class, id: RuleId) -> Option<PendingStep<'p, 'a>> {
        let rule = self.program.rules.get(id.0 as usize)?;
        let is_related = rule.sets.of(&self.program.lists.sets).iter().any(|set| {
            let relation = self.program.set_relations.get(*set as usize);
            relation.is_some_and(Option::is_some)
        });
        // For egress a name does not depend on the subject: each destination resolves it (D33).
        let has_names = !rule.names.of(&self.program.lists.names).is_empty();
        let own_names = has_names && rule.place.direction == Direction::Ingress;
        // Steps are shared as widely as they are the same: most rules have neither a relation nor a
        // name, and are one step for all classes.
        let key = (
            id,
            if is_related { subject.namespace } else { NONE },
            if own_names { subject.port_map } else { NONE },
        );
        let cluster = self.cluster;
        let effect = cluster.effect(rule.place)?;
        let subject_rule = SubjectRule {
            subject,
            rule,
            peers: effect.peers.as_deref().unwrap_or_default(),
        };
        let part = match self.parts.get(&key) {
            Some(known) => known.clone(),
            None => {
                let ports = effect.ports.as_deref();
                let part = self.new_part(subject_rule, id, ports).map(Arc::new);
                self.parts.insert(key, part.clone());
                part
            }
        };
        Some((key, subject_rule, part?))
    }

    fn new_part(
        &mut self,
        subject_rule: SubjectRule<'p, 'a>,
        id: RuleId,
        ports: Option<&[PortMatch<'_>]>,
    ) -> Option<RulePart> {
        let SubjectRule { subject, rule, .. } = subject_rule;
        // Ports or peers that are present and empty match nothing, unlike absent ones: such a rule
        // must not become a step without a condition.
        let ports = match ports {
            None => None,
            Some(ports) => {
                let ports = self.ports(subject, rule, ports);
                Some(ports).filter(|ports| ports.len() > 0).map(Some)?
            }
        };
        let peers = if rule.any_peer {
            None
        } else {
            let peers = self.groups.peer_draft(subject_rule);
            Some(peers).filter(|peers| !peers.is_empty()).map(Some)?
        };
        Some(RulePart {
            rule: self.groups.registry.rule(id, rule.place),
            action: rule.action,
            ports,
            peers,
        })
    }

    /// Returns the ports of a rule. A name stands for the subject's own ports if the subject is the
    /// destination, and otherwise for the ports of each peer (D33).
    fn ports(&mut self, subject: &Class, rule: &Rule, ports: &[PortMatch<'_>]) -> Ports {
        let mut conditions = Vec::new();
        let mut elsewhere = Vec::new();
        // The names of the program are in the order of the rule: one for each named port.
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
                    self.groups.resolve_name(named.name, name, role);
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
