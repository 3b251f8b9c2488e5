//! Checks the rules that concern several values of a class file together.

mod follow;
mod known_attributes;
mod names;
mod parts;
mod sharing;

use crate::collect_by_insertion;
use follow::{check_announcement, check_id, check_late_devices};
use known_attributes::KnownAttributes;
use names::check_device_names;
use sharing::check_sharing;

use super::health::{ExpectedOutput, HealthTest, OutputPart};
use super::{
    ClassConfig, ClassSpec, DeviceFilter, LinkPeers, Mask, REPLICAS_ATTRIBUTE, RESOURCE_ATTRIBUTE,
    SHARED_ATTRIBUTE, SHARED_SUFFIX_ATTRIBUTE, Source, UnclaimedHardware,
};
use crate::name::{
    AttributeName, CapabilityName, EnvName, ResourceName, excerpt, is_reserved_name,
};
use crate::strict_toml::RuleViolation;
use crate::template::Template;

/// Checks all rules that concern several values of the class file together. Rules for single values
/// are checked by their types while the file is parsed.
pub(super) fn check(spec: &ClassSpec) -> Result<(), RuleViolation> {
    check_request(spec)?;
    check_resource(&spec.resource)?;
    check_count_resource(spec)?;
    check_announcement(spec)?;
    check_late_devices(spec)?;
    if spec.discover.is_empty() {
        let message = "there is no [[discover]] table, so no device can ever be found";
        return Err(RuleViolation::new(None, message));
    }
    parts::check(spec)?;
    let mut host_attributes = KnownAttributes::default();
    host_attributes.add_sources(&spec.attributes)?;
    check_labels(spec, host_attributes.clone())?;
    for (number, source) in spec.discover.iter().enumerate() {
        let known_attributes = find_source_attributes(source, host_attributes.clone());
        let known_attributes =
            known_attributes.map_err(|error| error.in_table("[[discover]]", number))?;
        let result =
            check_device(spec, source, &known_attributes).and_then(|()| check_id(spec, source));
        result.map_err(|error| error.in_table("[device]", 0))?;
        parts::check_source(spec, source, &known_attributes)?;
    }
    for (number, unclaimed) in spec.unclaimed_hardware.iter().enumerate() {
        let result = check_unclaimed_hardware(unclaimed, host_attributes.clone());
        result.map_err(|error| error.in_table("[[unclaimed]]", number))?;
    }
    let directories = spec.library_directories.iter();
    let directories = directories.chain(&spec.program_directories);
    host_attributes.check_paths(directories.map(Some), &None)?;
    host_attributes.check_conditions(&spec.driver_root_conditions)?;
    let host_attributes = KnownAttributes {
        is_edits_table: true,
        ..host_attributes
    };
    for (number, edits) in spec.edits.iter().enumerate() {
        let result = host_attributes.check_edits(edits);
        result.map_err(|error| error.in_table("[[edits]]", number))?;
    }
    Ok(())
}

/// Checks that each attribute that `[labels]` uses is set for the host, or by at least one
/// `[[discover]]` table. One table is enough, because a device that does not have the attribute
/// does not get the label. A class with `extends` is not checked, because it may be unable to
/// remove a label of the extended class.
fn check_labels(spec: &ClassSpec, host_attributes: KnownAttributes) -> Result<(), RuleViolation> {
    if spec.extends.is_some() {
        return Ok(());
    }
    let mut known_attributes = host_attributes.clone();
    for source in &spec.discover {
        let source_attributes = find_source_attributes(source, host_attributes.clone())?;
        known_attributes.names.extend(source_attributes.names);
    }
    let label_attributes = [
        REPLICAS_ATTRIBUTE,
        RESOURCE_ATTRIBUTE,
        SHARED_ATTRIBUTE,
        SHARED_SUFFIX_ATTRIBUTE,
    ];
    let label_attributes = label_attributes.map(|name| AttributeName::try_from(name.to_owned()));
    let label_attributes = label_attributes.into_iter().flatten();
    known_attributes.names.extend(label_attributes);
    let mut labels = spec.labels.values();
    labels
        .try_for_each(|label| known_attributes.check_template(&label.value))
        .map_err(|error| error.in_table("[labels]", 0))
}

