//! Writes notes for the operator about differences between the existing installation and the new
//! one. It is an error if the release has fewer class files and the operator has not allowed that.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use device_class::config::Config;
use runtime_config::Plan;

use crate::compatibility::ReplacedToolkits;
use crate::host::Host;
use crate::manifest::Manifest;
use crate::payload::{CLASSES_DIR, Payload};

/// Returns a note about names of vendors' toolkits that an earlier installation offered (`--as`)
/// and that this installation removes.
pub(super) fn describe_removed_toolkits(
    old_manifest: &Manifest,
    names: &ReplacedToolkits,
) -> Option<String> {
    let dropped_toolkits: Vec<&str> = old_manifest
        .toolkits
        .iter()
        .filter(|toolkit| !names.list_toolkits_to_record().contains(toolkit))
        .map(String::as_str)
        .collect();
    let list = dropped_toolkits.join(",");
    (!dropped_toolkits.is_empty()).then(|| {
        format!("the names of {list} are taken away; install with --as {list} to keep them")
    })
}

/// Returns a warning for each class that the requested configuration names, but that neither the
/// release nor the host has.
pub(super) fn list_unknown_class_warnings(host: &Host, payload: &Payload) -> Result<Vec<String>> {
    let Some(text) = &payload.config_text else {
        return Ok(Vec::new());
    };
    let config = Config::parse(&host.directories().config_path(), text)?;
    let admin_files = host.list(&host.directories().admin_classes_dir())?;
    let admin_file_names = admin_files.iter().filter_map(|name| name.to_str());
    let file_names: BTreeSet<&str> = payload
        .class_file_names()
        .into_iter()
        .chain(admin_file_names)
        .collect();
    let known_names = file_names
        .iter()
        .filter_map(|name| name.strip_suffix(".toml"));
    Ok(config.describe_unknown_classes(known_names).collect())
}

/// Returns a note if `boathook-runtime` replaces the default runtime of an engine. The note names
/// the program that `boathook-runtime` then calls.
pub(super) fn describe_replaced_runtime(plan: &Plan) -> Option<String> {
    let replaced_runtime = plan
        .replaced_runtime
        .as_ref()
        .filter(|_| !plan.is_empty())?;
    let program = match &replaced_runtime.program {
        None => "the host's runc".to_owned(),
        Some(program) => format!(
            "{} (`path` in [runtime] of config.toml, for all engines)",
            program.display()
        ),
    };
    Some(format!(
        "{}: the default runtime boathook replaces {}; it calls {program}",
        plan.engine, replaced_runtime.name
    ))
}

/// Returns a note with the names of the installed class files that the new release does not have.
/// Returns an error if the new release has fewer class files than the installed one and
/// `allows_fewer_classes` is not set.
pub(super) fn describe_removed_classes(
    host: &Host,
    payload: &Payload,
    allows_fewer_classes: bool,
) -> Result<Option<String>> {
    let installed_names = host.list(&host.current_link_path().join(CLASSES_DIR))?;
    let installed_files: BTreeSet<&str> = installed_names
        .iter()
        .filter_map(|name| name.to_str())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    let new_files = payload.class_file_names();
    let names: Vec<String> = installed_files
        .difference(&new_files)
        .map(|&name| name.to_owned())
        .collect();
    if names.is_empty() {
        return Ok(None);
    }
    let (count, names) = (names.len(), names.join(", "));
    ensure!(
        new_files.len() >= installed_files.len() || allows_fewer_classes,
        "{count} class files are installed that this release lacks, and their devices would be \
         missing in new containers: {names}; use --classes to remove them"
    );
    Ok(Some(format!("removed classes: {names}")))
}
