//! Plans an installation: a list of steps, made before the first of them is done.
//!
//! The order keeps the host usable after any step. Files that nothing refers to
//! come first; then the link, which activates a version in one rename; then the
//! engines, which refer to the link. What was there before is recorded before
//! it is changed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use device_class::config::Config;
use runtime_config::{Change, Engine, HostRoot, Options, Plan, Record, common_runtime};

use crate::configuration::Configuration;
use crate::in_use;
use crate::layout::{
    CONFIG, CURRENT, LINKS, MANIFEST, OWN_CLASSES, PACKAGED, SHARED_LINKS, STATE, record,
    staging_dir, target, version_dir,
};
use crate::manifest::{MODE, Manifest};
use crate::payload::{CLASSES, Payload};
use crate::step::{Step, discard_leftovers};
use crate::tree;

#[derive(Debug)]
pub struct Installation {
    pub steps: Vec<Step>,
    /// The plan for each engine; an empty one: it is as wanted already.
    pub engines: Vec<Plan>,
    /// Further notes for the operator.
    pub notes: Vec<String>,
}

/// Plans the installation of a payload, and the engines' configuration. With
/// `fewer_classes`, a release with more class files may be replaced.
///
/// # Errors
/// An engine's configuration cannot be read or extended, or a directory cannot
/// be written to, or can be written to by others. Nothing was changed.
pub fn plan(
    host: &HostRoot,
    payload: &Payload,
    engines: &[Engine],
    options: &Options,
    fewer_classes: bool,
) -> Result<Installation> {
    // What is there is run by root.
    for path in [STATE, OWN_CLASSES] {
        host.check_private(Path::new(path))?;
    }
    let mut notes = Vec::new();
    notes.extend(removed_classes(host, payload, fewer_classes)?);
    let mut plans = Vec::new();
    for engine in engines {
        let known = Record::load(host, &record(*engine))?;
        let now = engine.read(host, known.as_ref())?;
        plans.push(engine.plan_install(&now, known.as_ref(), options)?);
    }
    let replaced = plans
        .iter()
        .filter_map(|plan| Some((plan.engine, plan.replaced.as_ref()?)));
    let real_runtime = common_runtime(replaced)?;
    notes.extend(plans.iter().filter_map(replaced_runtime));
    notes.extend(unknown_classes(host, payload)?);
    let links = links(host, payload, &mut notes)?;
    let config = Configuration::plan(host, payload, real_runtime)?;
    notes.extend(config.kept.clone());
    let mut dirs = BTreeSet::from_iter(host.missing_dirs(&Path::new(OWN_CLASSES).join("any"))?);
    for link in &links {
        dirs.extend(host.missing_dirs(link)?);
    }
    let mut steps = remember(host, payload, &links, &config, &dirs)?;
    steps.extend(discard_leftovers(host)?);
    steps.extend(version(host, payload)?);
    let make_dir = |path| Step::Change(Change::MakeDir { path });
    steps.extend(dirs.into_iter().map(make_dir));
    steps.extend(config.steps);
    steps.extend(switch(host, &payload.version)?);
    for plan in &plans {
        let engine = engine_steps(host, plan)?;
        // Two engines' files may be in one directory that is still to be made.
        for step in engine {
            if !makes_again(&step, &steps) {
                steps.push(step);
            }
        }
    }
    steps.extend(old_links(host, payload)?);
    for link in links {
        steps.push(Step::Point {
            after: Some(target(&link)),
            before: None,
            link,
        });
    }
    steps.extend(collect(host, &payload.version)?);
    refuse_unwritable(host, &steps)?;
    Ok(Installation {
        steps,
        engines: plans,
        notes,
    })
}

/// Tables of the given configuration for classes that neither the release nor the host has.
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

/// What becomes of an engine's default runtime, if ours replaces it.
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

