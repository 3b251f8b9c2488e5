//! Plans a removal, which reverses the steps of an installation.
//!
//! The manifest is removed last. If a run is killed before that, the next run finds in the
//! manifest what remains to be removed. If it is killed later, only unused files with temporary
//! names remain.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use device_class::config::DIRECTORIES_PATH;
use nix::sys::stat::FileStat;
use runtime_config::{
    Change, Engine, InstallationRecord, Place, Plan, scratch_path, scratch_place,
};

use crate::claims;
use crate::compatibility;
use crate::host::Host;
use crate::in_use;
use crate::install::{current_version, installed_versions, refuse_unwritable, remove_link};
use crate::layout::{DRIVER, LOCK, RUN, is_leftover, unfinished_name};
use crate::manifest::{MODE, Manifest};
use crate::services;
use crate::specifications;
use crate::step::{Step, discard_leftovers};

/// The plan of a removal.
#[derive(Debug)]
pub struct Removal {
    pub steps: Vec<Step>,
    /// The plan for each engine that was configured.
    pub engines: Vec<Plan>,
    /// The files that are kept, each with the reason.
    pub kept: Vec<String>,
    /// The names of the containers that cannot be started any more.
    pub stranded: Vec<String>,
}

/// Plans the removal. The configuration of the engines in `also` is reverted even if it has no
/// record.
///
/// # Errors
/// Fails if a file cannot be read. Without `force`, also fails if containers still need the
/// wrapper runtime, if claims are prepared, or if an engine's configuration is not visible.
pub fn plan(host: &Host, also: &[Engine], force: bool) -> Result<Removal> {
    let ids = in_use::find_wrapped_containers(host)?;
    ensure!(
        force || ids.is_empty(),
        "these containers were started by boathook-runtime and cannot be stopped without it: {}; \
         stop them first, or use --force",
        list_ids(&ids)
    );
    let claims = claims::find_prepared_claims(host)?;
    ensure!(
        force || claims.is_empty(),
        "the claims {} are prepared on this node (below {DRIVER}): delete their pods while \
         boathook-dra runs, or use --force",
        list_ids(&claims)
    );
    let mut steps = services::plan_removal(host)?;
    let mut engines = Vec::new();
    for engine in Engine::ALL {
        let record = InstallationRecord::load(host, &host.record(engine))?;
        if record.is_none() && !also.contains(&engine) {
            continue;
        }
        if !force
            && let Some(path) = record
                .as_ref()
                .and_then(|record| record.find_unreachable_file(host))
        {
            // The engine's configuration would still name the removed programs.
            bail!(
                "the directory of {}, by which {engine} calls boathook, is not there: mount it at \
                 the same place as for the installation, or use --force if {engine} was removed",
                path.display()
            );
        }
        let now = engine.read(host, record.as_ref())?;
        let plan = engine.plan_undo(&now, record.as_ref());
        steps.extend(discard_scratch_files(host, record.as_ref())?);
        steps.extend(plan.changes.iter().cloned().map(Step::Change));
        steps.extend(remove_file(host, &host.record(engine))?);
        engines.push(plan);
    }
    let manifest = Manifest::load(host)?.unwrap_or_default();
    let mut kept = Vec::new();
    let mut gone: BTreeSet<PathBuf> = removed_paths(&engines).map(Path::to_path_buf).collect();
    gone.extend(steps.iter().map(|step| step.path().to_path_buf()));
    let config = &host.directories().config();
    // An installation that was killed while it wrote the configuration leaves a scratch file.
    steps.extend(remove_file(host, &scratch_path(config))?);
    gone.insert(scratch_path(config));
    if let (Some(_), Some(text)) = (&manifest.config, host.read(config)?) {
        if manifest.has_written(&text) {
            steps.extend(remove_file(host, config)?);
            gone.insert(config.to_path_buf());
        } else {
            kept.push(format!("{}: it was edited", config.display()));
        }
    }
    for path in specifications::find_specifications(host)? {
        steps.extend(remove_file(host, &path)?);
    }
    for link in &manifest.links {
        // An installation that was killed while it made the link leaves a temporary link.
        let name = unfinished_name(link.file_name().unwrap_or_default());
        let half = link.with_file_name(name);
        let before = host.read_link(&half)?;
        let half = before.is_some().then_some(Step::SetLink {
            link: half,
            before,
            after: None,
        });
        for step in remove_link(host, link)?.into_iter().chain(half) {
            gone.insert(step.path().to_path_buf());
            steps.push(step);
        }
    }
    for link in &manifest.compatibility_links {
        let unfinished = link.with_file_name(unfinished_name(link.file_name().unwrap_or_default()));
        for path in [link, &unfinished] {
            if let Some(step) = compatibility::remove_link(host, path)? {
                gone.insert(path.clone());
                steps.push(step);
            }
        }
    }
    let made = list_made_directories(host, &manifest);
    let (below, dirs): (Vec<_>, Vec<_>) = made
        .iter()
        .rev()
        .partition(|dir| !host.programs().starts_with(dir));
    let own_classes = host.directories().own_classes();
    let own = host.list(&own_classes)?;
    if !own.is_empty() {
        let names: Vec<_> = own.iter().map(|file| file.to_string_lossy()).collect();
        kept.push(format!(
            "{}: it holds {}",
            own_classes.display(),
            names.join(", ")
        ));
    }
    for dir in below {
        let names = host.list(dir)?;
        let others = names.iter().filter(|name| !gone.contains(&dir.join(name)));
        if others.count() == 0 {
            gone.insert(dir.clone());
            let path = dir.clone();
            steps.extend(
                host.exists(dir)
                    .then_some(Step::Change(Change::RemoveDir { path })),
            );
        }
    }
    // These steps cannot be undone, but an installation needs nothing of what they remove. They
    // come before the removal of the programs, without which undoing the earlier steps would be
    // useless. `RUN` has the hook's log and other files that are kept until the next boot.
    for dir in [RUN, DRIVER] {
        steps.extend(discard_directory(host, Path::new(dir))?);
    }
    steps.extend(discard_leftovers(host)?);
    let used_version = current_version(host)?;
    if let Some(before) = used_version.clone() {
        steps.push(Step::SetLink {
            link: host.current(),
            before: Some(before),
            after: None,
        });
    }
    let mut versions = installed_versions(host)?;
    // The version in use is removed last, so that it survives most failures.
    versions.sort_by_key(|name| used_version.as_deref() == Some(Path::new(name)));
    steps.extend(versions.iter().map(|name| Step::Discard {
        path: host.version(name),
    }));
    let foreign = find_foreign_names(host, &versions)?;
    if !foreign.is_empty() {
        kept.push(format!(
            "{}: it holds {}",
            host.programs().display(),
            foreign.join(", ")
        ));
    }
    let foreign_state = find_foreign_state(host)?;
    if foreign_state.is_empty() {
        let last = find_last_directory(host, &dirs, foreign.is_empty())?;
        steps.extend(last.map(|path| Step::Discard { path }));
    } else {
        let state = host.state();
        kept.push(format!(
            "{}: it holds {}",
            state.display(),
            foreign_state.join(", ")
        ));
        let given = host.directories().given_config();
        steps.extend(remove_file(host, &given)?);
        steps.extend(remove_file(host, &host.manifest())?);
    }
    // This record is removed last, because the next run after a killed one needs it.
    steps.extend(remove_file(host, Path::new(DIRECTORIES_PATH))?);
    refuse_unwritable(host, &steps)?;
    Ok(Removal {
        steps,
        stranded: in_use::find_docker_containers(host),
        engines,
        kept,
    })
}