/// Checks `only` and `except` of config.toml. Refuses an attribute that no device of the class can
/// have, and a word such as `all` that is not the name of a single device.
pub(super) fn check_filters(spec: &ClassSpec, settings: &ClassConfig) -> Result<(), RuleViolation> {
    let mut known_attributes = KnownAttributes::default();
    known_attributes.add_sources(&spec.attributes)?;
    let host_attributes = known_attributes.clone();
    for source in &spec.discover {
        known_attributes
            .names
            .append(&mut find_source_attributes(source, host_attributes.clone())?.names);
    }
    let filters = settings
        .allowed_devices
        .iter()
        .flatten()
        .chain(&settings.hidden_devices);
    for filter in filters {
        match filter {
            DeviceFilter::Name(name) if is_reserved_name(name) => {
                let message = format!(
                    "`{name}` in only or except names no device; write the ids of devices, and \
                     `only = []` for none"
                );
                return Err(RuleViolation::new(None, message));
            }
            DeviceFilter::Name(_) => {}
            DeviceFilter::Attributes(values) => {
                if let Some(name) = values
                    .keys()
                    .find(|name| !known_attributes.names.contains(*name))
                {
                    return Err(
                        known_attributes.new_unknown_attribute_error(name, "only or except")
                    );
                }
            }
        }
    }
    Ok(())
}

/// Checks the name of the resource with the kubelet's rules. The attributes in the template get a
/// sample value, because their real values are known only on a host.
fn check_resource(resource: &Template) -> Result<(), RuleViolation> {
    let sample_value = |name: &AttributeName| (name.clone(), "aa".to_owned());
    let sample_values = collect_by_insertion(resource.attributes().map(sample_value));
    match resource.fill(&sample_values) {
        Ok(example) => check_resource_name(&resource.to_string(), example),
        Err(_) => Ok(()),
    }
}

/// Checks the name of a resource with Kubernetes' rules. `name` is `resource` with sample values
/// for its attributes; they are equal if `resource` is not a template.
fn check_resource_name(resource: &str, name: String) -> Result<(), RuleViolation> {
    let refuse = |reason: String| Err(RuleViolation::new(resource, reason));
    let text = excerpt(resource);
    let is_template = name != resource;
    let name = match ResourceName::try_from(name) {
        Ok(name) => name,
        Err(error) if is_template => {
            return refuse(format!(
                "resource `{text}` with examples of its attributes: {error}; write it as \
                 vendor.example/chip"
            ));
        }
        Err(error) => return refuse(format!("{error}; write it as vendor.example/chip")),
    };
    let domain = name.as_str().split('/').next().unwrap_or_default();
    if domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") {
        return refuse(format!(
            "resource `{text}` has a domain that Kubernetes reserves; use your own"
        ));
    }
    let has_valid_ends = |part: &str| {
        let is_alphanumeric = |c: char| c.is_ascii_alphanumeric();
        part.starts_with(is_alphanumeric) && part.ends_with(is_alphanumeric)
    };
    let mut parts = domain.split('.').chain(name.as_str().split('/').skip(1));
    if parts.all(has_valid_ends) {
        Ok(())
    } else {
        refuse(format!(
            "each part of resource `{text}` has to begin and end with a letter or a digit"
        ))
    }
}

/// Checks `count_resource`, the resource that shows the number of devices. It must differ from the
/// resource under which the class offers the devices.
fn check_count_resource(spec: &ClassSpec) -> Result<(), RuleViolation> {
    let sharing = spec.sharing.as_ref();
    let Some(template) = sharing.and_then(|sharing| sharing.count_resource.as_ref()) else {
        return Ok(());
    };
    let name = template.to_string();
    if spec.may_offer(&name) {
        Err(RuleViolation::new(
            name.as_str(),
            format!("count_resource `{name}` is the name of the devices' resource"),
        ))
    } else {
        // A name without braces is not a template, so the check here is valid for all hosts.
        check_resource_name(&name, name.clone())
    }
}

