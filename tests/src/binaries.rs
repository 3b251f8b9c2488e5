//! Finds the programs under test: those built beside the running program.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A directory of programs to use in place of those that were built, such as scripts that
/// run another machine's under an emulator (`scripts/emulated`); others are taken as built.
pub const PROGRAMS: &str = "BOATHOOK_TESTS_PROGRAMS";

/// The programs that are built for musl, in a directory of their own.
pub const FOR_MUSL: [&str; 2] = ["boathook", "boathook-runtime"];

/// The file of the program `name` (for example `boathook`), as built in the
/// same profile as the running program.
///
/// Fails when it was not built: `cargo test` alone does not build the programs
/// of other packages.
pub fn program(name: &str) -> Result<PathBuf> {
    if let Some(replaced) = std::env::var_os(PROGRAMS) {
        let path = Path::new(&replaced).join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    let mut directory = directory()?;
    if FOR_MUSL.contains(&name) {
        directory = for_musl(&directory)?;
    }
    let path = directory.join(name);
    if !path.is_file() {
        bail!(
            "no program {}: build it first with `make programs` (`make bench` builds those of the bench)",
            path.display()
        );
    }
    Ok(path)
}

/// The directory of the same profile for musl.
fn for_musl(directory: &Path) -> Result<PathBuf> {
    let profile = directory.file_name();
    let targets = directory.ancestors().nth(2);
    let (profile, targets) = profile
        .zip(targets)
        .with_context(|| format!("{} is not cargo's", directory.display()))?;
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    Ok(targets.join(target).join(profile))
}

/// Cargo's output directory (`target`), whatever it is called.
pub fn target_directory() -> Result<PathBuf> {
    let programs = directory()?;
    // Cargo marks its output directory with this file, and each target's
    // directory in it as well: the outermost is meant.
    programs
        .ancestors()
        .filter(|directory| directory.join("CACHEDIR.TAG").is_file())
        .last()
        .map(Path::to_path_buf)
        .with_context(|| {
            format!(
                "{} is not inside cargo's output directory",
                programs.display()
            )
        })
}

/// The top of the source tree that this crate was built from.
pub fn source_tree() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// The directory of the running profile's programs. Test programs are in
/// `deps` below it.
fn directory() -> Result<PathBuf> {
    let running = std::env::current_exe().context("cannot tell which program is running")?;
    let parent = running
        .parent()
        .context("the running program has no directory")?;
    let directory = match parent.file_name() {
        Some(name) if name == "deps" => parent.parent().unwrap_or(parent),
        _ => parent,
    };
    Ok(directory.to_path_buf())
}
