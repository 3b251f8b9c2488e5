//! Plans the manifest of an installation, which `upgrade` and `uninstall` read.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use runtime_config::{Change, Engine, InstallOptions};

use super::links::find_offered_links;
use super::versions::filter_present_versions;
use crate::compatibility::ReplacedToolkits;
use crate::configuration::ConfigurationPlan;
use crate::host::Host;
use crate::manifest::{Manifest, STATE_FILE_MODE};
use crate::payload::Payload;
use crate::recorded_options::{EngineOptions, RecordedOptions};
use crate::service::Service;
use crate::services;
use crate::step::Step;

/// Returns the options that the manifest records for the next upgrade. An engine that only an
/// earlier installation configured keeps its options. The plugin keeps its old arguments if its
/// service stays enabled, because this process cannot disable units.
fn collect_options(
    host: &Host,
    old_manifest: &Manifest,
    payload: &Payload,
    engines: &[(Engine, InstallOptions)],
    names: &ReplacedToolkits,
) -> RecordedOptions {
    let mut options = payload.options.clone();
    options.services = services::list_services_to_record(
        host,
        &old_manifest.options.services,
        &payload.options.services,
    );
    let keeps_plugin = options.services.contains(&Service::Plugin)
        && !payload.options.services.contains(&Service::Plugin);
    if keeps_plugin {
        options
            .plugin_arguments
            .clone_from(&old_manifest.options.plugin_arguments);
    }
    options.engines.clone_from(&old_manifest.options.engines);
    for (engine, engine_options) in engines {
        let toolkits = names.toolkits_of_engine(*engine);
        let engine_options = EngineOptions::new(engine_options, toolkits);
        options.engines.insert(*engine, engine_options);
    }
    options
}

/// Plans the manifest and its directories. `new_dirs` are further directories that the installation
/// makes and the manifest must list.
pub(super) fn plan_manifest(
    host: &Host,
    payload: &Payload,
    engines: &[(Engine, InstallOptions)],
    links: &[PathBuf],
    names: &ReplacedToolkits,
    config_plan: &ConfigurationPlan,
    new_dirs: &BTreeSet<PathBuf>,
) -> Result<Vec<Step>> {
    let old_manifest = Manifest::load(host)?;
    let mut manifest = old_manifest.clone().unwrap_or_default();
    let missing_dirs = host.find_missing_dirs(&host.manifest_path())?;
    for dir in missing_dirs.iter().chain(new_dirs) {
        // The manifest does not list the state directory, because `uninstall` deletes it together
        // with the manifest.
        if !manifest.made_dirs.contains(dir) && *dir != host.state_dir() {
            manifest.made_dirs.push(dir.clone());
        }
    }
    if !manifest.versions.contains(&payload.version) {
        manifest.versions = filter_present_versions(host, manifest.versions)?;
        manifest.versions.push(payload.version.clone());
    }
    for link in links {
        if !manifest.links.contains(link) {
            manifest.links.push(link.clone());
        }
    }
    manifest.toolkits = names.list_toolkits_to_record();
    // The manifest still lists the links of an earlier installation. If this run is killed before
    // it removes these links, the next run finds them in the manifest.
    for (link, _) in find_offered_links(names, engines) {
        if !manifest.toolkit_links.contains(link) {
            manifest.toolkit_links.push(link.clone());
        }
    }
    if let Some(text) = &config_plan.written_text {
        manifest.config = Some(text.clone());
        manifest.previous_config = config_plan.replaced_text.clone();
    }
    manifest.options = collect_options(host, &manifest, payload, engines, names);
    if old_manifest.as_ref() == Some(&manifest) {
        return Ok(Vec::new());
    }
    let text = manifest.to_text();
    Ok(match (missing_dirs.first(), old_manifest) {
        (Some(top), _) => {
            vec![Step::MakeTree {
                path: top.clone(),
                file: (host.manifest_path(), text),
            }]
        }
        (None, old_manifest) => {
            let old_text = old_manifest.map(|manifest| manifest.to_text());
            let change = Change::from_texts(
                &host.manifest_path(),
                old_text.as_deref(),
                Some(&text),
                STATE_FILE_MODE,
            );
            change.into_iter().map(Step::Change).collect()
        }
    })
}
