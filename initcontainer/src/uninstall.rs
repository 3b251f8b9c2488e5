//! Plans the removal of an installation, which reverses the steps of that installation.
//!
//! The manifest is removed after all files that it lists. If a run is killed before that, the next
//! run finds the remaining files in the manifest. If a run is killed after that, only unused files
//! with temporary names are left, and the record of the directories ([`DIRECTORIES_FILE_PATH`]).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use device_class::config::DIRECTORIES_FILE_PATH;
use runtime_config::{
    Change, Engine, HostEntry, InstallationRecord, Plan, scratch_entry, scratch_path,
};

use crate::claims;
use crate::compatibility;
use crate::host::Host;
use crate::in_use;
use crate::install::{
    find_current_version, list_installed_versions, plan_link_removal, refuse_unwritable_dirs,
};
use crate::layout::{
    DRA_DRIVER_DIR, LOCK_DIR_NAME, RUN_DIR, is_temporary_name, temp_name_for_creation,
};
use crate::manifest::{Manifest, STATE_FILE_MODE};
use crate::services;
use crate::specifications;
use crate::step::{Step, plan_leftover_removal};

/// The plan of a removal: its steps, and the files and containers that stay.
#[derive(Debug)]
pub struct RemovalPlan {
    pub steps: Vec<Step>,
    /// The plan of each engine that an installation has configured.
    pub engine_plans: Vec<Plan>,
    /// The files that are kept. Each entry contains the path and the reason.
    pub kept_files: Vec<String>,
    /// The names of the Docker containers that can no longer be started after the removal, because
    /// their runtime is `boathook-runtime`.
    pub unstartable_containers: Vec<String>,
}

