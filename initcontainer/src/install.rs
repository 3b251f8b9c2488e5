//! Plans an installation. The whole list of steps is computed before the first step is carried
//! out.
//!
//! The order of the steps keeps the host usable after each one. New files come first, because
//! nothing refers to them yet. Then one rename of the link `current` activates the version. Then
//! the engines are configured to call the programs by this link. The former state of a file is
//! recorded before the file is changed.

mod delivery;
mod links;
mod notes;
mod record;
mod versions;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use runtime_config::{Change, Engine, HostRoot, InstallationRecord, Options, Plan, common_runtime};

use crate::compatibility::{self, OfferedNames};
use crate::configuration::Configuration;
use crate::layout::{OWN_CLASSES, STATE, link_target, record_path};
use crate::manifest::{MODE, Manifest};
use crate::payload::Payload;
use crate::service::Service;
use crate::services;
use crate::step::{Step, discard_leftovers};

use delivery::find_delivery;
pub(crate) use links::remove_link;
use links::{offered_links, old_links, plan_links};
use notes::{dropped_names, removed_classes, replaced_runtime, unknown_classes};
use record::record_manifest;
pub use versions::{current_version, installed_versions};
use versions::{discard_unused_versions, plan_version, switch_version};

#[derive(Debug)]
pub struct Installation {
    pub steps: Vec<Step>,
    /// The plan for each engine. An empty plan means that the engine is already configured.
    pub engines: Vec<Plan>,
    /// Further notes for the operator.
    pub notes: Vec<String>,
    /// Whether programs change that Docker looks for when it starts.
    pub changes_programs_of_docker: bool,
}

/// Plans the installation of a payload and the configuration of the engines, each with its options,
/// which also know it
/// by the names `names`. With
/// `fewer_classes`, an installed release that has more class files may be replaced.
///
/// # Errors
/// Fails if an engine's configuration cannot be read or extended, if a name is taken, or if a directory is not
/// writable or is writable by other users. Nothing is changed.
pub fn plan(
    host: &HostRoot,
    payload: &Payload,
    engines: &[(Engine, Options)],
    names: &OfferedNames,
    fewer_classes: bool,
) -> Result<Installation> {
    // The files in these directories are used by programs that run as root.
    for path in [STATE, OWN_CLASSES] {
        host.check_private(Path::new(path))?;
    }
    let mut notes = payload.notes.clone();
    notes.extend(removed_classes(host, payload, fewer_classes)?);
    names.refuse_foreign_programs(host)?;
    let mut plans = Vec::new();
    for (engine, options) in engines {
        let record = InstallationRecord::load(host, &record_path(*engine))?;
        let now = engine.read(host, record.as_ref())?;
        plans.push(engine.plan_install(&now, record.as_ref(), options)?);
    }
    let replaced = plans
        .iter()
        .filter_map(|plan| Some((plan.engine, plan.replaced.as_ref()?)));
    let real_runtime = common_runtime(replaced)?;
    notes.extend(plans.iter().filter_map(replaced_runtime));
    notes.extend(unknown_classes(host, payload)?);
    let offered = offered_links(names, engines);
    let links = plan_links(host, payload, !offered.is_empty(), &mut notes)?;
    let config = Configuration::plan(host, payload, real_runtime)?;
    notes.extend(config.kept.clone());
    let mut dirs = BTreeSet::from_iter(host.missing_dirs(&Path::new(OWN_CLASSES).join("any"))?);
    for link in links.iter().chain(offered.iter().map(|(link, _)| link)) {
        dirs.extend(host.missing_dirs(link)?);
    }
    let old = Manifest::load(host)?.unwrap_or_default();
    notes.extend(dropped_names(&old, names));
    let wanted = &payload.origin.services;
    let (dropped, dropped_notes) = services::find_dropped(host, &old.options.services, wanted);
    notes.extend(dropped_notes);
    // A run that is killed later has the services still recorded, so that the next one goes on.
    let mut steps = services::plan_disabling(host, &dropped)?;
    let delivery = find_delivery(host, engines)?;
    let files = services::plan_files(host, wanted, delivery)?;
    // The administrator has disabled a service that was enabled and has no link now.
    let is_new =
        |service: &&Service| !payload.keeps_disabled || !old.options.services.contains(service);
    let new: Vec<Service> = wanted.iter().filter(is_new).copied().collect();
    let enabling = services::plan_links(host, &new, delivery)?;
    for step in files.iter().chain(&enabling) {
        dirs.extend(host.missing_dirs(step.path())?);
    }
    steps.extend(record_manifest(
        host, payload, engines, &links, names, &config, &dirs,
    )?);
    steps.extend(discard_leftovers(host)?);
    steps.extend(plan_version(host, payload)?);
    let make_dir = |path| Step::Change(Change::MakeDir { path });
    steps.extend(dirs.into_iter().map(make_dir));
    steps.extend(config.steps);
    steps.extend(switch_version(host, &payload.version)?);
    for plan in &plans {
        let engine = engine_steps(host, plan)?;
        // Two engines may need the same new directory, which is then made once.
        for step in engine {
            if !makes_again(&step, &steps) {
                steps.push(step);
            }
        }
    }
    steps.extend(files.into_iter().chain(enabling));
    let compatibility_links = compatibility::plan_links(host, &old, offered)?;
    let changes_programs_of_docker = !compatibility_links.is_empty();
    steps.extend(compatibility_links);
    steps.extend(old_links(host, payload)?);
    for link in links {
        steps.push(Step::Point {
            after: Some(link_target(&link)),
            before: None,
            link,
        });
    }
    steps.extend(discard_unused_versions(host, &payload.version)?);
    refuse_unwritable(host, &steps)?;
    Ok(Installation {
        steps,
        engines: plans,
        notes,
        changes_programs_of_docker,
    })
}

/// Returns the steps that record the state of an engine's files and then change them. The record
/// comes first, because a removal needs it.
pub fn engine_steps(host: &HostRoot, plan: &Plan) -> Result<Vec<Step>> {
    let path = record_path(plan.engine);
    let before = host.read(&path)?;
    let after = plan.record.as_ref().map(InstallationRecord::to_text);
    let kept = after.and_then(|after| {
        let (before, after) = (before.as_deref(), Some(after.as_str()));
        Change::rewrite(&path, before, after, MODE)
    });
    let changes = kept.into_iter().chain(plan.changes.iter().cloned());
    Ok(changes.map(Step::Change).collect())
}

/// Returns whether the step makes a directory that one of `steps` already makes.
fn makes_again(step: &Step, steps: &[Step]) -> bool {
    let made = |step: &Step| match step {
        Step::Change(Change::MakeDir { path }) => Some(path.clone()),
        _ => None,
    };
    made(step).is_some_and(|path| steps.iter().filter_map(made).any(|other| other == path))
}

/// Returns an error if a step would fail because a file system is mounted read-only, or because
/// this process lacks the rights. The check is made before the first step.
pub(crate) fn refuse_unwritable(host: &HostRoot, steps: &[Step]) -> Result<()> {
    let dirs: BTreeSet<&Path> = steps
        .iter()
        .filter_map(|step| step.path().parent())
        .collect();
    for dir in dirs {
        let Some(nearest) = dir.ancestors().find(|d| host.exists(d)) else {
            continue;
        };
        host.place(&nearest.join("any"))?.check_writable()?;
    }
    Ok(())
}
