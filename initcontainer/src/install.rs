//! Plans an installation. The complete list of steps is computed before the first step is executed.
//!
//! Containers can start after every step. New files come first, because nothing refers to them yet.
//! Then one rename of the link `current` activates the version. Then the engines are configured to
//! call the programs through this link. The previous state of a file is recorded before the file is
//! changed.

mod delivery;
mod links;
mod notes;
mod record;
mod versions;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, anyhow};
use runtime_config::{
    Change, Engine, HostEntry, InstallOptions, InstallationRecord, Plan, find_common_runtime,
};

use crate::compatibility::{self, ReplacedToolkits};
use crate::configuration::ConfigurationPlan;
use crate::directories;
use crate::host::Host;
use crate::manifest::{Manifest, STATE_FILE_MODE};
use crate::payload::Payload;
use crate::service::Service;
use crate::services::{self, PluginCommand};
use crate::step::{Step, plan_leftover_removal};

use delivery::find_hook_delivery;
pub(crate) use links::plan_link_removal;
use links::{find_offered_links, plan_links, plan_old_link_removal};
use notes::{
    describe_removed_classes, describe_removed_toolkits, describe_replaced_runtime,
    list_unknown_class_warnings,
};
use record::plan_manifest;
pub use versions::{find_current_version, list_installed_versions};
use versions::{
    plan_unused_version_removal, plan_version, plan_version_switch, refuse_foreign_files,
};

/// The plan of an installation: its steps, and what the operator must know or do afterwards.
#[derive(Debug)]
pub struct InstallationPlan {
    pub steps: Vec<Step>,
    /// The plan of each engine. If the engine is already configured, its plan has no changes.
    pub engine_plans: Vec<Plan>,
    /// Notes for the operator, which are printed before the first step.
    pub notes: Vec<String>,
    /// Whether Docker must be restarted to find the programs of `--gpus`, for which it searches
    /// only when it starts. It must be if the steps change the links to these programs, or if the
    /// links are newer than the running Docker.
    pub needs_docker_restart: bool,
}