/// Returns the directories to remove if they are empty: those that the installation made, and
/// Boathook's own, which a kubelet may have made earlier for a volume.
fn list_made_directories(host: &Host, manifest: &Manifest) -> Vec<PathBuf> {
    let mut made = manifest.made_dirs.clone();
    let directories = host.directories();
    for dir in [
        directories.programs.clone(),
        directories.configuration.clone(),
        directories.own_classes(),
    ] {
        if made.contains(&dir) || !host.is_dir(&dir) {
            continue;
        }
        // A mount point, such as a volume of this container, cannot be removed. Its device number
        // differs from that of its parent.
        let above = dir.parent().and_then(|above| host.stat(above));
        let device = |stat: &FileStat| stat.st_dev;
        if host.stat(&dir).as_ref().map(device) == above.as_ref().map(device) {
            made.push(dir);
        }
    }
    // Sorting puts each directory before its subdirectories.
    made.sort();
    made
}

/// Plans the removal of a directory with its content. If a file system is mounted in it, such as a
/// volume of this container, or if it is on a read-only file system, only its removable entries
/// are removed.
fn discard_directory(host: &Host, dir: &Path) -> Result<Vec<Step>> {
    if !host.is_dir(dir) {
        return Ok(Vec::new());
    }
    let place = host.entry(dir)?;
    if can_be_removed(&place)? {
        return Ok(vec![Step::Discard { path: dir.into() }]);
    }
    let mut steps = Vec::new();
    for name in host.list(dir)? {
        let path = dir.join(name);
        if can_be_removed(&host.entry(&path)?)? {
            steps.push(Step::Discard { path });
        }
    }
    Ok(steps)
}

