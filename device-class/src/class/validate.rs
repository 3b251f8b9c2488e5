//! The rules that no single value can show.

use std::collections::BTreeSet;
use std::time::Duration;

use super::attribute::AttributeSource;
use super::condition::Condition;
use super::health::HealthTest;
use super::{
    CdiTemplate, ClassSpec, Directory, Edits, File, MAX_PRE_START, Mask, Node, PathTemplate,
    Prepare, Sharing, Source, When,
};
use crate::config::DeviceFilter;
use crate::name::{AttributeName, CapabilityName, EnvName, ResourceName, excerpt};
use crate::pattern::PathPattern;
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
    /// The resource is none that the kubelet takes.
    #[error("{reason}")]
    Resource {
        /// The resource.
        resource: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A variable that containers have for something else.
    #[error(
        "`{0}` is a variable that containers have for another purpose; choose a name such as \
         MYCHIP_VISIBLE_DEVICES"
    )]
    ReservedVariable(String),
    /// Where the walk to the NUMA node begins is no path.
    #[error("numa `{0}` is not the path of a device's directory in /sys")]
    Numa(String),
    /// What is wrong in one of several tables.
    #[error("{error}")]
    In {
        /// The table's header.
        header: &'static str,
        /// Which of them it is, from 0.
        number: usize,
        /// What is wrong.
        error: Box<ClassRuleError>,
    },
    /// A template of `[[edits]]` uses an attribute of a device.
    #[error(
        "`{template}` uses the attribute `{name}`; [[edits]] are given once per container and use \
         the host's attributes only ({known}), so put what belongs to one device into [device]"
    )]
    DeviceAttribute {
        /// The template.
        template: String,
        /// The attribute.
        name: AttributeName,
        /// The attributes of the host.
        known: String,
    },
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
    /// A capability in `implies` that brings nothing.
    #[error("[request] implies has `{0}`, which is not a `capability` of the class")]
    UnknownImplied(String),
    /// An index is either said or counted.
    #[error("[device] has either `index` or `order`, not both")]
    IndexAndOrder(String),
    /// The number of replicas is said twice.
    #[error("[sharing] has either `replicas` or `replicas_from`, not both")]
    ReplicasTwice(String),
    /// A rule for replicas where there are none.
    #[error("[sharing] has `{0}`, but neither `replicas` nor `replicas_from`")]
    NoReplicas(&'static str),
    /// The kubelet gives up before.
    #[error(
        "[prepare] has a timeout of {} seconds; before a container's start the kubelet waits {}",
        .0.as_secs(), MAX_PRE_START.as_secs()
    )]
    PreStartTooLong(Duration),
    /// Whoever has the device already would lose it.
    #[error("[prepare] at `pre-start` would change a device that [sharing] gives to several")]
    PreStartShared,
    /// What is shown or copied is not in a directory that is masked.
    #[error("`{0}` is not in a directory of `masks`")]
    Unmasked(String),
}

impl BrokenRule for ClassRuleError {
    fn culprit(&self) -> Option<&str> {
        match self {
            ClassRuleError::NoSource => None,
            ClassRuleError::PathOrCount => Some("[[discover]]"),
            ClassRuleError::NoReplicas(key) => Some(key),
            ClassRuleError::PreStartTooLong(_) => Some("timeout"),
            ClassRuleError::PreStartShared => Some("pre-start"),
            ClassRuleError::In { error, .. } => error.culprit(),
            ClassRuleError::Resource { resource: text, .. }
            | ClassRuleError::ReservedVariable(text)
            | ClassRuleError::Numa(text)
            | ClassRuleError::DeviceAttribute { template: text, .. }
            | ClassRuleError::UnknownAttribute { template: text, .. }
            | ClassRuleError::CapabilityWithoutEnv(text)
            | ClassRuleError::UnknownCapability(text)
            | ClassRuleError::UnknownImplied(text)
            | ClassRuleError::IndexAndOrder(text)
            | ClassRuleError::ReplicasTwice(text)
            | ClassRuleError::Unmasked(text) => Some(text),
        }
    }

    fn table(&self) -> Option<(&str, usize)> {
        match self {
            ClassRuleError::In { header, number, .. } => Some((header, *number)),
            _ => None,
        }
    }
}

