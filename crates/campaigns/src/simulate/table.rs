//! Tables of the kernel as values. A transaction is atomic, and is checked as strictly as in the
//! kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use palisade_nft::ruleset::{
    Chain, Field, Match, Name, Point, Ruleset, Set, Statement, Values, Verdict,
};
use palisade_nft::transaction::{Op, Transaction};

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Its handle, which increases with every table.
    pub handle: u64,
    /// The process that owns it.
    pub owner: Option<u32>,
    /// Its chains.
    pub chains: Rc<BTreeMap<Name, Rc<Chain>>>,
    /// Its sets and maps.
    pub sets: Rc<BTreeMap<Name, Rc<Elements>>>,
    /// Its base chains.
    pub hooked: Vec<(Point, Name)>,
}

/// A set or map with its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elements {
    /// The fields of a key.
    pub fields: Vec<Field>,
    /// The type of its values.
    pub kind: SetKind,
    /// The elements, by key.
    pub data: BTreeMap<Vec<u8>, Data>,
    /// Its capacity.
    pub size: u32,
}

/// The type of a set's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetKind {
    /// None: a set.
    Plain,
    /// None: the keys are alternately the first key of a range, and the first key after it.
    Ranges,
    /// Verdicts.
    Verdicts,
    /// Numbers.
    Numbers,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// None.
    Nothing,
    /// The end of a range, exclusive.
    End,
    /// A verdict.
    Verdict(Verdict),
    /// A number.
    Number(u32),
}

impl Elements {
    /// The elements of a set. Fails on a duplicate key.
    fn of(set: &Set) -> Result<Elements, String> {
        let kind = match &set.values {
            Values::Nothing => SetKind::Plain,
            Values::Ranges => SetKind::Ranges,
            Values::Verdicts(_) => SetKind::Verdicts,
            Values::Numbers(_) => SetKind::Numbers,
        };
        let mut data = BTreeMap::new();
        for (place, key) in set.iter().enumerate() {
            let value = match &set.values {
                Values::Nothing => Some(Data::Nothing),
                Values::Ranges if set.is_end(place) => Some(Data::End),
                Values::Ranges => Some(Data::Nothing),
                Values::Verdicts(all) => all.get(place).cloned().map(Data::Verdict),
                Values::Numbers(all) => all.get(place).copied().map(Data::Number),
            };
            let value = value.ok_or_else(|| format!("`{}` has a key without a value", set.name))?;
            if data.insert(key.to_vec(), value).is_some() {
                return Err(format!("`{}` has the duplicate key {key:02x?}", set.name));
            }
        }
        Ok(Elements {
            fields: set.fields.clone(),
            kind,
            data,
            size: set.size,
        })
    }

    /// Looks up a key.
    pub fn find(&self, key: &[u8]) -> Option<&Data> {
        match self.kind {
            SetKind::Ranges => {
                let (_, last) = self
                    .data
                    .range::<[u8], _>((Bound::Unbounded, Bound::Included(key)))
                    .next_back()?;
                (*last != Data::End).then_some(last)
            }
            SetKind::Plain | SetKind::Verdicts | SetKind::Numbers => self.data.get(key),
        }
    }

    fn has_type_of(&self, other: &Elements) -> bool {
        self.fields == other.fields && self.kind == other.kind
    }
}

impl Table {
    /// An empty table.
    pub fn new(name: &str, handle: u64, owner: Option<u32>) -> Table {
        Table {
            name: name.to_owned(),
            handle,
            owner,
            ..Table::default()
        }
    }

    /// Whether it has base chains.
    pub fn is_hooked(&self) -> bool {
        !self.hooked.is_empty()
    }

    /// Adds sets and chains of a ruleset.
    pub fn fill(&mut self, sets: &[Set], chains: &[Chain]) -> Result<(), String> {
        let mut next = TableDraft::of(self);
        for set in sets {
            next.add_set(set)?;
        }
        for chain in chains {
            next.add_chain(&chain.name)?;
        }
        for chain in chains {
            next.write(&chain.name, chain.clone())?;
        }
        next.check_capacity()?;
        self.take(next);
        Ok(())
    }

