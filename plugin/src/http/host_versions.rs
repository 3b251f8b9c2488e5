//! Reads which versions of Boathook run and are installed on the node. A metric shows them, so that
//! an alert can tell when they differ.

use std::fs;
use std::path::{Path, PathBuf};

use host_files::rooted_path::read_own_text;
use runtime_config::PACKAGED_VERSION_PATH;

/// The maximum size in bytes of the file that contains the package's version. A larger file is
/// ignored.
const MAX_VERSION_BYTES: u64 = 64;

/// Reads the versions of Boathook that run and are installed on the node.
#[derive(Debug, Clone)]
pub(crate) struct HostVersions {
    host_root: PathBuf,
    /// The link to the installed version, such as `/opt/boathook/current`, through which engines
    /// call the hook.
    installed_link: Option<PathBuf>,
}

impl HostVersions {
    /// Creates a reader for the host whose root directory is `host_root`. `hook_path` is the path
    /// by which engines call the hook, such as `/opt/boathook/current/bin/boathook-hook`.
    pub(crate) fn new(host_root: &Path, hook_path: &Path) -> Self {
        let installed_link = hook_path.ancestors().nth(2);
        HostVersions {
            host_root: host_root.to_owned(),
            installed_link: installed_link.map(Path::to_owned),
        }
    }

    /// Returns the versions of this program (`running`), of the hook that engines call
    /// (`installed`) and of the distribution's package (`package`). Omits a version that this
    /// process cannot read, such as that of the package in a container.
    pub(super) fn read(&self) -> Vec<(&'static str, String)> {
        let join_root = |path: &Path| self.host_root.join(path.strip_prefix("/").unwrap_or(path));
        let installed_link = self.installed_link.as_deref();
        let link_target = installed_link.and_then(|link| fs::read_link(join_root(link)).ok());
        let installed_version = link_target.map(|version| version.to_string_lossy().into_owned());
        let package_path = join_root(Path::new(PACKAGED_VERSION_PATH));
        let package_text = read_own_text(&package_path, MAX_VERSION_BYTES).ok();
        let package_version = package_text.map(|text| text.trim_end().to_owned());
        let versions = [
            ("running", Some(env!("CARGO_PKG_VERSION").to_owned())),
            ("installed", installed_version),
            ("package", package_version),
        ];
        let versions = versions.into_iter();
        versions
            .filter_map(|(place, version)| Some((place, version?)))
            .collect()
    }
}
