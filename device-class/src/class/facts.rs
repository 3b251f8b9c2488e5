//! Programs of a driver that report facts about devices which no file has.

use crate::inserted;
use std::collections::{BTreeMap, BTreeSet};

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::parts::is_fixed;
use super::prepare::Timeout;
use super::unplanned_pattern::{self, UnplannedPattern};
use crate::name::AttributeName;
use crate::pattern::PathPattern;
use crate::template::{Attributes, Template};

/// # `[[facts]]`
///
/// A program of the driver that reports facts. The plugin runs it as root, without a shell, with an
/// empty environment, when it starts, when devices change, and every five minutes; `boathook facts
/// CLASS` runs it too. Attributes read the facts with `fact`. The fact with the key `version` is
/// the program's version, which `boathook facts` prints. `facts = false` in `[class.NAME]` of
/// config.toml turns the program off.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "facts"))]
pub struct FactsProgram {
    /// The absolute path of the program, and its arguments, by template over the attributes of
    /// `for_each` or `for_each_fact`.
    pub program: Vec<Template>,
    /// A pattern. The program is run once for each path that matches, at most 64 times. The
    /// captures of the pattern are attributes.
    pub for_each: Option<PathPattern>,
    /// The key of facts that earlier programs in the list report. The program is run once for each
    /// value of these facts, at most 64 times. The words of the value are the attributes `1`, `2`
    /// and so on.
    pub for_each_fact: Option<String>,
    /// Whether only `[[parts]]` need the facts of this program, so that only boathook-dra runs it.
    /// A failure of the program is not reported, because it fails on a host whose devices cannot be
    /// divided.
    #[serde(default)]
    pub for_parts: bool,
    /// The time in seconds after which the program and all processes of its group are killed.
    /// Default 30.
    #[serde(default = "default_timeout")]
    pub timeout: Timeout,
    /// A pattern for paths of the host. If no path matches, the program can report only parts that
    /// the host does not have yet, so only boathook-dra runs it, as with `for_parts`.
    pub needs: Option<PathPattern>,
    /// A regular expression that matches the output if the program does not know these facts on
    /// this version or device, which is not a fault. Empty output matches only if the program
    /// succeeds.
    cannot_tell: Option<UnplannedPattern>,
    /// The forms with which each line of the output is compared, beginning with the outermost
    /// heading.
    lines: Vec<FactLine>,
}

/// # `lines`
///
/// A form of a line of the output. A matching line sets the attributes that the expression names.
/// It removes the attributes that this entry and the later entries have set, so that a heading is
/// valid until the next heading of its kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "fact_lines"))]
struct FactLine {
    /// A regular expression; its named groups, `(?<name>…)`, are attributes.
    line: UnplannedPattern,
    /// The keys and values of the facts in such a line, by template. A fact whose attributes are
    /// not all set is left out.
    #[serde(default)]
    facts: BTreeMap<Template, Template>,
}

fn default_timeout() -> Timeout {
    Timeout::from_seconds(30)
}

impl FactsProgram {
    /// Returns whether the output says that the program does not know these facts on this host.
    pub fn cannot_tell(&self, output: &str) -> bool {
        let regex = self.cannot_tell.as_ref();
        regex.is_some_and(|regex| regex.is_match(output))
    }

    /// Returns whether the program may report a fact with this key.
    pub fn may_report(&self, key: &str) -> bool {
        let facts = self.lines.iter().flat_map(|line| line.facts.keys());
        facts.into_iter().any(|template| template.may_become(key))
    }

    /// Returns the keys and values of the facts in the output, in the order of the output.
    /// `attributes` are those that were filled into the program's arguments.
    pub fn parse_facts(&self, output: &str, attributes: &Attributes) -> Vec<(String, String)> {
        let mut facts = Vec::new();
        let mut attributes = attributes.clone();
        for line in output.lines() {
            for (index, rule) in self.lines.iter().enumerate() {
                let Some(groups) = rule.line.captures(line) else {
                    continue;
                };
                // The line may be a heading. It ends the section of the previous heading of its
                // kind, so the attributes that were set in that section are removed.
                for name in self.lines[index..]
                    .iter()
                    .flat_map(FactLine::attribute_names)
                {
                    attributes.remove(&name);
                }
                let captured = rule.attribute_names().filter_map(|name| {
                    let value = groups.name(name.as_str())?.as_str().trim();
                    Some((name, value.to_owned()))
                });
                attributes.extend(captured);
                let templates = rule.facts.iter();
                facts.extend(templates.filter_map(|(key, value)| {
                    Some((key.fill(&attributes).ok()?, value.fill(&attributes).ok()?))
                }));
            }
        }
        facts
    }

    fn check(&self) -> Result<(), String> {
        let program_path = self.program.first();
        if !program_path.is_some_and(|program_path| {
            program_path.to_string().starts_with('/') && is_fixed(program_path)
        }) {
            return Err("`program` begins with the absolute path of a program".into());
        }
        let mut groups = self.lines.iter().flat_map(|line| line.line.capture_names());
        groups.try_for_each(|name| {
            match name.map(|name| AttributeName::try_from(name.to_owned())) {
                Some(Err(error)) => Err(error.to_string()),
                _ => Ok(()),
            }
        })?;
        if self.for_each.is_some() && self.for_each_fact.is_some() {
            return Err("`for_each` and `for_each_fact` exclude each other".into());
        }
        let check_template =
            |template: &Template, known_attributes: &BTreeSet<AttributeName>| match template
                .attributes()
                .find(|name| !known_attributes.contains(name))
            {
                Some(name) => Err(format!("`{template}` uses `{name}`, which no `line` sets")),
                None => Ok(()),
            };
        let captures = self.for_each.iter().flat_map(PathPattern::captures);
        let words = self.for_each_fact.iter().flat_map(|_| word_attributes());
        let mut known_attributes: BTreeSet<_> = inserted(captures.cloned().chain(words));
        let mut arguments = self.program.iter();
        arguments.try_for_each(|argument| check_template(argument, &known_attributes))?;
        known_attributes.extend(self.lines.iter().flat_map(FactLine::attribute_names));
        let facts = self.lines.iter().flat_map(|line| &line.facts);
        let mut templates = facts.flat_map(|(key, value)| [key, value]);
        templates.try_for_each(|template| check_template(template, &known_attributes))
    }
}

impl FactLine {
    /// Returns the attributes that a matching line sets: the named groups of the regular
    /// expression.
    fn attribute_names(&self) -> impl Iterator<Item = AttributeName> {
        let names = self.line.capture_names().flatten();
        names.filter_map(|name| AttributeName::try_from(name.to_owned()).ok())
    }
}

/// Returns the names of the attributes for the words of a fact's value: `1` to `9`.
pub(crate) fn word_attributes() -> impl Iterator<Item = AttributeName> {
    (1..=9).filter_map(|number: u8| AttributeName::try_from(number.to_string()).ok())
}

impl<'de> Deserialize<'de> for FactsProgram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // This calls the derived function, which is an inherent one because of `remote = "Self"`.
        let program = Self::deserialize(deserializer)?;
        if !unplanned_pattern::skips_unplanned_patterns() {
            program.check().map_err(D::Error::custom)?;
        }
        Ok(program)
    }
}
