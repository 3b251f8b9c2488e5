//! A root file system with musl, as Debian packages it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::busybox;
use super::tree::Tree;
use crate::compile::{self, Libc};
use crate::loader;

/// The host's files that the tree is made of.
pub(super) fn inputs() -> Result<Vec<PathBuf>> {
    Ok(vec![
        busybox::BUSYBOX.into(),
        musl_loader().into(),
        dlopen_probe()?,
    ])
}

/// Fills `tree`: busybox for a shell, musl's loader (which is its libc too),
/// the loader's probe. No /etc/ld-musl-*.path, as in Alpine's base image.
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
