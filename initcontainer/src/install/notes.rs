//! Finds the differences to the earlier installation of which the operator is told. A loss of
//! classes without consent is an error.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, ensure};
use device_class::config::Config;
use runtime_config::{HostRoot, Plan};

use crate::compatibility::OfferedNames;
use crate::layout::{CONFIG, CURRENT, OWN_CLASSES};
use crate::manifest::Manifest;
use crate::payload::{CLASSES, Payload};

/// Returns a note about the names of an earlier installation that this one takes away.
pub(super) fn dropped_names(old: &Manifest, names: &OfferedNames) -> Option<String> {
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

/// Returns the classes that the given configuration configures but that neither the release nor
/// the host has.
pub(super) fn unknown_classes(host: &HostRoot, payload: &Payload) -> Result<Vec<String>> {
    let Some(text) = &payload.config else {
        return Ok(Vec::new());
    };
    let config = Config::parse(Path::new(CONFIG), text)?;
    let own = host.list(Path::new(OWN_CLASSES))?;
    let own = own.iter().filter_map(|name| name.to_str());
    let files: BTreeSet<&str> = payload.classes().into_iter().chain(own).collect();
    let known = files.iter().filter_map(|name| name.strip_suffix(".toml"));
    Ok(config.warn_of_unknown_classes(known).collect())
}

/// Returns a note about the default runtime of an engine that `boathook-runtime` replaces.
pub(super) fn replaced_runtime(plan: &Plan) -> Option<String> {
    let replaced = plan.replaced.as_ref().filter(|_| !plan.is_empty())?;
    let calls = match &replaced.program {
        None => "the host's runc".to_owned(),
        Some(program) => format!(
            "{} (`path` in [runtime] of {CONFIG}, for all engines)",
            program.display()
        ),
    };
    Some(format!(
        "{}: the default runtime boathook replaces {}; it calls {calls}",
        plan.engine, replaced.name
    ))
}

/// Returns an error if the new release has fewer classes than the installed one. If fewer
/// classes are allowed, the names of the removed class files are returned.
pub(super) fn removed_classes(
    host: &HostRoot,
    payload: &Payload,
    fewer_classes: bool,
) -> Result<Option<String>> {
    let installed = host.list(&Path::new(CURRENT).join(CLASSES))?;
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
