//! Finds files that are installed together with this program: class files, the hook and the
//! configuration.

use std::path::{Path, PathBuf};

use device_class::config::{Config, InstalledDirectories};
use device_class::strict_toml::FileError;

use crate::oci::hooks;
use crate::oci::read_file_capped;

/// Reads the configuration file at `path`. If `path` is `None`, reads the default file, which need
/// not exist. If the default class directory does not exist, because `boathook-init` has installed
/// no release here, uses the class files next to this program. A package or an unpacked archive
/// contains them.
///
/// # Errors
///
/// Fails for the same reasons as [`Config::load`].
pub fn load_configuration(path: Option<&Path>) -> Result<Config, FileError> {
    Config::load(path).map(with_adjacent_class_dir)
}

/// If the default class directory does not exist, replaces it with the class directory next to this
/// program. A class directory that the configuration sets is not replaced.
pub(crate) fn with_adjacent_class_dir(mut config: Config) -> Config {
    if config.classes == Config::default().classes
        && let Some(class_dir) = config.classes.first_mut()
        && !class_dir.is_dir()
        && let Some(adjacent_dir) = find_adjacent_class_dir()
    {
        *class_dir = adjacent_dir;
    }
    config
}

/// Reads the class directories from a configuration file that has an error in another setting. The
/// hook needs the class files to find out that a container requests nothing and may start. Returns
/// `None` if the setting of the class directories cannot be parsed.
pub(crate) fn parse_class_dirs_only(error: &FileError) -> Option<Config> {
    const MAX_CONFIG_BYTES: usize = 1 << 20;
    let bytes = read_file_capped(error.path(), MAX_CONFIG_BYTES);
    let config_text = bytes.ok().flatten().unwrap_or_default();
    let config_text = String::from_utf8_lossy(&config_text);
    let mut lines_before_tables = config_text
        .lines()
        .take_while(|line| !line.trim_start().starts_with('['));
    let may_set_classes = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("clas") || line.starts_with(['"', '\''])
    };
    let Some(first_line) = lines_before_tables.find(may_set_classes) else {
        let directories = InstalledDirectories::find(Path::new("/")).unwrap_or_default();
        return Some(with_adjacent_class_dir(Config {
            classes: directories.class_dirs().into(),
            ..Config::default()
        }));
    };
    // The setting of the class directories is an array that may continue on the next lines. So
    // lines are added until the text can be parsed.
    let mut setting_text = String::new();
    for line in std::iter::once(first_line).chain(lines_before_tables) {
        setting_text += line;
        setting_text.push('\n');
        if let Ok(config) = Config::parse(error.path(), &setting_text) {
            return Some(with_adjacent_class_dir(config));
        }
    }
    None
}

/// Returns the path of the hook program, which is installed in the directory of this program. The
/// path contains no symbolic links, because the kernel resolves them in the path of a running
/// program (`/proc/self/exe`).
pub fn adjacent_hook_path() -> PathBuf {
    let program_path = std::env::current_exe().unwrap_or_default();
    program_path.with_file_name(hooks::HOOK_FILE_NAME)
}

/// Returns the directory `classes.d` beside the directory of this program, such as `x/classes.d`
/// for `x/bin/boathook` in an unpacked archive. Returns `None` if it does not exist.
fn find_adjacent_class_dir() -> Option<PathBuf> {
    let program_path = std::env::current_exe().ok()?;
    let class_dir = program_path.parent()?.parent()?.join("classes.d");
    class_dir.is_dir().then_some(class_dir)
}