impl ClassRuleError {
    /// The same error of one of several tables.
    fn in_table(self, header: &'static str, number: usize) -> Self {
        ClassRuleError::In {
            header,
            number,
            error: Box::new(self),
        }
    }

    /// The same error of `[[edits]]`, where the attributes of devices are not known.
    fn of_edits(self) -> Self {
        match self {
            ClassRuleError::UnknownAttribute {
                template,
                name,
                known,
            } => ClassRuleError::DeviceAttribute {
                template,
                name,
                known,
            },
            other => other,
        }
    }
}

/// Checks what the values of a class file say together.
pub(super) fn check(spec: &ClassSpec) -> Result<(), ClassRuleError> {
    check_request(spec)?;
    check_resource(&spec.resource)?;
    if spec.discover.is_empty() {
        return Err(ClassRuleError::NoSource);
    }
    let mut host = Known::default();
    host.read(&spec.attributes)?;
    if let Some(requirements) = &spec.request.requirements {
        let mut values = requirements.values.values();
        values.try_for_each(|value| host.serve(value))?;
    }
    for (number, source) in spec.discover.iter().enumerate() {
        let known = known_after(source, host.clone());
        let known = known.map_err(|error| error.in_table("[[discover]]", number))?;
        check_device(spec, source, &known).map_err(|error| error.in_table("[device]", 0))?;
    }
    let directories = spec.library_directories.iter();
    host.check_paths(directories.map(Some), &None)?;
    for (number, edits) in spec.edits.iter().enumerate() {
        let checked = host.check_edits(edits);
        checked.map_err(|error| error.of_edits().in_table("[[edits]]", number))?;
    }
    check_filters(spec)
}

/// Attributes in `only` and `except` that no device of the class has are mistakes.
fn check_filters(spec: &ClassSpec) -> Result<(), ClassRuleError> {
    let mut known = Known::default();
    known.read(&spec.attributes)?;
    let host = known.clone();
    for source in &spec.discover {
        known.0.append(&mut known_after(source, host.clone())?.0);
    }
    let filters = spec.only.iter().flatten().chain(&spec.except);
    for filter in filters {
        if let DeviceFilter::Attributes(wanted) = filter
            && let Some(name) = wanted.keys().find(|name| !known.0.contains(*name))
        {
            return Err(known.lacks(name, "only or except"));
        }
    }
    Ok(())
}

/// Checks the resource as the kubelet does. An attribute in it is taken to be right.
fn check_resource(resource: &Template) -> Result<(), ClassRuleError> {
    let harmless = |name: &AttributeName| (name.clone(), "aa".to_owned());
    let harmless = resource.attributes().map(harmless).collect();
    let Ok(example) = resource.fill(&harmless) else {
        return Ok(());
    };
    let wrong = |reason: String| {
        let resource = resource.to_string();
        Err(ClassRuleError::Resource { resource, reason })
    };
    let text = excerpt(&resource.to_string());
    let name = match ResourceName::try_from(example) {
        Ok(name) => name,
        Err(error) => return wrong(format!("{error}; write it as vendor.example/chip")),
    };
    let domain = name.as_str().split('/').next().unwrap_or_default();
    if domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") {
        return wrong(format!(
            "resource `{text}` has a domain that is for the resources of Kubernetes itself"
        ));
    }
    let ends_well = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric();
        part.starts_with(fits) && part.ends_with(fits)
    };
    let mut parts = domain.split('.').chain(name.as_str().split('/').skip(1));
    match parts.all(ends_well) {
        true => Ok(()),
        false => wrong(format!(
            "each part of resource `{text}` has to begin and end with a letter or a digit"
        )),
    }
}

/// Variables that images, engines and loaders use. As a request they would stop
/// every container.
fn is_reserved(variable: &EnvName) -> bool {
    const RESERVED: [&str; 9] = [
        "HOME", "HOSTNAME", "LANG", "PATH", "PWD", "SHELL", "SHLVL", "TERM", "USER",
    ];
    let name = variable.as_str();
    let reserved = |prefix: &&str| name.starts_with(prefix);
    RESERVED.contains(&name) || ["LD_", "LC_", "KUBERNETES_"].iter().any(reserved)
}

