//! Checks rules that concern several values of a class file together.

mod follow;
mod known;
mod parts;
mod sharing;

use crate::inserted;
use follow::{check_announcement, check_id, check_late};
use known::KnownAttributes;
use sharing::check_sharing;

use super::health::{ExpectedOutput, HealthTest, Part};
use super::{ClassConfig, ClassSpec, DeviceFilter, Ends, Mask, Source, UnclaimedHardware};
use crate::name::{
    AttributeName, CapabilityName, EnvName, ResourceName, excerpt, is_reserved_name,
};
use crate::strict_toml::BrokenRule;
use crate::template::Template;

/// Checks all rules that concern several values of a class file.
pub(super) fn check(spec: &ClassSpec) -> Result<(), BrokenRule> {
    check_request(spec)?;
    check_resource(&spec.resource)?;
    check_count_resource(spec)?;
    check_announcement(spec)?;
    check_late(spec)?;
    if spec.discover.is_empty() {
        let message = "there is no [[discover]] table, so no device can ever be found";
        return Err(BrokenRule::new(None, message));
    }
    parts::check(spec)?;
    let mut host = KnownAttributes::default();
    host.add_sources(&spec.attributes)?;
    check_labels(spec, host.clone())?;
    for (number, source) in spec.discover.iter().enumerate() {
        let known = known_attributes_of_source(source, host.clone());
        let known = known.map_err(|error| error.in_table("[[discover]]", number))?;
        let checked = check_device(spec, source, &known).and_then(|()| check_id(spec, source));
        checked.map_err(|error| error.in_table("[device]", 0))?;
        parts::check_source(spec, source, &known)?;
    }
    for (number, unclaimed) in spec.unclaimed.iter().enumerate() {
        let checked = check_unclaimed(unclaimed, host.clone());
        checked.map_err(|error| error.in_table("[[unclaimed]]", number))?;
    }
    let directories = spec.library_directories.iter();
    let directories = directories.chain(&spec.program_directories);
    host.check_paths(directories.map(Some), &None)?;
    let host = KnownAttributes {
        is_of_edits: true,
        ..host
    };
    for (number, edits) in spec.edits.iter().enumerate() {
        let checked = host.check_edits(edits);
        checked.map_err(|error| error.in_table("[[edits]]", number))?;
    }
    Ok(())
}

/// Checks that a device of some source has each attribute that `[labels]` uses. A device that lacks
/// the attribute has no label. A class that extends another one may find devices in another way,
/// and cannot remove the labels of that class.
fn check_labels(spec: &ClassSpec, host: KnownAttributes) -> Result<(), BrokenRule> {
    if spec.extends.is_some() {
        return Ok(());
    }
    let mut known = host.clone();
    for source in &spec.discover {
        let of_source = known_attributes_of_source(source, host.clone())?;
        known.names.extend(of_source.names);
    }
    let mut labels = spec.labels.values();
    labels
        .try_for_each(|label| known.check_template(&label.value))
        .map_err(|error| error.in_table("[labels]", 0))
}

/// Checks `only` and `except` of config.toml. An attribute that no device of the class has is a
/// mistake, and so is a word such as `all` that names no single device.
pub(super) fn check_filters(spec: &ClassSpec, settings: &ClassConfig) -> Result<(), BrokenRule> {
    let mut known = KnownAttributes::default();
    known.add_sources(&spec.attributes)?;
    let host = known.clone();
    for source in &spec.discover {
        known
            .names
            .append(&mut known_attributes_of_source(source, host.clone())?.names);
    }
    let filters = settings.only.iter().flatten().chain(&settings.except);
    for filter in filters {
        match filter {
            DeviceFilter::Name(name) if is_reserved_name(name) => {
                let message = format!(
                    "`{name}` in only or except names no device; write the ids of devices, and \
                     `only = []` for none"
                );
                return Err(BrokenRule::new(None, message));
            }
            DeviceFilter::Name(_) => {}
            DeviceFilter::Attributes(wanted) => {
                if let Some(name) = wanted.keys().find(|name| !known.names.contains(*name)) {
                    return Err(known.unknown_attribute(name, "only or except"));
                }
            }
        }
    }
    Ok(())
}

/// Checks the name of the resource by the kubelet's rules. Attributes in the template are
/// assumed to have valid values.
fn check_resource(resource: &Template) -> Result<(), BrokenRule> {
    let sample_value = |name: &AttributeName| (name.clone(), "aa".to_owned());
    let sample_values = inserted(resource.attributes().map(sample_value));
    match resource.fill(&sample_values) {
        Ok(example) => check_resource_name(&resource.to_string(), example),
        Err(_) => Ok(()),
    }
}

