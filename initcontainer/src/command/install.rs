//! Implements the command `install`, which copies the programs to the host and configures its
//! engines to call the hook.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{Context, Result};
use initcontainer::cli::Install;
use initcontainer::compatibility::ReplacedToolkits;
use initcontainer::configuration;
use initcontainer::directories::{self, RequestedDirectories};
use initcontainer::fact_programs::is_facts_timer_needed;
use initcontainer::host::Host;
use initcontainer::lock::InstallerLock;
use initcontainer::manifest::Manifest;
use initcontainer::payload::{ClassFileSource, NO_CLASSES, Payload};
use initcontainer::recorded_options::EngineOptions;
use initcontainer::service::Service;
use runtime_config::{Engine, InstallOptions};

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
        payload = payload.with_admin_class_files(&source, &std::path::absolute(dir)?)?;
    }
    if let Some(file) = &args.config {
        payload = payload.with_config(host, file)?;
    }
    let read_text = |path: &PathBuf| {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let requested_options = EngineOptions {
        set_default: args.set_default,
        base_spec: args.base_spec.as_ref().map(read_text).transpose()?,
        toolkits: args.toolkits.clone(),
    };
    let options = to_runtime_options(host, &payload, requested_options.clone())?;
    let lock = (!args.dry_run)
        .then(|| InstallerLock::take(host))
        .transpose()?;
    let engines = engines::choose_engines(host, &args.engine, &options, output)?;
    let old_manifest = Manifest::load(host)?;
    let mut engine_options = Vec::with_capacity(engines.len());
    let mut toolkits_by_engine = BTreeMap::new();
    for engine in &engines {
        let mut recorded_options = old_manifest
            .as_ref()
            .and_then(|manifest| manifest.find_engine_options(*engine));
        // With `--classes` the release may lack the class that has the names.
        if let Some(options) = &mut recorded_options {
            options.toolkits.retain(|toolkit| {
                ReplacedToolkits::find(host, &payload, slice::from_ref(toolkit)).is_ok()
            });
        }
        let options = args.complete_engine_options(&requested_options, recorded_options);
        if let Some(note) = describe_kept_options(*engine, &requested_options, &options) {
            output.report_note(&note);
        }
        toolkits_by_engine.insert(*engine, options.toolkits.clone());
        let options = to_runtime_options(host, &payload, options)
            .with_context(|| format!("{engine} cannot be configured"))?;
        engine_options.push((*engine, options));
    }
    let mut names = ReplacedToolkits::find_with_engine_overrides(
        host,
        &payload,
        &args.toolkits,
        toolkits_by_engine,
    )?;
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
        engines: engine_options,
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

/// Returns a note about options of an earlier installation that stay in force for `engine` although
/// the command line does not repeat them. The note also names the options that remove them. Returns
/// `None` if there is no such option.
fn describe_kept_options(
    engine: Engine,
    requested: &EngineOptions,
    complete: &EngineOptions,
) -> Option<String> {
    let mut kept_toolkits = complete.toolkits.clone();
    kept_toolkits.retain(|toolkit| !requested.toolkits.contains(toolkit));
    let toolkits = kept_toolkits.join(",");
    let options = [
        (
            !kept_toolkits.is_empty(),
            format!("`--as {toolkits}`"),
            "`--no-as`",
        ),
        (
            requested.set_default != complete.set_default,
            "`--set-default`".to_owned(),
            "`--no-set-default`",
        ),
        (
            requested.base_spec != complete.base_spec,
            "`--base-spec`".to_owned(),
            "`--no-base-spec`",
        ),
    ];
    let kept = options.iter().filter(|(is_kept, ..)| *is_kept);
    let (names, opposites): (Vec<&str>, Vec<&str>) = kept
        .map(|(_, option, opposite)| (option.as_str(), *opposite))
        .unzip();
    (!names.is_empty()).then(|| {
        format!(
            "{engine}: keeping {} of an earlier installation; to remove it, use {}",
            names.join(" and "),
            opposites.join(" or ")
        )
    })
}

/// Returns the options with which an engine is configured. They consist of the options of the
/// command line and of values that depend on the host and the release, such as the path of the
/// installed hook.
pub(super) fn to_runtime_options(
    host: &Host,
    payload: &Payload,
    options: EngineOptions,
) -> Result<InstallOptions> {
    let names = ReplacedToolkits::find(host, payload, &options.toolkits)?;
    Ok(InstallOptions {
        additional_names: names.runtime_names,
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