/// Plans the installation of a payload, and the configuration of `engines`, each with its options.
/// `names` are the additional names under which the engines can call Boathook. If
/// `allows_fewer_classes` is set, the new release may have fewer class files than the installed
/// one.
///
/// # Errors
/// Fails if an engine's configuration cannot be read or extended, if another program or runtime
/// already has one of the names, or if a directory is read-only or other users can write to it.
/// Nothing is changed.
pub fn plan(
    host: &Host,
    payload: &Payload,
    engines: &[(Engine, InstallOptions)],
    names: &ReplacedToolkits,
    allows_fewer_classes: bool,
) -> Result<InstallationPlan> {
    // Programs that run as root trust the files in these directories, so no other user may write to
    // the directories.
    let admin_classes_dir = host.directories().admin_classes_dir();
    for path in [host.state_dir(), admin_classes_dir.clone()] {
        host.check_root_only_writable(&path)?;
    }
    refuse_foreign_files(host, &payload.version)?;
    let mut notes = payload.notes.clone();
    notes.extend(directories::describe_directories(host));
    notes.extend(describe_removed_classes(
        host,
        payload,
        allows_fewer_classes,
    )?);
    names.refuse_foreign_programs(host)?;
    let mut plans = Vec::new();
    for (engine, options) in engines {
        let record = InstallationRecord::load(host, &host.record_path(*engine))?;
        let snapshot = engine.read_snapshot(host, record.as_ref())?;
        let plan = engine.plan_install(&snapshot, record.as_ref(), options);
        plans.push(plan.map_err(|error| describe_failure(&error, *engine, engines))?);
    }
    let replaced_runtimes = plans
        .iter()
        .filter_map(|plan| Some((plan.engine, plan.replaced_runtime.as_ref()?)));
    let real_runtime = find_common_runtime(replaced_runtimes)?;
    notes.extend(plans.iter().filter_map(describe_replaced_runtime));
    notes.extend(list_unknown_class_warnings(host, payload)?);
    let offered_links = find_offered_links(names, engines);
    let links = plan_links(host, payload, !offered_links.is_empty(), &mut notes)?;
    let config_plan = ConfigurationPlan::plan(host, payload, real_runtime)?;
    notes.extend(config_plan.kept_file_note.clone());
    notes.extend(config_plan.unused_classes_note.clone());
    notes.extend(config_plan.unusable_class_note.clone());
    let mut dirs = BTreeSet::new();
    if can_write_to_dir(host, &admin_classes_dir)? {
        dirs.extend(host.find_missing_dirs(&admin_classes_dir.join("any"))?);
    }
    for link in links
        .iter()
        .chain(offered_links.iter().map(|(link, _)| link))
    {
        dirs.extend(host.find_missing_dirs(link)?);
    }
    let old_manifest = Manifest::load(host)?.unwrap_or_default();
    notes.extend(describe_removed_toolkits(&old_manifest, names));
    let old_services = &old_manifest.options.services;
    let services = &payload.options.services;
    let (dropped_services, dropped_notes) =
        services::find_dropped_services(host, old_services, services);
    notes.extend(dropped_notes);
    // The services that are no longer requested are disabled before the manifest is replaced,
    // because only the old manifest lists them. If this run is killed in between, the next run
    // still finds them there.
    let mut steps = services::plan_service_disabling(host, &dropped_services)?;
    steps.extend(directories::plan_directories_record(host)?);
    let plugin_command = PluginCommand {
        delivery: find_hook_delivery(host, engines)?,
        arguments: &payload.options.plugin_arguments,
    };
    let arguments = plugin_command.arguments;
    notes.extend(services::describe_ignored_arguments(
        host, services, arguments,
    )?);
    let file_steps = services::plan_files(host, services, plugin_command)?;
    // If a recorded service has no link, the administrator has disabled it. It stays disabled,
    // unless its option is given again.
    let should_enable = |service: &&Service| {
        payload.requested_services.contains(service) || !old_services.contains(service)
    };
    let services_to_enable: Vec<Service> = services.iter().filter(should_enable).copied().collect();
    let link_steps = services::plan_links(host, &services_to_enable, plugin_command)?;
    for step in file_steps.iter().chain(&link_steps) {
        dirs.extend(host.find_missing_dirs(step.path())?);
    }
    let manifest_steps = plan_manifest(host, payload, engines, &links, names, &config_plan, &dirs)?;
    steps.extend(manifest_steps.before_files);
    steps.extend(plan_leftover_removal(host)?);
    steps.extend(plan_version(host, payload)?);
    let make_dir = |path| Step::Change(Change::MakeDir { path });
    steps.extend(dirs.into_iter().map(make_dir));
    steps.extend(config_plan.steps);
    steps.extend(plan_version_switch(host, &payload.version)?);
    for plan in &plans {
        // Two engines may need the same new directory. It is made only once.
        for step in plan_engine_steps(host, plan)? {
            if !is_dir_creation_planned(&step, &steps) {
                steps.push(step);
            }
        }
    }
    steps.extend(file_steps.into_iter().chain(link_steps));
    let toolkit_links = compatibility::plan_links(host, &old_manifest, names, offered_links)?;
    let offered_paths = offered_links.iter().map(|(link, _)| link);
    let needs_docker_restart =
        !toolkit_links.is_empty() || runtime_config::was_docker_started_before(host, offered_paths);
    steps.extend(toolkit_links);
    steps.extend(manifest_steps.after_links);
    steps.extend(plan_old_link_removal(host, payload)?);
    for link in links {
        steps.push(Step::SetLink {
            new_target: Some(host.get_link_target(&link)),
            old_target: None,
            link,
        });
    }
    steps.extend(plan_unused_version_removal(host, &payload.version)?);
    for plan in &plans {
        let changes: Vec<Step> = plan.changes.iter().cloned().map(Step::Change).collect();
        refuse_unwritable_dirs(host, &changes)
            .map_err(|error| describe_failure(&*error, plan.engine, engines))?;
    }
    refuse_unwritable_dirs(host, &steps)?;
    Ok(InstallationPlan {
        steps,
        engine_plans: plans,
        notes,
        needs_docker_restart,
    })
}

