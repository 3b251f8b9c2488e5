//! Chooses the directories of an installation: those that the administrator names, those of the
//! existing installation, or the first usable ones.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use device_class::config::{DEFAULT_PATH, DIRECTORIES_PATH, InstalledDirectories};
use runtime_config::Change;

use crate::host::Host;
use crate::step::Step;

/// The candidates for the program directory, in order of preference.
const PROGRAM_DIRECTORIES: [&str; 3] = ["/opt/boathook", KUBERNETES_PROGRAMS, "/var/lib/boathook"];
/// The candidate on Container-Optimized OS, which mounts /var with noexec. It is used only if its
/// parent exists, which belongs to that distribution.
const KUBERNETES_PROGRAMS: &str = "/home/kubernetes/bin/boathook";
/// The configuration directory on hosts with a read-only /etc.
const FALLBACK_CONFIGURATION: &str = "/var/lib/boathook-config/boathook";
/// The last component of each directory. A removal deletes the directories, so they must be
/// Boathook's own.
const DIRECTORY_NAME: &str = "boathook";
const MODE: u32 = 0o644;

/// The directories that the administrator names on the command line.
#[derive(Debug, Clone, Default)]
pub struct NamedDirectories {
    /// The value of `--prefix`.
    pub programs: Option<PathBuf>,
    /// The value of `--config-dir`.
    pub configuration: Option<PathBuf>,
}

/// Returns the host with the chosen directories. If something is installed, these are the recorded
/// ones.
///
/// # Errors
/// Fails if no directory is usable, or if a named one is not. The error says which option to use.
pub fn choose_directories(host: &Host, named: &NamedDirectories) -> Result<Host> {
    check_name("--prefix", named.programs.as_deref())?;
    check_name("--config-dir", named.configuration.as_deref())?;
    if host.try_exists(&host.manifest())? {
        let recorded = host.directories();
        refuse_move("--prefix", named.programs.as_deref(), &recorded.programs)?;
        let configuration = named.configuration.as_deref();
        refuse_move("--config-dir", configuration, &recorded.configuration)?;
        return Ok(host.clone());
    }
    let directories = InstalledDirectories {
        programs: choose_programs(host, named.programs.as_deref())?,
        configuration: choose_configuration(host, named.configuration.as_deref())?,
    };
    refuse_nested(&directories)?;
    refuse_link(host, "--prefix", &directories.programs)?;
    refuse_link(host, "--config-dir", &directories.configuration)?;
    let record = Path::new(DIRECTORIES_PATH);
    ensure!(
        directories == InstalledDirectories::default()
            || record.parent().is_some_and(|dir| host.is_dir(dir)),
        "{DIRECTORIES_PATH} cannot be written, by which the programs find {}: make its directory",
        directories.programs.display()
    );
    Ok(host.with_directories(directories))
}

