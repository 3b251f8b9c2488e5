//! The payload: the files that an installation copies from an image, an archive or a build.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail, ensure};
use device_class::class::DeviceClass;
use device_class::config::Config;
use device_class::load::ClassSource;
use device_class::strict_toml::FileError;
use rooted_path::{open_regular_file, read_regular_text};
use runtime_config::Error as HostError;

use crate::elf::{self, describe_refusal};
use crate::layout::LOCAL;
use crate::recorded_options::RecordedOptions;
use crate::service::Service;

pub const PROGRAMS: [&str; 4] = [
    "boathook",
    "boathook-hook",
    "boathook-runtime",
    "boathook-init",
];
/// The program of the plugin's service, which is installed only together with the service.
const PLUGIN: &str = "boathook-plugin";
/// The directory of the programs, in a release and in an installed version.
pub(crate) const BIN: &str = "bin";
/// The directory of the class files, in a release and in an installed version.
pub(crate) const CLASSES: &str = "classes.d";
/// The directories of manual pages and completions, in a release and in an installed version.
const SHARED: [&str; 5] = [
    "share/man/man1",
    "share/man/man5",
    "share/bash-completion/completions",
    "share/zsh/site-functions",
    "share/fish/vendor_completions.d",
];
/// The maximum size of the file `version`, in bytes.
const MAX_VERSION: u64 = 64;
/// The maximum number of class files in a directory. The installation fails if there are more.
const MAX_CLASSES: usize = 1000;

/// The value of `--classes` for an installation without class files.
pub const NO_CLASSES: &str = "none";

/// The class files to install.
#[derive(Debug, Clone, Copy)]
pub enum ClassFiles<'a> {
    /// The class files in `classes.d` of the release. At least one is required.
    FromRelease,
    /// The class files in this directory. At least one is required.
    FromDirectory(&'a Path),
    /// No class files are installed (`--classes=none`).
    None,
}

/// The file of a release that has its version.
const VERSION_FILE: &str = "version";

/// The files of one version, after all checks.
#[derive(Debug, Clone)]
pub struct Payload {
    pub version: String,
    /// The text of the configuration, if one was given.
    pub config: Option<String>,
    files: Vec<PayloadFile>,
    /// One line for each error that does not stop the installation.
    pub(crate) notes: Vec<String>,
    /// Whether services that the administrator disabled stay disabled, as in an upgrade.
    pub keeps_disabled: bool,
    /// The sources of the files, for the manifest.
    pub origin: RecordedOptions,
    /// Whether the given configuration has an error, so that the host keeps the installed one.
    pub(crate) keeps_config: bool,
}

/// A file to copy.
#[derive(Debug, Clone)]
pub(crate) struct PayloadFile {
    source: PathBuf,
    /// The directory of the copy, relative to the version directory.
    pub(crate) dir: &'static str,
    pub(crate) name: String,
    pub(crate) mode: u32,
    /// The parsed class, if this is a class file without an error.
    class: Option<Arc<DeviceClass>>,
}

impl PayloadFile {
    pub(crate) fn open(&self) -> Result<File, HostError> {
        open_regular_file(&self.source).map_err(HostError::io("read", &self.source))
    }
}

