//! Chooses the directories of an installation: those that the administrator names, those of the
//! existing installation, or the first usable candidates, such as `/opt/boathook`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use device_class::config::{DEFAULT_PATH, DIRECTORIES_FILE_PATH, InstalledDirectories};
use runtime_config::Change;

use crate::host::Host;
use crate::step::Step;

/// The directories that are emptied at a boot or by systemd-tmpfiles. An installation below them is
/// refused, because engines would later call programs that no longer exist.
const TEMPORARY_DIRS: [&str; 5] = ["/tmp", "/var/tmp", "/run", "/var/run", "/dev/shm"];

/// The candidates for the directory of the programs, in order of preference. The first one that is
/// writable and not mounted noexec is used.
const PROGRAM_DIR_CANDIDATES: [&str; 3] =
    ["/opt/boathook", KUBERNETES_PROGRAM_DIR, "/var/lib/boathook"];
/// The candidate for Container-Optimized OS, which mounts /var with noexec. It is used only if its
/// parent directory exists, which shows that the host runs this distribution.
const KUBERNETES_PROGRAM_DIR: &str = "/home/kubernetes/bin/boathook";
/// The configuration directory on hosts with a read-only /etc.
const FALLBACK_CONFIG_DIR: &str = "/var/lib/boathook-config/boathook";
/// The last component of the path of each directory. It shows that the directory belongs to
/// Boathook, so that `uninstall` may delete the directory.
const DIRECTORY_NAME: &str = "boathook";
const RECORD_MODE: u32 = 0o644;

/// The directories that the administrator names on the command line, if any.
#[derive(Debug, Clone, Default)]
pub struct RequestedDirectories {
    /// The value of `--prefix`. `None` means that a directory is chosen.
    pub programs: Option<PathBuf>,
    /// The value of `--config-dir`. `None` means that a directory is chosen.
    pub configuration: Option<PathBuf>,
}

/// Returns the host with the chosen directories. If Boathook is already installed, the directories
/// of that installation are kept.
///
/// # Errors
/// Fails if no directory is usable, or if a directory that an option names is not usable. The error
/// says which option to use.
pub fn choose_directories(
    host: &Host,
    requested_directories: &RequestedDirectories,
) -> Result<Host> {
    // The completion of a shell appends a slash to a directory. It is removed here, because the
    // checks below refuse it.
    let without_last_slash = |path: &PathBuf| {
        let text = path.to_string_lossy();
        match text.trim_end_matches('/') {
            "" => path.clone(),
            shortened => PathBuf::from(shortened),
        }
    };
    let requested_directories = &RequestedDirectories {
        programs: requested_directories
            .programs
            .as_ref()
            .map(without_last_slash),
        configuration: requested_directories
            .configuration
            .as_ref()
            .map(without_last_slash),
    };
    check_directory_path("--prefix", requested_directories.programs.as_deref())?;
    check_directory_path(
        "--config-dir",
        requested_directories.configuration.as_deref(),
    )?;
    if host.try_exists(&host.manifest_path())? {
        let recorded_directories = host.directories();
        refuse_directory_change(
            "--prefix",
            requested_directories.programs.as_deref(),
            &recorded_directories.programs_dir,
        )?;
        let configuration = requested_directories.configuration.as_deref();
        refuse_directory_change(
            "--config-dir",
            configuration,
            &recorded_directories.config_dir,
        )?;
        return Ok(host.clone());
    }
    let directories = InstalledDirectories {
        programs_dir: choose_programs_dir(host, requested_directories.programs.as_deref())?,
        config_dir: choose_configuration_dir(host, requested_directories.configuration.as_deref())?,
    };
    refuse_nested_directories(&directories)?;
    refuse_symlink(host, "--prefix", &directories.programs_dir)?;
    refuse_symlink(host, "--config-dir", &directories.config_dir)?;
    let record_path = Path::new(DIRECTORIES_FILE_PATH);
    ensure!(
        directories == InstalledDirectories::default()
            || record_path.parent().is_some_and(|dir| host.is_dir(dir)),
        "{DIRECTORIES_FILE_PATH} cannot be written, by which the programs find {}: make its directory",
        directories.programs_dir.display()
    );
    Ok(host.with_directories(directories))
}

