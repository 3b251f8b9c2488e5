//! The files that an installation copies, from an image, an archive or a build.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, ensure};
use device_class::class::DeviceClass;
use device_class::config::Config;
use device_class::load::ClassSource;
use device_class::strict_toml::FileError;
use rooted_path::{open_regular_file, read_regular_text};
use runtime_config::Error as HostError;

use crate::elf::{self, describe_refusal};
use crate::layout::{CONFIG, LOCAL};
use crate::recorded_options::RecordedOptions;
use crate::service::Service;

pub const PROGRAMS: [&str; 4] = [
    "boathook",
    "boathook-hook",
    "boathook-runtime",
    "boathook-init",
];
/// The program of the plugin's service, which is installed only with the service.
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
/// The maximum size of the file with a version, in bytes.
const MAX_VERSION: u64 = 64;
/// The maximum number of class files in a directory. With more, the installation fails.
const MAX_CLASSES: usize = 1000;

/// The value of `--classes` for an installation without class files.
pub const NO_CLASSES: &str = "none";

/// The choice of the class files that are installed.
#[derive(Debug, Clone, Copy)]
pub enum ClassFiles<'a> {
    /// The class files in `classes.d` of the source. At least one is required.
    OfSource,
    /// The class files in this directory. At least one is required.
    From(&'a Path),
    /// No class files are installed (`--classes=none`).
    None,
}

/// The file of a release that contains its version.
const VERSION_FILE: &str = "version";

/// The files of one version, checked and ready to be copied.
#[derive(Debug, Clone)]
pub struct Payload {
    pub version: String,
    /// The text of the configuration, if one was given.
    pub config: Option<String>,
    files: Vec<PayloadFile>,
    /// The mistakes that do not stop an installation, one line each.
    pub(crate) notes: Vec<String>,
    /// Whether recorded services that are disabled stay so, as in an upgrade.
    pub keeps_disabled: bool,
    /// The directories that the files were read from.
    pub origin: RecordedOptions,
    /// Whether a configuration was given that has a mistake, so that the host keeps the one that
    /// is installed.
    pub(crate) keeps_config: bool,
}

/// A file to copy.
#[derive(Debug, Clone)]
pub(crate) struct PayloadFile {
    source: PathBuf,
    /// The directory of the copy, relative to the version's directory.
    pub(crate) dir: &'static str,
    pub(crate) name: String,
    pub(crate) mode: u32,
    /// The parsed class of a class file.
    class: Option<Arc<DeviceClass>>,
}

impl PayloadFile {
    pub(crate) fn open(&self) -> Result<File, HostError> {
        open_regular_file(&self.source).map_err(HostError::io("read", &self.source))
    }
}

impl Payload {
    /// Returns the version of the release in `source`, from its file `version`. A build has no
    /// such file.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if its text cannot be the name of a directory.
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

    /// Collects and checks the files in `source`. It is a release with the directories `bin` and
    /// `classes.d`, or a directory with the programs themselves, such as that of a build.
    ///
    /// # Errors
    /// Fails if a program is missing or was built for another machine, if a class file has a
    /// mistake, or if there are no class files although `classes` requires some.
    pub fn read(version: &str, source: &Path, classes: ClassFiles<'_>) -> Result<Self> {
        let mut files = Vec::new();
        let bin = program_dir(source)?;
        for name in PROGRAMS {
            files.push(read_program(&bin, name)?);
        }
        let shipped = source.join(CLASSES);
        match classes {
            ClassFiles::OfSource => files.extend(required_class_files(&shipped, &[])?),
            ClassFiles::From(dir) => files.extend(required_class_files(dir, &[shipped])?),
            ClassFiles::None => {}
        }
        files.extend(shared_files(source)?);
        Ok(Self {
            version: version.to_owned(),
            config: None,
            files,
            notes: Vec::new(),
            keeps_disabled: false,
            origin: RecordedOptions {
                source: Some(source.to_path_buf()),
                classes: match classes {
                    ClassFiles::OfSource => None,
                    ClassFiles::From(dir) => Some(dir.to_path_buf()),
                    ClassFiles::None => Some(NO_CLASSES.into()),
                },
                ..RecordedOptions::default()
            },
            keeps_config: false,
        })
    }

