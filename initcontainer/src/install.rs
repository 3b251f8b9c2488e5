//! What it takes to install a version: a list of steps, made before the first
//! of them is done.
//!
//! The order keeps the host whole after any step. Files that nothing refers to
//! come first; then the link, which turns an upgrade on in one rename; then
//! the engines, which refer to the link. What was there before is written down
//! before it is changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use runtime_config::{Change, Engine, Error as HostError, HostRoot, Options, Plan, Record};

use crate::error::Error;
use crate::in_use;
use crate::layout::{
    CONFIG, CURRENT, DEFAULT_CONFIG, MANIFEST, ROOT, STATE, is_leftover, record, staging_dir,
    version_dir,
};
use crate::leftovers;
use crate::manifest::{MODE, Manifest};
use crate::payload::Payload;
use crate::step::Step;

/// The mode of the administrator's configuration.
const CONFIG_MODE: u32 = 0o644;

/// An installation, planned.
#[derive(Debug)]
pub struct Installation {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The plan for each engine; an empty one: it is as wanted already.
    pub engines: Vec<Plan>,
}

/// Plans the installation of a payload, and the engines' configuration.
///
/// # Errors
/// An engine's configuration can't be read or extended, or a directory can't
/// be written to. Nothing was changed.
pub fn plan(
    host: &HostRoot,
    payload: &Payload,
    engines: &[Engine],
    options: &Options,
) -> Result<Installation, Error> {
    let mut plans = Vec::new();
    for engine in engines {
        let known = Record::load(host, &record(*engine))?;
        let now = engine.read(host, known.as_ref())?;
        plans.push(engine.plan_install(&now, known.as_ref(), options)?);
    }
    let mut steps = remember(host)?;
    steps.extend(leftovers::discard(host)?);
    steps.extend(version(host, payload)?);
    if !host.exists(Path::new(CONFIG)) {
        steps.extend(make_dirs(&host.missing_dirs(Path::new(CONFIG))));
        steps.push(write(CONFIG, None, DEFAULT_CONFIG, CONFIG_MODE));
    }
    steps.extend(switch(host, &payload.version)?);
    for plan in &plans {
        steps.extend(engine(host, plan)?);
    }
    steps.extend(collect(host, &payload.version)?);
    refuse_unwritable(host, &steps)?;
    Ok(Installation {
        steps,
        engines: plans,
    })
}

/// Writes the manifest, and makes the directories that it lies in.
fn remember(host: &HostRoot) -> Result<Vec<Step>, Error> {
    let old = Manifest::load(host)?;
    let mut manifest = old.clone().unwrap_or_default();
    let missing = host.missing_dirs(Path::new(MANIFEST));
    let config_missing = host.missing_dirs(Path::new(CONFIG));
    for dir in missing.iter().chain(&config_missing) {
        // The state's directory goes with the manifest.
        if !manifest.made_dirs.contains(dir) && dir != Path::new(STATE) {
            manifest.made_dirs.push(dir.clone());
        }
    }
    if !host.exists(Path::new(CONFIG)) {
        manifest.config = Some(DEFAULT_CONFIG.to_owned());
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
            vec![write(MANIFEST, before.as_deref(), &text, MODE)]
        }
    })
}

fn version(host: &HostRoot, payload: &Payload) -> Result<Vec<Step>, Error> {
    let dir = version_dir(&payload.version);
    let exchange = host.exists(&dir);
    if exchange && payload.is_at(&host.locate(&dir)?) {
        return Ok(Vec::new());
    }
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

fn switch(host: &HostRoot, version: &str) -> Result<Option<Step>, Error> {
    let before = current(host)?;
    let after = Some(PathBuf::from(version));
    Ok((before != after).then(|| Step::Point {
        link: CURRENT.into(),
        before,
        after,
    }))
}

/// What the link to the version in use says; `None`: there is no link.
///
/// # Errors
/// The link's directory can't be searched.
pub fn current(host: &HostRoot) -> Result<Option<PathBuf>, Error> {
    let link = host.locate(Path::new(ROOT))?.join("current");
    Ok(link.read_link().ok())
}

/// Keeps what undoing needs, then changes the engine's files.
fn engine(host: &HostRoot, plan: &Plan) -> Result<Vec<Step>, Error> {
    let path = record(plan.engine);
    let before = host.read(&path)?;
    let after = plan.record.as_ref().map(Record::to_text);
    let mut steps = Vec::new();
    if let Some(text) = after.filter(|text| before.as_ref() != Some(text)) {
        steps.push(Step::Change(Change::Write {
            path,
            before,
            after: text,
            mode: MODE,
        }));
    }
    steps.extend(plan.changes.iter().cloned().map(Step::Change));
    Ok(steps)
}

/// Removes versions that nothing uses: not the new one, not the one before it,
/// which containers may be starting with just now, and none that a container's
/// bundle names.
fn collect(host: &HostRoot, version: &str) -> Result<Vec<Step>, Error> {
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

/// The versions on a host, by the names of their directories.
///
/// # Errors
/// The installation's directory can't be read.
pub fn installed(host: &HostRoot) -> Result<Vec<String>, Error> {
    let names = host.list(Path::new(ROOT))?;
    let names = names.iter().map(|name| name.to_string_lossy().into_owned());
    Ok(names
        .filter(|n| n != "current" && n != "state" && !is_leftover(n))
        .collect())
}

fn make_dirs(dirs: &[PathBuf]) -> impl Iterator<Item = Step> {
    dirs.iter()
        .map(|path| Step::Change(Change::MakeDir { path: path.clone() }))
}

fn write(path: &str, before: Option<&str>, after: &str, mode: u32) -> Step {
    Step::Change(Change::Write {
        path: path.into(),
        before: before.map(str::to_owned),
        after: after.to_owned(),
        mode,
    })
}

/// Fails before the first step where a later one would: on a file system that
/// is mounted read-only, or without the rights.
fn refuse_unwritable(host: &HostRoot, steps: &[Step]) -> Result<(), Error> {
    let dirs: BTreeSet<&Path> = steps
        .iter()
        .filter_map(|step| step.path().parent())
        .collect();
    for dir in dirs {
        let Some(nearest) = dir.ancestors().find(|d| host.exists(d)) else {
            continue;
        };
        let at = host.locate(nearest)?;
        access(&at, AccessFlags::W_OK)
            .map_err(|errno| HostError::io("write to", &at)(errno.into()))?;
    }
    Ok(())
}
