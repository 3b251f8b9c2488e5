//! The rules that no single value can show.

use std::collections::BTreeSet;

use super::attribute::{AttributeSource, Condition, Origin};
use super::health::HealthCheck;
use super::{ClassSpec, Source};
use crate::name::AttributeName;
use crate::strict_toml::BrokenRule;
use crate::template::Template;

/// A rule that a class file breaks although each of its values is right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClassRuleError {
    /// A class without a source finds nothing.
    #[error("there is no [[discover]] table, so no device can ever be found")]
    NoSource,
    /// A source is a path or a count.
    #[error("a [[discover]] table has either `path` or `count`")]
    PathOrCount,
    /// A template names an attribute that no source sets.
    #[error("`{template}` uses the attribute `{name}`; known there are {known}")]
    UnknownAttribute {
        /// The template.
        template: String,
        /// The attribute.
        name: AttributeName,
        /// The attributes that could have been used.
        known: String,
    },
    /// A capability is used but no variable chooses among them.
    #[error("`{0}` is a capability, but [request] has no capabilities_env to choose it")]
    CapabilityWithoutEnv(String),
    /// A default capability that no edits have.
    #[error("the default capability `{0}` has no [[edits]] of its own")]
    UnknownCapability(String),
    /// Class files are searched for the variable's name before they are read.
    #[error("the variable `{0}` has to be written plainly, without escapes")]
    EscapedEnv(String),
}

impl BrokenRule for ClassRuleError {
    fn culprit(&self) -> Option<&str> {
        match self {
            ClassRuleError::NoSource => None,
            ClassRuleError::PathOrCount => Some("[[discover]]"),
            ClassRuleError::UnknownAttribute { template: text, .. }
            | ClassRuleError::CapabilityWithoutEnv(text)
            | ClassRuleError::UnknownCapability(text)
            | ClassRuleError::EscapedEnv(text) => Some(text),
        }
    }
}

/// Checks what the values of a class file say together.
pub(super) fn check(spec: &ClassSpec, text: &str) -> Result<(), ClassRuleError> {
    check_request(spec, text)?;
    if spec.discover.is_empty() {
        return Err(ClassRuleError::NoSource);
    }
    let mut host = Known::default();
    host.read(&spec.attributes)?;
    for source in &spec.discover {
        check_device(spec, known_after(source, host.clone())?)?;
    }
    for edits in &spec.edits {
        let nodes = edits
            .nodes
            .iter()
            .flat_map(|n| [Some(&n.path), n.container_path.as_ref()]);
        let singles = edits.binaries.iter().chain(&edits.files);
        let files = singles.flat_map(|f| [Some(&f.path), f.container_path.as_ref()]);
        let dirs = edits
            .directories
            .iter()
            .flat_map(|d| [Some(&d.path), d.container_path.as_ref()]);
        for path in nodes.chain(files).chain(dirs).flatten() {
            host.serve(path.template())?;
        }
    }
    Ok(())
}

fn check_request(spec: &ClassSpec, text: &str) -> Result<(), ClassRuleError> {
    let request = &spec.request;
    for env in [Some(&request.env), request.capabilities_env.as_ref()]
        .into_iter()
        .flatten()
    {
        if !super::mentions(text, env.as_str()) {
            return Err(ClassRuleError::EscapedEnv(env.to_string()));
        }
    }
    let used: BTreeSet<_> = spec
        .edits
        .iter()
        .filter_map(|e| e.capability.as_ref())
        .collect();
    if let (None, Some(name)) = (&request.capabilities_env, used.first()) {
        return Err(ClassRuleError::CapabilityWithoutEnv(name.to_string()));
    }
    match request
        .default_capabilities
        .iter()
        .find(|name| !used.contains(name))
    {
        Some(name) => Err(ClassRuleError::UnknownCapability(name.to_string())),
        None => Ok(()),
    }
}

fn known_after(source: &Source, mut known: Known) -> Result<Known, ClassRuleError> {
    match (&source.path, source.count) {
        (Some(path), None) => known.0.extend(path.captures().cloned()),
        (None, Some(_)) => known
            .0
            .extend(AttributeName::try_from("index".to_owned()).ok()),
        _ => return Err(ClassRuleError::PathOrCount),
    }
    known.read(&source.attributes)?;
    for condition in &source.require {
        if let Condition::Value { value, .. } | Condition::Listed { value, .. } = condition {
            known.serve(value)?;
        }
    }
    Ok(known)
}

fn check_device(spec: &ClassSpec, known: Known) -> Result<(), ClassRuleError> {
    let device = &spec.device;
    let nodes = device
        .nodes
        .iter()
        .flat_map(|node| [Some(&node.path), node.container_path.as_ref()]);
    let templates = [
        Some(&spec.resource),
        Some(&device.id),
        device.index.as_ref(),
    ]
    .into_iter()
    .chain([device.numa.as_ref(), device.group.as_ref()])
    .flatten()
    .chain(&device.aliases)
    .chain(device.env.values())
    .chain(nodes.flatten().map(super::PathTemplate::template));
    for template in templates {
        known.serve(template)?;
    }
    for check in &device.health {
        if let HealthCheck::File { file, .. } | HealthCheck::Below { file, .. } = check {
            known.serve(file)?;
        }
    }
    Ok(())
}

/// The attributes that are set by a point of the file.
#[derive(Debug, Clone, Default)]
struct Known(BTreeSet<AttributeName>);

impl Known {
    fn read(&mut self, sources: &[AttributeSource]) -> Result<(), ClassRuleError> {
        for source in sources {
            match &source.origin {
                Origin::File { file: template, .. } | Origin::Link { link: template, .. } => {
                    self.serve(template)?;
                }
                Origin::Path { .. } => {}
            }
            self.0.extend(source.names().cloned());
        }
        Ok(())
    }

    fn serve(&self, template: &Template) -> Result<(), ClassRuleError> {
        match template.attributes().find(|name| !self.0.contains(*name)) {
            None => Ok(()),
            Some(name) => {
                let known: Vec<&str> = self.0.iter().map(AttributeName::as_str).collect();
                let known = if known.is_empty() {
                    "none".into()
                } else {
                    known.join(", ")
                };
                let (template, name) = (template.to_string(), name.clone());
                Err(ClassRuleError::UnknownAttribute {
                    template,
                    name,
                    known,
                })
            }
        }
    }
}
