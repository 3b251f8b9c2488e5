//! Facts that only a program of the driver reports.

use crate::inserted;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use regex_lite::Regex;
use serde::Deserialize;

use super::parts::is_fixed;
use super::prepare::Timeout;
use crate::name::AttributeName;
use crate::pattern::PathPattern;
use crate::template::{Attributes, Template};

/// A program of the host, and how its output is read.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, try_from = "RawFacts")]
pub struct FactsProgram {
    /// Its absolute path and its arguments, by template over what it is run for.
    pub command: Vec<Template>,
    /// It is run once for each path that matches.
    pub for_each: Option<PathPattern>,
    /// It is run once for each value of the fact, whose words are the attributes 1, 2 and so on.
    pub for_each_fact: Option<String>,
    /// Only `[[parts]]` need it.
    pub for_parts: bool,
    /// The time after which it is killed.
    pub timeout: Duration,
    /// If nothing matches, only `[[parts]]` need it.
    pub needs: Option<PathPattern>,
    cannot_tell: Option<Regex>,
    lines: Vec<FactLine>,
}

/// What a line of the output is compared with.
#[derive(Debug, Clone)]
struct FactLine {
    line: Regex,
    groups: BTreeSet<AttributeName>,
    facts: Vec<(Template, Template)>,
}

impl FactsProgram {
    /// Whether the program says that it cannot tell these facts on this host.
    pub fn cannot_tell(&self, output: &str) -> bool {
        let regex = self.cannot_tell.as_ref();
        regex.is_some_and(|regex| regex.is_match(output))
    }

    /// The facts in its output: key and value, in the order of the output. `known` is what it
    /// ran for.
    pub fn facts(&self, output: &str, known: &Attributes) -> Vec<(String, String)> {
        let mut facts = Vec::new();
        let mut known = known.clone();
        for line in output.lines() {
            for (at, rule) in self.lines.iter().enumerate() {
                let Some(groups) = rule.line.captures(line) else {
                    continue;
                };
                // What follows is below this line, as below a heading.
                for name in self.lines[at..].iter().flat_map(|rule| &rule.groups) {
                    known.remove(name);
                }
                let matched = rule.groups.iter().filter_map(|name| {
                    let value = groups.name(name.as_str())?.as_str().trim();
                    Some((name.clone(), value.to_owned()))
                });
                known.extend(matched);
                let filled = rule.facts.iter();
                facts.extend(filled.filter_map(|(key, value)| {
                    Some((key.fill(&known).ok()?, value.fill(&known).ok()?))
                }));
            }
        }
        facts
    }
}

/// The attributes of the words of a fact.
pub(crate) fn words() -> impl Iterator<Item = AttributeName> {
    (1..=9).filter_map(|number: u8| AttributeName::try_from(number.to_string()).ok())
}

/// # `[[facts]]`
///
/// What only a program of the driver reports. The plugin runs it as root, without a
/// shell, with an empty environment, when it starts, when devices change, and every five
/// minutes; so does `boathook facts CLASS`. Attributes read the facts with `fact`. That with
/// the key `version` is the program's version, which `boathook facts` prints.
/// `facts = false` in `[class.NAME]` of config.toml turns it off.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "facts"))]
pub(super) struct RawFacts {
    /// The absolute path of the program, and its arguments, by template over the attributes of
    /// `for_each` or `for_each_fact`.
    program: Vec<Template>,
    /// The program is run once for each path that matches this pattern, whose captures are
    /// attributes, at most 64 times.
    for_each: Option<PathPattern>,
    /// The key of facts of programs that are listed before. The program is run once for each of
    /// their values, at most 64 times; the words of the value are the attributes `1`, `2` and
    /// so on.
    for_each_fact: Option<String>,
    /// Only `[[parts]]` need these facts: boathook-dra alone runs the program, and it is no
    /// fault if it fails, as where nothing can be divided.
    #[serde(default)]
    for_parts: bool,
    /// The time after which it is killed with all processes of its group, in seconds.
    /// Default 30.
    timeout: Option<Timeout>,
    /// A pattern for a path. Without a match, the program could only tell of parts that the
    /// host does not have: only boathook-dra, which makes them, runs it, as with `for_parts`.
    needs: Option<PathPattern>,
    /// A regular expression. Output with a match is that of a version or a device that does
    /// not know these facts, and no fault.
    cannot_tell: Option<String>,
    /// What each line of the output is compared with, beginning with the outermost
    /// heading.
    lines: Vec<RawFactLine>,
}

