//! Checks that each template of a class file uses only attributes whose values are known when the
//! template is filled in.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::class::attribute::AttributeSource;
use crate::class::condition::Condition;
use crate::class::{ClassSpec, Directory, Edits, File, Mask, NetDevice, Node, PathTemplate};
use crate::name::AttributeName;
use crate::pattern::PathPattern;
use crate::similar::find_most_similar;
use crate::strict_toml::RuleViolation;
use crate::template::Template;

/// The attributes that the templates of one table of a class file may use, because their values are
/// known when the templates are filled in.
#[derive(Debug, Clone, Default)]
pub(super) struct KnownAttributes {
    pub(super) names: BTreeSet<AttributeName>,
    /// Whether the table is one of `[[edits]]`, whose templates cannot use the attributes of
    /// devices.
    pub(super) is_edits_table: bool,
}

impl KnownAttributes {
    pub(super) fn add_sources(&mut self, sources: &[AttributeSource]) -> Result<(), RuleViolation> {
        for source in sources {
            for template in source.templates() {
                self.check_template(template)?;
            }
            self.names.extend(source.names().cloned());
        }
        Ok(())
    }

    /// Checks `[prepare]`. Its templates may also use the attribute that `[request.pairs]` sets.
    pub(super) fn check_preparation(&self, spec: &ClassSpec) -> Result<(), RuleViolation> {
        let mut known_attributes = self.clone();
        if let Some(pairs) = &spec.request.pairs {
            known_attributes.check_template(&pairs.selector)?;
            known_attributes.names.insert(pairs.attribute.clone());
        }
        let Some(prepare) = &spec.prepare else {
            return Ok(());
        };
        // The path of the state file must not use the attribute that `[request.pairs]` sets. The
        // file is also read if no container requests a value.
        self.check_template(&prepare.state_file)?;
        let mut templates = prepare.arguments.iter().chain([&prepare.expected_state]);
        templates.try_for_each(|template| known_attributes.check_template(template))?;
        KnownAttributes::default().check_template(prepare.program.template())
    }

    pub(super) fn check_edits(&self, edits: &Edits) -> Result<(), RuleViolation> {
        self.check_nodes(&edits.nodes)?;
        for library in &edits.libraries {
            self.check_template(library.soname.template())?;
        }
        self.check_files(&edits.binaries)?;
        self.check_files(&edits.files)?;
        self.check_directories(&edits.directories)?;
        for image in &edits.image_libraries {
            self.check_template(image.directory.template())?;
            self.check_template(&image.host_version)?;
            self.check_conditions(&image.require)?;
        }
        if let Some(list) = &edits.file_list_path {
            let mut known_attributes = self.clone();
            known_attributes
                .names
                .insert(AttributeName::list_attribute());
            known_attributes.check_template(list.template())?;
        }
        for mask in &edits.masks {
            self.check_template(mask.path.template())?;
            for copy in &mask.copies {
                self.check_masked_path(copy, &None, &[mask])?;
            }
            for file in &mask.bitmask_files {
                self.check_masked_path(&file.path, &None, &[mask])?;
            }
        }
        edits
            .library_version
            .iter()
            .try_for_each(|version| self.check_template(version))
    }

    pub(super) fn check_conditions(&self, conditions: &[Condition]) -> Result<(), RuleViolation> {
        conditions.iter().try_for_each(|condition| match condition {
            Condition::Value { value, .. } => self.check_template(value),
            Condition::PathExists(_) | Condition::PathAbsent(_) => Ok(()),
        })
    }

    pub(super) fn check_files(&self, files: &[File]) -> Result<(), RuleViolation> {
        files.iter().try_for_each(|file| {
            let paths = [Some(&file.path), file.container_path.as_ref()];
            let paths = paths.into_iter().chain(file.fallbacks.iter().map(Some));
            self.check_paths(paths, &file.path_pattern)
        })
    }

    pub(super) fn check_directories(&self, directories: &[Directory]) -> Result<(), RuleViolation> {
        directories.iter().try_for_each(|directory| {
            let paths = [Some(&directory.path), directory.container_path.as_ref()];
            self.check_paths(paths, &None)
        })
    }

