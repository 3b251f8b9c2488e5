//! Finds environment variables that request nothing: those that no class of this host has, and
//! those that only choose among the devices that a container already has.

use device_class::DeviceClass;
use device_class::class::ClassSpec;
use device_class::config::Config;
use device_class::discover;
use device_class::load;
use device_class::name::excerpt;
use device_class::similar;
use hook::log::format_error_chain;
use hook::planner;

use super::CommandError;
use super::class_kind::ClassKind;

/// Returns a message if none of the `variables`, each as `NAME=VALUE`, belongs to a class of this
/// host. Returns `None` if there are no variables, or if a class has one of them.
pub(super) fn describe_unknown_variables(
    variables: &[String],
    config: &Config,
) -> Result<Option<String>, CommandError> {
    let names: Vec<&str> = variables
        .iter()
        .map(|variable| variable.split('=').next().unwrap_or_default())
        .collect();
    let sources = load::read_each_source(&config.classes)?.into_iter();
    let loaded_classes = sources.map(|source| config.class(&source?));
    let (classes, errors): (Vec<_>, Vec<_>) = loaded_classes.partition(Result::is_ok);
    let classes: Vec<DeviceClass> = classes.into_iter().flatten().collect();
    let known_names: Vec<&str> = classes
        .iter()
        .flat_map(|class| list_variables(&class.spec))
        .collect();
    if names.is_empty() || names.iter().any(|name| known_names.contains(name)) {
        return Ok(None);
    }
    let similar_names = names.iter().filter_map(|name| {
        let candidates = known_names.iter().copied();
        let candidates = candidates.filter(|known_name| similar::is_typo(name, known_name));
        let named_after_class = || {
            let class = classes
                .iter()
                .find(|class| is_default_variable_name(name, class))?;
            Some(class.spec.request.env.as_str())
        };
        similar::find_most_similar(name, candidates).or_else(named_after_class)
    });
    let first_error = errors.into_iter().find_map(Result::err);
    let index_variable_text = describe_index_variables(&names, &classes, config)
        .into_iter()
        .next()
        .map(|(text, _)| text);
    let advice = match (similar_names.into_iter().next(), first_error) {
        (Some(name), _) => format!("did you mean {name}?"),
        (None, _) if index_variable_text.is_some() => index_variable_text.unwrap_or_default(),
        (None, Some(error)) => format!(
            "it may be that of a class file that cannot be used: {}",
            format_error_chain(&error)
        ),
        (None, None) => "`boathook list --all` shows the variables".to_owned(),
    };
    let names = names.join(", ");
    let names = excerpt(&names);
    Ok(Some(format!(
        "no class of this host has the variable {names}; {advice}"
    )))
}

/// Returns whether a variable's name consists of the class name and the usual ending, such as
/// `SERIAL_PORT_VISIBLE_DEVICES` for the class `serial-port`.
pub(super) fn is_default_variable_name(variable: &str, class: &DeviceClass) -> bool {
    let class_name = class.name.to_string().replace('-', "_");
    let stem = variable.strip_suffix("_VISIBLE_DEVICES");
    stem.is_some_and(|stem| stem.eq_ignore_ascii_case(&class_name))
}

/// Describes the variables in `names` with which libraries choose among the devices that a
/// container already has. People set them by mistake to request devices. Returns the text and the
/// fix of a finding for each variable of a class with devices on this host. If several classes have
/// the variable, names the class that people want most often.
pub(super) fn describe_index_variables(
    names: &[&str],
    classes: &[DeviceClass],
    config: &Config,
) -> Vec<(String, String)> {
    let Ok(host) = planner::open_host(config) else {
        return Vec::new();
    };
    let mut classes: Vec<&DeviceClass> = classes.iter().collect();
    classes.sort_by_key(|class| ClassKind::from_class(class));
    let descriptions = names.iter().filter_map(|name| {
        let has_variable = |class: &&&DeviceClass| {
            let mut variables = class.spec.request.container_index_env.iter();
            variables.any(|variable| variable.as_str() == *name)
        };
        let mut classes = classes.iter().filter(has_variable);
        let class = classes.find(|class| !discover::find_devices(class, &host).devices.is_empty())?;
        let (variable, class) = (&class.spec.request.env, &class.name);
        Some((
            format!(
                "{name} chooses among the devices that a container has; {variable} of class {class} \
                 requests them"
            ),
            format!("set {variable} as well"),
        ))
    });
    descriptions.collect()
}

/// Returns the variables by which a container requests devices and capabilities of a class, such as
/// `DUMMY_VISIBLE_DEVICES`.
pub(super) fn list_variables(spec: &ClassSpec) -> impl Iterator<Item = &str> {
    let request = &spec.request;
    let names = [Some(&request.env), request.capabilities_env.as_ref()];
    names.into_iter().flatten().map(|name| name.as_str())
}