/// Refuses to replace a release by one with fewer classes; names the class
/// files that go otherwise.
fn removed_classes(
    host: &HostRoot,
    payload: &Payload,
    fewer_classes: bool,
) -> Result<Option<String>> {
    let installed = host.list(&Path::new(CURRENT).join(CLASSES))?;
    let installed = installed.iter().filter_map(|name| name.to_str());
    let installed: BTreeSet<&str> = installed.filter(|name| name.ends_with(".toml")).collect();
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

/// The links to be made for use in a shell. A name that is taken is left alone. What a
/// package has put on the host is not linked: the link would hide it, and the next
/// installation would be of the old release.
fn links(host: &HostRoot, payload: &Payload, notes: &mut Vec<String>) -> Result<Vec<PathBuf>> {
    let packaged = |name: &OsStr| host.exists(&Path::new(PACKAGED).join(name));
    let has_programs = host.is_dir(Path::new(LINKS));
    let shared = host.place(&Path::new(SHARED_LINKS).join("any"));
    let has_shared = shared.is_ok_and(|place| place.check_writable().is_ok())
        && !packaged(OsStr::new("boathook"));
    let (mut links, mut taken) = (Vec::new(), 0);
    for link in payload.links() {
        let is_program = link.starts_with(LINKS);
        let is_wanted = match is_program {
            true => has_programs && !packaged(link.file_name().unwrap_or_default()),
            false => has_shared,
        };
        if !is_wanted || host.read_link(&link)? == Some(target(&link)) {
            continue;
        }
        if !host.missing_dirs(&link)?.is_empty() {
            links.push(link);
            continue;
        }
        // Only a convenience: nothing else refers to it.
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

/// Removes links to manual pages and completions that the release does not have.
fn old_links(host: &HostRoot, payload: &Payload) -> Result<Vec<Step>> {
    let wanted: BTreeSet<PathBuf> = payload.links().collect();
    let known = Manifest::load(host)?.unwrap_or_default().links;
    let mut steps = Vec::new();
    for link in known {
        if link.starts_with(SHARED_LINKS) && !wanted.contains(&link) {
            steps.extend(unlink(host, &link)?);
        }
    }
    Ok(steps)
}

/// Removes a link that still leads to our file.
pub(crate) fn unlink(host: &HostRoot, link: &Path) -> Result<Option<Step>> {
    let before = host.read_link(link)?;
    Ok((before == Some(target(link))).then(|| Step::Point {
        link: link.into(),
        before,
        after: None,
    }))
}

/// Writes the manifest, and makes the directories that it is in. `dirs` are further
/// directories that will be made.
fn remember(
    host: &HostRoot,
    payload: &Payload,
    links: &[PathBuf],
    config: &Configuration,
    dirs: &BTreeSet<PathBuf>,
) -> Result<Vec<Step>> {
    let old = Manifest::load(host)?;
    let mut manifest = old.clone().unwrap_or_default();
    let missing = host.missing_dirs(Path::new(MANIFEST))?;
    for dir in missing.iter().chain(dirs) {
        // The state's directory goes with the manifest.
        if !manifest.made_dirs.contains(dir) && dir != Path::new(STATE) {
            manifest.made_dirs.push(dir.clone());
        }
    }
    if !manifest.versions.contains(&payload.version) {
        manifest.versions = present(host, manifest.versions)?;
        manifest.versions.push(payload.version.clone());
    }
    for link in links {
        if !manifest.links.contains(link) {
            manifest.links.push(link.clone());
        }
    }
    if let Some(text) = &config.written {
        manifest.config = Some(text.clone());
        manifest.config_before = config.replaced.clone();
    }
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

fn version(host: &HostRoot, payload: &Payload) -> Result<Vec<Step>> {
    let dir = version_dir(&payload.version);
    let exchange = match host.entry(&dir) {
        Ok(place) if tree::holds(&place, payload) => return Ok(Vec::new()),
        Ok(place) => place.stat()?.is_some(),
        // The installation's directory is still to be made.
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
    // What the new files changed places with.
    steps.extend(exchange.then_some(Step::Discard { path: staging }));
    Ok(steps)
}

fn switch(host: &HostRoot, version: &str) -> Result<Option<Step>> {
    let before = current(host)?;
    let after = Some(PathBuf::from(version));
    Ok((before != after).then(|| Step::Point {
        link: CURRENT.into(),
        before,
        after,
    }))
}

/// The target of the link to the version in use; `None`: there is no link.
pub fn current(host: &HostRoot) -> Result<Option<PathBuf>> {
    Ok(host.read_link(Path::new(CURRENT))?)
}

/// The steps that keep what undoing needs, then change the engine's files.
pub fn engine_steps(host: &HostRoot, plan: &Plan) -> Result<Vec<Step>> {
    let path = record(plan.engine);
    let before = host.read(&path)?;
    let after = plan.record.as_ref().map(Record::to_text);
    let kept = after.and_then(|after| {
        let (before, after) = (before.as_deref(), Some(after.as_str()));
        Change::rewrite(&path, before, after, MODE)
    });
    let changes = kept.into_iter().chain(plan.changes.iter().cloned());
    Ok(changes.map(Step::Change).collect())
}

/// Removes versions that nothing uses: not the new one, not the one before it,
/// which containers may be starting with just now, and none that a container's
/// bundle names.
fn collect(host: &HostRoot, version: &str) -> Result<Vec<Step>> {
    let before = current(host)?;
    let used = in_use::versions(host)?;
    let mut steps = Vec::new();
    for name in installed(host)? {
        let is_before = before.as_deref() == Some(Path::new(&name));
        if name != version && !is_before && !used.contains(&name) {
            steps.push(Step::Discard {
                path: version_dir(&name),
            });
        }
    }
    Ok(steps)
}

/// The versions on a host that were installed by this program, sorted.
pub fn installed(host: &HostRoot) -> Result<Vec<String>> {
    let versions = Manifest::load(host)?.unwrap_or_default().versions;
    let mut versions = present(host, versions)?;
    versions.sort();
    Ok(versions)
}

/// Those of the versions whose directory is on the host.
fn present(host: &HostRoot, versions: Vec<String>) -> Result<Vec<String>> {
    let mut present = Vec::new();
    for version in versions {
        if host.try_exists(&version_dir(&version))? {
            present.push(version);
        }
    }
    Ok(present)
}

/// Whether the step makes a directory that one of these makes already.
fn makes_again(step: &Step, steps: &[Step]) -> bool {
    let made = |step: &Step| match step {
        Step::Change(Change::MakeDir { path }) => Some(path.clone()),
        _ => None,
    };
    made(step).is_some_and(|path| steps.iter().filter_map(made).any(|other| other == path))
}

/// Fails before the first step where a later one would: on a file system that
/// is mounted read-only, or without the rights.
fn refuse_unwritable(host: &HostRoot, steps: &[Step]) -> Result<()> {
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
