//! The real loader with our file over its own, in a mount namespace of its own.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::*;

const SONAME: &str = "libboathook-cache-test.so.1";

/// Prints the name that the library of that soname returns, or why there is none.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW);
    const char *(*name)(void) = library ? (const char *(*)(void))dlsym(library, "name") : 0;
    puts(name ? name() : dlerror());
}
"#;

/// The compiler for the machine that the tests are built for.
fn compiler() -> String {
    std::env::var("BOATHOOK_TESTS_CC").unwrap_or_else(|_| "cc".into())
}

/// The command before a program of that machine, where the kernel cannot run it.
fn emulator() -> Vec<String> {
    let command = std::env::var("BOATHOOK_TESTS_EMULATOR").unwrap_or_default();
    command.split_whitespace().map(str::to_owned).collect()
}

/// Returns the reason for which the test cannot run here.
fn obstacle() -> Option<String> {
    if fs::metadata("/proc/self").map_or(true, |process| process.uid() != 0) {
        return Some("needs root, for a mount namespace".into());
    }
    let cc = compiler();
    let checks = [
        (cc.as_str(), vec!["--version"]),
        ("unshare", vec!["-m", "mount", "--version"]),
    ];
    checks.into_iter().find_map(|(program, arguments)| {
        match Command::new(program).args(arguments).output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(format!(
                "{program}: {}",
                String::from_utf8_lossy(&output.stderr)
            )),
            Err(error) => Some(format!("cannot run {program}: {error}")),
        }
    })
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn cc(source: &Path, arguments: &[&str], to: &Path) {
    text(
        Command::new(compiler())
            .arg(source)
            .args(arguments)
            .arg("-o")
            .arg(to)
            .output()
            .unwrap(),
    );
}

/// A library `SONAME` in a new directory, that gives the directory's name as its own.
fn library(directory: &Path, name: &str) -> PathBuf {
    let (source, folder) = (directory.join(format!("{name}.c")), directory.join(name));
    fs::write(
        &source,
        format!("const char *name(void) {{ return \"{name}\"; }}"),
    )
    .unwrap();
    fs::create_dir(&folder).unwrap();
    let path = folder.join(SONAME);
    cc(
        &source,
        &["-shared", "-fPIC", &format!("-Wl,-soname,{SONAME}")],
        &path,
    );
    path
}

/// Returns the output of the program when the loader has `cache`.
fn run_with(cache: &LdCache, directory: &Path) -> String {
    let file = directory.join("cache");
    fs::write(&file, cache.to_bytes().unwrap()).unwrap();
    // `unshare -m` makes the new namespace's mounts private.
    let script = r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#;
    text(
        Command::new("unshare")
            .args(["-m", "sh", "-c", script, "sh"])
            .args([file.as_path(), Path::new(HOST_CACHE)])
            .args(emulator())
            .arg(directory.join("program"))
            .arg(SONAME)
            .env_remove("LD_LIBRARY_PATH")
            .output()
            .unwrap(),
    )
}

#[test]
fn the_loader_finds_our_library_and_not_the_stale_one() {
    if let Some(obstacle) = obstacle() {
        return skip::report("the loader reads our cache", &obstacle);
    }
    // An emulator's machine has no cache of that architecture: libc is found without.
    let empty = (!emulator().is_empty()).then(|| LdCache::merge(None, &[], HOST_ABI));
    let Some(host) = empty.or_else(host_cache) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::write(directory.join("program.c"), PROGRAM).unwrap();
    cc(
        &directory.join("program.c"),
        &["-ldl"],
        &directory.join("program"),
    );
    let add = |name: &str| [NewEntry::new(SONAME, library(directory, name)).unwrap()];

    let unknown = run_with(&host, directory);
    assert!(
        unknown.contains("cannot open shared object file"),
        "{unknown}"
    );

    let stale = LdCache::merge(Some(&host), &add("stale"), HOST_ABI);
    assert_eq!(run_with(&stale, directory), "stale");

    let ours = add("ours");
    assert_eq!(
        run_with(&LdCache::merge(Some(&stale), &ours, HOST_ABI), directory),
        "ours"
    );
    // An image without a cache; its libc is found in the default directories.
    assert_eq!(
        run_with(&LdCache::merge(None, &ours, HOST_ABI), directory),
        "ours"
    );
}
