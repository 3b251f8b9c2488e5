//! Links a release of this package and of the plugin without what unwinds the stack: the
//! profile has `panic = "abort"`, so nothing reads the tables, and they are a ninth of a program.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=../hook/build.rs");
    println!("cargo::rerun-if-changed={SCRIPT}");
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|found| found == value);
    // glibc's static start files need the tables, and other profiles unwind.
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_ENV", "musl") {
        let directory = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo::rustc-link-arg-bins=-Wl,--script={directory}/{SCRIPT}");
        println!("cargo::rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
        // The addresses to relocate as a bitmap, a fiftieth of the program less.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

const SCRIPT: &str = "../hook/without-unwind-tables.ld";
