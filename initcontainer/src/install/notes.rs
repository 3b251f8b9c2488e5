//! Finds the differences from the existing installation that the operator must know. A loss of
//! classes without consent is an error.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use device_class::config::Config;
use runtime_config::Plan;

use crate::compatibility::OfferedNames;
use crate::host::Host;
use crate::manifest::Manifest;
use crate::payload::{CLASSES, Payload};

/// Returns a note about offered names that this installation takes away.
pub(super) fn describe_dropped_names(old: &Manifest, names: &OfferedNames) -> Option<String> {
    let dropped: Vec<&str> = old
        .toolkits
        .iter()
        .filter(|toolkit| !names.toolkits.contains(toolkit))
        .map(String::as_str)
        .collect();
    let list = dropped.join(",");
    (!dropped.is_empty()).then(|| {
        format!("the names of {list} are taken away; install with --as {list} to keep them")
    })
}

/// Returns warnings about classes in the given configuration that neither the release nor the host
/// has.
pub(super) fn find_unknown_classes(host: &Host, payload: &Payload) -> Result<Vec<String>> {
    let Some(text) = &payload.config else {
        return Ok(Vec::new());
    };
    let config = Config::parse(&host.directories().config(), text)?;
    let own = host.list(&host.directories().own_classes())?;
    let own = own.iter().filter_map(|name| name.to_str());
    let files: BTreeSet<&str> = payload.classes().into_iter().chain(own).collect();
    let known = files.iter().filter_map(|name| name.strip_suffix(".toml"));
    Ok(config.warn_of_unknown_classes(known).collect())
}

/// Returns a note about an engine's default runtime that the wrapper replaces.
pub(super) fn describe_replaced_runtime(plan: &Plan) -> Option<String> {
    let replaced = plan.replaced.as_ref().filter(|_| !plan.is_empty())?;
    let calls = match &replaced.program {
        None => "the host's runc".to_owned(),
        Some(program) => format!(
            "{} (`path` in [runtime] of config.toml, for all engines)",
            program.display()
        ),
    };
    Some(format!(
        "{}: the default runtime boathook replaces {}; it calls {calls}",
        plan.engine, replaced.name
    ))
}

/// Returns a note with the names of the class files that the new release lacks. Returns an error
/// if there are fewer classes than before and `fewer_classes` is not set.
pub(super) fn describe_removed_classes(
    host: &Host,
    payload: &Payload,
    fewer_classes: bool,
) -> Result<Option<String>> {
    let installed = host.list(&host.current().join(CLASSES))?;
    let installed: BTreeSet<&str> = installed
        .iter()
        .filter_map(|name| name.to_str())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    let next = payload.classes();
    let names: Vec<String> = installed
        .difference(&next)
        .map(|&name| name.to_owned())
        .collect();
    if names.is_empty() {
        return Ok(None);
    }
    let (count, names) = (names.len(), names.join(", "));
    ensure!(
        next.len() >= installed.len() || fewer_classes,
        "{count} class files are installed that this release lacks, and their devices would be \
         missing in new containers: {names}; use --classes to remove them"
    );
    Ok(Some(format!("removed classes: {names}")))
}
