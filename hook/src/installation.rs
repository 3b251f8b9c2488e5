//! The release that this program is part of.

use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::strict_toml::FileError;

use crate::oci::{capped, open_regular};

/// Reads the configuration at `path`, or the default one, which may be absent. On a host on
/// which `boathook-init` has not installed a release, the shipped classes are those beside
/// this program: in a package, or in an unpacked archive.
///
/// # Errors
/// As [`Config::load`].
pub(crate) fn configuration(path: Option<&Path>) -> Result<Config, FileError> {
    Config::load(path).map(installed)
}

/// The configuration with the classes beside this program where none are installed.
pub(crate) fn installed(mut config: Config) -> Config {
    if config.classes == Config::default().classes
        && let Some(installed) = config.classes.first_mut()
        && !installed.is_dir()
        && let Some(beside) = classes_beside_this_program()
    {
        *installed = beside;
    }
    config
}

/// What a faulty file still tells: in which directories the class files are, by which it is
/// seen that a container requests nothing. None if it says that in a way that is not
/// understood.
pub(crate) fn despite(error: &FileError) -> Option<Config> {
    const MAX_FILE: usize = 1 << 20;
    let bytes = open_regular(error.path()).and_then(|file| capped(file, MAX_FILE));
    let text = bytes.ok().flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut top = text
        .lines()
        .take_while(|line| !line.trim_start().starts_with('['));
    let is_about_classes = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("clas") || line.starts_with(['"', '\''])
    };
    let Some(first) = top.find(is_about_classes) else {
        return Some(installed(Config::default()));
    };
    // An array may have several lines.
    let mut key = String::new();
    for line in std::iter::once(first).chain(top) {
        key += line;
        key.push('\n');
        if let Ok(config) = Config::parse(error.path(), &key) {
            return Some(installed(config));
        }
    }
    None
}

/// `classes.d` beside the directory of this program, without links.
fn classes_beside_this_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let classes = program.parent()?.parent()?.join("classes.d");
    classes.is_dir().then_some(classes)
}
