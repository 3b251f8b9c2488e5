//! Tests the real musl loader with a generated configuration, in a mount namespace of its own.

use std::env::consts::ARCH;

use super::*;

/// A program that prints the name that the library with this soname returns, or the error of
/// the loader.
const PROGRAM: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *library = dlopen(argv[1], RTLD_NOW);
    const char *(*name)(void) = library ? (const char *(*)(void))dlsym(library, "name") : 0;
    puts(name ? name() : dlerror());
}
"#;

/// Returns the output of the program if its loader is configured with `path`.
fn run_with(path: &[u8], scratch: &Path) -> String {
    let file = scratch.join("path");
    fs::write(&file, path).unwrap();
    // `unshare -m` makes the mounts of the new namespace private.
    let script = r#"mount --bind "$1" "$2" && exec "$3" "$4""#;
    text(
        Command::new("unshare")
            .args(["-m", "sh", "-c", script, "sh"])
            .args([
                &file,
                Path::new(&musl::config_file_path(ARCH)),
                &scratch.join("program"),
            ])
            .arg(SONAME)
            .env_remove("LD_LIBRARY_PATH")
            .output()
            .unwrap(),
    )
}

#[test]
fn musl_takes_our_library_before_a_stale_one() {
    let tools = can_run("musl-gcc", &["--version"])
        && can_run("unshare", &["-m", "mount", "--version"])
        && can_run("test", &["-f", &musl::config_file_path(ARCH)]);
    if !tools {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let scratch = scratch.path();
    let [ours, stale] = ["ours", "stale"].map(|name| scratch.join(name));
    compile_library("musl-gcc", &ours, "ours");
    compile_library("musl-gcc", &stale, "stale");
    fs::write(scratch.join("program.c"), PROGRAM).unwrap();
    let mut compile = Command::new("musl-gcc");
    compile
        .arg(scratch.join("program.c"))
        .arg("-o")
        .arg(scratch.join("program"));
    text(compile.output().unwrap());

    let image = format!("/lib:{}", stale.display());
    assert_eq!(run_with(image.as_bytes(), scratch), "stale");
    for existing in [None, Some(image.as_bytes()), Some(b"")] {
        let path = musl::update_path_file(existing, &[directory(&ours)]).unwrap();
        assert_eq!(run_with(&path, scratch), "ours", "{existing:?}");
    }
}
