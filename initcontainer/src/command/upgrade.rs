//! Implements the command `upgrade`, which installs another version with the options of the
//! existing installation.

use std::path::Path;

use anyhow::{Context, Result};
use initcontainer::cli::Upgrade;
use initcontainer::compatibility::ReplacedToolkits;
use initcontainer::host::Host;
use initcontainer::lock::InstallerLock;
use initcontainer::manifest::Manifest;
use initcontainer::payload::{ClassFileSource, NO_CLASSES, Payload};
use runtime_config::{Engine, InstallOptions, InstallationRecord};

use super::check_user;
use super::execution::{InstallRequest, execute_request};
use super::install::{find_release_dir, read_payload, to_runtime_options};
use super::uninstall::describe_other_source;
use crate::output::Output;

/// Replaces the installed version by another one. The configured engines stay configured with the
/// same options. If nothing is installed, only prints a note.
pub(super) fn upgrade(host: &Host, args: &Upgrade, output: &mut Output) -> Result<()> {
    let Some(manifest) = Manifest::load(host)? else {
        output.report_note("boathook is not installed; boathook-init install does that");
        return Ok(());
    };
    if let Some(expected_source) = &args.installed_from
        && let Some(source) = describe_other_source(&manifest, expected_source)
    {
        output.report_note(&format!(
            "the installed version is from {source} and stays; to use that of {}, run \
             boathook-init install",
            expected_source.display()
        ));
        return Ok(());
    }
    check_user(host)?;
    let source = find_release_dir(args.source.as_deref())?;
    let lock = (!args.dry_run)
        .then(|| InstallerLock::take(host))
        .transpose()?;
    let payload = read_release(host, &source, &manifest)
        .context("the installed version stays; run boathook-init install with other options")?;
    let engines = find_configured_engines(host, &payload, &manifest, output)?;
    let configured_engines: Vec<Engine> = engines.iter().map(|(engine, _)| *engine).collect();
    // An engine that was removed from the host keeps its names in the manifest alone.
    let mut toolkits_by_engine = manifest.list_toolkits_by_engine();
    toolkits_by_engine.retain(|engine, _| configured_engines.contains(engine));
    let mut names =
        ReplacedToolkits::find_with_engine_overrides(host, &payload, &[], toolkits_by_engine)?;
    names.keep_names_of_other_engines(&manifest, &configured_engines);
    let request = InstallRequest {
        engines,
        payload,
        names,
        // A release is complete. If it lacks a class file of the installed release, that file was
        // removed on purpose, so fewer class files are not an error.
        allows_fewer_classes: true,
        should_restart: args.restart,
    };
    execute_request(host, &request, lock, output)
}

/// Reads the new release with the options of the existing installation: its directories of class
/// files, its services, and the installed configuration.
fn read_release(host: &Host, source: &Path, manifest: &Manifest) -> Result<Payload> {
    let options = &manifest.options;
    let classes = match options.classes_dir.as_deref() {
        Some(dir) if dir == Path::new(NO_CLASSES) => ClassFileSource::None,
        Some(dir) => ClassFileSource::Directory(dir),
        None => ClassFileSource::Release,
    };
    let mut payload = read_payload(host, source, classes)?;
    if let Some(dir) = &options.own_classes_dir {
        payload = payload.with_admin_class_files(source, dir)?;
    }
    payload = payload.with_services(source, Vec::new(), options.services.clone())?;
    payload
        .options
        .plugin_arguments
        .clone_from(&options.plugin_arguments);
    payload.config_text = host.read(&host.directories().installed_config_path())?;
    Ok(payload)
}

/// Returns the configured engines with their options. An engine that was removed from the host
/// after it was configured is left out, so that its remaining files are not changed. An engine
/// whose CRI plugin was disabled since is left out with a note.
fn find_configured_engines(
    host: &Host,
    payload: &Payload,
    manifest: &Manifest,
    output: &mut Output,
) -> Result<Vec<(Engine, InstallOptions)>> {
    let mut engines = Vec::new();
    for engine in Engine::ALL {
        let record = InstallationRecord::load(host, &host.record_path(engine))?;
        if record.is_none() || engine.detect(host).is_none() {
            continue;
        }
        let options = manifest.find_engine_options(engine).unwrap_or_default();
        let options = to_runtime_options(host, payload, options)?;
        let snapshot = engine.read_snapshot(host, record.as_ref())?;
        match engine.plan_install(&snapshot, record.as_ref(), &options) {
            Err(e @ runtime_config::Error::CriDisabled { .. }) => {
                output.report_note(&format!("{engine}: left as it is: {e}"));
            }
            _ => engines.push((engine, options)),
        }
    }
    Ok(engines)
}
