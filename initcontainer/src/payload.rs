//! The payload: the files that an installation copies from an image, an archive or a build.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use device_class::class::DeviceClass;
use device_class::config::{Config, InstalledDirectories};
use device_class::load::ClassSource;
use device_class::name::ClassName;
use device_class::strict_toml::FileError;
use host_files::rooted_path::{open_regular_file, read_regular_text};
use runtime_config::Error as HostError;

use crate::elf::{self, describe_unusable_file};
use crate::host::Host;
use crate::layout::LOCAL_DIR;
use crate::recorded_options::RecordedOptions;
use crate::service::Service;

/// The names of the programs that every installation has.
pub const PROGRAM_NAMES: [&str; 4] = [
    "boathook",
    "boathook-hook",
    "boathook-runtime",
    "boathook-init",
];
/// The name of the plugin's program, which is installed only together with the plugin's service.
const PLUGIN_PROGRAM: &str = "boathook-plugin";
/// The directory that contains the programs, both in a release and in an installed version.
pub(crate) const PROGRAMS_DIR: &str = "bin";
/// The directory that contains the class files, both in a release and in an installed version.
pub(crate) const CLASSES_DIR: &str = "classes.d";
/// The directories that contain manual pages and completions, both in a release and in an installed
/// version.
const SHARED_DIRS: [&str; 5] = [
    "share/man/man1",
    "share/man/man5",
    "share/bash-completion/completions",
    "share/zsh/site-functions",
    "share/fish/vendor_completions.d",
];
/// The maximum size of the file `version`, in bytes. A larger file is an error.
const MAX_VERSION_BYTES: u64 = 64;
/// The maximum number of class files in a directory. The installation fails if there are more.
const MAX_CLASS_FILES: usize = 1000;

/// The value of `--classes` for an installation without class files.
pub const NO_CLASSES: &str = "none";

/// The source of the class files to install.
#[derive(Debug, Clone, Copy)]
pub enum ClassFileSource<'a> {
    /// The class files in `classes.d` of the release. At least one is required.
    Release,
    /// The class files in this directory. At least one is required.
    Directory(&'a Path),
    /// No class files are installed (`--classes=none`).
    None,
}

const VERSION_FILE_NAME: &str = "version";

/// The files of one version, which were checked before the host is changed, and the options of the
/// installation.
#[derive(Debug, Clone)]
pub struct Payload {
    pub version: String,
    /// The text of the requested configuration. `None` means that no configuration was requested.
    pub config_text: Option<String>,
    files: Vec<PayloadFile>,
    /// Notes about errors that do not stop the installation, such as an error in one class file.
    /// Each note is one line.
    pub(crate) notes: Vec<String>,
    /// The services that the options of this command enable. A service that only the manifest lists
    /// is not enabled again if the administrator has disabled it.
    pub requested_services: Vec<Service>,
    /// The options of the installation, which the manifest records.
    pub options: RecordedOptions,
    /// Whether the installed configuration is kept on the host, because the requested one has an
    /// error.
    pub(crate) keeps_installed_config: bool,
}

/// A file that the installation copies from the release to the host.
#[derive(Debug, Clone)]
pub(crate) struct PayloadFile {
    source_path: PathBuf,
    /// The directory to which the file is copied, relative to the directory of the version.
    pub(crate) dir: &'static str,
    pub(crate) name: String,
    pub(crate) mode: u32,
    /// The parsed class, if this file is a class file without an error.
    class: Option<Arc<DeviceClass>>,
    /// The text of the class file and of the class files that it extends. `None` means that this
    /// file is not a class file, or that it cannot be read.
    class_source: Option<Arc<ClassSource>>,
}

impl PayloadFile {
    pub(crate) fn open(&self) -> Result<File, HostError> {
        open_regular_file(&self.source_path).map_err(HostError::io("read", &self.source_path))
    }
}