impl Payload {
    /// Reads the version of the release in `source` from its file `version`. A build has no such
    /// file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if its text is not usable as the name of a directory.
    pub fn find_version(source: &Path) -> Result<Option<String>> {
        let file = source.join(VERSION_FILE);
        let text = match read_regular_text(&file, MAX_VERSION) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(HostError::io("read", &file))?,
        };
        let version = text.trim_end();
        let is_valid = version.starts_with(|c: char| c.is_ascii_digit())
            && version
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || ".+~-".contains(c));
        ensure!(
            is_valid,
            describe_refusal(&file, "it has no version, such as 1.2.3")
        );
        Ok(Some(version.to_owned()))
    }

    /// Collects and checks the files in `source`. That is a release with the directories `bin` and
    /// `classes.d`, or a directory that contains the programs, such as a build directory.
    ///
    /// # Errors
    /// Fails if a program is missing or was built for another architecture, if a class file has an
    /// error, or if there are no class files although `classes` requires some.
    pub fn read(version: &str, source: &Path, classes: ClassFiles<'_>) -> Result<Self> {
        let mut files = Vec::new();
        let bin = program_dir(source)?;
        for name in PROGRAMS {
            files.push(read_program(&bin, name)?);
        }
        let shipped = source.join(CLASSES);
        match classes {
            ClassFiles::FromRelease => files.extend(read_required_class_files(&shipped, &[])?),
            ClassFiles::FromDirectory(dir) => {
                files.extend(read_required_class_files(dir, &[shipped])?)
            }
            ClassFiles::None => {}
        }
        files.extend(find_shared_files(source)?);
        Ok(Self {
            version: version.to_owned(),
            config: None,
            files,
            notes: Vec::new(),
            keeps_disabled: false,
            origin: RecordedOptions {
                source: Some(source.to_path_buf()),
                classes: match classes {
                    ClassFiles::FromRelease => None,
                    ClassFiles::FromDirectory(dir) => Some(dir.to_path_buf()),
                    ClassFiles::None => Some(NO_CLASSES.into()),
                },
                ..RecordedOptions::default()
            },
            keeps_config: false,
        })
    }

    /// Adds the services to enable. The plugin's service also adds its program to the files.
    ///
    /// # Errors
    /// Fails if the release lacks that program, or has it for another architecture.
    pub fn with_services(mut self, source: &Path, services: Vec<Service>) -> Result<Self> {
        if services.contains(&Service::Plugin) {
            let program = read_program(&program_dir(source)?, PLUGIN)?;
            self.files.push(program);
        }
        self.origin.services = services;
        Ok(self)
    }

    /// Adds the administrator's class files in `dir`. They may extend class files of the release
    /// in `source`, and replace those of the same name. A class file with an error is installed
    /// too, with a note. The hook and the plugin then omit this class and say so; without the file
    /// they would use the release's class of that name.
    ///
    /// # Errors
    /// Fails if the directory cannot be read, or has an entry that is not a file.
    pub fn with_own_classes(mut self, source: &Path, dir: &Path) -> Result<Self> {
        let own = read_class_files(dir, &[source.join(CLASSES)], |error| {
            let note = format!("class left out: {error}");
            self.notes.push(note);
            Ok(())
        })?;
        let is_replaced =
            |file: &PayloadFile| file.dir == CLASSES && own.iter().any(|own| own.name == file.name);
        self.files.retain(|file| !is_replaced(file));
        self.files.extend(own);
        self.origin.own_classes = Some(dir.to_path_buf());
        Ok(self)
    }

    /// Adds the configuration in `file`. If it has an error and the host already has the
    /// configuration `installed`, that one is kept, with a note, so that nodes keep their devices
    /// during a rollout.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if it has an error and the host has no configuration.
    #[expect(
        clippy::disallowed_methods,
        reason = "the user names the file, and waits"
    )]
    pub fn with_config(mut self, file: &Path, installed: Option<&Path>) -> Result<Self> {
        let text = fs::read_to_string(file).map_err(HostError::io("read", file))?;
        if let Err(error) = Config::parse(file, &text) {
            let Some(installed) = installed else {
                bail!(error);
            };
            self.keeps_config = true;
            self.notes.push(format!(
                "{} stays as it is, since the given configuration has a mistake: {error}",
                installed.display()
            ));
            return Ok(self);
        }
        self.config = Some(text);
        Ok(self)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &PayloadFile> {
        self.files.iter()
    }

    /// Returns the names of the class files.
    pub fn classes(&self) -> BTreeSet<&str> {
        self.files()
            .filter(|file| file.dir == CLASSES)
            .map(|file| file.name.as_str())
            .collect()
    }

    pub(crate) fn parsed_classes(&self) -> impl Iterator<Item = &DeviceClass> {
        self.files().filter_map(|file| file.class.as_deref())
    }

    /// Returns the directories to make in the version directory. Each one comes before its
    /// subdirectories.
    pub(crate) fn dirs(&self) -> BTreeSet<&'static Path> {
        self.files()
            .flat_map(|file| Path::new(file.dir).ancestors())
            .filter(|dir| !dir.as_os_str().is_empty())
            .chain([Path::new(CLASSES)])
            .collect()
    }

    /// Returns the paths of the links below /usr/local to programs, manual pages and completions.
    pub(crate) fn links(&self) -> impl Iterator<Item = PathBuf> {
        let linked = self.files().filter(|file| file.dir != CLASSES);
        linked.map(|file| Path::new(LOCAL).join(file.dir).join(&file.name))
    }
}