/// Checks a name that was written as `resource`.
fn check_resource_name(resource: &str, name: String) -> Result<(), BrokenRule> {
    let wrong = |reason: String| Err(BrokenRule::new(resource, reason));
    let text = excerpt(resource);
    let is_template = name != resource;
    let name = match ResourceName::try_from(name) {
        Ok(name) => name,
        Err(error) if is_template => {
            return wrong(format!(
                "resource `{text}` with examples of its attributes: {error}; write it as \
                 vendor.example/chip"
            ));
        }
        Err(error) => return wrong(format!("{error}; write it as vendor.example/chip")),
    };
    let domain = name.as_str().split('/').next().unwrap_or_default();
    if domain == "kubernetes.io" || domain.ends_with(".kubernetes.io") {
        return wrong(format!(
            "resource `{text}` has a domain that Kubernetes reserves; use your own"
        ));
    }
    let ends_well = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric();
        part.starts_with(fits) && part.ends_with(fits)
    };
    let mut parts = domain.split('.').chain(name.as_str().split('/').skip(1));
    if parts.all(ends_well) {
        Ok(())
    } else {
        wrong(format!(
            "each part of resource `{text}` has to begin and end with a letter or a digit"
        ))
    }
}

/// Checks `count_resource`, which must differ from the resource of the class.
fn check_count_resource(spec: &ClassSpec) -> Result<(), BrokenRule> {
    let sharing = spec.sharing.as_ref();
    let Some(count) = sharing.and_then(|sharing| sharing.count_resource.as_ref()) else {
        return Ok(());
    };
    let count = count.to_string();
    if spec.may_offer(&count) {
        Err(BrokenRule::new(
            count.as_str(),
            format!("count_resource `{count}` is the name of the devices' resource"),
        ))
    } else {
        // A name without braces is not a template, so it can be checked here for all hosts.
        check_resource_name(&count, count.clone())
    }
}

/// Returns whether images, engines or loaders use a variable. If such a variable were a request,
/// every container would be refused.
fn is_reserved(variable: &EnvName) -> bool {
    const RESERVED: [&str; 9] = [
        "HOME", "HOSTNAME", "LANG", "PATH", "PWD", "SHELL", "SHLVL", "TERM", "USER",
    ];
    let name = variable.as_str();
    let reserved = |prefix: &&str| name.starts_with(prefix);
    RESERVED.contains(&name) || ["LD_", "LC_", "KUBERNETES_"].iter().any(reserved)
}

fn check_request(spec: &ClassSpec) -> Result<(), BrokenRule> {
    let request = &spec.request;
    let others = [&request.capabilities_env, &request.lists_env];
    let others = others.into_iter().flatten();
    let mut variables = [&request.env].into_iter().chain(others);
    if let Some(reserved) = variables.find(|name| is_reserved(name)) {
        let message = format!(
            "`{reserved}` is a variable that containers have for another purpose; choose a name \
             such as MYCHIP_VISIBLE_DEVICES"
        );
        return Err(BrokenRule::new(reserved.as_str(), message));
    }
    let (chosen, exceptions) = (spec.capabilities(), spec.exceptions());
    let used = chosen.union(&exceptions).next();
    if let (None, Some(name)) = (&request.capabilities_env, used) {
        let message =
            format!("`{name}` is a capability, but [request] has no capabilities_env to choose it");
        return Err(BrokenRule::new(name.as_str(), message));
    }
    let unknown = |name: &&CapabilityName| !chosen.contains(*name);
    if let Some(name) = request.default_capabilities.iter().find(unknown) {
        let message = format!("the default capability `{name}` has no [[edits]] of its own");
        return Err(BrokenRule::new(name.as_str(), message));
    }
    let has_lists = spec.edits.iter().any(|e| e.files_listed_in.is_some());
    let named_by = match &request.lists_env {
        Some(_) => Some("lists_env"),
        None => (!request.default_lists.is_empty()).then_some("default_lists"),
    };
    let alone = match (has_lists, named_by) {
        (true, None) => Some("files_listed_in"),
        (false, key) => key,
        (true, Some(_)) => None,
    };
    if alone.is_some() {
        let message =
            "`files_listed_in` of [[edits]] goes with `lists_env` or `default_lists` of [request]";
        return Err(BrokenRule::new(alone, message));
    }
    let implied = request.implies.values().flatten();
    let mut names = request.implies.keys().chain(implied);
    match names.find(|name| unknown(name) && !exceptions.contains(*name)) {
        Some(name) => Err(BrokenRule::new(
            name.as_str(),
            format!(
                "`implies` in [request] names `{name}`, which is not a capability of the class"
            ),
        )),
        None => Ok(()),
    }
}

