//! Creates root file systems for containers.
//!
//! Each kind is built once and cached in cargo's output directory, under a name with a hash of
//! everything from which it is built. Every container gets its own copy, so that no test sees files
//! of another one.

mod busybox;
mod cache;
mod glibc;
mod musl;
mod tree;

use std::path::{Path, PathBuf};

use anyhow::Result;

pub use busybox::BUSYBOX;
pub(crate) use cache::directory as cached;
pub use glibc::make_cache as make_loader_cache;
pub(crate) use glibc::multiarch;

use crate::binaries;
use crate::compile::Libc;
use tree::Tree;

/// A kind of root file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rootfs {
    /// A root file system with busybox and its applets, the smallest image with a shell.
    Busybox,
    /// A root file system with a dynamic glibc, an ld.so.cache and `ldconfig`, like the base image
    /// of a distribution.
    Glibc,
    /// A root file system with a dynamic glibc, but without ld.so.cache, ld.so.conf and `ldconfig`.
    GlibcWithoutCache,
    /// A root file system with a dynamic musl and busybox, like the base image of Alpine.
    Musl,
    /// A root file system with only the probe, like an image that is built from scratch.
    Empty,
}

impl Rootfs {
    pub const ALL: [Self; 5] = [
        Self::Busybox,
        Self::Glibc,
        Self::GlibcWithoutCache,
        Self::Musl,
        Self::Empty,
    ];

    /// Copies this root file system to `target`, which must not exist, and adds
    /// the probe at [`crate::probe::PATH`].
    pub fn copy_to(self, target: &Path) -> Result<()> {
        let cached = cache::directory(self.name(), &self.inputs()?, |tree| self.build(tree))?;
        let tree = Tree::copy_of(&cached, target)?;
        tree.copy_file(&binaries::program("probe")?, crate::probe::PATH)
    }

    /// Returns the C library of the programs in the root file system, or `None` if there is none.
    pub fn libc(self) -> Option<Libc> {
        match self {
            Self::Busybox | Self::Empty => None,
            Self::Glibc | Self::GlibcWithoutCache => Some(Libc::Glibc),
            Self::Musl => Some(Libc::Musl),
        }
    }

    /// Returns the name for messages and for the cache.
    pub fn name(self) -> &'static str {
        match self {
            Self::Busybox => "busybox",
            Self::Glibc => "glibc",
            Self::GlibcWithoutCache => "glibc-without-cache",
            Self::Musl => "musl",
            Self::Empty => "empty",
        }
    }

    /// Returns the files of this machine from which the root file system is built. It is built
    /// again when one of them changes.
    fn inputs(self) -> Result<Vec<PathBuf>> {
        Ok(match self {
            Self::Busybox => vec![BUSYBOX.into()],
            Self::Glibc | Self::GlibcWithoutCache => glibc::inputs()?,
            Self::Musl => musl::inputs()?,
            Self::Empty => Vec::new(),
        })
    }

    fn build(self, tree: &Tree) -> Result<()> {
        match self {
            Self::Busybox => busybox::build(tree),
            Self::Glibc => glibc::build(tree).and_then(|()| glibc::add_cache(tree)),
            Self::GlibcWithoutCache => glibc::build(tree),
            Self::Musl => musl::build(tree),
            Self::Empty => tree.directories(&["bin"]),
        }
    }
}
