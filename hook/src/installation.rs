//! The release that this program is part of.

use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::strict_toml::FileError;

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

/// `classes.d` beside the directory of this program, without links.
fn classes_beside_this_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let classes = program.parent()?.parent()?.join("classes.d");
    classes.is_dir().then_some(classes)
}