fn check_directory_path(option: &str, directory: Option<&Path>) -> Result<()> {
    let Some(directory) = directory else {
        return Ok(());
    };
    let is_valid_path = directory.to_str().is_some_and(|path| {
        path.starts_with('/')
            && path
                .split('/')
                .skip(1)
                .all(|name| !["", ".", ".."].contains(&name))
            && path
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
    });
    ensure!(
        is_valid_path
            && directory
                .file_name()
                .is_some_and(|name| name == DIRECTORY_NAME),
        "{option} {}: the directory has to be an absolute path that ends in /{DIRECTORY_NAME}, of letters, \
         digits, `.`, `_` and `-`, such as /var/lib/{DIRECTORY_NAME}",
        directory.display()
    );
    Ok(())
}

/// Returns an error if one directory contains the other, because `uninstall` would remove both when
/// it removes one.
fn refuse_nested_directories(directories: &InstalledDirectories) -> Result<()> {
    let (programs, configuration) = (&directories.programs_dir, &directories.config_dir);
    ensure!(
        !programs.starts_with(configuration) && !configuration.starts_with(programs),
        "--prefix {} and --config-dir {}: one directory cannot be in the other: name another one \
         for the configuration, such as {FALLBACK_CONFIG_DIR}",
        programs.display(),
        configuration.display()
    );
    Ok(())
}

/// Returns an error if a directory is a symbolic link, because `uninstall` would remove only the
/// link and leave the files in its target.
fn refuse_symlink(host: &Host, option: &str, directory: &Path) -> Result<()> {
    let target = match host.read_link(directory) {
        Err(error) if error.kind() == Some(ErrorKind::NotFound) => None,
        target => target?,
    };
    if let Some(target) = target {
        bail!(
            "{} is a link to {}: name the directory itself with {option}",
            directory.display(),
            target.display()
        );
    }
    Ok(())
}

/// Returns an error if an option names a directory other than that of the existing installation.
fn refuse_directory_change(
    option: &str,
    requested_dir: Option<&Path>,
    installed_dir: &Path,
) -> Result<()> {
    if let Some(requested_dir) =
        requested_dir.filter(|requested_dir| *requested_dir != installed_dir)
    {
        bail!(
            "{option} {}: the installation uses {}; run boathook-init uninstall first",
            requested_dir.display(),
            installed_dir.display()
        );
    }
    Ok(())
}

fn choose_programs_dir(host: &Host, requested_dir: Option<&Path>) -> Result<PathBuf> {
    if let Some(requested_dir) = requested_dir {
        return match find_directory_problem(host, requested_dir, DirectoryUse::Programs)? {
            None => Ok(requested_dir.to_owned()),
            Some(problem) => bail!(
                "--prefix {}: {problem}; name a directory that root can write to and execute \
                 programs from",
                requested_dir.display()
            ),
        };
    }
    let is_candidate_for_host = |candidate: &&Path| {
        *candidate != Path::new(KUBERNETES_PROGRAM_DIR)
            || candidate.parent().is_some_and(|dir| host.is_dir(dir))
    };
    // In a container, only the mounted directories belong to the host. A candidate that is not
    // mounted would be a directory of the container, so only the first candidate is examined.
    let max_candidates = if is_whole_host_visible(host) {
        usize::MAX
    } else {
        1
    };
    let candidates = PROGRAM_DIR_CANDIDATES
        .iter()
        .map(Path::new)
        .take(max_candidates);
    let mut problems = Vec::new();
    for candidate in candidates.filter(is_candidate_for_host) {
        match find_directory_problem(host, candidate, DirectoryUse::Programs)? {
            None => return Ok(candidate.to_owned()),
            Some(problem) => problems.push(problem),
        }
    }
    bail!(
        "no directory for the programs: {}; name one with --prefix that root can write to and \
         execute programs from (in a cluster: the chart's installDir)",
        problems.join("; ")
    )
}

fn choose_configuration_dir(host: &Host, requested_dir: Option<&Path>) -> Result<PathBuf> {
    let default_dir = InstalledDirectories::default().config_dir;
    // All programs prefer a configuration at the default path. If there is one, no other directory
    // can be used.
    let has_default_config = host.exists(Path::new(DEFAULT_PATH));
    if let Some(requested_dir) = requested_dir {
        ensure!(
            !has_default_config || requested_dir == default_dir,
            "--config-dir {}: {DEFAULT_PATH} exists and would be used in its place; remove it first",
            requested_dir.display()
        );
        return match find_directory_problem(host, requested_dir, DirectoryUse::Files)? {
            None => Ok(requested_dir.to_owned()),
            Some(problem) => bail!(
                "--config-dir {}: {problem}; name a directory that root can write to",
                requested_dir.display()
            ),
        };
    }
    if has_default_config
        || !is_whole_host_visible(host)
        || find_directory_problem(host, &default_dir, DirectoryUse::Files)?.is_none()
    {
        return Ok(default_dir);
    }
    match find_directory_problem(host, Path::new(FALLBACK_CONFIG_DIR), DirectoryUse::Files)? {
        None => Ok(FALLBACK_CONFIG_DIR.into()),
        Some(problem) => bail!(
            "no directory for the configuration: {} and {FALLBACK_CONFIG_DIR} cannot be used \
             ({problem}); name one with --config-dir (in a cluster: the chart's configDir)",
            default_dir.display()
        ),
    }
}