    /// Executes a transaction, or refuses it with a reason.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<(), String> {
        let mut next = TableDraft::of(self);
        for op in &transaction.ops {
            next.execute(op)
                .map_err(|why| format!("cannot {op}: {why}"))?;
        }
        next.check_capacity()?;
        self.take(next);
        Ok(())
    }

    /// Flushes the base chains.
    pub fn flush_base_chains(&mut self) {
        for chain in Rc::make_mut(&mut self.chains).values_mut() {
            if chain.hook.is_some() {
                Rc::make_mut(chain).rules.clear();
            }
        }
    }

    fn take(&mut self, next: TableDraft) {
        if *self.chains != next.chains {
            let chains = next.chains.values();
            let hooked = chains.filter_map(|it| Some((it.hook?.point, it.name.clone())));
            self.hooked = hooked.collect();
            self.chains = Rc::new(next.chains);
        }
        if *self.sets != next.sets {
            self.sets = Rc::new(next.sets);
        }
    }

    /// The differences from an expected ruleset, like `Kernel::audit`.
    pub fn audit(&self, expected: &Ruleset) -> Vec<String> {
        let mut differences = Vec::new();
        let mut chains: BTreeSet<&Name> = self.chains.keys().collect();
        for chain in &expected.chains {
            chains.remove(&chain.name);
            match self.chains.get(&chain.name) {
                None => differences.push(format!("the chain `{}` is missing", chain.name)),
                Some(found) if !is_same(found, chain) => {
                    differences.push(format!("the chain `{}` differs", chain.name));
                }
                Some(_) => {}
            }
        }
        differences.extend(
            chains
                .iter()
                .map(|it| format!("the chain `{it}` is unexpected")),
        );
        let mut sets: BTreeSet<&Name> = self.sets.keys().collect();
        for set in &expected.sets {
            sets.remove(&set.name);
            let Some(found) = self.sets.get(&set.name) else {
                differences.push(format!("the set `{}` is missing", set.name));
                continue;
            };
            match Elements::of(set) {
                Err(why) => differences.push(why),
                Ok(expected) => {
                    if !found.has_type_of(&expected) || found.size < set.size {
                        differences.push(format!("the set `{}` has another type", set.name));
                    } else if found.data != expected.data {
                        differences.push(format!("the set `{}` has other elements", set.name));
                    }
                }
            }
        }
        differences.extend(
            sets.iter()
                .map(|it| format!("the set `{it}` is unexpected")),
        );
        differences
    }
}

/// Whether two chains have equal rules, ignoring the policy rules that they implement.
fn is_same(one: &Chain, other: &Chain) -> bool {
    one.hook == other.hook
        && one.rules.len() == other.rules.len()
        && one
            .rules
            .iter()
            .zip(&other.rules)
            .all(|(one, other)| one.matches == other.matches && one.statements == other.statements)
}

/// A table during a transaction.
struct TableDraft {
    chains: BTreeMap<Name, Rc<Chain>>,
    sets: BTreeMap<Name, Rc<Elements>>,
    /// The number of elements added to each set. Deleted elements free their room only after the
    /// commit.
    n_added: BTreeMap<Name, usize>,
    before: Rc<BTreeMap<Name, Rc<Elements>>>,
    /// Deleted elements, which must not be added again with the same value.
    deleted: BTreeMap<(Name, Vec<u8>), Data>,
}

impl TableDraft {
    fn of(table: &Table) -> TableDraft {
        TableDraft {
            chains: (*table.chains).clone(),
            sets: (*table.sets).clone(),
            n_added: BTreeMap::new(),
            before: Rc::clone(&table.sets),
            deleted: BTreeMap::new(),
        }
    }