/// Plans the removal of an installation. Also reverts the configuration of the engines in
/// `named_engines` if the installation has no record of them.
///
/// # Errors
/// Fails if a file cannot be read, or if a directory cannot be written to. Without `force`, also
/// fails if containers still need `boathook-runtime`, if resource claims are prepared, or if an
/// engine's configuration is not visible.
pub fn plan(host: &Host, named_engines: &[Engine], force: bool) -> Result<RemovalPlan> {
    let container_ids = in_use::find_containers_of_boathook_runtime(host)?;
    ensure!(
        force || container_ids.is_empty(),
        "these containers were started by boathook-runtime and cannot be stopped without it: {}; \
         stop them first, or use --force",
        format_ids(&in_use::describe_containers(host, &container_ids))
    );
    let claims = claims::find_prepared_claim_uids(host)?;
    ensure!(
        force || claims.is_empty(),
        "the claims {} are prepared on this node (below {DRA_DRIVER_DIR}): delete their pods while \
         boathook-dra runs, or use --force",
        format_ids(&claims)
    );
    let mut steps = services::plan_removal(host)?;
    let (mut engine_plans, mut kept_files) = (Vec::new(), Vec::new());
    for engine in Engine::ALL {
        let record = InstallationRecord::load(host, &host.record_path(engine))?;
        if record.is_none() && !named_engines.contains(&engine) {
            kept_files.extend(describe_unrecorded_configuration(host, engine));
            continue;
        }
        if !force
            && let Some(path) = record
                .as_ref()
                .and_then(|record| record.find_unreachable_file(host))
        {
            // Without this error, the engine's configuration would still name the removed programs.
            bail!(
                "the directory of {}, by which {engine} calls boathook, is not there: mount it at \
                 the same place as for the installation, or use --force if {engine} was removed",
                path.display()
            );
        }
        let snapshot = engine.read_snapshot(host, record.as_ref())?;
        let plan = engine.plan_undo(&snapshot, record.as_ref());
        let recorded_paths = record.iter().flat_map(InstallationRecord::paths);
        kept_files.extend(
            recorded_paths
                .filter_map(|path| describe_remaining_reference(host, &plan, path).transpose())
                .collect::<Result<Vec<_>>>()?,
        );
        steps.extend(plan_scratch_file_removal(host, record.as_ref())?);
        steps.extend(plan.changes.iter().cloned().map(Step::Change));
        steps.extend(plan_file_removal(host, &host.record_path(engine))?);
        engine_plans.push(plan);
    }
    let manifest = Manifest::load(host)?.unwrap_or_default();
    let mut removed_paths: BTreeSet<PathBuf> = find_removed_paths(&engine_plans)
        .map(Path::to_path_buf)
        .collect();
    removed_paths.extend(steps.iter().map(|step| step.path().to_path_buf()));
    let config_path = &host.directories().config_path();
    // If an installation was killed while it wrote the configuration, a scratch file is left beside
    // it.
    steps.extend(plan_file_removal(host, &scratch_path(config_path))?);
    removed_paths.insert(scratch_path(config_path));
    if let (Some(_), Some(text)) = (&manifest.config, host.read(config_path)?) {
        if manifest.has_written_config(&text) {
            steps.extend(plan_file_removal(host, config_path)?);
            removed_paths.insert(config_path.to_path_buf());
        } else {
            kept_files.push(format!("{}: it was edited", config_path.display()));
        }
    }
    for path in specifications::find_specifications(host)? {
        steps.extend(plan_file_removal(host, &path)?);
    }
    for link in &manifest.links {
        // If an installation was killed while it made the link, a link with a temporary name is
        // left.
        let name = temp_name_for_creation(link.file_name().unwrap_or_default());
        let temporary_link = link.with_file_name(name);
        let old_target = host.read_link(&temporary_link)?;
        let temporary_step = old_target.is_some().then_some(Step::SetLink {
            link: temporary_link,
            old_target,
            new_target: None,
        });
        for step in plan_link_removal(host, link)?
            .into_iter()
            .chain(temporary_step)
        {
            removed_paths.insert(step.path().to_path_buf());
            steps.push(step);
        }
    }
    for link in &manifest.toolkit_links {
        let temporary_link =
            link.with_file_name(temp_name_for_creation(link.file_name().unwrap_or_default()));
        for path in [link, &temporary_link] {
            if let Some(step) = compatibility::plan_link_removal(host, path)? {
                removed_paths.insert(path.clone());
                steps.push(step);
            }
        }
    }
    let made_dirs = list_removable_directories(host, &manifest);
    // The program directory and its ancestors are removed after all other directories.
    let (other_dirs, programs_dirs): (Vec<_>, Vec<_>) = made_dirs
        .iter()
        .rev()
        .partition(|dir| !host.programs_dir().starts_with(dir));
    let admin_classes_dir = host.directories().admin_classes_dir();
    let class_file_names = host.list(&admin_classes_dir)?;
    if !class_file_names.is_empty() {
        let names: Vec<_> = class_file_names
            .iter()
            .map(|file| file.to_string_lossy())
            .collect();
        kept_files.push(format!(
            "{}: it holds {}",
            admin_classes_dir.display(),
            names.join(", ")
        ));
    }
    for dir in other_dirs {
        let names = host.list(dir)?;
        let becomes_empty = names
            .iter()
            .all(|name| removed_paths.contains(&dir.join(name)));
        // A directory cannot be removed if it is a volume of this container, or if its parent is
        // read-only.
        if becomes_empty && host.exists(dir) && can_be_removed(&host.resolve_nofollow(dir)?)? {
            removed_paths.insert(dir.clone());
            let path = dir.clone();
            steps.push(Step::Change(Change::RemoveDir { path }));
        }
    }
    // The removal of these directories cannot be undone, but an installation works without their
    // files. They are removed before the programs: if a removal fails, the earlier steps are undone
    // while the programs still exist. `RUN_DIR` contains the hook's log and other files that are
    // kept until the next boot.
    for dir in [RUN_DIR, DRA_DRIVER_DIR] {
        steps.extend(plan_directory_removal(host, Path::new(dir))?);
    }
    steps.extend(plan_leftover_removal(host)?);
    let current_version = find_current_version(host)?;
    if let Some(old_target) = current_version.clone() {
        steps.push(Step::SetLink {
            link: host.current_link_path(),
            old_target: Some(old_target),
            new_target: None,
        });
    }
    let mut versions = list_installed_versions(host)?;
    // The version in use is removed after the other versions. If an earlier step fails, containers
    // can still start with this version.
    versions.sort_by_key(|name| current_version.as_deref() == Some(Path::new(name)));
    steps.extend(versions.iter().map(|name| Step::Discard {
        path: host.version_dir(name),
    }));
    let foreign_names = list_foreign_names(host, &versions)?;
    if !foreign_names.is_empty() {
        kept_files.push(format!(
            "{}: it holds {}",
            host.programs_dir().display(),
            foreign_names.join(", ")
        ));
    }
    let foreign_state_names = list_foreign_state_names(host)?;
    if foreign_state_names.is_empty() {
        let last_dir =
            find_outermost_own_directory(host, &programs_dirs, foreign_names.is_empty())?;
        steps.extend(last_dir.map(|path| Step::Discard { path }));
    } else {
        let state_dir = host.state_dir();
        kept_files.push(format!(
            "{}: it holds {}",
            state_dir.display(),
            foreign_state_names.join(", ")
        ));
        let installed_config_path = host.directories().installed_config_path();
        steps.extend(plan_file_removal(host, &installed_config_path)?);
        steps.extend(plan_file_removal(host, &host.manifest_path())?);
    }
    // The record of the directories is removed last. If this run is killed, the next run needs it.
    steps.extend(plan_file_removal(host, Path::new(DIRECTORIES_FILE_PATH))?);
    refuse_unwritable_dirs(host, &steps)?;
    Ok(RemovalPlan {
        steps,
        unstartable_containers: in_use::find_wrapped_docker_containers(host),
        engine_plans,
        kept_files,
    })
}

