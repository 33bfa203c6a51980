//! The policies of a class as rows and unions, made once for all classes of the same policies.

use super::classes::{SetMembers, group, range};
use super::labels::count;
use super::rules::{CompiledRules, by_policy};
use super::tables::TableDraft;
use crate::id_set::{has_bit, ones, set_bit};
use crate::model::{Cluster, Policy, PolicyId, PolicyRank};
use crate::policy::Direction;
use crate::program::{Hint, IsolationId, NONE, RuleId, Slice, Union, direction_index};
use crate::set_hash::{SetInterner, bits_word, word};

/// The union and the default isolation of a class, for each direction; `NONE`: it has none.
#[derive(Clone, Copy, Debug)]
pub(super) struct IsolationSummary {
    pub(super) unions: [u32; 2],
    pub(super) default_isolations: [u32; 2],
}

impl IsolationSummary {
    const NOT: IsolationSummary = IsolationSummary {
        unions: [NONE; 2],
        default_isolations: [NONE; 2],
    };
}

/// Builds rows and unions, one for each distinct set of policies or pod sets.
pub(super) struct ClassRows<'i, 'a> {
    cluster: &'i Cluster<'a>,
    members: &'i SetMembers,
    /// The policies, grouped by the pod set that is their subject.
    policies: Vec<PolicyId>,
    /// Where the policies of each pod set end.
    policy_ends: Vec<u32>,
    rules_of: [Vec<Slice>; 2],
    pub(super) tables: [TableDraft; 4],
    /// Distinguishes classes by the policies of the ordered tiers that select them.
    by_subject: SetSignature,
    /// Distinguishes classes by the policies that isolate them. It is separate from `by_subject`:
    /// a NetworkPolicy of one namespace must not multiply the rows of all tiers.
    by_isolation: SetSignature,
    /// Distinguishes classes by the rules of the ordered tiers that have them as peers.
    by_peer: SetSignature,
    subjects: Vec<[u32; 4]>,
    isolated: Vec<IsolationSummary>,
    peers: Vec<[u32; 4]>,
    pub(super) unions: [Vec<Union>; 2],
    pub(super) isolations: Vec<Vec<PolicyId>>,
    isolation_ids: SetInterner,
}

/// Some of the pod sets, and numbers for the classes that these sets distinguish.
struct SetSignature {
    /// A bit for each narrow set that counts.
    narrow: Vec<u64>,
    /// A bit for each wide set that counts.
    wide: Vec<u64>,
    ids: SetInterner,
    /// The first class of each number. It stands for all others in comparisons.
    first: Vec<u32>,
}

impl SetSignature {
    fn new(members: &SetMembers, sets: impl Iterator<Item = u32>) -> SetSignature {
        let mut signature = SetSignature {
            narrow: vec![0; members.hints.len().div_ceil(64)],
            wide: vec![0; members.wide_sets.len().div_ceil(64)],
            ids: SetInterner::default(),
            first: Vec::new(),
        };
        for set in sets {
            match members.hints.get(set as usize) {
                Some(Hint::Wide(column)) => set_bit(&mut signature.wide, *column),
                _ => set_bit(&mut signature.narrow, set),
            }
        }
        signature
    }

    fn narrow<'s>(&'s self, members: &'s SetMembers, class: u32) -> impl Iterator<Item = u32> + 's {
        let sets = members.narrow(class).iter().copied();
        sets.filter(|set| has_bit(&self.narrow, *set))
    }

    fn wide<'s>(&'s self, members: &'s SetMembers, class: u32) -> impl Iterator<Item = u64> + 's {
        let row = members.wide.row(class).iter().zip(&self.wide);
        row.map(|(bits, mask)| bits & mask)
    }

    /// Returns the sets that count and that a class is in.
    fn sets(&self, members: &SetMembers, class: u32) -> Vec<u32> {
        let row: Vec<u64> = self.wide(members, class).collect();
        let wide = ones(&row).filter_map(|column| members.wide_sets.get(column as usize).copied());
        self.narrow(members, class).chain(wide).collect()
    }

