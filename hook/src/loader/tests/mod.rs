//! Tests of the generated texts, and of the real loaders with these texts.

mod ldconfig;
mod texts;
mod with_musl;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::*;

const SONAME: &str = "libboathook-loader-test.so.1";

fn directory(path: impl AsRef<Path>) -> LibraryDir {
    LibraryDir::new(path.as_ref()).unwrap()
}

/// Returns the output of a command, which must succeed.
fn text(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Compiles a library with the soname [`SONAME`] and a function that returns `name`.
fn compile_library(compiler: &str, directory: &Path, name: &str) {
    fs::create_dir_all(directory).unwrap();
    let source = directory.join("library.c");
    fs::write(
        &source,
        format!("const char *name(void) {{ return \"{name}\"; }}"),
    )
    .unwrap();
    let soname = format!("-Wl,-soname,{SONAME}");
    let mut compile = Command::new(compiler);
    compile
        .args(["-shared", "-fPIC", &soname, "-o"])
        .arg(directory.join(SONAME))
        .arg(&source);
    text(compile.output().unwrap());
}

/// Returns whether a program can be started with these arguments, and reports the reason if it
/// cannot.
fn can_run(program: &str, arguments: &[&str]) -> bool {
    let reason = match Command::new(program).args(arguments).output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    skip::report(
        "the loader's configuration",
        &format!("cannot run {program}: {reason}"),
    );
    false
}
