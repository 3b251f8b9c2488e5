//! What an image or archive brings to be installed.

use std::fs;
use std::path::{Path, PathBuf};

use device_class::load::ClassSource;
use runtime_config::{Error as HostError, HostRoot};

use crate::elf;
use crate::error::Error;

/// The programs of a release.
const PROGRAMS: [&str; 3] = ["boathook", "boathook-runtime", "boathook-init"];
/// Where the class files lie, in a source and in a version's directory.
const CLASSES: &str = "classes.d";
/// More class files than anyone has.
const MAX_CLASSES: usize = 1000;

/// The files of one version, checked and ready to be copied.
#[derive(Debug, Clone)]
pub struct Payload {
    /// The version.
    pub version: String,
    files: Vec<PayloadFile>,
}

#[derive(Debug, Clone)]
struct PayloadFile {
    from: PathBuf,
    /// Relative to the version's directory.
    to: PathBuf,
    mode: u32,
}

impl Payload {
    /// Looks at `source`, which holds `bin` and `classes.d`; class files are
    /// taken from `classes` instead, if that is given.
    ///
    /// # Errors
    /// A program is missing, or is for another machine; a class file is wrong.
    pub fn read(version: &str, source: &Path, classes: Option<&Path>) -> Result<Self, Error> {
        let mut files = Vec::new();
        for name in PROGRAMS {
            let to = Path::new("bin").join(name);
            let from = regular(&source.join(&to))?;
            elf::check(&from)?;
            files.push(PayloadFile {
                from,
                to,
                mode: 0o755,
            });
        }
        let classes = classes.map_or_else(|| source.join(CLASSES), Path::to_path_buf);
        for name in HostRoot::new("/").list(&classes)? {
            let from = classes.join(&name);
            // A ConfigMap's mount has links and directories of its own.
            if from.extension().is_some_and(|e| e == "toml") {
                ClassSource::read(&from)?.parse()?;
                let to = Path::new(CLASSES).join(&name);
                files.push(PayloadFile {
                    from: regular(&from)?,
                    to,
                    mode: 0o644,
                });
            }
        }
        if files.len() > MAX_CLASSES {
            let problem = format!("it holds more than {MAX_CLASSES} files");
            return Err(Error::Payload {
                path: classes,
                problem,
            });
        }
        Ok(Self {
            version: version.to_owned(),
            files,
        })
    }

    /// Every file: where it comes from, where it goes, and its mode.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, &Path, u32)> {
        self.files
            .iter()
            .map(|f| (f.from.as_path(), f.to.as_path(), f.mode))
    }

    /// Whether a directory holds exactly these files.
    pub(crate) fn is_at(&self, dir: &Path) -> bool {
        let same = |file: &PayloadFile| {
            let (ours, theirs) = (fs::read(&file.from), fs::read(dir.join(&file.to)));
            matches!((ours, theirs), (Ok(a), Ok(b)) if a == b)
        };
        let count = |sub: &str| fs::read_dir(dir.join(sub)).map_or(0, Iterator::count);
        self.files.iter().all(same) && count("bin") + count(CLASSES) == self.files.len()
    }
}

fn regular(path: &Path) -> Result<PathBuf, Error> {
    let meta = path.metadata().map_err(HostError::io("read", path))?;
    if meta.is_file() {
        return Ok(path.to_path_buf());
    }
    Err(Error::Payload {
        path: path.into(),
        problem: "it is no regular file".into(),
    })
}