/// Returns whether a variable has another purpose for images, container engines or loaders. A class
/// must not use such a variable for requests. Most containers have it, and each of them would be
/// refused because its value is not a valid request.
fn is_reserved_variable(variable: &EnvName) -> bool {
    const RESERVED_NAMES: [&str; 9] = [
        "HOME", "HOSTNAME", "LANG", "PATH", "PWD", "SHELL", "SHLVL", "TERM", "USER",
    ];
    let name = variable.as_str();
    let has_prefix = |prefix: &&str| name.starts_with(prefix);
    RESERVED_NAMES.contains(&name) || ["LD_", "LC_", "KUBERNETES_"].iter().any(has_prefix)
}

fn check_request(spec: &ClassSpec) -> Result<(), RuleViolation> {
    let request = &spec.request;
    let optional_variables = [&request.capabilities_env, &request.file_lists_env];
    let optional_variables = optional_variables.into_iter().flatten();
    let mut variables = [&request.env].into_iter().chain(optional_variables);
    if let Some(reserved) = variables.find(|name| is_reserved_variable(name)) {
        let message = format!(
            "`{reserved}` is a variable that containers have for another purpose; choose a name \
             such as MYCHIP_VISIBLE_DEVICES"
        );
        return Err(RuleViolation::new(reserved.as_str(), message));
    }
    let (capabilities, exceptions) = (spec.capabilities(), spec.list_excluding_capabilities());
    let first_capability = capabilities.union(&exceptions).next();
    if let (None, Some(name)) = (&request.capabilities_env, first_capability) {
        let message =
            format!("`{name}` is a capability, but [request] has no capabilities_env to choose it");
        return Err(RuleViolation::new(name.as_str(), message));
    }
    let is_unknown = |name: &&CapabilityName| !capabilities.contains(*name);
    if let Some(name) = request.default_capabilities.iter().find(is_unknown) {
        let message = format!("the default capability `{name}` has no [[edits]] of its own");
        return Err(RuleViolation::new(name.as_str(), message));
    }
    let has_lists = spec.edits.iter().any(|e| e.file_list_path.is_some());
    let lists_key = match &request.file_lists_env {
        Some(_) => Some("lists_env"),
        None => (!request.default_file_lists.is_empty()).then_some("default_lists"),
    };
    let unpaired_key = match (has_lists, lists_key) {
        (true, None) => Some("files_listed_in"),
        (false, key) => key,
        (true, Some(_)) => None,
    };
    if unpaired_key.is_some() {
        let message =
            "`files_listed_in` of [[edits]] goes with `lists_env` or `default_lists` of [request]";
        return Err(RuleViolation::new(unpaired_key, message));
    }
    let implied_capabilities = request.implied_capabilities.values().flatten();
    let mut names = request
        .implied_capabilities
        .keys()
        .chain(implied_capabilities);
    match names.find(|name| is_unknown(name) && !exceptions.contains(*name)) {
        Some(name) => Err(RuleViolation::new(
            name.as_str(),
            format!(
                "`implies` in [request] names `{name}`, which is not a capability of the class"
            ),
        )),
        None => Ok(()),
    }
}

/// Refuses `follow` and `[sharing]` in a class with network interfaces (`netdev`). An interface can
/// be in only one network namespace, and only the hook moves it, when a container starts.
fn check_net_device(spec: &ClassSpec) -> Result<(), RuleViolation> {
    let conflicting_setting = match (spec.is_followed, &spec.sharing) {
        (true, _) => "`follow = true`: a network interface is moved when a container starts",
        (_, Some(_)) => "[sharing]: a network interface is in one container at a time",
        _ => return Ok(()),
    };
    let message = format!("`netdev` in [device] does not go with {conflicting_setting}");
    Err(RuleViolation::new("netdev", message))
}

fn check_unclaimed_hardware(
    unclaimed: &UnclaimedHardware,
    mut known_attributes: KnownAttributes,
) -> Result<(), RuleViolation> {
    known_attributes
        .names
        .extend(unclaimed.path.captures().cloned());
    known_attributes.add_sources(&unclaimed.attributes)?;
    known_attributes.check_conditions(&unclaimed.require)?;
    known_attributes.check_template(&unclaimed.report)
}