    fn execute(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::AddChain(name) => self.add_chain(name),
            Op::Rewrite(chain) => {
                let found = self.chains.get(&chain.name);
                let hook = found.ok_or("no such chain")?.hook;
                let rules = chain.rules.clone();
                let name = chain.name.clone();
                self.write(&chain.name, Chain { name, hook, rules })
            }
            Op::DeleteChain(name) => {
                if self.chains.remove(name).is_none() {
                    return Err("no such chain".to_owned());
                }
                match self.jump_to(name) {
                    Some(from) => Err(format!("{from} still jumps to it")),
                    None => Ok(()),
                }
            }
            Op::AddSet(set) => self.add_set(set),
            Op::DeleteSet(name) => {
                if self.sets.remove(name).is_none() {
                    return Err("no such set".to_owned());
                }
                match self.user_of(name) {
                    Some(chain) => Err(format!("the chain `{chain}` still uses it")),
                    None => Ok(()),
                }
            }
            Op::AddElements(set) => self.add_elements(set),
            Op::DeleteElements(set) => self.delete_elements(set),
        }
    }

    fn add_chain(&mut self, name: &Name) -> Result<(), String> {
        let chain = Chain {
            name: name.clone(),
            hook: None,
            rules: Vec::new(),
        };
        match self.chains.insert(name.clone(), Rc::new(chain)) {
            None => Ok(()),
            Some(_) => Err("the chain exists".to_owned()),
        }
    }

    fn write(&mut self, name: &Name, chain: Chain) -> Result<(), String> {
        for rule in &chain.rules {
            for set in sets_of(&rule.matches, &rule.statements) {
                if !self.sets.contains_key(set) {
                    return Err(format!("no such set `{set}`"));
                }
            }
            for statement in &rule.statements {
                if let Statement::Verdict(verdict) = statement {
                    self.check_target(verdict)?;
                }
            }
        }
        self.chains.insert(name.clone(), Rc::new(chain));
        Ok(())
    }

    fn check_target(&self, verdict: &Verdict) -> Result<(), String> {
        match target(verdict) {
            Some(to) if !self.chains.contains_key(to) => Err(format!("no such chain `{to}`")),
            _ => Ok(()),
        }
    }

    fn add_set(&mut self, set: &Set) -> Result<(), String> {
        let elements = Elements::of(set)?;
        let n_added = elements.data.len();
        if self.sets.contains_key(&set.name) {
            return Err("the set exists".to_owned());
        }
        self.sets.insert(set.name.clone(), Rc::new(elements));
        *self.n_added.entry(set.name.clone()).or_default() += n_added;
        Ok(())
    }

    fn add_elements(&mut self, set: &Set) -> Result<(), String> {
        let new = Elements::of(set)?;
        for data in new.data.values() {
            if let Data::Verdict(verdict) = data {
                self.check_target(verdict)?;
            }
        }
        let found = self.sets.get_mut(&set.name).ok_or("no such set")?;
        if !found.has_type_of(&new) {
            return Err("the set has another type".to_owned());
        }
        *self.n_added.entry(set.name.clone()).or_default() += new.data.len();
        let found = Rc::make_mut(found);
        for (key, data) in new.data {
            let deleted = self.deleted.get(&(set.name.clone(), key.clone()));
            if deleted == Some(&data) {
                return Err(format!(
                    "the key {key:02x?} is deleted and added with the same value"
                ));
            }
            if found.data.insert(key.clone(), data).is_some() {
                return Err(format!("the key {key:02x?} exists"));
            }
        }
        Ok(())
    }

    fn delete_elements(&mut self, set: &Set) -> Result<(), String> {
        let found = self.sets.get_mut(&set.name).ok_or("no such set")?;
        if found.fields != set.fields {
            return Err("the set has another type".to_owned());
        }
        let found = Rc::make_mut(found);
        for key in set.iter() {
            let Some(data) = found.data.remove(key) else {
                return Err(format!("no such key {key:02x?}"));
            };
            self.deleted.insert((set.name.clone(), key.to_vec()), data);
        }
        Ok(())
    }

    /// The chain or map that still jumps to a chain.
    fn jump_to(&self, name: &Name) -> Option<String> {
        for chain in self.chains.values() {
            for statement in chain.rules.iter().flat_map(|rule| &rule.statements) {
                if let Statement::Verdict(verdict) = statement
                    && target(verdict) == Some(name)
                {
                    return Some(format!("the chain `{}`", chain.name));
                }
            }
        }
        for (set, elements) in &self.sets {
            let mut data = elements.data.values();
            if elements.kind == SetKind::Verdicts
                && data.any(|it| matches!(it, Data::Verdict(to) if target(to) == Some(name)))
            {
                return Some(format!("the map `{set}`"));
            }
        }
        None
    }

    /// A chain that still uses a set.
    fn user_of(&self, name: &Name) -> Option<&Name> {
        let user_of = |chain: &&Rc<Chain>| {
            let mut rules = chain.rules.iter();
            rules.any(|rule| sets_of(&rule.matches, &rule.statements).contains(&name))
        };
        self.chains.values().find(user_of).map(|chain| &chain.name)
    }

    /// Checks that every set has room for the added elements beside all previous ones.
    fn check_capacity(&self) -> Result<(), String> {
        for (name, n_added) in &self.n_added {
            let n_before = self.before.get(name).map_or(0, |it| it.data.len());
            let Some(set) = self.sets.get(name) else {
                continue;
            };
            let size = usize::try_from(set.size).unwrap_or(usize::MAX);
            if n_before + n_added > size {
                return Err(format!(
                    "the set `{name}` is full: {n_before} elements and {n_added} more of {size}"
                ));
            }
        }
        Ok(())
    }
}

/// The chain that a verdict jumps to.
pub fn target(verdict: &Verdict) -> Option<&Name> {
    match verdict {
        Verdict::Jump(to) | Verdict::Goto(to) => Some(to),
        Verdict::Accept | Verdict::Drop | Verdict::Return => None,
    }
}

/// The sets that a rule uses.
fn sets_of<'r>(matches: &'r [Match], statements: &'r [Statement]) -> Vec<&'r Name> {
    let mut sets = Vec::new();
    for condition in matches {
        match condition {
            Match::Lookup { set, .. } => sets.push(set),
            Match::LookupNumber { map, set, .. } => sets.extend([map, set]),
            Match::CtMark { .. }
            | Match::CtState(_)
            | Match::CtIsReply(_)
            | Match::L4(_)
            | Match::CtL4(_)
            | Match::HopLimit(_)
            | Match::Family(_)
            | Match::CtPort(..)
            | Match::HeaderPort(..)
            | Match::IcmpType(..)
            | Match::TcpNotOpening
            | Match::ReverseRoute
            | Match::Within { .. } => {}
        }
    }
    for statement in statements {
        if let Statement::Dispatch { map, .. } = statement {
            sets.push(map);
        }
    }
    sets
}
