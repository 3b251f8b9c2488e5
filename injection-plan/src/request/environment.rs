//! The environment of a container, which is `process.env` in its config.json.

use serde::Deserialize;
use std::collections::BTreeMap;

/// The environment variables of a container, each as `NAME=value`. If a variable is set twice, the
/// last value counts, as in container engines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Environment(Vec<String>);

impl Environment {
    fn iter_reversed(&self) -> impl Iterator<Item = &str> {
        self.0.iter().rev().map(String::as_str)
    }

    /// Returns the value of the variable `name`, or `None` if it is not set.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value_start = |entry: &str| {
            // Few other variables have `=` at this index. So comparing this byte first is faster
            // than comparing the whole name.
            (entry.as_bytes().get(name.len()) == Some(&b'=') && entry.starts_with(name))
                .then_some(name.len() + 1)
        };
        let entry = self
            .iter_reversed()
            .find_map(|entry| Some(&entry[value_start(entry)?..]));
        entry.filter(|_| !name.contains('='))
    }

    /// Returns the names of all variables. The name of a variable that is set twice is returned
    /// twice.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let variables = self
            .iter_reversed()
            .filter_map(|entry| entry.split_once('='));
        variables.map(|(name, _)| name)
    }

    /// Returns the variables whose names `is_selected` accepts, sorted by name.
    pub(super) fn select_variables(
        &self,
        is_selected: impl Fn(&str) -> bool,
    ) -> Vec<(String, String)> {
        let variables = self
            .iter_reversed()
            .filter_map(|entry| entry.split_once('='));
        let mut selected_variables = BTreeMap::new();
        for (name, value) in variables.filter(|(name, _)| is_selected(name)) {
            // The variables are in reverse order. The first value of each name is therefore the
            // last one in the environment, which counts.
            let entry = selected_variables.entry(name.to_owned());
            entry.or_insert_with(|| value.to_owned());
        }
        selected_variables.into_iter().collect()
    }
}

impl<S: Into<String>> From<Vec<S>> for Environment {
    fn from(entries: Vec<S>) -> Self {
        Self(entries.into_iter().map(Into::into).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(entries: &[&str]) -> Environment {
        let json = serde_json::to_string(entries).unwrap();
        let read: Environment = serde_json::from_str(&json).unwrap();
        assert_eq!(read, Environment::from(entries.to_vec()));
        read
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name_and_the_last_counts() {
        let env = environment(&["A=1", "AB=2", "A=3=4", "NOTHING", "=5", "é=6", "E="]);
        for (name, value) in [
            ("A", Some("3=4")),
            ("AB", Some("2")),
            ("B", None),
            ("A=3", None),
            ("NOTHING", None),
            ("é", Some("6")),
            ("E", Some("")),
            ("", Some("5")),
        ] {
            assert_eq!(env.get(name), value, "{name:?}");
        }
    }

    #[test]
    fn only_a_list_of_strings_is_an_environment() {
        for json in ["[\"A=1\", 2]", "[null]", "{}", "\"A=1\""] {
            assert!(serde_json::from_str::<Environment>(json).is_err(), "{json}");
        }
        let escaped: Environment = serde_json::from_str(r#"["A=\u0041\n"]"#).unwrap();
        assert_eq!(escaped.get("A"), Some("A\n"));
    }

    #[test]
    fn every_variable_of_many_is_found() {
        let names: Vec<String> = (0..300)
            .map(|number| format!("{}_{number}", "X".repeat(number % 40)))
            .collect();
        let entries: Vec<String> = names.iter().map(|name| format!("{name}=1")).collect();
        let env = Environment::from(entries);
        for name in names {
            assert_eq!(env.get(&name), Some("1"), "{name}");
            assert_eq!(env.get(&format!("{name}Y")), None, "{name}");
        }
    }

    #[test]
    fn variables_are_selected_once_each_in_the_order_of_their_names() {
        let env = environment(&["B_2=x", "B_1=old", "C=y", "B_1=new"]);
        let selected = env.select_variables(|name| name.starts_with("B_"));
        let expected = [("B_1", "new"), ("B_2", "x")].map(|(n, v)| (n.into(), v.into()));
        assert_eq!(selected, expected);
    }
}
