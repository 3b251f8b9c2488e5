//! The comparison with NVIDIA's stack, with scripts in place of both stacks' programs: is what each
//! gives seen, and are the differences in the table?

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use harness::captured::Captured;
use harness::{binaries, privilege, scratch};

/// Gives a container its file, and refuses what it does not know. `$bundle` is its bundle.
const RUNTIME: &str = r#"#!/bin/sh
set -eu
[ "$1" != --version ] || { echo "NAME version 1"; exit; }
for bundle; do case $bundle in */vendor-*|*/boathook-*) break ;; esac; done
config=$bundle/config.json
if grep -q GPU=unknown "$config"; then
    exit 1
fi
if grep -q GPU=all "$config"; then
    touch "$bundle/rootfs/lib64/libshared.so.1" "$bundle/rootfs/lib64/libNAME.so.1"
    ln -s /lib64/libNAME.so.1 "$bundle/rootfs/usr/bin/NAME-tool"
    for file in libshared.so.1 libNAME.so.1; do
        mounts="${mounts:-}{\"destination\": \"/lib64/$file\", \"type\": \"none\", \"source\": \"/etc/passwd\", \"options\": [\"bind\", \"ro\"]},"
    done
    sed -i "s|\"mounts\": \[|&$mounts|; s|\"env\": \[|&\"BY=NAME\", |" "$config"
fi
exec runc "$@"
"#;

fn add_program(directory: &Path, program: &str, name: &str) {
    let path = directory.join(program);
    fs::write(&path, RUNTIME.replace("NAME", name)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
}

fn compare(vendor: &Path, ours: &Path, requests: &Path) -> Captured {
    let mut command = Command::new(binaries::source_tree().join("tests/compare-nvidia"));
    command.args([vendor, ours]).env("REQUESTS", requests);
    command.env("WITHOUT_GPU", "1");
    Captured::run(&mut command).unwrap()
}

#[test]
fn the_table_has_what_either_stack_gives() {
    if let Some(reason) = privilege::missing_for_root() {
        return skip::report(module_path!(), &reason);
    }
    let directory = scratch::directory("compared").unwrap();
    let [vendor, ours] = ["vendor", "ours"].map(|name| directory.path().join(name));
    for path in [&vendor, &ours] {
        fs::create_dir(path).unwrap();
    }
    let requests = directory.path().join("requests");
    fs::write(&requests, "# comment\n-\nGPU=all\nGPU=unknown\n").unwrap();

    let lacking = compare(&vendor, &ours, &requests);
    assert_eq!(lacking.status.code(), Some(1), "{lacking:?}");
    for lack in [
        "nothing was compared, for lack of:",
        "vendor/nvidia-container-runtime, of NVIDIA's package",
        "vendor/nvidia-ctk, of",
        "ours/boathook-runtime: `make build` makes it",
    ] {
        assert!(lacking.stderr.contains(lack), "{lacking:?}");
    }
    assert_eq!(lacking.stdout, "");

    for program in [
        "nvidia-container-runtime",
        "nvidia-container-runtime-hook",
        "nvidia-ctk",
    ] {
        add_program(&vendor, program, "theirs");
    }
    for program in ["boathook-runtime", "boathook-hook", "boathook"] {
        add_program(&ours, program, "ours");
    }
    let compared = compare(&vendor, &ours, &requests).success().unwrap();
    let mut lines = compared.stdout.lines();
    let head = lines.next().unwrap();
    assert!(
        head.ends_with(": theirs version 1; ours version 1."),
        "{head}"
    );
    let rows: Vec<&str> = lines.skip(3).collect();
    let expected = [
        "| `-` | starts, leaves 0 files | starts, leaves 0 files | 0 same | 0 same | 0 same \
         | 0 same |",
        "| `GPU=all` | starts, leaves 3 files | starts, leaves 3 files | 0 same | 1 same; only \
         NVIDIA: libtheirs.so.1; only Boathook: libours.so.1 | 0 same; only NVIDIA: \
         /usr/bin/theirs-tool; only Boathook: /usr/bin/ours-tool | 1 same; only NVIDIA: BY=theirs; \
         only Boathook: BY=ours |",
        "| `GPU=unknown` | refused | refused |  |  |  |  |",
    ];
    assert_eq!(rows, expected);
}
