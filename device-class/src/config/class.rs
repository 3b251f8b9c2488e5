//! Applies the `[class.NAME]` tables of config.toml, which change classes on this host.

use std::path::Path;

use super::Config;
use crate::class::{ClassConfig, ClassSpec, Condition, DeviceClass, Node, PathTemplate, Replicas};
use crate::load::ClassSource;
use crate::name::CapabilityName;
use crate::pattern::PathPattern;
use crate::similar;
use crate::strict_toml::FileError;

impl Config {
    pub fn class(&self, source: &ClassSource) -> Result<DeviceClass, FileError> {
        self.with_settings(source.parse()?, &source.path)
    }

    /// Returns whether errors in the class file are ignored. They are if the class is disabled, and
    /// a file in another directory replaces or disables the class that it extends. Most such hosts
    /// have other hardware than that for which the shipped class was written.
    pub fn ignores_errors_of(&self, source: &ClassSource) -> bool {
        let config = self.class.get(&source.name);
        let is_enabled = config.is_some_and(|config| config.is_enabled == Some(true));
        !is_enabled && source.is_disabled_without_base()
    }

    /// Returns the class with the changes that its table `[class.NAME]` in config.toml makes.
    /// Errors name the class file and the table.
    pub fn with_settings(
        &self,
        mut class: DeviceClass,
        class_file_path: &Path,
    ) -> Result<DeviceClass, FileError> {
        self.apply_settings(&mut class).map_err(|reason| {
            let name = &class.name;
            FileError::whole(
                class_file_path,
                format!("with [class.{name}] of config.toml: {reason}"),
            )
        })?;
        Ok(class)
    }

    /// Checks that the tables `[class.NAME]` can be applied to the classes that they change. For
    /// example, a class must have the attributes that `except` names. A table whose class is not in
    /// `classes` is not checked. `path` is the path of the configuration file, for the error.
    ///
    /// # Errors
    /// A class cannot be used with its table.
    pub fn check_class_tables<'a>(
        &self,
        path: &Path,
        classes: impl IntoIterator<Item = &'a DeviceClass>,
    ) -> Result<(), FileError> {
        let changed_classes = classes
            .into_iter()
            .filter(|class| self.class.contains_key(&class.name));
        for class in changed_classes {
            let result = self.apply_settings(&mut class.clone());
            result.map_err(|reason| {
                FileError::whole(path, format!("[class.{}]: {reason}", class.name))
            })?;
        }
        Ok(())
    }

    fn apply_settings(&self, class: &mut DeviceClass) -> Result<(), String> {
        let Some(config) = self.class.get(&class.name) else {
            return Ok(());
        };
        config.apply_to_spec(&mut class.spec)?;
        class.settings = config.clone();
        class.check().map_err(|error| error.to_string())?;
        config.remove_forbidden_capabilities(&mut class.spec)
    }
}

impl ClassConfig {
    fn apply_to_spec(&self, spec: &mut ClassSpec) -> Result<(), String> {
        let sources = spec
            .discover
            .iter_mut()
            .flat_map(|source| &mut source.attributes);
        for attribute in spec.attributes.iter_mut().chain(sources) {
            let mut names = attribute.names();
            let further_values = names.find_map(|name| self.value_replacements.get(name));
            drop(names);
            if let Some(values) = further_values {
                attribute.replacements.extend(values.clone());
            }
        }
        let directories = self.library_directories.iter().cloned();
        spec.library_directories.splice(0..0, directories);
        let directories = self.program_directories.iter().cloned();
        spec.program_directories.splice(0..0, directories);
        if self.replicas.is_some() && spec.device.netdev.is_some() {
            let reason = "`replicas`: its devices are network interfaces (`netdev`), and each is in one \
                          container at a time: remove the key";
            return Err(reason.into());
        }
        if let Some(replicas) = &self.replicas {
            let sharing = spec.sharing.get_or_insert_default();
            sharing.replicas = match replicas {
                Replicas::All(count) => Some(*count),
                Replicas::ByResource(_) => None,
            };
            sharing.replica_count_template = None;
        }
        spec.allocate.placement = self.placement.unwrap_or(spec.allocate.placement);
        spec.device.env.extend(self.env.clone());
        if let Some(names) = &self.default_capabilities {
            spec.request.default_capabilities = names.clone();
        }
        if self.checks_requirements == Some(false) {
            spec.request.requirements = None;
        }
        if let Some(resource) = &self.resource {
            spec.resource = resource.clone();
        }
        if self.node_gid.is_some() && self.node_group.is_some() {
            return Err("`node_gid` and `node_group` both set the group: write one of them".into());
        }
        let sets_group = self.node_gid.is_some() || self.node_group.is_some();
        for node in iter_all_nodes_mut(spec) {
            node.mode = self.node_mode.or(node.mode);
            if sets_group {
                (node.gid, node.group) = (self.node_gid, self.node_group.clone());
            }
            if let Some(node_creation) = &mut node.node_creation {
                node_creation.mode = self.node_mode.or(node_creation.mode);
                if sets_group {
                    (node_creation.gid, node_creation.group) =
                        (self.node_gid, self.node_group.clone());
                }
            }
        }
        spec.is_enabled = self.is_enabled.unwrap_or(spec.is_enabled);
        spec.is_followed = self.is_followed.unwrap_or(spec.is_followed);
        spec.announces_devices = self
            .announces_devices
            .unwrap_or(spec.announces_devices && spec.is_followed);
        spec.allows_late_devices = self
            .allows_late_devices
            .unwrap_or(spec.allows_late_devices && spec.is_followed);
        if let Some(root) = &self.driver_root {
            spec.driver_root = Some(root.clone());
            spec.driver_root_conditions.clear();
        }
        match &self.dev_root {
            Some(root) => move_device_paths(spec, root),
            None => Ok(()),
        }
    }
}