    /// Returns the number of a class. Classes in the same sets have the same number.
    fn number(&mut self, members: &SetMembers, class: u32) -> crate::set_hash::Interned {
        // Tens of thousands of classes share a few thousand lists of sets. The sum of words finds
        // the candidate without an allocation; the comparison below decides.
        let narrow = self.narrow(members, class).map(|set| word(set.into()));
        let wide = self.wide(members, class).enumerate();
        let words = narrow.chain(wide.map(|(place, bits)| bits_word(place, bits)));
        let signature = words.fold(0, |all, word| all ^ word);
        // The comparison borrows `self`, which therefore must not lend `ids`.
        let mut ids = std::mem::take(&mut self.ids);
        let number = ids.number(signature, |id| {
            let first = self.first.get(id as usize).copied().unwrap_or(NONE);
            self.narrow(members, first).eq(self.narrow(members, class))
                && self.wide(members, first).eq(self.wide(members, class))
        });
        self.ids = ids;
        if number.is_new {
            self.first.push(class);
        }
        number
    }
}

impl<'i, 'a> ClassRows<'i, 'a> {
    pub(super) fn new(
        cluster: &'i Cluster<'a>,
        compiled: &CompiledRules,
        subjects: &[Option<u32>],
        members: &'i SetMembers,
        tables: [TableDraft; 4],
    ) -> ClassRows<'i, 'a> {
        let n_sets = members.hints.len();
        // Policies without a subject (D20, or not enforced) get a key after all sets, whose end is
        // cut off: no range leads to them.
        let none = count(n_sets);
        let keys: Vec<u32> = subjects.iter().map(|set| set.unwrap_or(none)).collect();
        let (policies, mut policy_ends) = group(&keys, n_sets + 1);
        policy_ends.truncate(n_sets);
        // Sets that only NetworkPolicy rules name have no bit in a table. They must not make more
        // rows: unions look such sets up by themselves.
        let in_tables = tables.iter().flat_map(|table| {
            let sets = (0..).zip(&table.of_set);
            sets.filter(|(_, bits)| !bits.is_empty())
                .map(|(set, _)| set)
        });
        let in_order = tables.iter().flat_map(|table| table.of_policy.keys());
        let in_order = in_order.filter_map(|policy| subjects.get(*policy as usize).copied()?);
        let isolating = subjects.iter().zip(&cluster.policies);
        let isolating = isolating.filter(|(_, policy)| {
            let mut directions = Direction::BOTH.iter();
            directions.any(|direction| policy.rules(*direction).isolates)
        });
        ClassRows {
            cluster,
            members,
            policies: policies.into_iter().map(PolicyId).collect(),
            policy_ends,
            rules_of: by_policy(&compiled.rules, cluster.policies.len()),
            by_subject: SetSignature::new(members, in_order),
            by_isolation: SetSignature::new(members, isolating.filter_map(|(subject, _)| *subject)),
            by_peer: SetSignature::new(members, in_tables),
            tables,
            subjects: Vec::new(),
            isolated: Vec::new(),
            peers: Vec::new(),
            unions: [Vec::new(), Vec::new()],
            isolations: Vec::new(),
            isolation_ids: SetInterner::default(),
        }
    }

    /// Returns the policies whose subject is one of some pod sets, ascending.
    fn policies(&self, sets: &[u32]) -> Vec<PolicyId> {
        let lists = sets.iter().map(|set| {
            let (start, end) = range(&self.policy_ends, *set);
            self.policies.get(start as usize..end as usize)
        });
        let mut policies: Vec<PolicyId> = lists.flatten().flatten().copied().collect();
        policies.sort_unstable();
        policies
    }

    /// Returns the rows of the rules whose policies select a class.
    pub(super) fn subject(&mut self, class: u32) -> [u32; 4] {
        let number = self.by_subject.number(self.members, class);
        if !number.is_new {
            let known = self.subjects.get(number.id as usize).copied();
            return known.unwrap_or_default();
        }
        let policies = self.policies(&self.by_subject.sets(self.members, class));
        let tables = self.tables.each_mut();
        let rows = tables.map(|table| {
            let bits = policies.iter();
            let bits = bits.filter_map(|policy| table.of_policy.get(&policy.0));
            table.subjects.of(bits.flatten().copied())
        });
        self.subjects.push(rows);
        rows
    }

