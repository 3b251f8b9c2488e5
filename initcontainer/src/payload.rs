//! What an image, an archive or a build brings to be installed.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, ensure};
use device_class::config::Config;
use device_class::load::ClassSource;
use rooted_path::open_regular_file;
use runtime_config::Error as HostError;

use crate::elf::{self, unfit};
use crate::layout::LOCAL;

pub const PROGRAMS: [&str; 4] = [
    "boathook",
    "boathook-hook",
    "boathook-runtime",
    "boathook-init",
];
/// Where the programs are, in a release and in a version's directory.
pub(crate) const BIN: &str = "bin";
/// Where the class files are, in a release and in a version's directory.
pub(crate) const CLASSES: &str = "classes.d";
/// Where manual pages and completions are, in a release and in a version's directory.
const SHARED: [&str; 5] = [
    "share/man/man1",
    "share/man/man5",
    "share/bash-completion/completions",
    "share/zsh/site-functions",
    "share/fish/vendor_completions.d",
];
/// More class files than anyone has.
const MAX_CLASSES: usize = 1000;

#[derive(Debug, Clone, Copy)]
pub enum ClassFiles<'a> {
    /// From `classes.d` of the source.
    OfSource,
    From(&'a Path),
    /// There are none, and that is wanted.
    None,
}

/// The files of one version, checked and ready to be copied.
#[derive(Debug, Clone)]
pub struct Payload {
    pub version: String,
    /// The text of the configuration, if one was given.
    pub config: Option<String>,
    files: Vec<PayloadFile>,
}

#[derive(Debug, Clone)]
pub(crate) struct PayloadFile {
    source: PathBuf,
    /// The directory in the version's directory.
    pub(crate) dir: &'static str,
    pub(crate) name: String,
    pub(crate) mode: u32,
}

impl PayloadFile {
    pub(crate) fn open(&self) -> Result<File, HostError> {
        open_regular_file(&self.source).map_err(HostError::io("read", &self.source))
    }
}

impl Payload {
    /// Reads `source`: a release, which holds `bin` and `classes.d`, or a
    /// directory with the programs themselves, as a build leaves them.
    ///
    /// # Errors
    /// A program is missing, or is for another machine; a class file is wrong;
    /// there are no class files where some are wanted.
    pub fn read(version: &str, source: &Path, classes: ClassFiles<'_>) -> Result<Self> {
        let mut files = Vec::new();
        let bin = program_dir(source)?;
        for name in PROGRAMS {
            let from = regular(bin.join(name))?;
            elf::check(&from)?;
            files.push(PayloadFile {
                source: from,
                dir: BIN,
                name: name.to_owned(),
                mode: 0o755,
            });
        }
        let shipped = source.join(CLASSES);
        match classes {
            ClassFiles::OfSource => files.extend(some(&shipped, &[])?),
            ClassFiles::From(dir) => files.extend(some(dir, &[shipped])?),
            ClassFiles::None => {}
        }
        files.extend(shared(source)?);
        Ok(Self {
            version: version.to_owned(),
            config: None,
            files,
        })
    }

    /// The same with the administrator's own class files, which may extend those of the
    /// release in `source`. One with the name of a file of the release replaces it.
    ///
    /// # Errors
    /// The directory cannot be read, or a class file is wrong.
    pub fn with_own_classes(mut self, source: &Path, dir: &Path) -> Result<Self> {
        let own = class_files(dir, &[source.join(CLASSES)])?;
        let is_replaced =
            |file: &PayloadFile| file.dir == CLASSES && own.iter().any(|own| own.name == file.name);
        self.files.retain(|file| !is_replaced(file));
        self.files.extend(own);
        Ok(self)
    }

    /// The same with the configuration in a file.
    ///
    /// # Errors
    /// The file cannot be read, or the hook would refuse to work with it.
    #[expect(
        clippy::disallowed_methods,
        reason = "the user names the file, and waits"
    )]
    pub fn with_config(mut self, file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).map_err(HostError::io("read", file))?;
        Config::parse(file, &text)?;
        self.config = Some(text);
        Ok(self)
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &PayloadFile> {
        self.files.iter()
    }

    pub fn classes(&self) -> BTreeSet<&str> {
        let classes = self.files();
        let classes = classes.filter(|file| file.dir == CLASSES);
        classes.map(|file| file.name.as_str()).collect()
    }

    /// The directories in the version's directory, each before those in it.
    pub(crate) fn dirs(&self) -> BTreeSet<&'static Path> {
        let used = self
            .files()
            .flat_map(|file| Path::new(file.dir).ancestors());
        let used = used.filter(|dir| !dir.as_os_str().is_empty());
        used.chain([Path::new(CLASSES)]).collect()
    }

    /// Where the programs, or the manual pages and completions, are linked to.
    pub(crate) fn links(&self) -> impl Iterator<Item = PathBuf> {
        let linked = self.files().filter(|file| file.dir != CLASSES);
        linked.map(|file| Path::new(LOCAL).join(file.dir).join(&file.name))
    }
}

/// The directory with the programs of a source.
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

/// The manual pages and completions of a release that has some, for the programs that are
/// installed.
fn shared(source: &Path) -> Result<Vec<PayloadFile>> {
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
                source: regular(entry.path())?,
                dir,
                name,
                mode: 0o644,
            });
        }
    }
    Ok(files)
}

/// The class files of a directory that has some.
fn some(dir: &Path, bases: &[PathBuf]) -> Result<Vec<PayloadFile>> {
    let files = class_files(dir, bases)?;
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

/// The class files in a directory, which may extend those in others.
fn class_files(dir: &Path, bases: &[PathBuf]) -> Result<Vec<PayloadFile>> {
    let entries = fs::read_dir(dir).map_err(|error| anyhow!(no_classes(dir, error)))?;
    let mut files = Vec::new();
    for entry in entries {
        let from = entry.map_err(HostError::io("list", dir))?.path();
        // A ConfigMap's mount has links and directories of its own.
        if from.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        ClassSource::read(&from, bases)?.parse()?;
        files.push(PayloadFile {
            name: from
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            source: regular(from)?,
            dir: CLASSES,
            mode: 0o644,
        });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let problem = format!("it holds more than {MAX_CLASSES} class files");
    ensure!(files.len() <= MAX_CLASSES, unfit(dir, &problem));
    Ok(files)
}

fn regular(path: PathBuf) -> Result<PathBuf> {
    let meta = path.metadata().map_err(HostError::io("read", &path))?;
    ensure!(meta.is_file(), unfit(&path, "it is not a regular file"));
    Ok(path)
}
