//! Changes the lists of a class file that another class file extends. The extending file has the
//! tables `[add]` and `[remove]`, which have the same keys as the extended file. Their values are
//! the items to add to its lists, or to remove from them.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::error::Error;

pub(super) const ADD_KEY: &str = "add";
pub(super) const REMOVE_KEY: &str = "remove";

/// The tables `[add]` and `[remove]` of a file that extends another one.
pub(super) struct ListChanges<'t> {
    added_items: Option<Spanned<DeValue<'t>>>,
    removed_items: Option<Spanned<DeValue<'t>>>,
}

impl<'t> ListChanges<'t> {
    pub(super) fn take_from(file: &mut DeTable<'t>) -> Self {
        ListChanges {
            added_items: file.remove(ADD_KEY),
            removed_items: file.remove(REMOVE_KEY),
        }
    }

    /// Changes the lists of `table`. Fails if an item to remove is not in its list, because the
    /// item may be misspelled.
    pub(super) fn apply(self, table: &mut DeTable<'t>) -> Result<(), Error> {
        if let Some(removed_items) = self.removed_items {
            remove_items(table, into_table(removed_items, REMOVE_KEY)?)?;
        }
        if let Some(added_items) = self.added_items {
            add_items(table, into_table(added_items, ADD_KEY)?)?;
        }
        Ok(())
    }
}

fn new_error(offset: usize, message: &str) -> Error {
    <Error as serde::de::Error>::custom(message).with_offset(offset)
}

fn into_table<'t>(value: Spanned<DeValue<'t>>, key: &str) -> Result<DeTable<'t>, Error> {
    let offset = value.span().start;
    match value.into_inner() {
        DeValue::Table(table) => Ok(table),
        _ => Err(new_error(offset, &format!("is not a table: write [{key}]"))),
    }
}

/// Adds the items of each list in `added_items` to the end of the list with the same key in
/// `table`.
fn add_items<'t>(table: &mut DeTable<'t>, added_items: DeTable<'t>) -> Result<(), Error> {
    for (key, value) in added_items {
        let offset = value.span().start;
        match (
            table.get_mut(&key).map(Spanned::get_mut),
            value.into_inner(),
        ) {
            (Some(DeValue::Table(table)), DeValue::Table(added_items)) => {
                add_items(table, added_items)?
            }
            (Some(DeValue::Array(list)), DeValue::Array(items)) => {
                items.into_iter().for_each(|item| list.push(item));
            }
            (None, value @ DeValue::Array(_)) => {
                table.insert(key, Spanned::new(offset..offset, value));
            }
            (None, DeValue::Table(added_items)) => {
                let mut subtable = DeTable::new();
                add_items(&mut subtable, added_items)?;
                table.insert(key, Spanned::new(offset..offset, DeValue::Table(subtable)));
            }
            _ => {
                let message = "is not a list, so that nothing can be added to it";
                return Err(new_error(offset, message));
            }
        }
    }
    Ok(())
}

/// Removes the items of each list in `removed_items` from the list with the same key in `table`.
fn remove_items<'t>(table: &mut DeTable<'t>, removed_items: DeTable<'t>) -> Result<(), Error> {
    for (key, value) in removed_items {
        let offset = value.span().start;
        match (
            table.get_mut(&key).map(Spanned::get_mut),
            value.into_inner(),
        ) {
            (Some(DeValue::Table(table)), DeValue::Table(removed_items)) => {
                remove_items(table, removed_items)?
            }
            (Some(DeValue::Array(list)), DeValue::Array(items)) => {
                for item in items.iter() {
                    if !remove_item(list, item.get_ref()) {
                        let message = "the class that is extended has no such item";
                        return Err(new_error(item.span().start, message));
                    }
                }
            }
            (None, _) => {
                return Err(new_error(
                    offset,
                    "the class that is extended has no such list",
                ));
            }
            _ => {
                let message = "is not a list, so that nothing can be removed from it";
                return Err(new_error(offset, message));
            }
        }
    }
    Ok(())
}

/// Removes `item` from a list, and returns whether anything was removed. If `item` is a table with
/// lists, no whole table is removed. Instead, the items of these lists are removed from the same
/// lists in each table of `list` that has all other values of `item`.
fn remove_item<'t>(list: &mut DeArray<'t>, item: &DeValue<'t>) -> bool {
    let inner_lists: Vec<(&str, &DeArray<'t>)> = match item {
        DeValue::Table(item) => item
            .iter()
            .filter_map(|(key, value)| Some((&**key.get_ref(), value.get_ref().as_array()?)))
            .collect(),
        _ => Vec::new(),
    };
    if inner_lists.is_empty() {
        let previous_length = list.len();
        let candidates = std::mem::replace(list, DeArray::new()).into_iter();
        *list = candidates
            .filter(|candidate| !matches_item(candidate.get_ref(), item))
            .collect();
        return list.len() < previous_length;
    }
    let mut has_removed_item = false;
    for candidate in list.iter_mut() {
        let DeValue::Table(table) = candidate.get_mut() else {
            continue;
        };
        if !has_values(table, item) {
            continue;
        }
        for (key, items) in &inner_lists {
            let Some(DeValue::Array(list)) = table.get_mut(*key).map(Spanned::get_mut) else {
                continue;
            };
            for item in items.iter() {
                has_removed_item |= remove_item(list, item.get_ref());
            }
        }
    }
    has_removed_item
}

/// Returns whether an item of a list is the item to remove. Both may be equal. If the item is a
/// table, it also matches `removed_item` if it has all values of that table, or if one of its
/// values, such as its path, is that text.
fn matches_item(item: &DeValue<'_>, removed_item: &DeValue<'_>) -> bool {
    match (item, removed_item) {
        (DeValue::Table(table), DeValue::Table(_)) => has_values(table, removed_item),
        (DeValue::Table(table), DeValue::String(text)) => table
            .values()
            .any(|value| value.get_ref().as_str() == Some(text)),
        _ => is_equal(item, removed_item),
    }
}

/// Returns whether a table has all values of `removed_table`. Lists are not compared.
fn has_values(table: &DeTable<'_>, removed_table: &DeValue<'_>) -> bool {
    let DeValue::Table(removed_table) = removed_table else {
        return false;
    };
    let mut removed_values = removed_table
        .iter()
        .filter(|(_, value)| !value.get_ref().is_array());
    removed_values.all(|(key, removed_value)| {
        let value = table.get(key).map(Spanned::get_ref);
        value.is_some_and(|value| matches_item(value, removed_value.get_ref()))
    })
}

fn is_equal(left: &DeValue<'_>, right: &DeValue<'_>) -> bool {
    match (left, right) {
        (DeValue::String(left), DeValue::String(right)) => left == right,
        (DeValue::Boolean(left), DeValue::Boolean(right)) => left == right,
        (DeValue::Integer(left), DeValue::Integer(right)) => {
            (left.as_str(), left.radix()) == (right.as_str(), right.radix())
        }
        _ => false,
    }
}
