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

/// The steps that write the manifest of an installation.
pub(super) struct ManifestSteps {
    /// The manifest and its directories. They are written before everything that it lists.
    pub(super) before_files: Vec<Step>,
    /// The manifest without the links that the installation removes. It is written after these
    /// links are removed. If there are no such links, this field is `None`.
    pub(super) after_links: Option<Step>,
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
) -> Result<ManifestSteps> {
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
    let offered_links = find_offered_links(names, engines).iter();
    let offered_paths: Vec<&PathBuf> = offered_links.map(|(link, _)| link).collect();
    for link in &offered_paths {
        if !manifest.toolkit_links.contains(link) {
            manifest.toolkit_links.push((*link).clone());
        }
    }
    if let Some(text) = &config_plan.written_text {
        manifest.config = Some(text.clone());
        manifest.previous_config = config_plan.replaced_text.clone();
    }
    manifest.options = collect_options(host, &manifest, payload, engines, names);
    let mut final_manifest = manifest.clone();
    if !names.keeps_docker_links() {
        let is_offered = |link: &PathBuf| offered_paths.contains(&link);
        final_manifest.toolkit_links.retain(is_offered);
    }
    let text = manifest.to_text();
    let plan_write = |old_text: Option<&str>, new_text: &str| {
        let path = host.manifest_path();
        Change::from_texts(&path, old_text, Some(new_text), STATE_FILE_MODE).map(Step::Change)
    };
    let after_links = plan_write(Some(&text), &final_manifest.to_text());
    let before_files = match missing_dirs.first() {
        _ if old_manifest.as_ref() == Some(&manifest) => Vec::new(),
        Some(top) => vec![Step::MakeTree {
            path: top.clone(),
            file: (host.manifest_path(), text),
        }],
        None => {
            let old_text = old_manifest.map(|manifest| manifest.to_text());
            plan_write(old_text.as_deref(), &text).into_iter().collect()
        }
    };
    Ok(ManifestSteps {
        before_files,
        after_links,
    })
}
