//! Finds variables that no class of this host has, for `boathook explain --env`.

use device_class::DeviceClass;
use device_class::class::ClassSpec;
use device_class::config::Config;
use device_class::load;
use device_class::name::excerpt;
use device_class::similar;
use hook::log::format_error_chain;

use super::CommandError;

/// Returns the message for variables in the form `NAME=VALUE`, none of which belongs to a class of
/// this host. Returns `None` if there are no variables, or if a class has one of them.
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
        similar::find_most_similar(name, candidates)
    });
    let first_error = errors.into_iter().find_map(Result::err);
    let advice = match (similar_names.into_iter().next(), first_error) {
        (Some(name), _) => format!("did you mean {name}?"),
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

/// Returns the variables by which a container requests devices and capabilities of a class.
pub(super) fn list_variables(spec: &ClassSpec) -> impl Iterator<Item = &str> {
    let request = &spec.request;
    let names = [Some(&request.env), request.capabilities_env.as_ref()];
    names.into_iter().flatten().map(|name| name.as_str())
}
