//! Plans an installation. The whole list of steps is computed before the first step is carried
//! out.
//!
//! The order of the steps keeps the host usable after each one. New files come first, because
//! nothing refers to them yet. Then one rename of the link `current` activates the version. Then
//! the engines are configured to call the programs by this link. The former state of a file is
//! recorded before the file is changed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use device_class::config::Config;
use runtime_config::{Change, Engine, HostRoot, InstallationRecord, Options, Plan, common_runtime};

use crate::compatibility::{self, OfferedNames};
use crate::configuration::Configuration;
use crate::in_use;
use crate::layout::{
    CONFIG, CURRENT, LINKS, MANIFEST, OWN_CLASSES, PACKAGED, SHARED_LINKS, STATE, link_target,
    record_path, staging_dir, version_dir,
};
use crate::manifest::{MODE, Manifest};
use crate::payload::{CLASSES, Payload};
use crate::recorded_options::RecordedOptions;
use crate::service::Service;
use crate::services::{self, Delivery};
use crate::step::{Step, discard_leftovers};
use crate::tree;

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

/// Returns a note about the names of an earlier installation that this one takes away.
fn dropped_names(old: &Manifest, names: &OfferedNames) -> Option<String> {
    let dropped: Vec<&str> = old
        .toolkits
        .iter()
        .filter(|toolkit| !names.toolkits.contains(toolkit))
        .map(String::as_str)
        .collect();
    let list = dropped.join(",");
    (!dropped.is_empty()).then(|| {
        format!("the names of {list} are taken away; install with --as {list} to keep them")
    })
}

/// Returns the classes that the given configuration configures but that neither the release nor
/// the host has.
fn unknown_classes(host: &HostRoot, payload: &Payload) -> Result<Vec<String>> {
    let Some(text) = &payload.config else {
        return Ok(Vec::new());
    };
    let config = Config::parse(Path::new(CONFIG), text)?;
    let own = host.list(Path::new(OWN_CLASSES))?;
    let own = own.iter().filter_map(|name| name.to_str());
    let files: BTreeSet<&str> = payload.classes().into_iter().chain(own).collect();
    let known = files.iter().filter_map(|name| name.strip_suffix(".toml"));
    Ok(config.warn_of_unknown_classes(known).collect())
}

/// Returns a note about the default runtime of an engine that `boathook-runtime` replaces.
fn replaced_runtime(plan: &Plan) -> Option<String> {
    let replaced = plan.replaced.as_ref().filter(|_| !plan.is_empty())?;
    let calls = match &replaced.program {
        None => "the host's runc".to_owned(),
        Some(program) => format!(
            "{} (`path` in [runtime] of {CONFIG}, for all engines)",
            program.display()
        ),
    };
    Some(format!(
        "{}: the default runtime boathook replaces {}; it calls {calls}",
        plan.engine, replaced.name
    ))
}

/// Returns an error if the new release has fewer classes than the installed one. If fewer
/// classes are allowed, the names of the removed class files are returned.
fn removed_classes(
    host: &HostRoot,
    payload: &Payload,
    fewer_classes: bool,
) -> Result<Option<String>> {
    let installed = host.list(&Path::new(CURRENT).join(CLASSES))?;
    let installed: BTreeSet<&str> = installed
        .iter()
        .filter_map(|name| name.to_str())
        .filter(|name| name.ends_with(".toml"))
        .collect();
    let next = payload.classes();
    let names: Vec<String> = installed
        .difference(&next)
        .map(|&name| name.to_owned())
        .collect();
    if names.is_empty() {
        return Ok(None);
    }
    let (count, names) = (names.len(), names.join(", "));
    ensure!(
        next.len() >= installed.len() || fewer_classes,
        "{count} class files are installed that this release lacks, and their devices would be \
         missing in new containers: {names}; use --classes to remove them"
    );
    Ok(Some(format!("removed classes: {names}")))
}

