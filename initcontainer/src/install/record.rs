//! Plans the manifest of an installation, which upgrades and removals read.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use runtime_config::{Change, Engine, Options};

use super::links::offered_links;
use super::versions::find_version_dirs;
use crate::compatibility::OfferedNames;
use crate::configuration::Configuration;
use crate::host::Host;
use crate::manifest::{MODE, Manifest};
use crate::payload::Payload;
use crate::recorded_options::RecordedOptions;
use crate::services;
use crate::step::Step;

/// Returns the options to record. The options of engines that only an earlier installation
/// configured are kept.
fn record_options(
    host: &Host,
    old: &Manifest,
    payload: &Payload,
    engines: &[(Engine, Options)],
) -> RecordedOptions {
    let mut options = payload.origin.clone();
    options.services =
        services::services_to_record(host, &old.options.services, &payload.origin.services);
    options.engines.clone_from(&old.options.engines);
    options
        .engines
        .extend(engines.iter().map(|(engine, o)| (*engine, o.into())));
    options
}

/// Plans the manifest and its directories. `dirs` are further directories that the installation
/// makes and the manifest must list.
pub(super) fn record_manifest(
    host: &Host,
    payload: &Payload,
    engines: &[(Engine, Options)],
    links: &[PathBuf],
    names: &OfferedNames,
    config: &Configuration,
    dirs: &BTreeSet<PathBuf>,
) -> Result<Vec<Step>> {
    let old = Manifest::load(host)?;
    let mut manifest = old.clone().unwrap_or_default();
    let missing = host.missing_dirs(&host.manifest())?;
    for dir in missing.iter().chain(dirs) {
        // The state directory is not listed, because it is removed together with the manifest.
        if !manifest.made_dirs.contains(dir) && *dir != host.state() {
            manifest.made_dirs.push(dir.clone());
        }
    }
    if !manifest.versions.contains(&payload.version) {
        manifest.versions = find_version_dirs(host, manifest.versions)?;
        manifest.versions.push(payload.version.clone());
    }
    for link in links {
        if !manifest.links.contains(link) {
            manifest.links.push(link.clone());
        }
    }
    manifest.toolkits.clone_from(&names.toolkits);
    // The links of an earlier installation stay listed: this run may be killed before it removes
    // them.
    for (link, _) in offered_links(names, engines) {
        if !manifest.compatibility_links.contains(link) {
            manifest.compatibility_links.push(link.clone());
        }
    }
    if let Some(text) = &config.written {
        manifest.config = Some(text.clone());
        manifest.config_before = config.replaced.clone();
    }
    manifest.options = record_options(host, &manifest, payload, engines);
    if old.as_ref() == Some(&manifest) {
        return Ok(Vec::new());
    }
    let text = manifest.to_text();
    Ok(match (missing.first(), old) {
        (Some(top), _) => {
            vec![Step::MakeTree {
                path: top.clone(),
                file: (host.manifest(), text),
            }]
        }
        (None, old) => {
            let before = old.map(|m| m.to_text());
            let change = Change::rewrite(&host.manifest(), before.as_deref(), Some(&text), MODE);
            change.into_iter().map(Step::Change).collect()
        }
    })
}