fn check_name(option: &str, directory: Option<&Path>) -> Result<()> {
    let Some(directory) = directory else {
        return Ok(());
    };
    let is_plain = directory.to_str().is_some_and(|path| {
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
        is_plain
            && directory
                .file_name()
                .is_some_and(|name| name == DIRECTORY_NAME),
        "{option} {}: the directory has to be an absolute path that ends in /{DIRECTORY_NAME}, of letters, \
         digits, `.`, `_` and `-`, such as /var/lib/{DIRECTORY_NAME}",
        directory.display()
    );
    Ok(())
}

/// Refuses directories that contain each other, because the removal of one would remove the other.
fn refuse_nested(directories: &InstalledDirectories) -> Result<()> {
    let (programs, configuration) = (&directories.programs, &directories.configuration);
    ensure!(
        !programs.starts_with(configuration) && !configuration.starts_with(programs),
        "--prefix {} and --config-dir {}: one directory cannot be in the other: name another one \
         for the configuration, such as {FALLBACK_CONFIGURATION}",
        programs.display(),
        configuration.display()
    );
    Ok(())
}

/// The removal would remove the link, and leave files in the directory that it leads to.
fn refuse_link(host: &Host, option: &str, directory: &Path) -> Result<()> {
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

fn refuse_move(option: &str, named: Option<&Path>, installed: &Path) -> Result<()> {
    if let Some(named) = named.filter(|named| *named != installed) {
        bail!(
            "{option} {}: the installation uses {}; run boathook-init uninstall first",
            named.display(),
            installed.display()
        );
    }
    Ok(())
}

fn choose_programs(host: &Host, named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        return match find_obstacle(host, named, DirectoryUse::Programs)? {
            None => Ok(named.to_owned()),
            Some(obstacle) => bail!(
                "--prefix {}: {obstacle}; name a directory that root can write to and execute \
                 programs from",
                named.display()
            ),
        };
    }
    let is_offered = |candidate: &&Path| {
        *candidate != Path::new(KUBERNETES_PROGRAMS)
            || candidate.parent().is_some_and(|dir| host.is_dir(dir))
    };
    // In a container only mounted directories belong to the host, so only the first candidate
    // counts.
    let count = if is_host_visible(host) { usize::MAX } else { 1 };
    let candidates = PROGRAM_DIRECTORIES.iter().map(Path::new).take(count);
    let mut obstacles = Vec::new();
    for candidate in candidates.filter(is_offered) {
        match find_obstacle(host, candidate, DirectoryUse::Programs)? {
            None => return Ok(candidate.to_owned()),
            Some(obstacle) => obstacles.push(obstacle),
        }
    }
    bail!(
        "no directory for the programs: {}; name one with --prefix that root can write to and \
         execute programs from (in a cluster: the chart's installDir)",
        obstacles.join("; ")
    )
}

fn choose_configuration(host: &Host, named: Option<&Path>) -> Result<PathBuf> {
    let usual = InstalledDirectories::default().configuration;
    // The hook and all programs prefer a configuration at the default path, if there is one.
    let has_usual = host.exists(Path::new(DEFAULT_PATH));
    if let Some(named) = named {
        ensure!(
            !has_usual || named == usual,
            "--config-dir {}: {DEFAULT_PATH} exists and would be used in its place; remove it first",
            named.display()
        );
        return match find_obstacle(host, named, DirectoryUse::Files)? {
            None => Ok(named.to_owned()),
            Some(obstacle) => bail!(
                "--config-dir {}: {obstacle}; name a directory that root can write to",
                named.display()
            ),
        };
    }
    if has_usual
        || !is_host_visible(host)
        || find_obstacle(host, &usual, DirectoryUse::Files)?.is_none()
    {
        return Ok(usual);
    }
    match find_obstacle(host, Path::new(FALLBACK_CONFIGURATION), DirectoryUse::Files)? {
        None => Ok(FALLBACK_CONFIGURATION.into()),
        Some(obstacle) => bail!(
            "no directory for the configuration: {} and {FALLBACK_CONFIGURATION} cannot be used \
             ({obstacle}); name one with --config-dir (in a cluster: the chart's configDir)",
            usual.display()
        ),
    }
}

/// What a directory is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirectoryUse {
    /// The directory must allow writing and executing files.
    Programs,
    /// The directory must allow writing files.
    Files,
}

/// Returns the reason why a directory cannot be used. The directory need not exist yet.
fn find_obstacle(host: &Host, directory: &Path, purpose: DirectoryUse) -> Result<Option<String>> {
    let mut above = directory.ancestors();
    let nearest = above.find(|dir| host.exists(dir)).unwrap_or(Path::new("/"));
    let place = host.place(&nearest.join("any"))?;
    let shown = nearest.display();
    match place.check_writable() {
        Err(error) if error.kind() == Some(ErrorKind::ReadOnlyFilesystem) => {
            return Ok(Some(format!("{shown} is on a read-only file system")));
        }
        result => result?,
    }
    let is_noexec = purpose == DirectoryUse::Programs && place.forbids_execution()?;
    Ok(is_noexec.then(|| format!("the file system of {shown} is mounted noexec")))
}

/// Returns whether the host's whole file system is visible, and not only directories that a
/// container has mounted.
fn is_host_visible(host: &Host) -> bool {
    host.is_dir(Path::new("/usr/bin"))
}

/// Plans the file that records the directories of an installation. The default directories need no
/// record.
pub(crate) fn plan_record(host: &Host) -> Result<Option<Step>> {
    let path = Path::new(DIRECTORIES_PATH);
    let directories = host.directories();
    let wanted = (*directories != InstalledDirectories::default()).then(|| {
        // `check_name` allows no character that TOML would escape.
        format!(
            "# The directories of Boathook. boathook-init writes this file, and removes it.\n\
             programs = \"{}\"\nconfiguration = \"{}\"\n",
            directories.programs.display(),
            directories.configuration.display()
        )
    });
    let before = host.read(path)?;
    let change = Change::rewrite(path, before.as_deref(), wanted.as_deref(), MODE);
    Ok(change.map(Step::Change))
}

/// Returns notes for the operator about directories that are not the default ones.
pub(crate) fn describe_directories(host: &Host) -> Vec<String> {
    let (usual, used) = (InstalledDirectories::default(), host.directories());
    let mut notes = Vec::new();
    if used.programs != usual.programs {
        notes.push(format!(
            "the programs are in {}; {DIRECTORIES_PATH} records that",
            used.programs.display()
        ));
        if host.exists(Path::new("/sys/fs/selinux/enforce")) {
            notes.push(format!(
                "SELinux: the programs there lose their type when the file system is labelled again; \
                 to keep it: semanage fcontext -a -t bin_t '{0}/[^/]+/bin(/.*)?'",
                used.programs.display()
            ));
        }
    }
    if used.configuration != usual.configuration {
        notes.push(format!("the configuration is {}", used.config().display()));
    }
    notes
}
