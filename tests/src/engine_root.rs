//! Where an engine's programs come from: this machine, or a root file system with
//! a later generation of engines.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;

use crate::mirror::{self, Mirror};
use crate::rootfs::cached;

/// A generation of engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// Those that are installed on this machine.
    OfThisMachine,
    /// Those of Debian's next release (forky).
    Forky,
}

/// The engines and runtimes, and what they call.
const PACKAGES: &str =
    "containerd,docker.io,docker-cli,docker-compose,podman,conmon,runc,crun,iptables,uidmap";

/// Where packages have programs.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"];

impl Generation {
    /// Why there are no engines of this generation, if there are none. A root file
    /// system is made to find out.
    pub fn missing(self) -> Option<String> {
        match self {
            Self::OfThisMachine => None,
            Self::Forky => mirror::missing().or_else(|| {
                let failed = self.root().err();
                failed.map(|error| format!("{error:#}"))
            }),
        }
    }

    /// Its root file system, to which nothing may be written; `None`: this
    /// machine's own. Made if it has not been made before.
    pub fn root(self) -> Result<Option<PathBuf>> {
        // It takes long: a second caller waits for the first.
        static BUILDING: Mutex<()> = Mutex::new(());
        match self {
            Self::OfThisMachine => Ok(None),
            Self::Forky => {
                let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
                let release = [PathBuf::from("/etc/os-release")];
                cached("engines-of-forky", &release, |tree| build(tree.top())).map(Some)
            }
        }
    }

    /// Where one of its programs is.
    pub fn program(self, name: &str) -> Option<PathBuf> {
        let root = match self {
            Self::OfThisMachine => PathBuf::from("/"),
            Self::Forky => self.root().ok()??,
        };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = match self {
            Self::OfThisMachine => std::env::split_paths(&path).collect(),
            Self::Forky => Vec::new(),
        };
        own.into_iter()
            .chain(DIRECTORIES.map(PathBuf::from))
            .map(|directory| directory.join(name))
            .find(|file| below(&root, file).is_file())
    }
}

fn build(directory: &Path) -> Result<()> {
    Mirror::of_debian_forky()?.fetch(PACKAGES, directory)?;
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
