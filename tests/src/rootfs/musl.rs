//! A root file system with musl as Debian's package installs it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::busybox;
use super::tree::Tree;
use crate::compile::{self, Libc};
use crate::loader;

/// Returns the files of the host from which the tree is built; the cache key depends on them.
pub(super) fn inputs() -> Result<Vec<PathBuf>> {
    Ok(vec![
        busybox::BUSYBOX.into(),
        musl_loader().into(),
        dlopen_probe()?,
    ])
}

/// Builds an image with busybox as the shell, musl's loader (which is also its libc), and the probe
/// of the dynamic loader. Like the base image of Alpine, it has no /etc/ld-musl-*.path.
pub(super) fn build(tree: &Tree) -> Result<()> {
    busybox::build(tree)?;
    tree.copy_file(Path::new(&musl_loader()), musl_loader())?;
    tree.copy_file(&dlopen_probe()?, loader::PATH)
}

fn musl_loader() -> String {
    format!("/lib/ld-musl-{}.so.1", std::env::consts::ARCH)
}

fn dlopen_probe() -> Result<PathBuf> {
    compile::program("dlopen-probe.c", Libc::Musl, &[""; 0])
}