/// Returns a message if a file of an engine would still name one of Boathook's programs, or a file
/// that `plan` removes, after the changes of `plan`. An administrator may have edited the file.
fn describe_remaining_reference(host: &Host, plan: &Plan, path: &Path) -> Result<Option<String>> {
    let change = plan.changes.iter().find(|change| change.path() == path);
    let remaining_text = match change {
        Some(Change::Write { new_text, .. }) => Some(new_text.clone()),
        Some(_) => None,
        None => host.read(path)?,
    };
    let text = remaining_text.unwrap_or_default();
    let programs = [host.runtime_path(), host.directories().hook_path()];
    let removed_paths = find_removed_paths(std::slice::from_ref(plan)).map(Path::to_path_buf);
    let mut names = programs
        .into_iter()
        .chain(removed_paths)
        .map(|path| path.display().to_string());
    let remaining_name = names.find(|name| text.contains(name));
    Ok(remaining_name.map(|name| {
        format!(
            "{}: it was edited and still names {name}, which goes with the uninstallation: take that \
             out",
            path.display()
        )
    }))
}

/// Returns a message if an engine calls Boathook although the host has no record of that, for
/// example because the program directory was deleted. The configuration may belong to another
/// installation, so it is not reverted. Returns `None` if the engine's files cannot be read.
fn describe_unrecorded_configuration(host: &Host, engine: Engine) -> Option<String> {
    let snapshot = engine.read_snapshot(host, None).ok()?;
    let plan = engine.plan_undo(&snapshot, None);
    let path = plan.changes.first()?.path();
    Some(format!(
        "{}: no record tells who configured {engine} to call boathook; to take that out, run \
         boathook-init uninstall --engine {engine}",
        path.display()
    ))
}

/// Returns the directories to remove if they are empty. These are the directories that the
/// installation made, and Boathook's own directories, which a kubelet may have made for a volume
/// before the installation.
fn list_removable_directories(host: &Host, manifest: &Manifest) -> Vec<PathBuf> {
    let mut made_dirs = manifest.made_dirs.clone();
    let directories = host.directories();
    for dir in [
        directories.programs_dir.clone(),
        directories.config_dir.clone(),
        directories.admin_classes_dir(),
    ] {
        let is_link = || host.read_link(&dir).is_ok_and(|target| target.is_some());
        if !made_dirs.contains(&dir) && host.is_dir(&dir) && !is_link() {
            made_dirs.push(dir);
        }
    }
    // Sorting puts each directory before its subdirectories.
    made_dirs.sort();
    made_dirs
}

/// Plans the removal of a directory with its content. If the directory contains a mount point, such
/// as a volume of this container, or is on a read-only file system, only the entries that can be
/// removed are removed.
fn plan_directory_removal(host: &Host, dir: &Path) -> Result<Vec<Step>> {
    if !host.is_dir(dir) {
        return Ok(Vec::new());
    }
    let entry = host.resolve_nofollow(dir)?;
    if can_be_removed(&entry)? {
        return Ok(vec![Step::Discard { path: dir.into() }]);
    }
    let mut steps = Vec::new();
    for name in host.list(dir)? {
        let path = dir.join(name);
        if can_be_removed(&host.resolve_nofollow(&path)?)? {
            steps.push(Step::Discard { path });
        }
    }
    Ok(steps)
}

/// Returns whether a file or directory can be removed with its content: its parent directory is
/// writable, and the file or directory neither is nor contains a mount point.
fn can_be_removed(entry: &HostEntry) -> Result<bool> {
    Ok(entry.check_dir_writable().is_ok() && !entry.contains_mount()?)
}

/// Returns a text with the first 16 ids, and with the number of further ids.
fn format_ids(ids: &BTreeSet<String>) -> String {
    const MAX_LISTED_IDS: usize = 16;
    let listed_ids: Vec<&str> = ids
        .iter()
        .take(MAX_LISTED_IDS)
        .map(String::as_str)
        .collect();
    let suffix = match ids.len().saturating_sub(MAX_LISTED_IDS) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    listed_ids.join(", ") + &suffix
}

