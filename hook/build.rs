//! Makes the release programs small: they are mapped at every container start, and
//! what is left out here leaves room for code that is optimised for speed.
//! `docs/performance.md` has the figures.

use std::env;
use std::path::Path;
use std::process::Command;

/// Discards the tables for unwinding: a release program aborts where it panics.
const NO_UNWIND_TABLES: &str = "no-unwind-tables.ld";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={NO_UNWIND_TABLES}");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // The options are those of lld, the toolchain's linker for this target alone
    // since Rust 1.90.
    let lld = is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && rustc().is_some_and(|version| version >= (1, 90));
    if !(lld && is("PROFILE", "release")) {
        return;
    }
    let directory = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let script = Path::new(&directory).join(NO_UNWIND_TABLES);
    let mut options = vec![
        "-Wl,--icf=all".to_string(),
        "-Wl,--no-eh-frame-hdr".to_string(),
        format!("-Wl,-T,{}", script.display()),
    ];
    // A static program relocates itself, and glibc reads this form since 2.36.
    if glibc().is_some_and(|version| version >= (2, 36)) {
        options.push("-Wl,-z,pack-relative-relocs".to_string());
    }
    for option in options {
        println!("cargo::rustc-link-arg-bins={option}");
    }
}

/// The version of the compiler.
fn rustc() -> Option<(u32, u32)> {
    version(Command::new(env::var_os("RUSTC")?).arg("--version"))
}

/// The version of the glibc that is linked.
fn glibc() -> Option<(u32, u32)> {
    version(Command::new("getconf").arg("GNU_LIBC_VERSION"))
}

/// The version that a command prints after its first word.
fn version(command: &mut Command) -> Option<(u32, u32)> {
    let text = String::from_utf8(command.output().ok()?.stdout).ok()?;
    let mut numbers = text.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
