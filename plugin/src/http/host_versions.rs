//! Reads the versions of Boathook on the node, so that a metric can compare them.

use std::fs;
use std::path::{Path, PathBuf};

use host_files::rooted_path::read_own_text;
use runtime_config::PACKAGED_VERSION_PATH;

/// The maximum size in bytes of the file that contains the package's version.
const MAX_VERSION_BYTES: u64 = 64;

/// The places on the node that have a version of Boathook.
#[derive(Debug, Clone)]
pub(crate) struct HostVersions {
    host_root: PathBuf,
    /// The link to the installed version. Engines call the hook by it.
    installed_link: Option<PathBuf>,
}

impl HostVersions {
    /// Returns the versions of the host whose root directory is `host_root`. `hook_path` is the
    /// path by which engines call the hook, such as `/opt/boathook/current/bin/boathook-hook`.
    pub(crate) fn new(host_root: &Path, hook_path: &Path) -> Self {
        let installed_link = hook_path.ancestors().nth(2);
        HostVersions {
            host_root: host_root.to_owned(),
            installed_link: installed_link.map(Path::to_owned),
        }
    }

    /// Returns the version of this program, that of the installation whose hook engines call, and
    /// that of the distribution's package, each with its place. Leaves out a version that this
    /// program cannot see, such as that of the package in a container.
    pub(super) fn read(&self) -> Vec<(&'static str, String)> {
        let join_root = |path: &Path| self.host_root.join(path.strip_prefix("/").unwrap_or(path));
        let installed = self.installed_link.as_deref();
        let installed = installed.and_then(|link| fs::read_link(join_root(link)).ok());
        let installed = installed.map(|version| version.to_string_lossy().into_owned());
        let package = join_root(Path::new(PACKAGED_VERSION_PATH));
        let package = read_own_text(&package, MAX_VERSION_BYTES).ok();
        let package = package.map(|text| text.trim_end().to_owned());
        let versions = [
            ("running", Some(env!("CARGO_PKG_VERSION").to_owned())),
            ("installed", installed),
            ("package", package),
        ];
        let versions = versions.into_iter();
        versions
            .filter_map(|(place, version)| Some((place, version?)))
            .collect()
    }
}