impl Payload {
    /// Reads the version of the release in `source` from its file `version`. A build has no such
    /// file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if its text is not usable as the name of a directory.
    pub fn read_version(source: &Path) -> Result<Option<String>> {
        let version_path = source.join(VERSION_FILE_NAME);
        let text = match read_regular_text(&version_path, MAX_VERSION_BYTES) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(HostError::io("read", &version_path))?,
        };
        let version = text.trim_end();
        let is_valid = version.starts_with(|c: char| c.is_ascii_digit())
            && version
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || ".+~-".contains(c));
        ensure!(
            is_valid,
            describe_unusable_file(&version_path, "it has no version, such as 1.2.3")
        );
        Ok(Some(version.to_owned()))
    }

    /// Collects and checks the files in `source`. That is a release with the directories `bin` and
    /// `classes.d`, or a directory that contains the programs, such as a build directory.
    ///
    /// # Errors
    /// Fails if a program is missing or was built for another architecture, if a class file has an
    /// error, or if there are no class files although `classes` requires some.
    pub fn read(version: &str, source: &Path, classes: ClassFileSource<'_>) -> Result<Self> {
        let mut files = Vec::new();
        let programs_dir = find_programs_dir(source)?;
        for name in PROGRAM_NAMES {
            files.push(read_program(&programs_dir, name)?);
        }
        let release_classes_dir = source.join(CLASSES_DIR);
        match classes {
            ClassFileSource::Release => {
                files.extend(read_required_class_files(&release_classes_dir, &[])?)
            }
            ClassFileSource::Directory(dir) => {
                files.extend(read_required_class_files(dir, &[release_classes_dir])?)
            }
            ClassFileSource::None => {}
        }
        files.extend(find_shared_files(source)?);
        Ok(Self {
            version: version.to_owned(),
            config_text: None,
            files,
            notes: Vec::new(),
            requested_services: Vec::new(),
            options: RecordedOptions {
                source_dir: Some(source.to_path_buf()),
                classes_dir: match classes {
                    ClassFileSource::Release => None,
                    ClassFileSource::Directory(dir) => Some(dir.to_path_buf()),
                    ClassFileSource::None => Some(NO_CLASSES.into()),
                },
                ..RecordedOptions::default()
            },
            keeps_installed_config: false,
        })
    }

    /// Adds the services that the options of this command enable, and those that an earlier
    /// installation enabled. If the plugin's service is one of them, also adds the plugin's program
    /// to the files.
    ///
    /// # Errors
    /// Fails if the release does not have the plugin's program, or if the program is built for
    /// another architecture.
    pub fn with_services(
        mut self,
        source: &Path,
        requested_services: Vec<Service>,
        kept_services: Vec<Service>,
    ) -> Result<Self> {
        let mut services = requested_services.clone();
        services.extend(kept_services);
        services.sort();
        services.dedup();
        if services.contains(&Service::Plugin) {
            let program = read_program(&find_programs_dir(source)?, PLUGIN_PROGRAM)?;
            self.files.push(program);
        }
        self.requested_services = requested_services;
        self.options.services = services;
        Ok(self)
    }

    /// Adds the administrator's class files in `dir`. They may extend class files of the release in
    /// `source`, and replace class files with the same name. A class file with an error is
    /// installed as well, and a note is added. The hook and the plugin then omit this class and
    /// report the error. Without the file, they would use the class with the same name from the
    /// release.
    ///
    /// # Errors
    /// Fails if the directory cannot be read, or has an entry that is not a file.
    pub fn with_admin_class_files(mut self, source: &Path, dir: &Path) -> Result<Self> {
        let own_files = read_class_files(dir, &[source.join(CLASSES_DIR)], |error| {
            let note = format!("class left out: {error}");
            self.notes.push(note);
            Ok(())
        })?;
        let is_replaced = |file: &PayloadFile| {
            file.dir == CLASSES_DIR && own_files.iter().any(|own_file| own_file.name == file.name)
        };
        self.files.retain(|file| !is_replaced(file));
        self.files.extend(own_files);
        self.options.own_classes_dir = Some(dir.to_path_buf());
        Ok(self)
    }

    /// Adds the configuration in `file`. If it has an error and the host already has a
    /// configuration file, that file is kept, and a note is added. In this way nodes keep their
    /// devices during a rollout.
    ///
    /// A table `[class.NAME]` that makes its class unusable is such an error, so the classes have
    /// to be added first. But the configuration is added nevertheless if the host's file has such a
    /// table too, or if the host has no file: only this class is missing then. The plugin chooses
    /// between the two files by the same rule (`Config::load_or_read_installed`).
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if it is not a valid configuration and the host has
    /// none.
    #[expect(
        clippy::disallowed_methods,
        reason = "the user names the file, and waits"
    )]
    pub fn with_config(mut self, host: &Host, file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).map_err(HostError::io("read", file))?;
        let installed_file = host.directories().config_path();
        let installed_text = host.read(&installed_file)?;
        let error = match Config::parse(file, &text) {
            Ok(config) => {
                let error = self.find_unusable_table(host, &config, file)?;
                let installed_config = installed_text
                    .as_deref()
                    .and_then(|text| Config::parse(&installed_file, text).ok());
                match (error, installed_config) {
                    (Some(error), Some(installed))
                        if self
                            .find_unusable_table(host, &installed, &installed_file)?
                            .is_none() =>
                    {
                        error
                    }
                    _ => {
                        self.config_text = Some(text);
                        return Ok(self);
                    }
                }
            }
            Err(error) if installed_text.is_none() => bail!(error),
            Err(error) => error,
        };
        self.keeps_installed_config = true;
        self.notes.push(format!(
            "{} stays as it is, since the given configuration has a mistake: {error}",
            installed_file.display()
        ));
        Ok(self)
    }

    /// Returns the error of the first table `[class.NAME]` of a configuration that makes its class
    /// unusable. Checks the classes of the payload. Does not check a class whose file, or a file
    /// that it extends, is replaced by a file of the administrator on the host. Checks nothing if
    /// the configuration names other directories of class files. `path` is the path of the
    /// configuration, for the error.
    pub(crate) fn find_unusable_table(
        &self,
        host: &Host,
        config: &Config,
        path: &Path,
    ) -> Result<Option<FileError>> {
        let directories = host.directories();
        let usual_directories = [
            directories.class_dirs(),
            InstalledDirectories::default().class_dirs(),
        ];
        if usual_directories
            .iter()
            .all(|usual| config.classes != *usual)
        {
            return Ok(None);
        }
        let admin_files = host.list(&directories.admin_classes_dir())?;
        let admin_classes: Vec<ClassName> = admin_files
            .iter()
            .filter_map(|name| name.to_str()?.strip_suffix(".toml"))
            .filter_map(|name| ClassName::try_from(name.to_owned()).ok())
            .collect();
        let is_checked = |file: &&PayloadFile| {
            file.class_source.as_ref().is_some_and(|source| {
                let mut admin_classes = admin_classes.iter();
                !config.ignores_errors_of(source)
                    && !admin_classes.any(|name| source.name == *name || source.extends(name))
            })
        };
        let classes = self
            .files()
            .filter(is_checked)
            .filter_map(|file| file.class.as_deref());
        Ok(config.check_class_tables(path, classes).err())
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &PayloadFile> {
        self.files.iter()
    }

    /// Returns the file names of the class files, such as `dummy-npu.toml`.
    pub fn class_file_names(&self) -> BTreeSet<&str> {
        self.files()
            .filter(|file| file.dir == CLASSES_DIR)
            .map(|file| file.name.as_str())
            .collect()
    }

    pub(crate) fn parsed_classes(&self) -> impl Iterator<Item = &DeviceClass> {
        self.files().filter_map(|file| file.class.as_deref())
    }

    /// Returns the directories to make in the directory of the version. A directory comes before
    /// its subdirectories.
    pub(crate) fn dirs(&self) -> BTreeSet<&'static Path> {
        self.files()
            .flat_map(|file| Path::new(file.dir).ancestors())
            .filter(|dir| !dir.as_os_str().is_empty())
            .chain([Path::new(CLASSES_DIR)])
            .collect()
    }

    /// Returns the paths of the links to make below /usr/local. They lead to programs, manual pages
    /// and completions.
    pub(crate) fn links(&self) -> impl Iterator<Item = PathBuf> {
        let linked_files = self.files().filter(|file| file.dir != CLASSES_DIR);
        linked_files.map(|file| Path::new(LOCAL_DIR).join(file.dir).join(&file.name))
    }
}

