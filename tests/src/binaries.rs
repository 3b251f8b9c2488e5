//! Finds the programs under test: those built beside the running program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::captured::Captured;

/// A directory of programs to use in place of those that were built, such as scripts that
/// run another machine's under an emulator (`scripts/emulated`); others are taken as built.
pub const PROGRAMS: &str = "BOATHOOK_TESTS_PROGRAMS";

/// The programs of a release, as `scripts/build-programs` builds them, in a directory of
/// their own: cargo's build of a whole workspace gives them features of libraries that
/// they do not have in a release.
pub const RELEASED: [&str; 8] = [
    "boathook",
    "boathook-hook",
    "boathook-runtime",
    "boathook-plugin",
    "boathook-init",
    "boathook-scheduler",
    "boathook-webhook",
    "boathook-dra",
];

/// The file of the program `name` (for example `boathook`), as built in the
/// same profile as the running program.
///
/// Fails when it was not built: `cargo test` builds only the harness's own programs, and
/// those only for the tests of this package.
pub fn program(name: &str) -> Result<PathBuf> {
    if let Some(replaced) = std::env::var_os(PROGRAMS) {
        let path = Path::new(&replaced).join(name);
        if path.is_file() {
            return Ok(path);
        }
    }
    let mut directory = directory()?;
    if RELEASED.contains(&name) {
        directory.push("programs");
    }
    let path = directory.join(name);
    if !path.is_file() {
        let build = if RELEASED.contains(&name) {
            "make programs` (`make bench` for the bench)"
        } else {
            "cargo build --package boathook-tests --bins`"
        };
        bail!(
            "no program {}: build it first with `{build}",
            path.display()
        );
    }
    Ok(path)
}

/// Copies a program, in a process of its own: what other tests start meanwhile would inherit
/// the open copy, which could not be executed then (ETXTBSY).
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut cp = Command::new("cp");
    let copied = Captured::run(cp.arg("--preserve=mode").args([from, to]))?;
    copied.success().map(drop)
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
