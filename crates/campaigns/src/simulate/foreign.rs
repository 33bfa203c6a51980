//! Changes that other programs make to a table without an owner.

use std::rc::Rc;

use super::model::Model;
use super::script::ForeignChange;
use super::table::{Data, SetKind};

/// Changes the active table. Returns whether anything changed.
pub(super) fn change(model: &mut Model, how: ForeignChange, pick: usize) -> bool {
    model.before = model.tables.clone();
    let Some(place) = model.tables.iter().rposition(|it| it.is_hooked()) else {
        return false;
    };
    if how == ForeignChange::DeleteTable {
        model.tables.remove(place);
        return true;
    }
    let Some(table) = model.tables.get_mut(place) else {
        return false;
    };
    match how {
        ForeignChange::DeleteTable => false,
        ForeignChange::FlushChain => {
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
        ForeignChange::DeleteElement | ForeignChange::AddElement => {
            let sets = Rc::make_mut(&mut table.sets);
            let count = sets.len().max(1);
            let Some(set) = sets.values_mut().nth(pick % count) else {
                return false;
            };
            let set = Rc::make_mut(set);
            if how == ForeignChange::DeleteElement {
                return set.data.pop_first().is_some();
            }
            let width = set.fields.iter().map(|field| field.padded()).sum();
            let key = vec![0x5a; width];
            set.kind == SetKind::Plain && set.data.insert(key, Data::Nothing).is_none()
        }
    }
}
