//! What it takes to remove everything: the steps of an installation, backwards.
//!
//! The manifest goes last. Killed before, a second run finds what is left to
//! do in it; killed after, there is nothing left but names that no one uses.

use std::path::{Path, PathBuf};

use runtime_config::{Change, Engine, HostRoot, Plan, Record, scratch};

use crate::error::Error;
use crate::install::{current, installed};
use crate::layout::{CONFIG, CURRENT, ROOT, STATE, record, version_dir};
use crate::manifest::{MODE, Manifest};
use crate::step::Step;
use crate::{in_use, leftovers};

/// A removal, planned.
#[derive(Debug)]
pub struct Removal {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The plan for each engine that was configured.
    pub engines: Vec<Plan>,
    /// The administrator's configuration, if it is kept because it was edited.
    pub kept: Option<PathBuf>,
}

/// Plans the removal. `also` are engines to be looked at even though no record
/// says that they were configured.
///
/// # Errors
/// A file can't be read; or containers still need the wrapper runtime and
/// `force` is not given.
pub fn plan(host: &HostRoot, also: &[Engine], force: bool) -> Result<Removal, Error> {
    let ids = in_use::wrapped(host)?;
    if !force && !ids.is_empty() {
        return Err(Error::InUse {
            ids: ids.join(", "),
        });
    }
    let mut steps = Vec::new();
    let mut engines = Vec::new();
    for engine in Engine::ALL {
        let known = Record::load(host, &record(engine))?;
        if known.is_none() && !also.contains(&engine) {
            continue;
        }
        let now = engine.read(host, known.as_ref())?;
        let plan = engine.plan_undo(&now, known.as_ref());
        steps.extend(scratches(host, known.as_ref())?);
        steps.extend(plan.changes.iter().cloned().map(Step::Change));
        steps.extend(remove(host, &record(engine))?);
        engines.push(plan);
    }
    let manifest = Manifest::load(host)?.unwrap_or_default();
    let mut kept = None;
    let config = Path::new(CONFIG);
    // An installation may have been killed while it wrote the configuration.
    steps.extend(remove(host, &scratch(config))?);
    if let (Some(written), Some(text)) = (&manifest.config, host.read(config)?) {
        if *written == text {
            steps.extend(remove(host, config)?);
        } else {
            kept = Some(config.to_path_buf());
        }
    }
    let (below, dirs): (Vec<_>, Vec<_>) = manifest
        .made_dirs
        .iter()
        .rev()
        .partition(|dir| !Path::new(ROOT).starts_with(dir));
    let remove_dir = |path: &&PathBuf| {
        Step::Change(Change::RemoveDir {
            path: (*path).clone(),
        })
    };
    steps.extend(below.iter().map(remove_dir));
    if let Some(before) = current(host)? {
        steps.push(Step::Point {
            link: CURRENT.into(),
            before: Some(before),
            after: None,
        });
    }
    let versions = installed(host)?;
    steps.extend(versions.iter().map(|name| Step::Discard {
        path: version_dir(name),
    }));
    steps.extend(leftovers::discard(host)?);
    steps.extend(last(host, &dirs)?.map(|path| Step::Discard { path }));
    Ok(Removal {
        steps,
        engines,
        kept,
    })
}

/// The directory whose removal ends it all: the outermost one that was made
/// and holds nothing of anyone else's; or the state alone, in a directory that
/// was there before.
fn last(host: &HostRoot, made: &[&PathBuf]) -> Result<Option<PathBuf>, Error> {
    let mut outermost = None;
    for dir in made {
        let inner = outermost.as_deref().unwrap_or(Path::new(ROOT));
        let alone = host.list(dir)?.iter().all(|name| {
            dir.as_path() == Path::new(ROOT) || Some(name.as_os_str()) == inner.file_name()
        });
        if !alone {
            break;
        }
        outermost = Some(dir.to_path_buf());
    }
    let dir = outermost.unwrap_or_else(|| STATE.into());
    Ok(host.exists(&dir).then_some(dir))
}

fn remove(host: &HostRoot, path: &Path) -> Result<Option<Step>, Error> {
    let text = host.read(path)?;
    Ok(text.map(|before| {
        Step::Change(Change::Remove {
            path: path.into(),
            before,
            mode: MODE,
        })
    }))
}

/// What a run left that was killed while it wrote an engine's file.
fn scratches(host: &HostRoot, record: Option<&Record>) -> Result<Vec<Step>, Error> {
    let mut steps = Vec::new();
    for path in record.iter().flat_map(|r| r.paths()) {
        // Beside the file that a link leads to, but told as the host tells it.
        let at = scratch(&host.locate(path)?);
        if let Ok(inside) = at.strip_prefix(host.as_path()) {
            let path = Path::new("/").join(inside);
            if host.exists(&path) {
                steps.push(Step::Discard { path });
            }
        }
    }
    Ok(steps)
}
