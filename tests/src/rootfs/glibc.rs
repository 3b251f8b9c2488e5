//! A root file system with the host's glibc, laid out as on the host.

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

/// Libraries of glibc that programs commonly request in addition to libc itself.
const COMPANIONS: [&str; 5] = [
    "libdl.so.2",
    "libm.so.6",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
];

/// The program `ldconfig` itself: Ubuntu keeps it behind a shell script.
const LDCONFIG: [&str; 2] = ["/sbin/ldconfig.real", "/sbin/ldconfig"];

/// The host's files that the tree is made of.
pub(super) fn inputs() -> Result<Vec<PathBuf>> {
    let mut inputs = vec![busybox::BUSYBOX.into(), dlopen_probe()?, ldconfig()?];
    inputs.extend(libraries()?);
    Ok(inputs)
}

/// Fills `tree`: merged /usr, busybox for a shell, glibc at the host's own
/// paths, the loader's probe. No loader cache and nothing to make one with.
pub(super) fn build(tree: &Tree) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        tree.directories(&[&format!("usr/{name}")])?;
        tree.link(name, format!("usr/{name}"))?;
    }
    busybox::build(tree)?;
    // The applet would stand in for the real one, which this image may lack.
    remove_if_there(&tree.on_host("/usr/sbin/ldconfig"))?;
    for library in libraries()? {
        tree.copy_file(&library, &library)?;
    }
    tree.copy_file(&dlopen_probe()?, loader::PATH)
}

/// Adds what a distribution's image has besides: ld.so.conf with its include,
/// `ldconfig`, and the cache that it makes.
pub(super) fn add_cache(tree: &Tree) -> Result<()> {
    tree.write("/etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")?;
    tree.write("/etc/ld.so.conf.d/multiarch.conf", &library_directories()?)?;
    tree.copy_file(&ldconfig()?, "/usr/sbin/ldconfig")?;
    make_cache(tree.top())
}

/// Runs the host's `ldconfig` on the tree at `root`, as an image's build does.
pub fn make_cache(root: &Path) -> Result<()> {
    Captured::run(Command::new(ldconfig()?).arg("-r").arg(root))?
        .success()
        .map(|_| ())
}

/// The host's own name for its multiarch library directory.
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

/// The loader and libraries that a dynamic program needs, by the paths under
/// which the host's loader finds them: asked once.
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
