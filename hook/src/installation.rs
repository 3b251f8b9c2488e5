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
pub(crate) fn load_configuration(path: Option<&Path>) -> Result<Config, FileError> {
    Config::load(path).map(with_installed_classes)
}

/// Returns the configuration with the class directory next to this program, if the default one
/// does not exist.
pub(crate) fn with_installed_classes(mut config: Config) -> Config {
    if config.classes == Config::default().classes
        && let Some(class_dir) = config.classes.first_mut()
        && !class_dir.is_dir()
        && let Some(adjacent_dir) = find_adjacent_class_dir()
    {
        *class_dir = adjacent_dir;
    }
    config
}

/// Reads the class directories from a configuration file that has an error elsewhere. The
/// class files show whether a container requests a device; a container without a request
/// starts despite the error. Returns `None` if the setting of the directories cannot be
/// parsed.
pub(crate) fn parse_config_despite_error(error: &FileError) -> Option<Config> {
    const MAX_CONFIG_BYTES: usize = 1 << 20;
    let bytes = read_file_capped(error.path(), MAX_CONFIG_BYTES);
    let text = bytes.ok().flatten().unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut lines_before_tables = text
        .lines()
        .take_while(|line| !line.trim_start().starts_with('['));
    let is_about_classes = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("clas") || line.starts_with(['"', '\''])
    };
    let Some(first_line) = lines_before_tables.find(is_about_classes) else {
        let directories = InstalledDirectories::find(Path::new("/")).unwrap_or_default();
        return Some(with_installed_classes(Config {
            classes: directories.class_dirs().into(),
            ..Config::default()
        }));
    };
    // The setting is an array and may continue on the next lines.
    let mut setting_text = String::new();
    for line in std::iter::once(first_line).chain(lines_before_tables) {
        setting_text += line;
        setting_text.push('\n');
        if let Ok(config) = Config::parse(error.path(), &setting_text) {
            return Some(with_installed_classes(config));
        }
    }
    None
}

/// Returns the path of the hook in the directory of this program, with symbolic links
/// resolved.
pub(crate) fn adjacent_hook_path() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.with_file_name(hooks::HOOK_FILE_NAME)
}

/// Returns the directory `classes.d` next to the directory of this program, with symbolic
/// links resolved.
fn find_adjacent_class_dir() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let classes = program.parent()?.parent()?.join("classes.d");
    classes.is_dir().then_some(classes)
}