/// Returns the links below /usr/local that the installation makes. A name that is taken is not
/// changed. A program that a package installed gets no link: the link would hide the package's
/// program, and the next installation would be run from the old release. `makes_directory` says
/// that other links have the directory of programs made.
fn plan_links(
    host: &HostRoot,
    payload: &Payload,
    makes_directory: bool,
    notes: &mut Vec<String>,
) -> Result<Vec<PathBuf>> {
    let packaged = |name: &OsStr| host.exists(&Path::new(PACKAGED).join(name));
    let has_programs = makes_directory || host.is_dir(Path::new(LINKS));
    let shared = host.place(&Path::new(SHARED_LINKS).join("any"));
    let has_shared = shared.is_ok_and(|place| place.check_writable().is_ok())
        && !packaged(OsStr::new("boathook"));
    let (mut links, mut taken) = (Vec::new(), 0);
    for link in payload.links() {
        let is_program = link.starts_with(LINKS);
        let is_wanted = if is_program {
            has_programs && !packaged(link.file_name().unwrap_or_default())
        } else {
            has_shared
        };
        if !is_wanted || host.read_link(&link)? == Some(link_target(&link)) {
            continue;
        }
        if !host.missing_dirs(&link)?.is_empty() {
            links.push(link);
            continue;
        }
        // A link that cannot be made is not an error, because nothing else refers to it.
        match host.entry(&link).and_then(|place| place.stat()) {
            Ok(None) => links.push(link),
            Ok(Some(_)) if is_program => {
                notes.push(format!("{} exists and is kept", link.display()));
            }
            Err(e) if is_program => notes.push(format!("no link {}: {e}", link.display())),
            _ => taken += 1,
        }
    }
    if taken > 0 {
        notes.push(format!(
            "{taken} names of manual pages and completions below {SHARED_LINKS} exist and are kept"
        ));
    }
    Ok(links)
}

/// Returns the steps that remove links to manual pages and completions which the new release
/// lacks.
fn old_links(host: &HostRoot, payload: &Payload) -> Result<Vec<Step>> {
    let wanted: BTreeSet<PathBuf> = payload.links().collect();
    let known = Manifest::load(host)?.unwrap_or_default().links;
    let mut steps = Vec::new();
    for link in known {
        if link.starts_with(SHARED_LINKS) && !wanted.contains(&link) {
            steps.extend(remove_link(host, &link)?);
        }
    }
    Ok(steps)
}

/// Returns the step that removes a link, if the link still leads to Boathook's file.
pub(crate) fn remove_link(host: &HostRoot, link: &Path) -> Result<Option<Step>> {
    let before = host.read_link(link)?;
    Ok((before == Some(link_target(link))).then(|| Step::Point {
        link: link.into(),
        before,
        after: None,
    }))
}

fn offered_links<'n>(
    names: &'n OfferedNames,
    engines: &[(Engine, Options)],
) -> &'n [(PathBuf, PathBuf)] {
    names.links(engines.iter().map(|(engine, _)| *engine))
}

/// Returns what brings the hook to pods: a runtime handler, if an engine that runs pods is configured
/// in this run, or by an earlier one whose configuration is still there.
fn find_delivery(host: &HostRoot, engines: &[(Engine, Options)]) -> Result<Delivery> {
    for engine in Engine::ALL {
        if matches!(engine, Engine::Docker | Engine::Podman) {
            continue;
        }
        let is_named = engines.iter().any(|(named, _)| *named == engine);
        if is_named || names_programs(host, engine)? {
            return Ok(Delivery::Handler);
        }
    }
    Ok(Delivery::Cdi)
}