    /// Enables services with the installation. The program of the plugin's service is among the
    /// files then.
    ///
    /// # Errors
    /// Fails if the release has no such program, or one for another machine.
    pub fn with_services(mut self, source: &Path, services: Vec<Service>) -> Result<Self> {
        if services.contains(&Service::Plugin) {
            let program = read_program(&program_dir(source)?, PLUGIN)?;
            self.files.push(program);
        }
        self.origin.services = services;
        Ok(self)
    }

    /// Adds the administrator's class files in `dir`, which may extend class files of the release
    /// in `source`. A file with the name of one of the release replaces that one. A class file
    /// with a mistake is installed as well, with a note: the hook and the plugin leave out this
    /// class alone, and say so. Without the file they would use the release's in its place.
    ///
    /// # Errors
    /// Fails if the directory cannot be read, or has something that is not a file.
    pub fn with_own_classes(mut self, source: &Path, dir: &Path) -> Result<Self> {
        let own = class_files(dir, &[source.join(CLASSES)], |error| {
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

    /// Adds the configuration in `file`. If the hook could not read it, and the host has a
    /// configuration already (`is_installed`), that one stays, with a note: in a rollout, the
    /// node keeps its devices.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if it has a mistake and the host has no other.
    #[expect(
        clippy::disallowed_methods,
        reason = "the user names the file, and waits"
    )]
    pub fn with_config(mut self, file: &Path, is_installed: bool) -> Result<Self> {
        let text = fs::read_to_string(file).map_err(HostError::io("read", file))?;
        if let Err(error) = Config::parse(file, &text) {
            ensure!(is_installed, error);
            self.keeps_config = true;
            self.notes.push(format!(
                "{CONFIG} stays as it is, since the given configuration has a mistake: {error}"
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

    /// Returns the directories to make in the version's directory. Each one comes before its
    /// subdirectories.
    pub(crate) fn dirs(&self) -> BTreeSet<&'static Path> {
        self.files()
            .flat_map(|file| Path::new(file.dir).ancestors())
            .filter(|dir| !dir.as_os_str().is_empty())
            .chain([Path::new(CLASSES)])
            .collect()
    }

    /// Returns the paths below /usr/local at which links to the programs, the manual pages and
    /// the completions are made.
    pub(crate) fn links(&self) -> impl Iterator<Item = PathBuf> {
        let linked = self.files().filter(|file| file.dir != CLASSES);
        linked.map(|file| Path::new(LOCAL).join(file.dir).join(&file.name))
    }
}

/// Returns a program in the directory `bin`, if it is for this machine.
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

/// Returns the directory with the programs: `bin` in `source`, or `source` itself.
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

/// Returns the manual pages and completions in `source`. Those of `boathook-plugin` are left out,
/// because that program is not installed. A build directory has none of these files.
fn shared_files(source: &Path) -> Result<Vec<PayloadFile>> {
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

/// Returns the class files in a directory, and fails if there are none.
fn required_class_files(dir: &Path, bases: &[PathBuf]) -> Result<Vec<PayloadFile>> {
    let files = class_files(dir, bases, |error| Err(error.into()))?;
    ensure!(
        !files.is_empty(),
        no_classes(dir, "no file in it ends in .toml")
    );
    Ok(files)
}

fn no_classes(dir: &Path, problem: impl Display) -> String {
    format!(
        "no class files in {}: {problem}; name their directory with --classes, or install without \
         any with --classes=none",
        dir.display()
    )
}

/// Returns the class files in a directory, sorted by name. They may extend class files in the
/// directories `bases`. `report` decides what to do about a file with a mistake. An empty file,
/// which disables the class of its name, has none.
fn class_files(
    dir: &Path,
    bases: &[PathBuf],
    mut report: impl FnMut(FileError) -> Result<()>,
) -> Result<Vec<PayloadFile>> {
    let entries = fs::read_dir(dir).map_err(|error| anyhow!(no_classes(dir, error)))?;
    let mut files = Vec::new();
    for entry in entries {
        let from = entry.map_err(HostError::io("list", dir))?.path();
        // The mount of a ConfigMap also contains directories and links such as `..data`.
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
