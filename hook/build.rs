//! Links the release programs of this package and of the plugin without the tables for stack
//! unwinding. The release profile has `panic = "abort"`, so that nothing reads the tables,
//! which are a ninth of a program.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=../hook/build.rs");
    println!("cargo::rerun-if-changed={SCRIPT}");
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|found| found == value);
    // glibc's static start files need the tables, and other profiles unwind the stack.
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_ENV", "musl") {
        let directory = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo::rustc-link-arg-bins=-Wl,--script={directory}/{SCRIPT}");
        println!("cargo::rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
        // The linker stores the addresses to relocate as a bitmap, which makes the program a
        // fiftieth smaller.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

const SCRIPT: &str = "../hook/without-unwind-tables.ld";