impl ClassConfig {
    /// Removes the edits and nodes of forbidden capabilities from the class. Then no container gets
    /// them, neither by a request for `all`, nor by implied or default capabilities, nor from a CDI
    /// file.
    fn remove_forbidden_capabilities(&self, spec: &mut ClassSpec) -> Result<(), String> {
        let class_capabilities = spec.capabilities();
        if let Some(unknown) = self
            .forbidden_capabilities
            .difference(&class_capabilities)
            .next()
        {
            let similar_name = similar::find_most_similar(
                unknown.as_str(),
                class_capabilities.iter().map(|name| name.as_str()),
            );
            let hint =
                similar_name.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
            return Err(format!(
                "`{unknown}` in `forbid` is not a capability of the class{hint}"
            ));
        }
        let is_allowed = |name: &Option<CapabilityName>| {
            !name
                .as_ref()
                .is_some_and(|name| self.forbidden_capabilities.contains(name))
        };
        spec.edits.retain(|edits| is_allowed(&edits.capability));
        let node_lists = spec.discover.iter_mut().map(|source| &mut source.nodes);
        let node_lists = node_lists.chain(spec.edits.iter_mut().map(|edits| &mut edits.nodes));
        for nodes in node_lists.chain([&mut spec.device.nodes]) {
            nodes.retain(|node| is_allowed(&node.capability));
        }
        let request = &mut spec.request;
        request
            .default_capabilities
            .retain(|name| !self.forbidden_capabilities.contains(name));
        request
            .implied_capabilities
            .retain(|name, _| !self.forbidden_capabilities.contains(name));
        for implied in request.implied_capabilities.values_mut() {
            implied.retain(|name| !self.forbidden_capabilities.contains(name));
        }
        request
            .capability_32bit
            .take_if(|name| self.forbidden_capabilities.contains(name));
        Ok(())
    }
}

/// Puts the directory `root` (`dev_root` in config.toml) in front of the class's paths in /dev,
/// because the host has its device nodes there. The paths in containers stay the same.
fn move_device_paths(spec: &mut ClassSpec, root: &PathTemplate) -> Result<(), String> {
    spec.driver_path
        .iter_mut()
        .try_for_each(|pattern| prepend_root(pattern, root))?;
    for source in &mut spec.discover {
        source
            .path
            .iter_mut()
            .try_for_each(|pattern| prepend_root(pattern, root))?;
        for condition in &mut source.require {
            if let Condition::PathExists(pattern) | Condition::PathAbsent(pattern) = condition {
                prepend_root(pattern, root)?;
            }
        }
    }
    let with_root = |path: &PathTemplate| path.with_root(root).map_err(|error| error.to_string());
    for node in iter_all_nodes_mut(spec) {
        let container_path = node.container_path.take();
        node.container_path = Some(container_path.unwrap_or_else(|| node.path.clone()));
        node.path = with_root(&node.path)?;
        for path in &mut node.preferred_paths {
            *path = with_root(path)?;
        }
        node.path_pattern
            .iter_mut()
            .try_for_each(|pattern| prepend_root(pattern, root))?;
    }
    Ok(())
}

fn iter_all_nodes_mut(spec: &mut ClassSpec) -> impl Iterator<Item = &mut Node> {
    let source_nodes = spec
        .discover
        .iter_mut()
        .flat_map(|source| &mut source.nodes);
    let edit_nodes = spec.edits.iter_mut().flat_map(|edits| &mut edits.nodes);
    source_nodes.chain(&mut spec.device.nodes).chain(edit_nodes)
}

fn prepend_root(pattern: &mut PathPattern, root: &PathTemplate) -> Result<(), String> {
    let text = pattern.to_string();
    if text.starts_with("/dev/") {
        let root = root.template().to_string();
        let text = format!("{}{text}", root.trim_end_matches('/'));
        *pattern = PathPattern::try_from(text).map_err(|error| error.to_string())?;
    }
    Ok(())
}
