//! The arguments of `boathook-plugin` in the unit of its service (`--plugin-arg`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The options that the installer itself writes into the unit.
const INSTALLER_OPTIONS: [&str; 2] = ["--delivery", "--hook"];

/// An option of `boathook-plugin run` with its value, such as `--http=[::]:9911`.
///
/// It has only characters that a command line of systemd takes literally (systemd.service(5)), so
/// that it needs no quotes in a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PluginArgument(String);

impl FromStr for PluginArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        if !name.starts_with("--") || name.len() == 2 {
            return Err(
                "an argument of the plugin is an option, such as --http=127.0.0.1:9911".to_owned(),
            );
        }
        if INSTALLER_OPTIONS.contains(&name) {
            return Err(format!("boathook-init sets {name} itself; leave it out"));
        }
        let is_literal = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/@+[]".contains(c);
        match text.chars().find(|c| !is_literal(*c)) {
            Some(c) => Err(format!(
                "an argument of the plugin may not have the character {c:?}"
            )),
            None => Ok(PluginArgument(text.to_owned())),
        }
    }
}

impl TryFrom<String> for PluginArgument {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PluginArgument> for String {
    fn from(argument: PluginArgument) -> Self {
        argument.0
    }
}

impl fmt::Display for PluginArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_options_that_a_unit_can_have_literally_are_accepted() {
        for (text, refusal) in [
            ("--http=[::]:9911", None),
            ("--take-over", None),
            ("--node-labels=/etc/features.d/boathook", None),
            ("--", Some("is an option")),
            ("list", Some("is an option")),
            ("-v", Some("is an option")),
            ("--delivery=cdi", Some("sets --delivery itself")),
            ("--hook=/bin/sh", Some("sets --hook itself")),
            ("--hook-config=/etc/config.toml", None),
            ("--http=%h", Some("the character '%'")),
            ("--config=$HOME", Some("the character '$'")),
            ("--config=a b", Some("the character ' '")),
            ("--config=a\nExecStop=b", Some("the character '\\n'")),
            ("--config=\"a\"", Some("the character '\"'")),
        ] {
            let error = text.parse::<PluginArgument>().err();
            match (error, refusal) {
                (None, None) => {}
                (Some(error), Some(refusal)) => assert!(error.contains(refusal), "{text}: {error}"),
                (error, _) => panic!("{text}: {error:?}"),
            }
        }
    }
}
