//! Finds the programs of engines: on this machine, or in a root file system with a later generation
//! of engines.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::fingerprint;
use crate::mirror::{self, Mirror};
use crate::rootfs::cached;

/// A generation of engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The engines that are installed on this machine.
    OfThisMachine,
    /// The engines of Debian's next release (forky).
    Forky,
    /// The engines of Ubuntu 26.04 (resolute), the first release with containerd 2.2.
    Resolute,
}

/// The packages with engines and runtimes of Debian, and with the programs that they run.
const OF_DEBIAN: &str = "containerd,docker.io,docker-cli,docker-compose,podman,podman-compose,\
                         conmon,runc,crun,iptables,iproute2,uidmap,rootlesskit,slirp4netns";

/// The packages with engines of Ubuntu whose versions Debian does not have.
const OF_UBUNTU: &str = "containerd,docker.io,runc,iptables";

/// The packages that a node of Kubernetes and a control plane need in addition to Kubernetes.
const OF_A_NODE: &str = "containerd,runc,conmon,skopeo,containernetworking-plugins,etcd-server,\
                         iproute2,iptables,openssl";

/// The directories in which packages have programs.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

impl Generation {
    /// Returns the reason why there are no engines of this generation, or `None` if there are. A
    /// root file system is made to find out.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::OfThisMachine => None,
            Self::Forky | Self::Resolute => mirror::missing().or_else(|| {
                let failed = self.root().err();
                failed.map(|error| format!("{error:#}"))
            }),
        }
    }

    /// Returns the root file system with this generation, which is built if it has not been built
    /// before. Nothing may be written to it. Returns `None` for this machine's own programs.
    pub fn root(self) -> Result<Option<PathBuf>> {
        match self {
            Self::OfThisMachine => Ok(None),
            Self::Forky => find_or_build("forky", Mirror::of_debian_forky, OF_DEBIAN).map(Some),
            Self::Resolute => {
                let mirror = || Ok(Mirror::of_ubuntu("resolute"));
                find_or_build("resolute", mirror, OF_UBUNTU).map(Some)
            }
        }
    }

    /// Returns the path of a program of this generation.
    pub fn program(self, name: &str) -> Option<PathBuf> {
        let root = match self {
            Self::OfThisMachine => PathBuf::from("/"),
            Self::Forky | Self::Resolute => self.root().ok()??,
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = match self {
            Self::OfThisMachine => std::env::split_paths(&path).collect(),
            Self::Forky | Self::Resolute => Vec::new(),
        };
        own.into_iter()
            .chain(DIRECTORIES.map(PathBuf::from))
            .map(|directory| directory.join(name))
            .find(|file| below(&root, file).is_file())
    }
}

/// Returns a root file system of Debian's next release with the packages that a node of Kubernetes
/// needs. It is built if it has not been built before. Nothing may be written to it.
pub fn of_a_node() -> Result<PathBuf> {
    find_or_build("forky", Mirror::of_debian_forky, OF_A_NODE)
}

/// Returns the root file system of a release with these packages. The mirror is looked up only if
/// the root file system has not been built before, because that takes a second of processor time.
fn find_or_build(
    release: &str,
    mirror: impl FnOnce() -> Result<Mirror>,
    packages: &str,
) -> Result<PathBuf> {
    let machine = [PathBuf::from("/etc/os-release")];
    // The name contains a hash of the packages, so that other packages make another root file
    // system.
    let of_packages = fingerprint::of_parts([packages.as_bytes()]);
    let name = format!("engines-of-{release}-{of_packages}");
    cached(&name, &machine, |tree| {
        build(&mirror()?, packages, tree.top())
    })
}

fn build(mirror: &Mirror, packages: &str, directory: &Path) -> Result<()> {
    mirror.fetch(packages, directory)?;
    // Half of the root file system consists of files that no engine reads.
    for unused in [
        "var/cache/apt/archives",
        "var/lib/apt/lists",
        "usr/share/doc",
        "usr/share/locale",
        "usr/share/man",
    ] {
        fs::remove_dir_all(directory.join(unused))?;
    }
    // Engines copy this file into containers.
    fs::write(directory.join("etc/hosts"), "127.0.0.1 localhost\n")?;
    Ok(())
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