fn check_request(spec: &ClassSpec) -> Result<(), ClassRuleError> {
    let request = &spec.request;
    let variables = [Some(&request.env), request.capabilities_env.as_ref()];
    let mut variables = variables.into_iter().flatten();
    if let Some(reserved) = variables.find(|name| is_reserved(name)) {
        return Err(ClassRuleError::ReservedVariable(reserved.to_string()));
    }
    let chosen = spec.capabilities();
    let used = chosen.union(&spec.exceptions()).next().cloned();
    if let (None, Some(name)) = (&request.capabilities_env, used) {
        return Err(ClassRuleError::CapabilityWithoutEnv(name.to_string()));
    }
    let unknown = |name: &&CapabilityName| !chosen.contains(*name);
    if let Some(name) = request.default_capabilities.iter().find(unknown) {
        return Err(ClassRuleError::UnknownCapability(name.to_string()));
    }
    let implied = request.implies.values().flatten();
    match request.implies.keys().chain(implied).find(unknown) {
        Some(name) => Err(ClassRuleError::UnknownImplied(name.to_string())),
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
    known.check_conditions(&source.require)?;
    Ok(known)
}

fn check_device(spec: &ClassSpec, source: &Source, known: &Known) -> Result<(), ClassRuleError> {
    let device = &spec.device;
    if let Some(numa) = &device.numa {
        let text = numa.to_string();
        if !text.starts_with(['/', '{']) {
            return Err(ClassRuleError::Numa(text));
        }
    }
    if let (Some(index), Some(_)) = (&device.index, &device.order) {
        return Err(ClassRuleError::IndexAndOrder(index.to_string()));
    }
    let sharing = spec.sharing.as_ref();
    sharing.map_or(Ok(()), check_sharing)?;
    let templates = [
        Some(&spec.resource),
        Some(&device.id),
        device.index.as_ref(),
        device.order.as_ref(),
        device.numa.as_ref(),
        device.group.as_ref(),
        sharing.and_then(|sharing| sharing.replicas_from.as_ref()),
        spec.allocate.cdi.as_ref().map(CdiTemplate::template),
        source.part_of.as_ref(),
    ];
    let templates = templates.into_iter().flatten();
    for template in templates.chain(&device.aliases).chain(device.env.values()) {
        known.serve(template)?;
    }
    known.check_nodes(&device.nodes)?;
    known.check_nodes(&source.nodes)?;
    known.check_files(&device.files)?;
    known.check_directories(&device.directories)?;
    let masks: Vec<&Mask> = spec.edits.iter().flat_map(|edits| &edits.masks).collect();
    for shown in device.unmask.iter().chain(&source.unmask) {
        known.check_masked(shown, &masks)?;
    }
    known.check_preparation(spec)?;
    for check in device.health.iter().chain(&source.health) {
        if let HealthTest::File { file, .. } = &check.test {
            known.serve(file)?;
        }
    }
    Ok(())
}

fn check_sharing(sharing: &Sharing) -> Result<(), ClassRuleError> {
    match (sharing.replicas, &sharing.replicas_from) {
        (Some(_), Some(from)) => Err(ClassRuleError::ReplicasTwice(from.to_string())),
        (None, None) if sharing.shared_suffix => Err(ClassRuleError::NoReplicas("shared_suffix")),
        (None, None) if sharing.one_device => Err(ClassRuleError::NoReplicas("one_device")),
        (None, None) if sharing.max_per_container.is_some() => {
            Err(ClassRuleError::NoReplicas("max_per_container"))
        }
        _ => Ok(()),
    }
}

fn check_pre_start(spec: &ClassSpec, prepare: &Prepare) -> Result<(), ClassRuleError> {
    if prepare.timeout.get() > MAX_PRE_START {
        return Err(ClassRuleError::PreStartTooLong(prepare.timeout.get()));
    }
    match spec.sharing {
        Some(_) => Err(ClassRuleError::PreStartShared),
        None => Ok(()),
    }
}

/// The attributes that are set by a point of the file.
#[derive(Debug, Clone, Default)]
struct Known(BTreeSet<AttributeName>);

impl Known {
    fn read(&mut self, sources: &[AttributeSource]) -> Result<(), ClassRuleError> {
        for source in sources {
            for template in source.templates() {
                self.serve(template)?;
            }
            self.0.extend(source.names().cloned());
        }
        Ok(())
    }

    /// What is prepared may also use the attribute that a pair gives.
    fn check_preparation(&self, spec: &ClassSpec) -> Result<(), ClassRuleError> {
        let mut known = self.clone();
        if let Some(pairs) = &spec.request.pairs {
            known.serve(&pairs.select)?;
            known.0.insert(pairs.attribute.clone());
        }
        let Some(prepare) = &spec.prepare else {
            return Ok(());
        };
        if prepare.when == When::PreStart {
            check_pre_start(spec, prepare)?;
            known = self.clone();
        }
        // The file is read before it is known what is wanted.
        self.serve(&prepare.file)?;
        let mut templates = prepare.arguments.iter().chain([&prepare.equals]);
        templates.try_for_each(|template| known.serve(template))?;
        Known::default().serve(prepare.program.template())
    }

    fn check_edits(&self, edits: &Edits) -> Result<(), ClassRuleError> {
        self.check_nodes(&edits.nodes)?;
        for library in &edits.libraries {
            self.serve(library.soname.template())?;
        }
        self.check_files(&edits.binaries)?;
        self.check_files(&edits.files)?;
        self.check_directories(&edits.directories)?;
        for image in &edits.image_libraries {
            self.serve(image.directory.template())?;
            self.serve(&image.newer_than)?;
            self.check_conditions(&image.require)?;
        }
        for mask in &edits.masks {
            self.serve(mask.path.template())?;
            for copy in &mask.copies {
                self.check_masked(copy, &[mask])?;
            }
        }
        edits.library_version.iter().try_for_each(|v| self.serve(v))
    }

    fn check_conditions(&self, conditions: &[Condition]) -> Result<(), ClassRuleError> {
        conditions.iter().try_for_each(|condition| match condition {
            Condition::Value { value, .. } | Condition::Listed { value, .. } => self.serve(value),
            Condition::Exists(_) | Condition::Absent(_) => Ok(()),
        })
    }

    fn check_files(&self, files: &[File]) -> Result<(), ClassRuleError> {
        files.iter().try_for_each(|file| {
            let paths = [Some(&file.path), file.container_path.as_ref()];
            let paths = paths.into_iter().chain(file.fallbacks.iter().map(Some));
            self.check_paths(paths, &file.for_each)
        })
    }

    fn check_directories(&self, directories: &[Directory]) -> Result<(), ClassRuleError> {
        directories.iter().try_for_each(|directory| {
            let paths = [Some(&directory.path), directory.container_path.as_ref()];
            self.check_paths(paths, &None)
        })
    }

    fn check_masked(&self, path: &PathTemplate, masks: &[&Mask]) -> Result<(), ClassRuleError> {
        if !masks.iter().any(|mask| path.is_under(&mask.path)) {
            return Err(ClassRuleError::Unmasked(path.template().to_string()));
        }
        self.serve(path.template())
    }

    fn check_nodes(&self, nodes: &[Node]) -> Result<(), ClassRuleError> {
        nodes.iter().try_for_each(|node| {
            let paths = [Some(&node.path), node.container_path.as_ref()];
            let paths = paths.into_iter().chain(node.prefer.iter().map(Some));
            self.check_paths(paths, &node.for_each)
        })
    }

    fn check_paths<'a>(
        &self,
        paths: impl IntoIterator<Item = Option<&'a PathTemplate>>,
        for_each: &Option<PathPattern>,
    ) -> Result<(), ClassRuleError> {
        let mut known = self.clone();
        known
            .0
            .extend(for_each.iter().flat_map(PathPattern::captures).cloned());
        let mut paths = paths.into_iter().flatten();
        paths.try_for_each(|path| known.serve(path.template()))
    }

    fn serve(&self, template: &Template) -> Result<(), ClassRuleError> {
        match template.attributes().find(|name| !self.0.contains(*name)) {
            None => Ok(()),
            Some(name) => Err(self.lacks(name, &template.to_string())),
        }
    }

    /// The error that something uses an attribute which is not among these.
    fn lacks(&self, name: &AttributeName, template: &str) -> ClassRuleError {
        let known: Vec<&str> = self.0.iter().map(AttributeName::as_str).collect();
        ClassRuleError::UnknownAttribute {
            template: template.to_owned(),
            name: name.clone(),
            known: match known.is_empty() {
                true => "none".into(),
                false => known.join(", "),
            },
        }
    }
}
