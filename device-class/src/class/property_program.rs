//! Programs of a driver that report properties of devices which cannot be read from files
//! (`[[facts]]`).

use crate::collect_by_insertion;
use std::collections::{BTreeMap, BTreeSet};

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::parts::is_fixed;
use super::prepare::Timeout;
use super::report_pattern::{self, ReportPattern};
use crate::name::AttributeName;
use crate::pattern::PathPattern;
use crate::template::{Attributes, Template};

/// # `[[facts]]`
///
/// A program of the driver that reports facts. The plugin runs it when the plugin starts, when
/// devices change, and every five minutes. `boathook facts CLASS` also runs it. It runs as root,
/// without a shell and with an empty environment. Attributes read the facts with `fact`. The fact
/// with the key `version` is the program's version, which `boathook facts` prints. `facts = false`
/// in `[class.NAME]` of config.toml turns the program off.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, remote = "Self")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "facts"))]
pub struct PropertyProgram {
    /// Templates for the absolute path of the program and its arguments. They may use the
    /// attributes of `for_each` or `for_each_fact`.
    #[serde(rename = "program")]
    pub command: Vec<Template>,
    /// A pattern of host paths. The program is run once for each matching path, at most 64 times.
    /// The templates of `program` may use the attributes that the pattern captures.
    #[serde(rename = "for_each")]
    pub path_pattern: Option<PathPattern>,
    /// The key of facts that earlier programs in the list report. The program is run once for each
    /// value of these facts, at most 64 times. The words of the value are the attributes `1`, `2`
    /// and so on.
    #[serde(rename = "for_each_fact")]
    pub input_property_key: Option<String>,
    /// Whether only `[[parts]]` need the facts of this program, so that only boathook-dra runs it.
    /// If the program fails, no error is reported, because it fails on a host whose devices cannot
    /// be divided.
    #[serde(default, rename = "for_parts")]
    pub is_for_parts: bool,
    /// The time limit in seconds. When it is over, the program is killed with all processes of its
    /// process group. Default 30.
    #[serde(default = "default_timeout")]
    pub timeout: Timeout,
    /// A pattern of host paths. If no path matches, the host has no parts (partitions of devices)
    /// yet, and the program can only report parts that could be made. Then only boathook-dra runs
    /// it, as with `for_parts`.
    #[serde(rename = "needs")]
    pub required_path: Option<PathPattern>,
    /// A regular expression for the output of a program version or device that does not support
    /// these facts. If the output matches, the failure is not reported. Empty output matches only
    /// if the program succeeds.
    #[serde(rename = "cannot_tell")]
    unsupported_output: Option<ReportPattern>,
    /// The rules with which each line of the output is compared. The first rule is that of the
    /// outermost heading.
    #[serde(rename = "lines")]
    line_patterns: Vec<OutputLinePattern>,
}

/// # `lines`
///
/// A rule for lines of the output. A matching line sets the attributes that the expression names.
/// First it removes the attributes that this rule and the rules below it have set. So what a
/// heading sets is valid until the next heading of the same kind.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "fact_lines"))]
struct OutputLinePattern {
    /// A regular expression for a line. Each named group `(?<name>…)` sets the attribute `name`.
    #[serde(rename = "line")]
    pattern: ReportPattern,
    /// Templates for the keys and values of the facts that a matching line reports. A fact is left
    /// out if one of its attributes is not set.
    #[serde(default, rename = "facts")]
    properties: BTreeMap<Template, Template>,
}

fn default_timeout() -> Timeout {
    Timeout::from_seconds(30)
}

impl PropertyProgram {
    /// Returns whether the output says that this version of the program, or this device, does not
    /// support these properties.
    pub fn is_unsupported_output(&self, output: &str) -> bool {
        let regex = self.unsupported_output.as_ref();
        regex.is_some_and(|regex| regex.is_match(output))
    }

