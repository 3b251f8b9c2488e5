//! Finds the programs under test, which cargo has built in the directory of the running program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::captured::Captured;

/// The variable with a directory of programs to use in place of the built ones, such as scripts
/// that run programs of another architecture under an emulator (`scripts/emulated`). Programs that
/// the directory lacks are the built ones.
pub const PROGRAMS: &str = "BOATHOOK_TESTS_PROGRAMS";

/// The programs of a release. `scripts/build-programs` builds them in a directory of their own,
/// because cargo's build of a whole workspace would enable features of libraries that a release
/// does not have.
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

/// Returns the path of the program `name`, as it was built in the profile of the running program.
///
/// # Errors
///
/// Returns an error if the program was not built. `cargo test` builds only the harness's own
/// programs, and only for the tests of this package.
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

/// Copies a program by the command `cp`. If this process wrote the copy, a process that another
/// test starts at that time would inherit the open file, and the copy could not be executed
/// (ETXTBSY).
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut cp = Command::new("cp");
    let copied = Captured::run(cp.arg("--preserve=mode").args([from, to]))?;
    copied.success().map(drop)
}

/// The files by which cargo's output directory is recognized. Cargo writes the second one only into
/// a directory that it has created itself, and also into that of each target.
const OUTPUT_MARKS: [&str; 2] = [".rustc_info.json", "CACHEDIR.TAG"];

/// Returns cargo's output directory, which may have another name than `target`.
pub fn target_directory() -> Result<PathBuf> {
    let programs = directory()?;
    let found = outermost_marked(&programs).with_context(|| {
        format!(
            "{} is not inside cargo's output directory",
            programs.display()
        )
    })?;
    Ok(found.to_path_buf())
}

/// Returns the outermost directory above `programs` that has one of cargo's files.
fn outermost_marked(programs: &Path) -> Option<&Path> {
    let has_mark = |directory: &&Path| {
        OUTPUT_MARKS
            .iter()
            .any(|mark| directory.join(mark).is_file())
    };
    programs.ancestors().filter(has_mark).last()
}

/// Returns the top of the source tree from which this crate was built.
pub fn source_tree() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Returns the directory with the programs of the running profile. Test programs are in its
/// subdirectory `deps`.
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

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Scripts create the directory before the first call of cargo.
    #[test]
    fn an_output_directory_is_found_whoever_created_it() {
        for marks in [
            &["out/.rustc_info.json", "out/triple/CACHEDIR.TAG"][..],
            &["out/CACHEDIR.TAG", "out/triple/CACHEDIR.TAG"],
            &["out/.rustc_info.json"],
        ] {
            let directory = tempfile::tempdir().unwrap();
            let programs = directory.path().join("out/triple/debug");
            fs::create_dir_all(&programs).unwrap();
            assert_eq!(outermost_marked(&programs), None);
            for mark in marks {
                fs::write(directory.path().join(mark), "").unwrap();
            }
            let found = outermost_marked(&programs).unwrap();
            assert_eq!(found, directory.path().join("out"), "{marks:?}");
        }
    }
}