/// Refuses what cannot be done with network interfaces. Each is in one network namespace at a time,
/// and only the hook moves them.
fn check_net_device(spec: &ClassSpec) -> Result<(), BrokenRule> {
    let other = match (spec.follow, &spec.sharing) {
        (true, _) => "`follow = true`: a network interface is moved when a container starts",
        (_, Some(_)) => "[sharing]: a network interface is in one container at a time",
        _ => return Ok(()),
    };
    let message = format!("`netdev` in [device] does not go with {other}");
    Err(BrokenRule::new("netdev", message))
}

fn check_unclaimed(
    unclaimed: &UnclaimedHardware,
    mut known: KnownAttributes,
) -> Result<(), BrokenRule> {
    known.names.extend(unclaimed.path.captures().cloned());
    known.add_sources(&unclaimed.attributes)?;
    known.check_conditions(&unclaimed.require)?;
    known.check_template(&unclaimed.report)
}

fn known_attributes_of_source(
    source: &Source,
    mut known: KnownAttributes,
) -> Result<KnownAttributes, BrokenRule> {
    match (&source.path, source.count) {
        (Some(path), None) => known.names.extend(path.captures().cloned()),
        (None, Some(_)) => known
            .names
            .extend(AttributeName::try_from("index".to_owned()).ok()),
        _ => {
            let message = "a [[discover]] table has either `path` or `count`";
            return Err(BrokenRule::new("[[discover]]", message));
        }
    }
    known.add_sources(&source.attributes)?;
    known.check_conditions(&source.require)?;
    Ok(known)
}

fn check_device(
    spec: &ClassSpec,
    source: &Source,
    known: &KnownAttributes,
) -> Result<(), BrokenRule> {
    let device = &spec.device;
    if let Some(numa) = &device.numa {
        let text = numa.to_string();
        if !text.starts_with(['/', '{']) {
            let message = format!("numa `{text}` is not the path of a device's directory in /sys");
            return Err(BrokenRule::new(text.as_str(), message));
        }
    }
    if let (Some(index), Some(_)) = (&device.index, &device.order) {
        let message = "[device] has either `index` or `order`, not both";
        return Err(BrokenRule::new(&*index.to_string(), message));
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
        device.uniform.as_ref(),
        sharing.and_then(|sharing| sharing.replicas_from.as_ref()),
        sharing.and_then(|sharing| sharing.combine_by.as_ref()),
        source.part_of.as_ref(),
    ];
    let templates = templates.into_iter().flatten();
    for template in templates.chain(&device.aliases).chain(device.env.values()) {
        known.check_template(template)?;
    }
    if let Some(links) = &device.links {
        known.check_template(&links.name)?;
        if let Ends::Fact(key) = &links.ends {
            known.check_template(key)?;
        }
    }
    if let Some(requirements) = &spec.request.requirements {
        let mut values = requirements.values.values();
        values.try_for_each(|value| known.check_template(value))?;
        let within = requirements.warn_within_major.as_ref();
        if let Some(name) = within.filter(|name| !requirements.values.contains_key(name)) {
            let name = name.as_str();
            let message = format!("warn_within_major `{name}` is not a name in `values`");
            return Err(BrokenRule::new(None, message));
        }
    }
    known.check_nodes(&device.nodes)?;
    known.check_nodes(&source.nodes)?;
    if let Some(netdev) = &device.netdev {
        known.check_net_device(netdev)?;
        check_net_device(spec)?;
    }
    known.check_files(&device.files)?;
    known.check_directories(&device.directories)?;
    let masks: Vec<&Mask> = spec.edits.iter().flat_map(|edits| &edits.masks).collect();
    let mut texts = masks.iter().flat_map(|mask| &mask.texts);
    texts.try_for_each(|text| known.check_template(&text.bit))?;
    for shown in device.unmask.iter().chain(&source.unmask) {
        known.check_masked(&shown.path, &shown.for_each, &masks)?;
    }
    known.check_preparation(spec)?;
    for check in device.health.iter().chain(&source.health) {
        match &check.test {
            HealthTest::Value { value: text, .. }
            | HealthTest::File { file: text, .. }
            | HealthTest::Unlogged { line: text, .. } => {
                known.check_template(text)?;
            }
            HealthTest::Program(program) => {
                let regex = match &program.prints {
                    Some(ExpectedOutput {
                        part: Part::Match(regex),
                        ..
                    }) => Some(regex),
                    _ => None,
                };
                let mut texts = program.command.iter().chain(regex);
                texts.try_for_each(|text| known.check_template(text))?;
            }
            HealthTest::Exists(_) => {}
        }
    }
    Ok(())
}
