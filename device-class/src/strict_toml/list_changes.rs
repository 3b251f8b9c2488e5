//! Changes the lists of a file that another one extends: `[add]` and `[remove]` have the same keys
//! as the file, and the items that are added to its lists or removed from them.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::error::Error;

pub(super) const ADD: &str = "add";
pub(super) const REMOVE: &str = "remove";

/// The tables `[add]` and `[remove]` of a file.
pub(super) struct ListChanges<'t> {
    added: Option<Spanned<DeValue<'t>>>,
    removed: Option<Spanned<DeValue<'t>>>,
}

impl<'t> ListChanges<'t> {
    /// Takes the tables out of a file.
    pub(super) fn take(file: &mut DeTable<'t>) -> Self {
        ListChanges {
            added: file.remove(ADD),
            removed: file.remove(REMOVE),
        }
    }

    /// Changes the lists of `table`. An item that is removed twice, or that no list has, is an
    /// error: it may be misspelled.
    pub(super) fn apply(self, table: &mut DeTable<'t>) -> Result<(), Error> {
        if let Some(removed) = self.removed {
            remove_from(table, into_table(removed, REMOVE)?)?;
        }
        if let Some(added) = self.added {
            add_to(table, into_table(added, ADD)?)?;
        }
        Ok(())
    }
}

fn new_error(at: usize, message: &str) -> Error {
    <Error as serde::de::Error>::custom(message).with_offset(at)
}

fn into_table<'t>(value: Spanned<DeValue<'t>>, key: &str) -> Result<DeTable<'t>, Error> {
    let at = value.span().start;
    match value.into_inner() {
        DeValue::Table(table) => Ok(table),
        _ => Err(new_error(at, &format!("is not a table: write [{key}]"))),
    }
}

/// Adds the items of each list to the end of the list of the same name.
fn add_to<'t>(table: &mut DeTable<'t>, added: DeTable<'t>) -> Result<(), Error> {
    for (key, value) in added {
        let at = value.span().start;
        match (
            table.get_mut(&key).map(Spanned::get_mut),
            value.into_inner(),
        ) {
            (Some(DeValue::Table(table)), DeValue::Table(added)) => add_to(table, added)?,
            (Some(DeValue::Array(list)), DeValue::Array(items)) => {
                items.into_iter().for_each(|item| list.push(item));
            }
            (None, value @ DeValue::Array(_)) => {
                table.insert(key, Spanned::new(at..at, value));
            }
            (None, DeValue::Table(added)) => {
                let mut new = DeTable::new();
                add_to(&mut new, added)?;
                table.insert(key, Spanned::new(at..at, DeValue::Table(new)));
            }
            _ => {
                let message = "is not a list, so that nothing can be added to it";
                return Err(new_error(at, message));
            }
        }
    }
    Ok(())
}

/// Removes the items of each list from the list of the same name.
fn remove_from<'t>(table: &mut DeTable<'t>, removed: DeTable<'t>) -> Result<(), Error> {
    for (key, value) in removed {
        let at = value.span().start;
        match (
            table.get_mut(&key).map(Spanned::get_mut),
            value.into_inner(),
        ) {
            (Some(DeValue::Table(table)), DeValue::Table(removed)) => remove_from(table, removed)?,
            (Some(DeValue::Array(list)), DeValue::Array(items)) => {
                for item in items.iter() {
                    if !remove_item(list, item.get_ref()) {
                        let message = "the class that is extended has no such item";
                        return Err(new_error(item.span().start, message));
                    }
                }
            }
            (None, _) => {
                return Err(new_error(at, "the class that is extended has no such list"));
            }
            _ => {
                let message = "is not a list, so that nothing can be removed from it";
                return Err(new_error(at, message));
            }
        }
    }
    Ok(())
}

/// Removes an item, or the items of its lists from the tables that have its other values. Returns
/// whether anything was removed.
fn remove_item<'t>(list: &mut DeArray<'t>, item: &DeValue<'t>) -> bool {
    let inner: Vec<(&str, &DeArray<'t>)> = match item {
        DeValue::Table(item) => item
            .iter()
            .filter_map(|(key, value)| Some((&**key.get_ref(), value.get_ref().as_array()?)))
            .collect(),
        _ => Vec::new(),
    };
    if inner.is_empty() {
        let before = list.len();
        let all = std::mem::replace(list, DeArray::new()).into_iter();
        *list = all
            .filter(|known| !matches(known.get_ref(), item))
            .collect();
        return list.len() < before;
    }
    let mut is_removed = false;
    for known in list.iter_mut() {
        let DeValue::Table(known) = known.get_mut() else {
            continue;
        };
        if !has_values(known, item) {
            continue;
        }
        for (key, items) in &inner {
            let Some(DeValue::Array(list)) = known.get_mut(*key).map(Spanned::get_mut) else {
                continue;
            };
            for item in items.iter() {
                is_removed |= remove_item(list, item.get_ref());
            }
        }
    }
    is_removed
}

/// Returns whether an item of a list is meant by `wanted`: an equal text, or a table with its
/// values. A text also means the table that has it as one of its values, such as its path.
fn matches(known: &DeValue<'_>, wanted: &DeValue<'_>) -> bool {
    match (known, wanted) {
        (DeValue::Table(known), DeValue::Table(_)) => has_values(known, wanted),
        (DeValue::Table(known), DeValue::String(wanted)) => known
            .values()
            .any(|value| value.get_ref().as_str() == Some(wanted)),
        _ => is_equal(known, wanted),
    }
}

/// Returns whether a table has all values of `wanted` that are no lists.
fn has_values(known: &DeTable<'_>, wanted: &DeValue<'_>) -> bool {
    let DeValue::Table(wanted) = wanted else {
        return false;
    };
    let mut values = wanted
        .iter()
        .filter(|(_, value)| !value.get_ref().is_array());
    values.all(|(key, value)| {
        let known = known.get(key).map(Spanned::get_ref);
        known.is_some_and(|known| matches(known, value.get_ref()))
    })
}

fn is_equal(known: &DeValue<'_>, wanted: &DeValue<'_>) -> bool {
    match (known, wanted) {
        (DeValue::String(known), DeValue::String(wanted)) => known == wanted,
        (DeValue::Boolean(known), DeValue::Boolean(wanted)) => known == wanted,
        (DeValue::Integer(known), DeValue::Integer(wanted)) => {
            (known.as_str(), known.radix()) == (wanted.as_str(), wanted.radix())
        }
        _ => false,
    }
}