    /// Returns the union and the default isolation of a class.
    pub(super) fn isolated(&mut self, class: u32) -> IsolationSummary {
        let number = self.by_isolation.number(self.members, class);
        if number.is_new {
            let sets = self.by_isolation.sets(self.members, class);
            let isolated = self.new_isolated(&self.policies(&sets));
            self.isolated.push(isolated);
            return isolated;
        }
        let known = self.isolated.get(number.id as usize).copied();
        known.unwrap_or(IsolationSummary::NOT)
    }

    fn new_isolated(&mut self, policies: &[PolicyId]) -> IsolationSummary {
        let mut isolated = IsolationSummary::NOT;
        for direction in Direction::BOTH {
            let index = direction_index(direction);
            let isolating = self.isolating(policies, PolicyRank::NetworkPolicy, direction);
            if !isolating.is_empty() {
                // A policy that does not isolate in this direction has no rules in it (D31): the
                // rules of the isolating policies are the whole union.
                let rules = isolating.iter();
                let rules =
                    rules.filter_map(|policy| self.rules_of.get(index)?.get(policy.0 as usize));
                let rules = rules.flat_map(|slice| (slice.start..slice.end).map(RuleId));
                let rules: Vec<RuleId> = rules.collect();
                let isolation = IsolationId(self.isolation(isolating));
                if let (Some(unions), Some(of_subject)) =
                    (self.unions.get_mut(index), isolated.unions.get_mut(index))
                {
                    *of_subject = count(unions.len());
                    // `policy_index` fills in the index when all unions exist.
                    unions.push(Union {
                        rules,
                        isolation,
                        index: NONE,
                        selected: Vec::new(),
                    });
                }
            }
            let isolating = self.isolating(policies, PolicyRank::DefaultGroup, direction);
            if !isolating.is_empty()
                && let Some(of_subject) = isolated.default_isolations.get_mut(index)
            {
                *of_subject = self.isolation(isolating);
            }
        }
        isolated
    }

    /// Returns the policies of a rank that isolate in a direction, by namespace and name (D137).
    fn isolating(
        &self,
        policies: &[PolicyId],
        rank: PolicyRank,
        direction: Direction,
    ) -> Vec<PolicyId> {
        let policy = |id: &PolicyId| self.cluster.policies.get(id.0 as usize);
        let isolates = |it: &Policy<'_>| it.rank == rank && it.rules(direction).isolates;
        let ids = policies.iter().copied();
        let mut isolating: Vec<PolicyId> =
            ids.filter(|id| policy(id).is_some_and(isolates)).collect();
        isolating.sort_by_key(|id| policy(id).map(|it| (it.namespace, it.name, it.api)));
        isolating
    }

    /// Returns the number of a sorted list of isolating policies.
    fn isolation(&mut self, policies: Vec<PolicyId>) -> u32 {
        let words = policies.iter().map(|policy| word(policy.0.into()));
        let signature = words.fold(0, |all, word| all ^ word);
        let isolations = &self.isolations;
        let number = self.isolation_ids.number(signature, |id| {
            isolations.get(id as usize) == Some(&policies)
        });
        if number.is_new {
            self.isolations.push(policies);
        }
        number.id
    }

    /// Returns the rows of the rules that have a class among their peers.
    pub(super) fn peer(&mut self, class: u32) -> [u32; 4] {
        let number = self.by_peer.number(self.members, class);
        if !number.is_new {
            let known = self.peers.get(number.id as usize).copied();
            return known.unwrap_or_default();
        }
        let sets = self.by_peer.sets(self.members, class);
        let tables = self.tables.each_mut();
        let rows = tables.map(|table| {
            let bits = sets.iter();
            let bits = bits.filter_map(|set| table.of_set.get(*set as usize));
            table.peers.of(bits.flatten().copied())
        });
        self.peers.push(rows);
        rows
    }
}