/// Returns the program `name` from the directory `programs_dir`. First checks that the program was
/// built for this machine.
fn read_program(programs_dir: &Path, name: &str) -> Result<PayloadFile> {
    let source_path = check_regular_file(programs_dir.join(name))?;
    elf::check_elf_architecture(&source_path)?;
    Ok(PayloadFile {
        source_path,
        dir: PROGRAMS_DIR,
        name: name.to_owned(),
        mode: 0o755,
        class: None,
        class_source: None,
    })
}

/// Returns the directory that contains the programs: `bin` in `source`, or `source` itself.
fn find_programs_dir(source: &Path) -> Result<PathBuf> {
    let candidates = [source.join(PROGRAMS_DIR), source.to_path_buf()];
    let programs_dir = candidates.into_iter().find(|dir| {
        let mut programs = PROGRAM_NAMES.iter();
        programs.any(|name| dir.join(name).symlink_metadata().is_ok())
    });
    programs_dir.with_context(|| {
        format!(
            "{} has no programs, neither in it nor in bin/; use --source with the directory of a \
             release or of a build (target/release)",
            source.display()
        )
    })
}

/// Returns the manual pages and completions in `source`. Omits those of `boathook-plugin`, because
/// most installations do not have this program. A build directory has no such files.
fn find_shared_files(source: &Path) -> Result<Vec<PayloadFile>> {
    let mut files = Vec::new();
    for dir in SHARED_DIRS {
        let source_dir = source.join(dir);
        if !source_dir.is_dir() {
            continue;
        }
        let entries = fs::read_dir(&source_dir).map_err(HostError::io("list", &source_dir))?;
        for entry in entries {
            let entry = entry.map_err(HostError::io("list", &source_dir))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.contains("boathook-plugin") {
                continue;
            }
            files.push(PayloadFile {
                source_path: check_regular_file(entry.path())?,
                dir,
                name,
                mode: 0o644,
                class: None,
                class_source: None,
            });
        }
    }
    Ok(files)
}