/// Reads a program in the directory `bin`, and checks that it is for this machine.
fn read_program(bin: &Path, name: &str) -> Result<PayloadFile> {
    let source = check_regular_file(bin.join(name))?;
    elf::check_machine(&source)?;
    Ok(PayloadFile {
        source,
        dir: BIN,
        name: name.to_owned(),
        mode: 0o755,
        class: None,
    })
}

/// Returns the directory that contains the programs: `bin` in `source`, or `source` itself.
fn program_dir(source: &Path) -> Result<PathBuf> {
    let dirs = [source.join(BIN), source.to_path_buf()];
    let found = dirs.into_iter().find(|dir| {
        let mut programs = PROGRAMS.iter();
        programs.any(|name| dir.join(name).symlink_metadata().is_ok())
    });
    found.with_context(|| {
        format!(
            "{} has no programs, neither in it nor in bin/; use --source with the directory of a \
             release or of a build (target/release)",
            source.display()
        )
    })
}

/// Returns the manual pages and completions in `source`, without those of `boathook-plugin`, which
/// an installation does not link. A build directory has none of these files.
fn find_shared_files(source: &Path) -> Result<Vec<PayloadFile>> {
    let mut files = Vec::new();
    for dir in SHARED {
        let from = source.join(dir);
        if !from.is_dir() {
            continue;
        }
        let entries = fs::read_dir(&from).map_err(HostError::io("list", &from))?;
        for entry in entries {
            let entry = entry.map_err(HostError::io("list", &from))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.contains("boathook-plugin") {
                continue;
            }
            files.push(PayloadFile {
                source: check_regular_file(entry.path())?,
                dir,
                name,
                mode: 0o644,
                class: None,
            });
        }
    }
    Ok(files)
}

/// Reads the class files of a directory. Fails if there are none.
fn read_required_class_files(dir: &Path, bases: &[PathBuf]) -> Result<Vec<PayloadFile>> {
    let files = read_class_files(dir, bases, |error| Err(error.into()))?;
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
/// directories `bases`. `report` decides whether a file with an error is fatal. An empty file,
/// which disables the class of its name, is not an error.
fn read_class_files(
    dir: &Path,
    bases: &[PathBuf],
    mut report: impl FnMut(FileError) -> Result<()>,
) -> Result<Vec<PayloadFile>> {
    let entries =
        fs::read_dir(dir).map_err(|error| anyhow!(describe_missing_classes(dir, error)))?;
    let mut files = Vec::new();
    for entry in entries {
        let from = entry.map_err(HostError::io("list", dir))?.path();
        // A mounted ConfigMap also contains directories and links such as `..data`.
        if from.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let file = check_regular_file(from.clone())?;
        let parsed = ClassSource::read(&from, bases).and_then(|source| {
            if source.is_empty() {
                Ok(None)
            } else {
                source.parse().map(Some)
            }
        });
        let class = match parsed {
            Ok(class) => class.map(Arc::new),
            Err(error) => {
                report(error)?;
                None
            }
        };
        files.push(PayloadFile {
            name: from
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            source: file,
            dir: CLASSES,
            mode: 0o644,
            class,
        });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let problem = format!("it holds more than {MAX_CLASSES} class files");
    ensure!(files.len() <= MAX_CLASSES, describe_refusal(dir, &problem));
    Ok(files)
}

fn check_regular_file(path: PathBuf) -> Result<PathBuf> {
    let meta = path.metadata().map_err(HostError::io("read", &path))?;
    ensure!(
        meta.is_file(),
        describe_refusal(&path, "it is not a regular file")
    );
    Ok(path)
}
