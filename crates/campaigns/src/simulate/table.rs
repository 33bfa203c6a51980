//! Tables of the kernel as values, and what it takes to change one: everything or nothing, and with the
//! kernel's own strictness.

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
    /// Later tables have larger ones.
    pub handle: u64,
    /// The process whose socket it belongs to.
    pub owner: Option<u32>,
    /// Its chains.
    pub chains: Rc<BTreeMap<Name, Rc<Chain>>>,
    /// Its sets and maps.
    pub sets: Rc<BTreeMap<Name, Rc<Elements>>>,
    /// Where packets enter it.
    pub hooked: Vec<(Point, Name)>,
}

/// A set or map with its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elements {
    /// What a key is made of.
    pub fields: Vec<Field>,
    /// What keys stand for.
    pub kind: Kind,
    /// The elements, by key.
    pub data: BTreeMap<Vec<u8>, Data>,
    /// How many there is room for.
    pub size: u32,
}

/// What the keys of a set stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    Plain,
    /// Nothing: they are in turn the first key of a range, and the first one behind it.
    Ranges,
    /// Verdicts.
    Verdicts,
    /// Numbers.
    Numbers,
}

/// What one key stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Nothing.
    Nothing,
    /// A range ends before it.
    End,
    /// A verdict.
    Verdict(Verdict),
    /// A number.
    Number(u32),
}

impl Elements {
    /// A set with all its elements; says which key is there twice.
    fn of(set: &Set) -> Result<Elements, String> {
        let kind = match &set.values {
            Values::Nothing => Kind::Plain,
            Values::Ranges => Kind::Ranges,
            Values::Verdicts(_) => Kind::Verdicts,
            Values::Numbers(_) => Kind::Numbers,
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
            let value = value.ok_or_else(|| format!("`{}` lacks a value", set.name))?;
            if data.insert(key.to_vec(), value).is_some() {
                return Err(format!("`{}` has the key {key:02x?} twice", set.name));
            }
        }
        Ok(Elements {
            fields: set.fields.clone(),
            kind,
            data,
            size: set.size,
        })
    }

    /// What it has for a key.
    pub fn find(&self, key: &[u8]) -> Option<&Data> {
        match self.kind {
            Kind::Ranges => {
                let (_, last) = self
                    .data
                    .range::<[u8], _>((Bound::Unbounded, Bound::Included(key)))
                    .next_back()?;
                (*last != Data::End).then_some(last)
            }
            Kind::Plain | Kind::Verdicts | Kind::Numbers => self.data.get(key),
        }
    }

