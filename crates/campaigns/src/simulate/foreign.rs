//! What others may do to our table where it does not belong to us.

use std::rc::Rc;

use super::model::Model;
use super::script::Foreign;
use super::table::{Data, Kind};

/// Changes the table that enforces. Says whether something was changed.
pub(super) fn change(model: &mut Model, how: Foreign, pick: usize) -> bool {
    model.before = model.tables.clone();
    let Some(place) = model.tables.iter().rposition(|it| it.is_hooked()) else {
        return false;
    };
    if how == Foreign::DeleteTable {
        model.tables.remove(place);
        return true;
    }
    let Some(table) = model.tables.get_mut(place) else {
        return false;
    };
    match how {
        Foreign::DeleteTable => false,
        Foreign::FlushChain => {
            let chains = Rc::make_mut(&mut table.chains);
            let count = chains.len().max(1);
            let chain = chains.values_mut().nth(pick % count);
            chain.is_some_and(|chain| {
                let chain = Rc::make_mut(chain);
                let had = !chain.rules.is_empty();
                chain.rules.clear();
                had
            })
        }
        Foreign::DeleteElement | Foreign::AddElement => {
            let sets = Rc::make_mut(&mut table.sets);
            let count = sets.len().max(1);
            let Some(set) = sets.values_mut().nth(pick % count) else {
                return false;
            };
            let set = Rc::make_mut(set);
            if how == Foreign::DeleteElement {
                return set.data.pop_first().is_some();
            }
            let width = set.fields.iter().map(|field| field.padded()).sum();
            let key = vec![0x5a; width];
            set.kind == Kind::Plain && set.data.insert(key, Data::Nothing).is_none()
        }
    }
}
