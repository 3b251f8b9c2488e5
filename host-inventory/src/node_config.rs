//! The configuration of a program that offers the devices of a node, from a container.

use std::path::{Path, PathBuf};

use device_class::config::Config;
use device_class::strict_toml::FileError;

/// The configuration of a node.
#[derive(Debug)]
pub struct NodeConfig {
    /// The configuration with the paths that this process sees.
    pub config: Config,
    /// The host's root directory as the hook and engines see it.
    pub host_root: PathBuf,
}

impl NodeConfig {
    /// Reads the configuration `path`, or the default one. `mounted_root` is the directory at
    /// which this process sees the host's root. A mistake is logged, if the configuration that
    /// is installed on the host can be used instead.
    pub fn load(path: Option<&Path>, mounted_root: Option<&Path>) -> Result<Self, FileError> {
        let (config, mistake) = Config::load_or_installed(path, mounted_root)?;
        if let Some(mistake) = mistake {
            tracing::error!(
                "the configuration has a mistake, so the one that is installed on the host is used, \
                 as by the hook: {mistake}"
            );
        }
        let host_root = config.host_root.clone();
        let config = match mounted_root {
            Some(root) => config.mounted_at(root),
            None => config,
        };
        Ok(NodeConfig { config, host_root })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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
            let loaded = NodeConfig::load(Some(&given), Some(host.path())).ok();
            assert_eq!(
                loaded.map(|it| it.host_root),
                host_root.map(PathBuf::from),
                "{text}"
            );
        }
    }
}