/// Returns whether a recorded file of an engine's configuration names the installed programs.
fn names_programs(host: &HostRoot, engine: Engine) -> Result<bool> {
    let record = InstallationRecord::load(host, &record_path(engine))?;
    for path in record.iter().flat_map(InstallationRecord::paths) {
        let text = host.read(path)?.unwrap_or_default();
        if text.contains(CURRENT) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the options to record. Those of engines that an earlier installation configured, and
/// this one does not, stay recorded.
fn record_options(
    host: &HostRoot,
    old: &Manifest,
    payload: &Payload,
    engines: &[(Engine, Options)],
) -> RecordedOptions {
    let mut options = payload.origin.clone();
    options.services =
        services::find_recorded(host, &old.options.services, &payload.origin.services);
    options.engines.clone_from(&old.options.engines);
    options
        .engines
        .extend(engines.iter().map(|(engine, o)| (*engine, o.into())));
    options
}

/// Returns the steps that write the manifest and make its directories. `dirs` are further
/// directories that the installation makes, and that the manifest has to list.
fn record_manifest(
    host: &HostRoot,
    payload: &Payload,
    engines: &[(Engine, Options)],
    links: &[PathBuf],
    names: &OfferedNames,
    config: &Configuration,
    dirs: &BTreeSet<PathBuf>,
) -> Result<Vec<Step>> {
    let old = Manifest::load(host)?;
    let mut manifest = old.clone().unwrap_or_default();
    let missing = host.missing_dirs(Path::new(MANIFEST))?;
    for dir in missing.iter().chain(dirs) {
        // The state directory is not listed, because it is removed together with the manifest.
        if !manifest.made_dirs.contains(dir) && dir != Path::new(STATE) {
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
    // The links of an earlier installation stay listed, because this one may be killed before it
    // removes them.
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
                file: (MANIFEST.into(), text),
            }]
        }
        (None, old) => {
            let before = old.map(|m| m.to_text());
            let path = Path::new(MANIFEST);
            let change = Change::rewrite(path, before.as_deref(), Some(&text), MODE);
            change.into_iter().map(Step::Change).collect()
        }
    })
}

fn plan_version(host: &HostRoot, payload: &Payload) -> Result<Vec<Step>> {
    let dir = version_dir(&payload.version);
    let exchange = match host.entry(&dir) {
        Ok(place) if tree::is_copy_of(&place, payload) => return Ok(Vec::new()),
        Ok(place) => place.stat()?.is_some(),
        // An error means that the directory of the installation does not exist yet.
        Err(_) => false,
    };
    let staging = staging_dir(&payload.version);
    let mut steps = vec![
        Step::Stage {
            payload: payload.clone(),
            to: staging.clone(),
        },
        Step::Publish {
            from: staging.clone(),
            to: dir,
            exchange,
        },
    ];
    // After an exchange the staging directory contains the old files.
    steps.extend(exchange.then_some(Step::Discard { path: staging }));
    Ok(steps)
}

fn switch_version(host: &HostRoot, version: &str) -> Result<Option<Step>> {
    let before = current_version(host)?;
    let after = Some(PathBuf::from(version));
    Ok((before != after).then(|| Step::Point {
        link: CURRENT.into(),
        before,
        after,
    }))
}

/// Returns the target of the link to the version in use, or `None` if there is no link.
pub fn current_version(host: &HostRoot) -> Result<Option<PathBuf>> {
    Ok(host.read_link(Path::new(CURRENT))?)
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

/// Returns the steps that remove unused versions. Three kinds of versions are kept: the new one,
/// the previous one, with which containers may be starting just now, and versions that the
/// bundle of a container names.
fn discard_unused_versions(host: &HostRoot, version: &str) -> Result<Vec<Step>> {
    let before = current_version(host)?;
    let used = in_use::find_used_versions(host)?;
    let mut steps = Vec::new();
    for name in installed_versions(host)? {
        let is_before = before.as_deref() == Some(Path::new(&name));
        if name != version && !is_before && !used.contains(&name) {
            steps.push(Step::Discard {
                path: version_dir(&name),
            });
        }
    }
    Ok(steps)
}

/// Returns the versions on a host that this program installed, sorted.
pub fn installed_versions(host: &HostRoot) -> Result<Vec<String>> {
    let versions = Manifest::load(host)?.unwrap_or_default().versions;
    let mut versions = find_version_dirs(host, versions)?;
    versions.sort();
    Ok(versions)
}

/// Returns the versions whose directory exists on the host.
fn find_version_dirs(host: &HostRoot, versions: Vec<String>) -> Result<Vec<String>> {
    let mut present = Vec::new();
    for version in versions {
        if host.try_exists(&version_dir(&version))? {
            present.push(version);
        }
    }
    Ok(present)
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