/// Reads the class files of a directory, as [`read_class_files`] does. Fails if a file has an
/// error, or if the directory has no class files.
fn read_required_class_files(dir: &Path, base_dirs: &[PathBuf]) -> Result<Vec<PayloadFile>> {
    let files = read_class_files(dir, base_dirs, |error| Err(error.into()))?;
    ensure!(
        !files.is_empty(),
        describe_missing_classes(dir, "no file in it ends in .toml")
    );
    Ok(files)
}

fn describe_missing_classes(dir: &Path, problem: impl Display) -> String {
    format!(
        "no class files in {}: {problem}; name their directory with --classes, or install without \
         any with --classes=none",
        dir.display()
    )
}

/// Reads the class files of a directory, sorted by name. They may extend class files in the
/// directories `base_dirs`. For each file with an error, calls `on_error`, which decides whether
/// the error is fatal. An empty file is not an error, because it disables the class with the file's
/// name.
fn read_class_files(
    dir: &Path,
    base_dirs: &[PathBuf],
    mut on_error: impl FnMut(FileError) -> Result<()>,
) -> Result<Vec<PayloadFile>> {
    let entries =
        fs::read_dir(dir).map_err(|error| anyhow!(describe_missing_classes(dir, error)))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(HostError::io("list", dir))?.path();
        // Other entries are skipped: a mounted ConfigMap also contains directories and links such
        // as `..data`.
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let regular_file = check_regular_file(path.clone())?;
        let source = ClassSource::read(&path, base_dirs);
        let class_source = source.as_ref().ok().cloned().map(Arc::new);
        let parse_result = source.and_then(|source| {
            if source.is_empty() {
                Ok(None)
            } else {
                source.parse().map(Some)
            }
        });
        let class = match parse_result {
            Ok(class) => class.map(Arc::new),
            Err(error) => {
                on_error(error)?;
                None
            }
        };
        files.push(PayloadFile {
            name: path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            source_path: regular_file,
            dir: CLASSES_DIR,
            mode: 0o644,
            class,
            class_source,
        });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let problem = format!("it holds more than {MAX_CLASS_FILES} class files");
    ensure!(
        files.len() <= MAX_CLASS_FILES,
        describe_unusable_file(dir, &problem)
    );
    Ok(files)
}

/// Checks that a path leads to a regular file, and returns the path.
fn check_regular_file(path: PathBuf) -> Result<PathBuf> {
    let metadata = path.metadata().map_err(HostError::io("read", &path))?;
    ensure!(
        metadata.is_file(),
        describe_unusable_file(&path, "it is not a regular file")
    );
    Ok(path)
}