/// Returns the files and directories that the plans of the engines remove from the host.
fn find_removed_paths(engine_plans: &[Plan]) -> impl Iterator<Item = &Path> {
    let changes = engine_plans.iter().flat_map(|plan| &plan.changes);
    changes
        .filter(|change| matches!(change, Change::Remove { .. } | Change::RemoveDir { .. }))
        .map(Change::path)
}

/// Returns the names of the entries in the program directory that Boathook did not make, and that
/// `uninstall` therefore keeps.
fn list_foreign_names(host: &Host, versions: &[String]) -> Result<Vec<String>> {
    let is_own = |name: &String| {
        ["current", "state", LOCK_DIR_NAME].contains(&name.as_str())
            || is_temporary_name(name)
            || versions.contains(name)
    };
    Ok(host
        .list(host.programs_dir())?
        .iter()
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| !is_own(name))
        .collect())
}

/// Returns the names of the entries in the state directory that Boathook did not make, and that
/// `uninstall` therefore keeps.
fn list_foreign_state_names(host: &Host) -> Result<Vec<String>> {
    let records = Engine::ALL.map(|engine| host.record_path(engine));
    let own_paths: Vec<PathBuf> = records
        .into_iter()
        .chain([
            host.manifest_path(),
            host.directories().installed_config_path(),
        ])
        .flat_map(|path| [scratch_path(&path), path])
        .collect();
    let names = host.list(&host.state_dir())?;
    let foreign_names = names
        .iter()
        .filter(|name| !own_paths.contains(&host.state_dir().join(name)));
    Ok(foreign_names
        .map(|name| name.to_string_lossy().into_owned())
        .collect())
}

/// Returns the directory that the last step removes, or `None` if that directory does not exist. It
/// is the outermost directory of `made_dirs` that contains only files of the installation.
/// `made_dirs` lists the program directory and its ancestors, innermost first, as far as the
/// installation made them. If none of them can be removed, the result is the state directory. That
/// is also the result if the program directory contains foreign files (`is_programs_dir_own` is
/// false).
fn find_outermost_own_directory(
    host: &Host,
    made_dirs: &[&PathBuf],
    is_programs_dir_own: bool,
) -> Result<Option<PathBuf>> {
    let mut outermost = None;
    for dir in made_dirs.iter().filter(|_| is_programs_dir_own) {
        let inner_dir = outermost.as_deref().unwrap_or(host.programs_dir());
        let has_only_own_files = host.list(dir)?.iter().all(|name| {
            dir.as_path() == host.programs_dir() || Some(name.as_os_str()) == inner_dir.file_name()
        });
        if !has_only_own_files || !can_be_removed(&host.resolve_nofollow(dir)?)? {
            break;
        }
        outermost = Some(dir.to_path_buf());
    }
    let dir = outermost.unwrap_or_else(|| host.state_dir());
    Ok(host.exists(&dir).then_some(dir))
}

/// Plans the removal of the file to which the plugin wrote node labels. This step comes first, so
/// that no pod is scheduled to a node that is losing its devices.
pub fn plan_label_removal(host: &Host, file: &Path) -> Result<Option<Step>> {
    plan_file_removal(host, file)
}

/// Plans the removal of a file. Returns `None` if the file does not exist.
fn plan_file_removal(host: &Host, path: &Path) -> Result<Option<Step>> {
    let text = host.read(path)?;
    Ok(Change::from_texts(path, text.as_deref(), None, STATE_FILE_MODE).map(Step::Change))
}

/// Plans the removal of the scratch files beside an engine's files. An installation writes a new
/// text to a scratch file first. If it is killed before it renames the scratch file, that file is
/// left.
fn plan_scratch_file_removal(
    host: &Host,
    record: Option<&InstallationRecord>,
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for path in record.iter().flat_map(|record| record.paths()) {
        // If the engine's file is a link, its scratch file is beside the target of the link. If the
        // directory of the file does not exist, there is no scratch file.
        let Ok(entry) = host.resolve(path) else {
            continue;
        };
        let scratch = scratch_entry(&entry);
        let path_with_root = scratch.display_path();
        if let (Some(_), Ok(path)) = (scratch.stat()?, path_with_root.strip_prefix(host.as_path()))
        {
            let path = Path::new("/").join(path);
            steps.push(Step::Discard { path });
        }
    }
    Ok(steps)
}
