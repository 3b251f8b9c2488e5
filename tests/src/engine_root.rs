//! The programs of an engine: those of this machine, or of a root file system with a later
//! generation of engines.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::fingerprint;
use crate::mirror::{self, Mirror};
use crate::rootfs::cached;

/// A generation of engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Those that are installed on this machine.
    OfThisMachine,
    /// Those of Debian's next release (forky).
    Forky,
    /// Those of Ubuntu 26.04 (resolute): the first release that has containerd 2.2.
    Resolute,
}

/// The engines and runtimes of Debian, and the programs that they run.
const OF_DEBIAN: &str = "containerd,docker.io,docker-cli,docker-compose,podman,podman-compose,\
                         conmon,runc,crun,iptables,iproute2,uidmap,rootlesskit,slirp4netns";

/// Those of Ubuntu that Debian does not have.
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

    /// Its root file system, to which nothing may be written; `None`: this
    /// machine's own. Made if it has not been made before.
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

    /// Returns the path of one of its programs.
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

/// A root file system of Debian's next release with what a node of Kubernetes takes, to
/// which nothing may be written. Made if it has not been made before.
pub fn of_a_node() -> Result<PathBuf> {
    find_or_build("forky", Mirror::of_debian_forky, OF_A_NODE)
}

/// The root file system of a release with these packages, whose mirror is looked up only if it
/// has not been made before: apt takes a second of processor time for that.
fn find_or_build(
    release: &str,
    mirror: impl FnOnce() -> Result<Mirror>,
    packages: &str,
) -> Result<PathBuf> {
    let machine = [PathBuf::from("/etc/os-release")];
    // Other packages make another root.
    let of_packages = fingerprint::of_parts([packages.as_bytes()]);
    let name = format!("engines-of-{release}-{of_packages}");
    cached(&name, &machine, |tree| {
        build(&mirror()?, packages, tree.top())
    })
}

fn build(mirror: &Mirror, packages: &str, directory: &Path) -> Result<()> {
    mirror.fetch(packages, directory)?;
    // Half of it is what no engine reads.
    for unused in [
        "var/cache/apt/archives",
        "var/lib/apt/lists",
        "usr/share/doc",
        "usr/share/locale",
        "usr/share/man",
    ] {
        fs::remove_dir_all(directory.join(unused))?;
    }
    // An engine copies it into containers.
    fs::write(directory.join("etc/hosts"), "127.0.0.1 localhost\n")?;
    Ok(())
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}