fn find_source_attributes(
    source: &Source,
    mut known_attributes: KnownAttributes,
) -> Result<KnownAttributes, RuleViolation> {
    match (&source.path, source.virtual_device_count) {
        (Some(path), None) => known_attributes.names.extend(path.captures().cloned()),
        (None, Some(_)) => known_attributes
            .names
            .extend(AttributeName::try_from("index".to_owned()).ok()),
        _ => {
            let message = "a [[discover]] table has either `path` or `count`";
            return Err(RuleViolation::new("[[discover]]", message));
        }
    }
    known_attributes.add_sources(&source.attributes)?;
    known_attributes.check_conditions(&source.require)?;
    Ok(known_attributes)
}

fn check_device(
    spec: &ClassSpec,
    source: &Source,
    known_attributes: &KnownAttributes,
) -> Result<(), RuleViolation> {
    let device = &spec.device;
    if let Some(numa) = &device.numa {
        let text = numa.to_string();
        if !text.starts_with(['/', '{']) {
            let message = format!("numa `{text}` is not the path of a device's directory in /sys");
            return Err(RuleViolation::new(text.as_str(), message));
        }
    }
    if let (Some(index), Some(_)) = (&device.index, &device.order) {
        let message = "[device] has either `index` or `order`, not both";
        return Err(RuleViolation::new(&*index.to_string(), message));
    }
    check_device_names(device)?;
    let sharing = spec.sharing.as_ref();
    sharing.map_or(Ok(()), check_sharing)?;
    let templates = [
        Some(&spec.resource),
        Some(&device.id),
        device.index.as_ref(),
        device.order.as_ref(),
        device.numa.as_ref(),
        device.group.as_ref(),
        device.uniform.as_ref(),
        sharing.and_then(|sharing| sharing.replica_count_template.as_ref()),
        sharing.and_then(|sharing| sharing.combination_key.as_ref()),
        source.part_of.as_ref(),
    ];
    let templates = templates.into_iter().flatten();
    for template in templates.chain(&device.aliases).chain(device.env.values()) {
        known_attributes.check_template(template)?;
    }
    if let Some(links) = &device.links {
        known_attributes.check_template(&links.name)?;
        if let LinkPeers::DriverProperty(key) = &links.peers {
            known_attributes.check_template(key)?;
        }
    }
    if let Some(requirements) = &spec.request.requirements {
        let mut values = requirements.values.values();
        values.try_for_each(|value| known_attributes.check_template(value))?;
        let version_name = requirements.warn_within_major.as_ref();
        if let Some(name) = version_name.filter(|name| !requirements.values.contains_key(name)) {
            let name = name.as_str();
            let message = format!("warn_within_major `{name}` is not a name in `values`");
            return Err(RuleViolation::new(None, message));
        }
    }
    known_attributes.check_nodes(&device.nodes)?;
    known_attributes.check_nodes(&source.nodes)?;
    if let Some(netdev) = &device.netdev {
        known_attributes.check_net_device(netdev)?;
        check_net_device(spec)?;
    }
    known_attributes.check_files(&device.files)?;
    known_attributes.check_directories(&device.directories)?;
    let masks: Vec<&Mask> = spec.edits.iter().flat_map(|edits| &edits.masks).collect();
    let mut bitmask_files = masks.iter().flat_map(|mask| &mask.bitmask_files);
    bitmask_files.try_for_each(|file| known_attributes.check_template(&file.bit_number))?;
    for unmask in device.unmask.iter().chain(&source.unmask) {
        known_attributes.check_masked_path(&unmask.path, &unmask.path_pattern, &masks)?;
    }
    known_attributes.check_preparation(spec)?;
    for check in device.health.iter().chain(&source.health) {
        match &check.test {
            HealthTest::Value { value: text, .. }
            | HealthTest::File { file: text, .. }
            | HealthTest::NoLoggedFault {
                line_prefix: text, ..
            } => {
                known_attributes.check_template(text)?;
            }
            HealthTest::Program(program) => {
                let regex = match &program.expected_output {
                    Some(ExpectedOutput {
                        part: OutputPart::Match(regex),
                        ..
                    }) => Some(regex),
                    _ => None,
                };
                let mut texts = program.command.iter().chain(regex);
                texts.try_for_each(|text| known_attributes.check_template(text))?;
            }
            HealthTest::PathExists(_) => {}
        }
    }
    Ok(())
}