/// Returns whether a file or directory can be removed with its content: its parent is writable,
/// and nothing is mounted at it or below it.
fn can_be_removed(place: &Place) -> Result<bool> {
    Ok(place.check_writable().is_ok() && !place.contains_mount()?)
}

/// Formats the first 16 ids, and how many others there are.
fn list_ids(ids: &BTreeSet<String>) -> String {
    const SHOWN: usize = 16;
    let first: Vec<&str> = ids.iter().take(SHOWN).map(String::as_str).collect();
    let more = match ids.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    first.join(", ") + &more
}

/// Returns the files and directories that the plans of the engines remove.
fn removed_paths(engines: &[Plan]) -> impl Iterator<Item = &Path> {
    let changes = engines.iter().flat_map(|plan| &plan.changes);
    changes
        .filter(|change| matches!(change, Change::Remove { .. } | Change::RemoveDir { .. }))
        .map(Change::path)
}

/// Returns the entries of the program directory that Boathook did not make.
fn find_foreign_names(host: &Host, versions: &[String]) -> Result<Vec<String>> {
    let is_own = |name: &String| {
        ["current", "state", LOCK].contains(&name.as_str())
            || is_leftover(name)
            || versions.contains(name)
    };
    Ok(host
        .list(host.programs())?
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| !is_own(name))
        .collect())
}

/// Returns the names in the directory with the records that Boathook did not make.
fn find_foreign_state(host: &Host) -> Result<Vec<String>> {
    let records = Engine::ALL.map(|engine| host.record(engine));
    let own = [host.manifest(), host.directories().given_config()];
    let own = records.into_iter().chain(own);
    let own: Vec<PathBuf> = own.flat_map(|path| [scratch_path(&path), path]).collect();
    let names = host.list(&host.state())?;
    let foreign = names
        .iter()
        .filter(|name| !own.contains(&host.state().join(name)));
    Ok(foreign
        .map(|name| name.to_string_lossy().into_owned())
        .collect())
}

/// Returns the directory whose removal is the last step: the outermost directory that the
/// installation made and that has nothing else. If the program directory existed before or has
/// other entries, this is the state directory.
fn find_last_directory(host: &Host, made: &[&PathBuf], alone: bool) -> Result<Option<PathBuf>> {
    let mut outermost = None;
    for dir in made.iter().filter(|_| alone) {
        let inner = outermost.as_deref().unwrap_or(host.programs());
        let alone = host.list(dir)?.iter().all(|name| {
            dir.as_path() == host.programs() || Some(name.as_os_str()) == inner.file_name()
        });
        if !alone || !can_be_removed(&host.entry(dir)?)? {
            break;
        }
        outermost = Some(dir.to_path_buf());
    }
    let dir = outermost.unwrap_or_else(|| host.state());
    Ok(host.exists(&dir).then_some(dir))
}

/// Plans the removal of the plugin's file with node labels. This step comes first, so that no pod
/// is scheduled to a node that is losing its devices.
pub fn remove_labels(host: &Host, file: &Path) -> Result<Option<Step>> {
    remove_file(host, file)
}

fn remove_file(host: &Host, path: &Path) -> Result<Option<Step>> {
    let text = host.read(path)?;
    Ok(Change::rewrite(path, text.as_deref(), None, MODE).map(Step::Change))
}

/// Plans the removal of scratch files that a run left when it was killed while it wrote an
/// engine's file.
fn discard_scratch_files(host: &Host, record: Option<&InstallationRecord>) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for path in record.iter().flat_map(|r| r.paths()) {
        // If the engine's file is a link, its scratch file is beside the target of the link. If
        // its directory does not exist, there is none.
        let Ok(place) = host.place(path) else {
            continue;
        };
        let scratch = scratch_place(&place);
        let shown = scratch.shown();
        if let (Some(_), Ok(relative)) = (scratch.stat()?, shown.strip_prefix(host.as_path())) {
            let path = Path::new("/").join(relative);
            steps.push(Step::Discard { path });
        }
    }
    Ok(steps)
}
