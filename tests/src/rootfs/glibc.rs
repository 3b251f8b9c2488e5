//! A root file system with the glibc of the host at the same paths as on the host.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use super::busybox;
use super::tree::Tree;
use crate::captured::Captured;
use crate::compile::{self, Libc};
use crate::loader;

/// Libraries of glibc that many programs need in addition to libc.
const COMPANIONS: [&str; 5] = [
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
];

/// The paths of the `ldconfig` binary. On Ubuntu /sbin/ldconfig is a shell script that runs
/// `ldconfig.real`.
const LDCONFIG: [&str; 2] = ["/sbin/ldconfig.real", "/sbin/ldconfig"];

/// Returns the files of the host from which the tree is built; the cache key depends on them.
pub(super) fn inputs() -> Result<Vec<PathBuf>> {
    let mut inputs = vec![busybox::BUSYBOX.into(), dlopen_probe()?, ldconfig()?];
    inputs.extend(libraries()?);
    Ok(inputs)
}

/// Builds an image without a loader cache and without `ldconfig`: a merged /usr, busybox as the
/// shell, glibc, and the probe of the dynamic loader.
pub(super) fn build(tree: &Tree) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        tree.directories(&[&format!("usr/{name}")])?;
        tree.link(name, format!("usr/{name}"))?;
    }
    busybox::build(tree)?;
    // The busybox applet `ldconfig` must not remain: the image is to have no `ldconfig` at all.
    remove_if_there(&tree.on_host("/usr/sbin/ldconfig"))?;
    for library in libraries()? {
        tree.copy_file(&library, &library)?;
    }
    tree.copy_file(&dlopen_probe()?, loader::PATH)
}

/// Adds the files for a loader cache as in a distribution's image: ld.so.conf with its include,
/// `ldconfig`, and the cache that `ldconfig` writes.
pub(super) fn add_cache(tree: &Tree) -> Result<()> {
    tree.write("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")?;
    tree.write("/etc/ld.so.conf.d/multiarch.conf", &library_directories()?)?;
    tree.copy_file(&ldconfig()?, "/usr/sbin/ldconfig")?;
    make_cache(tree.top())
}

/// Runs the host's `ldconfig` on the tree at `root`, as the build of an image does.
pub fn make_cache(root: &Path) -> Result<()> {
    Captured::run(Command::new(ldconfig()?).arg("-r").arg(root))?
        .success()
        .map(|_| ())
}

/// Returns the host's name for its multiarch library directory, such as `x86_64-linux-gnu`.
pub(crate) fn multiarch() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

fn library_directories() -> Result<String> {
    let mut directories = BTreeSet::from([format!("/usr/lib/{}", multiarch())]);
    for library in libraries()? {
        let parent = library.parent().context("a library at the root")?;
        directories.insert(parent.display().to_string());
    }
    Ok(directories.into_iter().map(|line| line + "\n").collect())
}

/// Returns the dynamic loader and the libraries that a dynamic program needs, by the paths at which
/// the host's loader finds them. They are determined once per process.
fn libraries() -> Result<BTreeSet<PathBuf>> {
    static KNOWN: Mutex<Option<BTreeSet<PathBuf>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    match &*known {
        Some(libraries) => Ok(libraries.clone()),
        None => Ok(known.insert(by_ldd()?).clone()),
    }
}

fn by_ldd() -> Result<BTreeSet<PathBuf>> {
    let listing = Captured::run(Command::new("ldd").arg(dlopen_probe()?))?.success()?;
    // `libc.so.6 => /lib/.../libc.so.6 (0x...)` or `/lib64/ld-linux... (0x...)`.
    let mut libraries: BTreeSet<PathBuf> = listing
        .stdout
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    let libc = libraries.iter().find(|path| path.ends_with("libc.so.6"));
    let directory = libc
        .and_then(|path| path.parent())
        .context("ldd names no libc.so.6")?
        .to_path_buf();
    libraries.extend(
        COMPANIONS
            .iter()
            .map(|name| directory.join(name))
            .filter(|path| path.is_file()),
    );
    Ok(libraries)
}

fn dlopen_probe() -> Result<PathBuf> {
    compile::program("dlopen-probe.c", Libc::Glibc, &["-ldl"])
}

fn ldconfig() -> Result<PathBuf> {
    let found = LDCONFIG
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file());
    found.context("no ldconfig on this machine (package libc-bin)")
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