/// # `lines`
///
/// A form of a line of the output. A line that matches it sets the attributes that are
/// named in it, and removes those that this and the later entries have set: so a heading
/// holds until the next one of its kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "fact_lines"))]
struct RawFactLine {
    /// A regular expression; its named groups, `(?<name>…)`, are attributes.
    line: String,
    /// The facts that such a line gives: keys and values, by template. One whose
    /// attributes are not all set is left out.
    #[serde(default)]
    facts: BTreeMap<String, Template>,
}

impl TryFrom<RawFacts> for FactsProgram {
    type Error = String;

    fn try_from(raw: RawFacts) -> Result<Self, String> {
        if !raw
            .program
            .first()
            .is_some_and(|path| path.to_string().starts_with('/') && is_fixed(path))
        {
            return Err("`program` begins with the absolute path of a program".into());
        }
        let lines = raw.lines.into_iter().map(FactLine::try_from);
        let lines = lines.collect::<Result<Vec<_>, _>>()?;
        if raw.for_each.is_some() && raw.for_each_fact.is_some() {
            return Err("`for_each` and `for_each_fact` exclude each other".into());
        }
        let captures = raw.for_each.iter().flat_map(PathPattern::captures);
        let words = raw.for_each_fact.iter().flat_map(|_| words());
        let captures: BTreeSet<_> = inserted(captures.cloned().chain(words));
        let uses_other = |template: &Template, known: &BTreeSet<AttributeName>| {
            let other = template.attributes().find(|name| !known.contains(name));
            other.map(|name| format!("`{template}` uses `{name}`, which no `line` sets"))
        };
        let mut arguments = raw.program.iter();
        if let Some(error) = arguments.find_map(|argument| uses_other(argument, &captures)) {
            return Err(error);
        }
        let groups = lines.iter().flat_map(|line| &line.groups).cloned();
        let known = inserted(captures.into_iter().chain(groups));
        let templates = lines.iter().flat_map(|line| &line.facts);
        let templates = templates.flat_map(|(key, value)| [key, value]);
        for template in templates {
            if let Some(error) = uses_other(template, &known) {
                return Err(error);
            }
        }
        Ok(FactsProgram {
            command: raw.program,
            for_each: raw.for_each,
            for_each_fact: raw.for_each_fact,
            for_parts: raw.for_parts,
            timeout: raw.timeout.map_or(Duration::from_secs(30), Timeout::get),
            needs: raw.needs,
            cannot_tell: raw.cannot_tell.as_deref().map(regex).transpose()?,
            lines,
        })
    }
}

impl TryFrom<RawFactLine> for FactLine {
    type Error = String;

    fn try_from(raw: RawFactLine) -> Result<Self, String> {
        let line = regex(&raw.line)?;
        let groups = line.capture_names().flatten();
        let groups = groups.map(|name| AttributeName::try_from(name.to_owned()));
        let groups = groups.collect::<Result<Vec<_>, _>>();
        let groups = inserted(groups.map_err(|error| error.to_string())?);
        let facts = raw.facts.into_iter().map(|(key, value)| {
            let key = Template::try_from(key).map_err(|error| error.to_string())?;
            Ok((key, value))
        });
        let facts = facts.collect::<Result<_, String>>()?;
        Ok(FactLine {
            line,
            groups,
            facts,
        })
    }
}

fn regex(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| format!("bad regex `{text}`: {error}"))
}
