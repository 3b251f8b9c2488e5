//! Plans an installation. The complete list of steps is computed before the first one is executed.
//!
//! The host works after every step. New files come first, because nothing refers to them yet. Then
//! one rename of the link `current` activates the version. Then the engines are configured to call
//! the programs through this link. The previous state of a file is recorded before the file is
//! changed.

mod delivery;
mod links;
mod notes;
mod record;
mod versions;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use runtime_config::{Change, Engine, InstallationRecord, Options, Place, Plan, common_runtime};

use crate::compatibility::{self, OfferedNames};
use crate::configuration::Configuration;
use crate::directories;
use crate::host::Host;
use crate::manifest::{MODE, Manifest};
use crate::payload::Payload;
use crate::service::Service;
use crate::services;
use crate::step::{Step, discard_leftovers};

use delivery::find_delivery;
pub(crate) use links::remove_link;
use links::{offered_links, old_links, plan_links};
use notes::{
    describe_dropped_names, describe_removed_classes, describe_replaced_runtime,
    find_unknown_classes,
};
use record::record_manifest;
pub use versions::{current_version, installed_versions};
use versions::{discard_unused_versions, plan_version, refuse_foreign_files, switch_version};

/// The plan of an installation.
#[derive(Debug)]
pub struct Installation {
    pub steps: Vec<Step>,
    /// The plan for each engine. It is empty if the engine is already configured.
    pub engines: Vec<Plan>,
    /// Notes for the operator.
    pub notes: Vec<String>,
    /// Whether programs change for which Docker searches when it starts.
    pub changes_programs_of_docker: bool,
}

/// Plans the installation of a payload, and the configuration of the engines with their options.
/// `names` are the additional names under which the engines can call it. If `fewer_classes` is
/// set, the release may have fewer class files than the installed one.
///
/// # Errors
/// Fails if an engine's configuration cannot be read or extended, if a name is taken, or if a
/// directory is read-only or writable by other users. Nothing is changed.
pub fn plan(
    host: &Host,
    payload: &Payload,
    engines: &[(Engine, Options)],
    names: &OfferedNames,
    fewer_classes: bool,
) -> Result<Installation> {
    // Programs that run as root read the files in these directories.
    let own_classes = host.directories().own_classes();
    for path in [host.state(), own_classes.clone()] {
        host.check_private(&path)?;
    }
    refuse_foreign_files(host, &payload.version)?;
    let mut notes = payload.notes.clone();
    notes.extend(directories::describe_directories(host));
    notes.extend(describe_removed_classes(host, payload, fewer_classes)?);
    names.refuse_foreign_programs(host)?;
    let mut plans = Vec::new();
    for (engine, options) in engines {
        let record = InstallationRecord::load(host, &host.record(*engine))?;
        let now = engine.read(host, record.as_ref())?;
        plans.push(engine.plan_install(&now, record.as_ref(), options)?);
    }
    let replaced = plans
        .iter()
        .filter_map(|plan| Some((plan.engine, plan.replaced.as_ref()?)));
    let real_runtime = common_runtime(replaced)?;
    notes.extend(plans.iter().filter_map(describe_replaced_runtime));
    notes.extend(find_unknown_classes(host, payload)?);
    let offered = offered_links(names, engines);
    let links = plan_links(host, payload, !offered.is_empty(), &mut notes)?;
    let config = Configuration::plan(host, payload, real_runtime)?;
    notes.extend(config.kept.clone());
    notes.extend(config.unused_classes.clone());
    let mut dirs = BTreeSet::new();
    if can_write_below(host, &own_classes)? {
        dirs.extend(host.missing_dirs(&own_classes.join("any"))?);
    }
    for link in links.iter().chain(offered.iter().map(|(link, _)| link)) {
        dirs.extend(host.missing_dirs(link)?);
    }
    let old = Manifest::load(host)?.unwrap_or_default();
    notes.extend(describe_dropped_names(&old, names));
    let wanted = &payload.origin.services;
    let (dropped, dropped_notes) = services::find_dropped(host, &old.options.services, wanted);
    notes.extend(dropped_notes);
    // The services stay recorded until they are disabled, so that the next run completes the work
    // of a killed one.
    let mut steps = services::plan_disabling(host, &dropped)?;
    steps.extend(directories::plan_record(host)?);
    let delivery = find_delivery(host, engines)?;
    let files = services::plan_files(host, wanted, delivery)?;
    // A recorded service that has no link was disabled by the administrator.
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
        // Two engines may need the same new directory, which is made once.
        for step in engine {
            if !makes_same_directory(&step, &steps) {
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
        steps.push(Step::SetLink {
            after: Some(host.link_target(&link)),
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

/// Plans the record of an engine's files, and then their changes. The record comes first, because
/// a removal needs it.
pub fn engine_steps(host: &Host, plan: &Plan) -> Result<Vec<Step>> {
    let path = host.record(plan.engine);
    let before = host.read(&path)?;
    let after = plan.record.as_ref().map(InstallationRecord::to_text);
    let kept = after.and_then(|after| {
        let (before, after) = (before.as_deref(), Some(after.as_str()));
        Change::rewrite(&path, before, after, MODE)
    });
    let changes = kept.into_iter().chain(plan.changes.iter().cloned());
    Ok(changes.map(Step::Change).collect())
}

/// Returns whether one of `steps` makes the same directory as `step`.
fn makes_same_directory(step: &Step, steps: &[Step]) -> bool {
    let made = |step: &Step| match step {
        Step::Change(Change::MakeDir { path }) => Some(path.clone()),
        _ => None,
    };
    made(step).is_some_and(|path| steps.iter().filter_map(made).any(|other| other == path))
}

/// Returns an error if a step would fail because a file system is read-only or this process lacks
/// the permissions. The check comes before the first step.
pub(crate) fn refuse_unwritable(host: &Host, steps: &[Step]) -> Result<()> {
    let dirs: BTreeSet<&Path> = steps
        .iter()
        .filter_map(|step| step.path().parent())
        .collect();
    for dir in dirs {
        if let Some(place) = find_nearest_place(host, dir)? {
            place.check_writable()?;
        }
    }
    Ok(())
}

/// Returns the place of a new entry in a directory, or in its nearest existing ancestor.
fn find_nearest_place(host: &Host, dir: &Path) -> Result<Option<Place>> {
    let nearest = dir.ancestors().find(|dir| host.exists(dir));
    let place = nearest.map(|dir| host.place(&dir.join("any")));
    Ok(place.transpose()?)
}

/// Returns whether a directory can be made or written to. It cannot if the configuration is part
/// of a read-only image, and then the administrator's class directory is not needed either.
fn can_write_below(host: &Host, dir: &Path) -> Result<bool> {
    let place = find_nearest_place(host, dir)?;
    Ok(place.is_none_or(|place| place.check_writable().is_ok()))
}