    /// Returns whether the program may report a property with this key. Keys in the class file are
    /// templates, so a key matches if some values of the attributes produce it.
    pub fn may_report_key(&self, key: &str) -> bool {
        let properties = self
            .line_patterns
            .iter()
            .flat_map(|line_pattern| line_pattern.properties.keys());
        properties
            .into_iter()
            .any(|template| template.matches_filled_text(key))
    }

    /// Returns the keys and values of the properties in the output, in the order of the output.
    /// `attributes` are the attributes that the program's arguments used.
    pub fn parse_properties(&self, output: &str, attributes: &Attributes) -> Vec<(String, String)> {
        let mut properties = Vec::new();
        let mut attributes = attributes.clone();
        for line in output.lines() {
            for (index, line_pattern) in self.line_patterns.iter().enumerate() {
                let Some(captures) = line_pattern.pattern.captures(line) else {
                    continue;
                };
                // The line may be a heading. It ends the section below the previous heading of the
                // same kind, so the attributes that this section has set are removed.
                for name in self.line_patterns[index..]
                    .iter()
                    .flat_map(OutputLinePattern::attribute_names)
                {
                    attributes.remove(&name);
                }
                let captured_values = line_pattern.attribute_names().filter_map(|name| {
                    let value = captures.name(name.as_str())?.as_str().trim();
                    Some((name, value.to_owned()))
                });
                attributes.extend(captured_values);
                let templates = line_pattern.properties.iter();
                properties.extend(templates.filter_map(|(key, value)| {
                    Some((key.fill(&attributes).ok()?, value.fill(&attributes).ok()?))
                }));
            }
        }
        properties
    }

    fn check(&self) -> Result<(), String> {
        let program_path = self.command.first();
        if !program_path.is_some_and(|program_path| {
            program_path.to_string().starts_with('/') && is_fixed(program_path)
        }) {
            return Err("`program` begins with the absolute path of a program".into());
        }
        let mut captures = self
            .line_patterns
            .iter()
            .flat_map(|line_pattern| line_pattern.pattern.capture_names());
        captures.try_for_each(|name| {
            match name.map(|name| AttributeName::try_from(name.to_owned())) {
                Some(Err(error)) => Err(error.to_string()),
                _ => Ok(()),
            }
        })?;
        if self.path_pattern.is_some() && self.input_property_key.is_some() {
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
        let captures = self.path_pattern.iter().flat_map(PathPattern::captures);
        let word_names = self
            .input_property_key
            .iter()
            .flat_map(|_| list_word_attributes());
        let mut known_attributes: BTreeSet<_> =
            collect_by_insertion(captures.cloned().chain(word_names));
        let mut arguments = self.command.iter();
        arguments.try_for_each(|argument| check_template(argument, &known_attributes))?;
        known_attributes.extend(
            self.line_patterns
                .iter()
                .flat_map(OutputLinePattern::attribute_names),
        );
        let properties = self
            .line_patterns
            .iter()
            .flat_map(|line_pattern| &line_pattern.properties);
        let mut templates = properties.flat_map(|(key, value)| [key, value]);
        templates.try_for_each(|template| check_template(template, &known_attributes))
    }
}

impl OutputLinePattern {
    /// Returns the attributes that a matching line sets. They are the named groups of the regular
    /// expression.
    fn attribute_names(&self) -> impl Iterator<Item = AttributeName> {
        let names = self.pattern.capture_names().flatten();
        names.filter_map(|name| AttributeName::try_from(name.to_owned()).ok())
    }
}

/// Returns the names of the attributes that stand for the words of a property's value: `1` to `9`.
pub(crate) fn list_word_attributes() -> impl Iterator<Item = AttributeName> {
    (1..=9).filter_map(|number: u8| AttributeName::try_from(number.to_string()).ok())
}

impl<'de> Deserialize<'de> for PropertyProgram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // This is not a recursion: `remote = "Self"` makes serde derive an inherent function of
        // this name, which comes before that of the trait.
        let program = Self::deserialize(deserializer)?;
        if !report_pattern::are_report_patterns_disabled() {
            program.check().map_err(D::Error::custom)?;
        }
        Ok(program)
    }
}