    pub(super) fn check_masked_path(
        &self,
        path: &PathTemplate,
        path_pattern: &Option<PathPattern>,
        masks: &[&Mask],
    ) -> Result<(), RuleViolation> {
        if !masks.iter().any(|mask| path.is_under(&mask.path)) {
            let path = path.template().to_string();
            let message = format!("`{path}` is not in a directory of `masks`");
            return Err(RuleViolation::new(path.as_str(), message));
        }
        self.check_paths([Some(path)], path_pattern)
    }

    pub(super) fn check_nodes(&self, nodes: &[Node]) -> Result<(), RuleViolation> {
        nodes.iter().try_for_each(|node| {
            let paths = [Some(&node.path), node.container_path.as_ref()];
            let alternative_paths = node.preferred_paths.iter().chain(&node.links);
            let paths = paths.into_iter().chain(alternative_paths.map(Some));
            self.check_paths(paths, &node.path_pattern)?;
            let known_attributes = self.with_captures(node.path_pattern.as_ref());
            if node.has_two_groups() {
                let message = "a node has `gid`, the number of its group, or `group`, its name";
                return Err(RuleViolation::new("group", message));
            }
            let minor = node
                .node_creation
                .as_ref()
                .map(|node_creation| &node_creation.minor);
            if let (Some(minor), None) = (minor, &node.driver) {
                let minor = minor.to_string();
                let message = format!(
                    "a node with `make = {{ minor = \"{minor}\" }}` needs `driver`, its driver's \
                     name in /proc/devices"
                );
                return Err(RuleViolation::new(minor.as_str(), message));
            }
            let mut templates = node.driver.iter().chain(minor);
            templates.try_for_each(|template| known_attributes.check_template(template))
        })
    }

    pub(super) fn check_net_device(&self, netdev: &NetDevice) -> Result<(), RuleViolation> {
        let known_attributes = self.with_captures(Some(&netdev.path));
        let mut template = netdev.name.iter();
        template.try_for_each(|template| known_attributes.check_template(template))
    }

    /// Returns these attributes together with the captures of a `for_each` pattern, which the
    /// templates beside the pattern may use.
    fn with_captures(&self, path_pattern: Option<&PathPattern>) -> Cow<'_, Self> {
        let mut known_attributes = Cow::Borrowed(self);
        if let Some(pattern) = path_pattern {
            known_attributes
                .to_mut()
                .names
                .extend(pattern.captures().cloned());
        }
        known_attributes
    }

    pub(super) fn check_paths<'a>(
        &self,
        paths: impl IntoIterator<Item = Option<&'a PathTemplate>>,
        path_pattern: &Option<PathPattern>,
    ) -> Result<(), RuleViolation> {
        let known_attributes = self.with_captures(path_pattern.as_ref());
        let mut paths = paths.into_iter().flatten();
        paths.try_for_each(|path| known_attributes.check_template(path.template()))
    }

    pub(super) fn check_template(&self, template: &Template) -> Result<(), RuleViolation> {
        match template
            .attributes()
            .find(|name| !self.names.contains(*name))
        {
            None => Ok(()),
            Some(name) => Err(self.new_unknown_attribute_error(name, &template.to_string())),
        }
    }

    /// Returns the error for a template that uses an unknown attribute. It lists the known
    /// attributes, and asks whether the most similar one was meant.
    pub(super) fn new_unknown_attribute_error(
        &self,
        name: &AttributeName,
        template: &str,
    ) -> RuleViolation {
        let names: Vec<&str> = self.names.iter().map(AttributeName::as_str).collect();
        let known_names = if names.is_empty() {
            "none".into()
        } else {
            names.join(", ")
        };
        let rule = if self.is_edits_table {
            format!(
                "[[edits]] are given once per container and use the host's attributes only \
                 ({known_names}), so put what belongs to one device into [device]"
            )
        } else {
            format!("known attributes are {known_names}")
        };
        let similar_name = find_most_similar(name.as_str(), names.iter().copied());
        let question = similar_name.map(|name| format!(", did you mean `{name}`?"));
        let question = question.as_deref().unwrap_or(";");
        let message = format!("`{template}` uses the attribute `{name}`{question} {rule}");
        RuleViolation::new(template, message)
    }
}
