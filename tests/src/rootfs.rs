//! Root file systems for containers.
//!
//! Each kind is built once, kept in cargo's output directory under a key made
//! of everything that it was built from, and copied for every container, so
//! that no test sees the files of another one.

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
    /// busybox and its applets: the smallest image with a shell.
    Busybox,
    /// A dynamic glibc with an ld.so.cache and `ldconfig`, like a
    /// distribution's base image.
    Glibc,
    /// The same without ld.so.cache, ld.so.conf and `ldconfig`.
    GlibcWithoutCache,
    /// A dynamic musl and busybox, like Alpine's base image.
    Musl,
    /// Nothing but the probe: an image built from scratch.
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

    /// The C library that programs in it are linked with, if any.
    pub fn libc(self) -> Option<Libc> {
        match self {
            Self::Busybox | Self::Empty => None,
            Self::Glibc | Self::GlibcWithoutCache => Some(Libc::Glibc),
            Self::Musl => Some(Libc::Musl),
        }
    }

    /// A name for messages and for the cache.
    pub fn name(self) -> &'static str {
        match self {
            Self::Busybox => "busybox",
            Self::Glibc => "glibc",
            Self::GlibcWithoutCache => "glibc-without-cache",
            Self::Musl => "musl",
            Self::Empty => "empty",
        }
    }

    /// The host's files that go into it: when one changes, it is rebuilt.
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
