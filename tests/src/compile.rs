//! Compiles the small C programs and libraries that stand for a vendor's software.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::captured::Captured;
use crate::{binaries, fingerprint};

/// The path of the compiler for musl (Debian's package musl-tools).
pub const MUSL_COMPILER: &str = "/usr/bin/musl-gcc";

/// The C library with which a program is linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libc {
    /// The host's glibc.
    Glibc,
    /// musl, from the distribution's package.
    Musl,
}

impl Libc {
    fn compiler(self) -> &'static str {
        match self {
            Self::Glibc => "cc",
            Self::Musl => MUSL_COMPILER,
        }
    }
}

/// Compiles `programs/<source>` with the compiler's `arguments`, and returns the path of the
/// result. Source files that were compiled before are not compiled again.
pub fn program(source: &str, libc: Libc, arguments: &[impl AsRef<str>]) -> Result<PathBuf> {
    let source = binaries::source_tree().join("tests/programs").join(source);
    let text = fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
    let parts = [text.as_slice(), libc.compiler().as_bytes()];
    let key = fingerprint::of_parts(
        parts
            .into_iter()
            .chain(arguments.iter().map(|one| one.as_ref().as_bytes())),
    );

    let cache = binaries::target_directory()?.join("programs");
    let made = cache.join(key);
    if !made.is_file() {
        fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
        compile(&source, libc, arguments, &made)?;
    }
    Ok(made)
}

/// Compiles into a file beside `made` and renames it, so that tests that run at the same time never
/// see an incomplete program.
fn compile(source: &Path, libc: Libc, arguments: &[impl AsRef<str>], made: &Path) -> Result<()> {
    let directory = made.parent().unwrap_or(Path::new("."));
    let unfinished = tempfile::tempdir_in(directory)?;
    let output = unfinished.path().join("output");
    let mut command = Command::new(libc.compiler());
    command
        .args(["-O1", "-Wall", "-Werror"])
        .arg(source)
        .arg("-o")
        .arg(&output)
        .args(arguments.iter().map(AsRef::as_ref));
    Captured::run(&mut command)?.success()?;
    fs::rename(&output, made).with_context(|| format!("cannot write {}", made.display()))
}
