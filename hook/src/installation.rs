//! The files that are installed together with this program.

use std::path::{Path, PathBuf};

use device_class::config::{Config, InstalledDirectories};
use device_class::strict_toml::FileError;

use crate::oci::hooks;
use crate::oci::read_file_capped;

/// Reads the configuration at `path`, or the default one, which may be absent. If
/// `boathook-init` has not installed a release on this host, the shipped classes are those
/// next to this program, in a package or an unpacked archive.
///
/// # Errors
/// The call fails for the same reasons as [`Config::load`].
pub(crate) fn configuration(path: Option<&Path>) -> Result<Config, FileError> {
    Config::load(path).map(installed)
}

/// Returns the configuration with the class directory next to this program, if the default one
/// does not exist.
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

/// Reads the class directories from a configuration file that has an error elsewhere. The
/// class files show whether a container requests a device; a container without a request
/// starts despite the error. Returns `None` if the setting of the directories cannot be
/// parsed.
pub(crate) fn config_despite_error(error: &FileError) -> Option<Config> {
    const MAX_FILE: usize = 1 << 20;
    let bytes = read_file_capped(error.path(), MAX_FILE);
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
        let directories = InstalledDirectories::find(Path::new("/")).unwrap_or_default();
        return Some(installed(Config {
            classes: directories.classes().into(),
            ..Config::default()
        }));
    };
    // The setting is an array and may continue on the next lines.
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

/// Returns the path of the hook in the directory of this program, with symbolic links
/// resolved.
pub(crate) fn hook_beside_this_program() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.with_file_name(hooks::FILE_NAME)
}

/// Returns the directory `classes.d` next to the directory of this program, with symbolic
/// links resolved.
fn classes_beside_this_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let classes = program.parent()?.parent()?.join("classes.d");
    classes.is_dir().then_some(classes)
}
