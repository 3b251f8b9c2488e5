//! Implements the command `install`, which copies the programs to the host and configures its
//! engines to call the hook.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use initcontainer::cli::Install;
use initcontainer::compatibility::OfferedNames;
use initcontainer::configuration;
use initcontainer::directories::{self, RequestedDirectories};
use initcontainer::fact_programs::is_facts_timer_needed;
use initcontainer::host::Host;
use initcontainer::lock::InstallerLock;
use initcontainer::manifest::Manifest;
use initcontainer::payload::{ClassFileSource, NO_CLASSES, Payload};
use initcontainer::recorded_options::EngineOptions;
use initcontainer::service::Service;
use runtime_config::Options;

use super::execution::{InstallRequest, execute_request};
use super::{check_user, engines};
use crate::output::Output;

#[expect(
    clippy::disallowed_methods,
    reason = "the user names the file, and waits"
)]
pub(super) fn install(host: &Host, args: &Install, output: &mut Output) -> Result<()> {
    check_user(host)?;
    let requested_directories = RequestedDirectories {
        programs: args.prefix.clone(),
        configuration: args.config_dir.clone(),
    };
    let host = &directories::choose_directories(host, &requested_directories)?;
    let source = find_release_dir(args.source.as_deref())?;
    // The manifest records these paths, so they must not depend on the working directory.
    let absolute_dir = args.classes.as_deref().map(std::path::absolute);
    let classes_dir = absolute_dir.transpose()?;
    let classes = match &classes_dir {
        Some(_) if args.classes.as_deref() == Some(Path::new(NO_CLASSES)) => ClassFileSource::None,
        Some(dir) => ClassFileSource::Directory(dir),
        None => ClassFileSource::Release,
    };
    let mut payload = read_payload(host, &source, classes)?;
    if let Some(dir) = &args.own_classes {
        payload = payload.with_own_classes(&source, &std::path::absolute(dir)?)?;
    }
    if let Some(file) = &args.config {
        payload = payload.with_config(host, file)?;
    }
    let read_text = |path: &PathBuf| {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let mut names = OfferedNames::find(host, &payload, &args.toolkits)?;
    let options = EngineOptions {
        set_default: args.set_default,
        base_spec: args.base_spec.as_ref().map(read_text).transpose()?,
        toolkits: args.toolkits.clone(),
    };
    let options = complete_options(host, &payload, &names, options)?;
    let lock = (!args.dry_run)
        .then(|| InstallerLock::take(host))
        .transpose()?;
    let engines = engines::choose_engines(host, &args.engine, &options, output)?;
    let old_manifest = Manifest::load(host)?;
    if let Some(old_manifest) = &old_manifest {
        names.keep_names_of_other_engines(old_manifest, &engines);
    }
    let mut requested_services = args.enabled_services();
    if old_manifest.is_none()
        && args.keeps_service(Service::Facts)
        && is_facts_timer_needed(host, &payload, &engines, &requested_services)
    {
        requested_services.push(Service::Facts);
    }
    let mut kept_services = old_manifest.unwrap_or_default().options.services;
    kept_services.retain(|service| args.keeps_service(*service));
    let mut payload = payload.with_services(&source, requested_services, kept_services)?;
    payload
        .options
        .plugin_arguments
        .clone_from(&args.plugin_arguments);
    let request = InstallRequest {
        payload,
        engines: engines
            .into_iter()
            .map(|engine| (engine, options.clone()))
            .collect(),
        names,
        allows_fewer_classes: args.classes.is_some(),
        should_restart: args.restart,
    };
    execute_request(host, &request, lock, output)
}

/// Reads the files of the release in the directory `source`. If that directory is in a container,
/// it is not recorded as the source, because a later upgrade on the host cannot read it.
pub(super) fn read_payload(
    host: &Host,
    source: &Path,
    classes: ClassFileSource<'_>,
) -> Result<Payload> {
    let release_version = Payload::read_version(source)?;
    let version = release_version
        .as_deref()
        .unwrap_or(env!("CARGO_PKG_VERSION"));
    let mut payload = Payload::read(version, source, classes)?;
    if host.as_path() != Path::new("/") {
        payload.options.source_dir = None;
    }
    Ok(payload)
}

/// Completes the options of an engine with values that depend on the host and the release, such as
/// the path of the installed hook.
pub(super) fn complete_options(
    host: &Host,
    payload: &Payload,
    names: &OfferedNames,
    options: EngineOptions,
) -> Result<Options> {
    Ok(Options {
        additional_names: names.runtime_names.clone(),
        hook_path: host.directories().hook_path(),
        runtime_path: host.runtime_path(),
        set_default: options.set_default,
        real_runtime_path: if options.set_default {
            configuration::find_real_runtime(host, payload)?
        } else {
            None
        },
        base_spec: options.base_spec,
    })
}

/// Returns the absolute path of the release to install: the directory that `--source` names, or the
/// one that contains this program.
pub(super) fn find_release_dir(requested_dir: Option<&Path>) -> Result<PathBuf> {
    match requested_dir {
        Some(dir) => Ok(std::path::absolute(dir)?),
        None => find_program_release_dir(),
    }
}

/// Returns the directory of the release or build that contains this program. In a release the
/// program is in `bin`, and the result is the parent directory of `bin`.
fn find_program_release_dir() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find this program's own path")?;
    let dir = program
        .parent()
        .context("cannot determine the directory of this program; use --source")?;
    let release_dir = dir.parent().filter(|_| dir.ends_with("bin"));
    Ok(release_dir.unwrap_or(dir).to_path_buf())
}
