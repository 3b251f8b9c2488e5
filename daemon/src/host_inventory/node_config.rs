//! Loads the configuration for a program that runs in a container and offers the devices of the
//! node.

use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::strict_toml::FileError;

/// The configuration of this node, for a program that runs in a container.
#[derive(Debug)]
pub struct NodeConfig {
    /// The configuration. Its paths are valid in this process's container.
    pub config: Config,
    /// The path of the host's root directory as the hook and the engines see it.
    pub host_root: PathBuf,
}

impl NodeConfig {
    /// Reads the configuration file `config_path`, or the default file. If the file has an error,
    /// logs the error and reads the configuration that is installed on the host: `installed_path`,
    /// or the default file below the host's root directory. `mounted_root` is the path of the
    /// host's root directory in this process's container.
    pub fn load(
        config_path: Option<&Path>,
        mounted_root: Option<&Path>,
        installed_path: Option<&Path>,
    ) -> Result<Self, FileError> {
        let (config, config_error) =
            Config::load_or_read_installed(config_path, mounted_root, installed_path)?;
        if let Some(config_error) = config_error {
            tracing::error!(
                "the configuration has a mistake, so the one that is installed on the host is used, \
                 which the hook uses, too: {config_error}"
            );
        }
        let host_root = config.host_root.clone();
        let config = match mounted_root {
            Some(root) => config.with_root_prefix(root),
            None => config,
        };
        Ok(NodeConfig { config, host_root })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use device_class::config::DIRECTORIES_FILE_PATH;

    use super::*;

    /// The configuration of a host need not be at the usual place. A container sees the file that
    /// records its place only if it has the whole host.
    #[test]
    fn the_installed_configuration_is_found_in_the_directories_of_the_host() {
        let installed = "/data/etc/boathook/config.toml";
        for (is_recorded, named) in [(true, None), (false, Some(installed)), (false, None)] {
            let host = tempfile::tempdir().unwrap();
            let write = |path: &str, text: &str| {
                let file = host.path().join(path.trim_start_matches('/'));
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            };
            write("given.toml", "host_root = 1\n");
            write(installed, "host_root = '/installed'\n");
            if is_recorded {
                write(
                    DIRECTORIES_FILE_PATH,
                    "programs = '/data/boathook'\nconfiguration = '/data/etc/boathook'\n",
                );
            }
            let given = host.path().join("given.toml");
            let loaded = NodeConfig::load(Some(&given), Some(host.path()), named.map(Path::new));
            let expected = is_recorded || named.is_some();
            assert_eq!(loaded.is_ok(), expected, "{is_recorded} {named:?}");
            if let Ok(loaded) = loaded {
                assert_eq!(loaded.host_root, Path::new("/installed"));
                let classes = &loaded.config.classes[0];
                let is_moved = classes.ends_with("data/boathook/current/classes.d");
                assert_eq!(is_moved, is_recorded, "{classes:?}");
            }
        }
    }

    #[test]
    fn a_mistake_is_replaced_by_what_the_host_has() {
        let host = tempfile::tempdir().unwrap();
        let given = host.path().join("given.toml");
        let installed = host.path().join("etc/boathook/config.toml");
        fs::create_dir_all(installed.parent().unwrap()).unwrap();
        for (text, of_host, host_root) in [
            (
                "host_root = '/given'\n",
                "host_root = '/installed'\n",
                Some("/given"),
            ),
            (
                "host_root = 1\n",
                "host_root = '/installed'\n",
                Some("/installed"),
            ),
            ("host_root = 1\n", "host_root = 2\n", None),
        ] {
            fs::write(&given, text).unwrap();
            fs::write(&installed, of_host).unwrap();
            let loaded = NodeConfig::load(Some(&given), Some(host.path()), None).ok();
            assert_eq!(
                loaded.map(|it| it.host_root),
                host_root.map(PathBuf::from),
                "{text}"
            );
        }
    }
}