/// The use of a directory. It decides which operations the directory's file system must allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectoryUse {
    /// The directory must allow writing and executing files.
    Programs,
    /// The directory must allow writing files.
    Files,
}

/// Returns the reason why a directory cannot be used, or `None` if it can be used. If the directory
/// does not exist yet, examines its nearest existing ancestor.
fn find_directory_problem(
    host: &Host,
    directory: &Path,
    directory_use: DirectoryUse,
) -> Result<Option<String>> {
    let mut temporary_dirs = TEMPORARY_DIRS.iter();
    if let Some(temporary_dir) = temporary_dirs.find(|dir| directory.starts_with(dir)) {
        return Ok(Some(format!(
            "{temporary_dir} is emptied at a boot or by a timer"
        )));
    }
    let mut ancestors = directory.ancestors();
    let nearest_dir = ancestors
        .find(|dir| host.exists(dir))
        .unwrap_or(Path::new("/"));
    let dir = nearest_dir.display();
    if !host.is_dir(nearest_dir) {
        return Ok(Some(format!("{dir} is a file")));
    }
    let links = directory.ancestors().take_while(|dir| *dir != nearest_dir);
    for link in links {
        if let Ok(Some(target)) = host.read_link(link) {
            return Ok(Some(format!(
                "{} is a link to {}, which is not there",
                link.display(),
                target.display()
            )));
        }
    }
    let entry = host.resolve(&nearest_dir.join("any"))?;
    match entry.check_dir_writable() {
        Err(error) if error.kind() == Some(ErrorKind::ReadOnlyFilesystem) => {
            return Ok(Some(format!("{dir} is on a read-only file system")));
        }
        result => result?,
    }
    let is_noexec = directory_use == DirectoryUse::Programs && entry.is_noexec_mount()?;
    Ok(is_noexec.then(|| format!("the file system of {dir} is mounted noexec")))
}

/// Returns whether this process sees the host's whole file system. In a container it may see only
/// the directories that are mounted there.
fn is_whole_host_visible(host: &Host) -> bool {
    host.is_dir(Path::new("/usr/bin"))
}

/// Returns a step that writes or removes the file `/var/lib/boathook.toml`, which records the
/// directories of an installation. The default directories are not recorded. Returns `None` if the
/// file is up to date.
pub(crate) fn plan_directories_record(host: &Host) -> Result<Option<Step>> {
    let path = Path::new(DIRECTORIES_FILE_PATH);
    let directories = host.directories();
    let new_text = (*directories != InstalledDirectories::default()).then(|| {
        // The paths need no escaping in TOML, because `check_directory_path` refuses all characters
        // that would need it.
        format!(
            "# The directories of Boathook. boathook-init writes this file, and removes it.\n\
             programs = \"{}\"\nconfiguration = \"{}\"\n",
            directories.programs_dir.display(),
            directories.config_dir.display()
        )
    });
    let old_text = host.read(path)?;
    let change = Change::from_texts(path, old_text.as_deref(), new_text.as_deref(), RECORD_MODE);
    Ok(change.map(Step::Change))
}

/// Returns notes for the operator if the directories are not the default ones.
pub(crate) fn describe_directories(host: &Host) -> Vec<String> {
    let (default_directories, chosen_directories) =
        (InstalledDirectories::default(), host.directories());
    let mut notes = Vec::new();
    if chosen_directories.programs_dir != default_directories.programs_dir {
        notes.push(format!(
            "the programs are in {}; {DIRECTORIES_FILE_PATH} records that",
            chosen_directories.programs_dir.display()
        ));
        if host.exists(Path::new("/sys/fs/selinux/enforce")) {
            notes.push(format!(
                "SELinux: the files there lose their types when the file system is labelled again; \
                 to keep them: semanage fcontext -a -t usr_t '{0}(/.*)?' && \
                 semanage fcontext -a -t bin_t '{0}/[^/]+/bin(/.*)?'",
                chosen_directories.programs_dir.display()
            ));
        }
    }
    if chosen_directories.config_dir != default_directories.config_dir {
        notes.push(format!(
            "the configuration is {}",
            chosen_directories.config_path().display()
        ));
    }
    notes
}