/// Returns an error that says why `engine` cannot be configured, and with which `--engine` option
/// the other engines are configured without it. The host is unchanged at this point.
fn describe_failure(
    error: &dyn std::fmt::Display,
    engine: Engine,
    engines: &[(Engine, InstallOptions)],
) -> anyhow::Error {
    let error_text = error.to_string();
    let prefix = format!("{engine}: ");
    let text = error_text.strip_prefix(&prefix).unwrap_or(&error_text);
    let other_names: Vec<&str> = engines
        .iter()
        .map(|(other, _)| other.name())
        .filter(|name| *name != engine.name())
        .collect();
    let advice = match other_names.as_slice() {
        [] => "or place the programs alone by --engine none, and use CDI (docs/cdi.md)".to_owned(),
        names => format!("or leave it out by --engine {}", names.join(",")),
    };
    anyhow!("{prefix}{text}; {advice}")
}

/// Plans the record of an engine's files, and then the changes of these files. The record comes
/// first, because `uninstall` needs it to restore the files.
pub fn plan_engine_steps(host: &Host, plan: &Plan) -> Result<Vec<Step>> {
    let path = host.record_path(plan.engine);
    let old_text = host.read(&path)?;
    let record_change = plan.record.as_ref().and_then(|record| {
        let new_text = record.to_text();
        Change::from_texts(&path, old_text.as_deref(), Some(&new_text), STATE_FILE_MODE)
    });
    let changes = record_change
        .into_iter()
        .chain(plan.changes.iter().cloned());
    Ok(changes.map(Step::Change).collect())
}

/// Returns whether `step` makes a directory that one of `steps` already makes.
fn is_dir_creation_planned(step: &Step, steps: &[Step]) -> bool {
    let get_made_dir = |step: &Step| match step {
        Step::Change(Change::MakeDir { path }) => Some(path.clone()),
        _ => None,
    };
    get_made_dir(step)
        .is_some_and(|path| steps.iter().filter_map(get_made_dir).any(|dir| dir == path))
}

/// Returns an error if a step would fail because a file system is read-only, or because this
/// process may not write to a directory. The caller checks this before the first step.
pub(crate) fn refuse_unwritable_dirs(host: &Host, steps: &[Step]) -> Result<()> {
    let dirs: BTreeSet<&Path> = steps
        .iter()
        .filter_map(|step| step.path().parent())
        .collect();
    for dir in dirs {
        if let Some(entry) = find_nearest_entry(host, dir)? {
            entry.check_dir_writable()?;
        }
    }
    Ok(())
}

/// Returns an entry for a new file in the directory `dir` or in its nearest existing ancestor. The
/// file is not created: the entry is only used to check whether this process may write there.
fn find_nearest_entry(host: &Host, dir: &Path) -> Result<Option<HostEntry>> {
    let nearest_dir = dir.ancestors().find(|dir| host.exists(dir));
    let entry = nearest_dir.map(|dir| host.resolve(&dir.join("any")));
    Ok(entry.transpose()?)
}

/// Returns whether the directory `dir` can be made, or can be written to if it exists. On a host
/// whose configuration is part of a read-only image, the administrator's class directory cannot be
/// made, and is not needed.
fn can_write_to_dir(host: &Host, dir: &Path) -> Result<bool> {
    let entry = find_nearest_entry(host, dir)?;
    Ok(entry.is_none_or(|entry| entry.check_dir_writable().is_ok()))
}