    fn is_of_the_form_of(&self, other: &Elements) -> bool {
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

    /// Whether it is complete and enforces.
    pub fn is_hooked(&self) -> bool {
        !self.hooked.is_empty()
    }

    /// Adds sets and chains of a ruleset.
    pub fn fill(&mut self, sets: &[Set], chains: &[Chain]) -> Result<(), String> {
        let mut next = Draft::of(self);
        for set in sets {
            next.add_set(set)?;
        }
        for chain in chains {
            next.add_chain(&chain.name)?;
        }
        for chain in chains {
            next.write(&chain.name, chain.clone())?;
        }
        next.room()?;
        self.take(next);
        Ok(())
    }

    /// Carries out a transaction, or refuses and says why.
    pub fn commit(&mut self, transaction: &Transaction) -> Result<(), String> {
        let mut next = Draft::of(self);
        for op in &transaction.ops {
            next.carry_out(op)
                .map_err(|why| format!("cannot {op}: {why}"))?;
        }
        next.room()?;
        self.take(next);
        Ok(())
    }

    /// Takes all rules out of the hooked chains.
    pub fn empty_hooked(&mut self) {
        for chain in Rc::make_mut(&mut self.chains).values_mut() {
            if chain.hook.is_some() {
                Rc::make_mut(chain).rules.clear();
            }
        }
    }

    fn take(&mut self, next: Draft) {
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

    /// What is different from what it should be, in words: what `Kernel::audit` would say.
    pub fn audit(&self, expected: &Ruleset) -> Vec<String> {
        let mut words = Vec::new();
        let mut chains: BTreeSet<&Name> = self.chains.keys().collect();
        for chain in &expected.chains {
            chains.remove(&chain.name);
            match self.chains.get(&chain.name) {
                None => words.push(format!("the chain `{}` is gone", chain.name)),
                Some(found) if !is_same(found, chain) => {
                    words.push(format!("the chain `{}` is another", chain.name));
                }
                Some(_) => {}
            }
        }
        words.extend(
            chains
                .iter()
                .map(|it| format!("the chain `{it}` is not ours")),
        );
        let mut sets: BTreeSet<&Name> = self.sets.keys().collect();
        for set in &expected.sets {
            sets.remove(&set.name);
            let Some(found) = self.sets.get(&set.name) else {
                words.push(format!("the set `{}` is gone", set.name));
                continue;
            };
            match Elements::of(set) {
                Err(why) => words.push(why),
                Ok(should) => {
                    if !found.is_of_the_form_of(&should) || found.size < set.size {
                        words.push(format!("the set `{}` has another form", set.name));
                    } else if found.data != should.data {
                        words.push(format!("the set `{}` has other elements", set.name));
                    }
                }
            }
        }
        words.extend(sets.iter().map(|it| format!("the set `{it}` is not ours")));
        words
    }
}

/// Whether two chains do the same; which rules of policies theirs stand for does not count.
fn is_same(one: &Chain, other: &Chain) -> bool {
    one.hook == other.hook
        && one.rules.len() == other.rules.len()
        && one
            .rules
            .iter()
            .zip(&other.rules)
            .all(|(one, other)| one.matches == other.matches && one.statements == other.statements)
}

/// A table on its way to the next.
struct Draft {
    chains: BTreeMap<Name, Rc<Chain>>,
    sets: BTreeMap<Name, Rc<Elements>>,
    /// How many elements each set had before, and how many are added. What is deleted makes room only
    /// when all is done.
    added: BTreeMap<Name, usize>,
    before: Rc<BTreeMap<Name, Rc<Elements>>>,
    /// Keys that were deleted, which must not come back as they were.
    deleted: BTreeMap<(Name, Vec<u8>), Data>,
}

impl Draft {
    fn of(table: &Table) -> Draft {
        Draft {
            chains: (*table.chains).clone(),
            sets: (*table.sets).clone(),
            added: BTreeMap::new(),
            before: Rc::clone(&table.sets),
            deleted: BTreeMap::new(),
        }
    }

    fn carry_out(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::AddChain(name) => self.add_chain(name),
            Op::Rewrite(chain) => {
                let found = self.chains.get(&chain.name);
                let hook = found.ok_or("there is no such chain")?.hook;
                let rules = chain.rules.clone();
                let name = chain.name.clone();
                self.write(&chain.name, Chain { name, hook, rules })
            }
            Op::DeleteChain(name) => {
                if self.chains.remove(name).is_none() {
                    return Err("there is no such chain".to_owned());
                }
                match self.leads_to(name) {
                    Some(from) => Err(format!("{from} leads to it")),
                    None => Ok(()),
                }
            }
            Op::AddSet(set) => self.add_set(set),
            Op::DeleteSet(name) => {
                if self.sets.remove(name).is_none() {
                    return Err("there is no such set".to_owned());
                }
                match self.asks(name) {
                    Some(chain) => Err(format!("the chain `{chain}` asks it")),
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
            Some(_) => Err("there is such a chain".to_owned()),
        }
    }

    fn write(&mut self, name: &Name, chain: Chain) -> Result<(), String> {
        for rule in &chain.rules {
            for set in sets_of(&rule.matches, &rule.statements) {
                if !self.sets.contains_key(set) {
                    return Err(format!("there is no set `{set}`"));
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
            Some(to) if !self.chains.contains_key(to) => Err(format!("there is no chain `{to}`")),
            _ => Ok(()),
        }
    }

    fn add_set(&mut self, set: &Set) -> Result<(), String> {
        let elements = Elements::of(set)?;
        let added = elements.data.len();
        if self.sets.contains_key(&set.name) {
            return Err("there is such a set".to_owned());
        }
        self.sets.insert(set.name.clone(), Rc::new(elements));
        *self.added.entry(set.name.clone()).or_default() += added;
        Ok(())
    }

    fn add_elements(&mut self, set: &Set) -> Result<(), String> {
        let new = Elements::of(set)?;
        for data in new.data.values() {
            if let Data::Verdict(verdict) = data {
                self.check_target(verdict)?;
            }
        }
        let found = self.sets.get_mut(&set.name).ok_or("there is no such set")?;
        if !found.is_of_the_form_of(&new) {
            return Err("the set has another form".to_owned());
        }
        *self.added.entry(set.name.clone()).or_default() += new.data.len();
        let found = Rc::make_mut(found);
        for (key, data) in new.data {
            let deleted = self.deleted.get(&(set.name.clone(), key.clone()));
            if deleted == Some(&data) {
                return Err(format!("the key {key:02x?} is deleted and added as it was"));
            }
            if found.data.insert(key.clone(), data).is_some() {
                return Err(format!("the key {key:02x?} is there already"));
            }
        }
        Ok(())
    }

    fn delete_elements(&mut self, set: &Set) -> Result<(), String> {
        let found = self.sets.get_mut(&set.name).ok_or("there is no such set")?;
        if found.fields != set.fields {
            return Err("the set has another form".to_owned());
        }
        let found = Rc::make_mut(found);
        for key in set.iter() {
            let Some(data) = found.data.remove(key) else {
                return Err(format!("the key {key:02x?} is not there"));
            };
            self.deleted.insert((set.name.clone(), key.to_vec()), data);
        }
        Ok(())
    }

    /// What still leads to a chain.
    fn leads_to(&self, name: &Name) -> Option<String> {
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
            if elements.kind == Kind::Verdicts
                && data.any(|it| matches!(it, Data::Verdict(to) if target(to) == Some(name)))
            {
                return Some(format!("the map `{set}`"));
            }
        }
        None
    }

    /// The chain that still asks a set.
    fn asks(&self, name: &Name) -> Option<&Name> {
        let asks = |chain: &&Rc<Chain>| {
            let mut rules = chain.rules.iter();
            rules.any(|rule| sets_of(&rule.matches, &rule.statements).contains(&name))
        };
        self.chains.values().find(asks).map(|chain| &chain.name)
    }

    /// Whether every set has room for what is added, beside everything that it had.
    fn room(&self) -> Result<(), String> {
        for (name, added) in &self.added {
            let had = self.before.get(name).map_or(0, |it| it.data.len());
            let Some(set) = self.sets.get(name) else {
                continue;
            };
            let size = usize::try_from(set.size).unwrap_or(usize::MAX);
            if had + added > size {
                return Err(format!(
                    "the set `{name}` is full: {had} and {added} of {size}"
                ));
            }
        }
        Ok(())
    }
}

/// The chain that a verdict leads to.
pub fn target(verdict: &Verdict) -> Option<&Name> {
    match verdict {
        Verdict::Jump(to) | Verdict::Goto(to) => Some(to),
        Verdict::Accept | Verdict::Drop | Verdict::Return => None,
    }
}

/// The sets that a rule asks.
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
