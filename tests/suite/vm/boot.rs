//! The case of every `make test`: one kernel, one driver, one container.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::binaries;
use harness::bundle::{Bundle, HookCommand, Stage};
use harness::captured::Captured;
use harness::rootfs::Rootfs;
use harness::vm::{Kernel, run_once};
use harness::{runc, scratch};

/// It takes 63 s on two cores with a load of 14.
const LIMIT: Duration = Duration::from_secs(300);

/// Copies runc with its libraries, the hook, its classes, the bundle, and what the container
/// runs, to where they are in the machine.
const COPY: &str = r#"
    cp --dereference --parents $(ldd "$1" | grep -o '/[^ ]*') .
    cp "$1" usr/bin/runc
    cp "$2" usr/bin/boathook-hook
    mkdir -p usr/share/boathook usr/lib/modules run
    cp --recursive "$3" usr/share/boathook/classes.d
    cp --archive "$4" bundle
    cp "$5" bundle/rootfs/read-frame
"#;

/// Cameras of vivid; the first is given to the container.
const STEPS: &str = "mount -t tmpfs run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
modprobe vivid node_types=0x101
until [ -c /dev/video1 ]; do sleep 0.1; done
echo host bytes: $(dd if=/dev/video0 bs=4M count=1 2>/dev/null | wc -c)
sed -i s/OTHER/$(cat /sys/class/video4linux/video1/dev)/ /bundle/config.json
runc run --bundle /bundle camera
";

#[test]
fn a_container_reads_a_camera_of_a_real_driver() {
    let Some(kernel) = Kernel::of_every_run() else {
        return skip::report(module_path!(), "needs amd64 or arm64");
    };
    let no_runc = || {
        runc::program()
            .is_none()
            .then(|| "needs runc (package runc)".to_string())
    };
    if let Some(reason) = kernel.missing().or_else(no_runc) {
        return skip::report(module_path!(), &reason);
    }
    let root = scratch::directory("root").unwrap();
    let files = root.path().join("files");
    furnish(&files).unwrap();
    let console = run_once(&kernel, &files, STEPS, LIMIT).unwrap();
    let has = |line: &str| console.lines().any(|printed| printed == line);
    let frame = console
        .lines()
        .find_map(|line| line.strip_prefix("host bytes: "));
    let frame = frame.unwrap_or_else(|| panic!("{console}"));
    assert_ne!(frame, "0", "{console}");
    for line in [
        "cameras: /dev/video0",
        &format!("bytes: {frame}"),
        "dd: can't open '/dev/other': Operation not permitted",
    ] {
        assert!(has(line), "no {line:?} on the console:\n{console}");
    }
}

/// A root with runc, the hook of the release, its classes, and a container.
fn furnish(files: &Path) -> Result<()> {
    Rootfs::Glibc.copy_to(files)?;
    let runc = runc::program().context("no runc")?;
    let tree = binaries::source_tree();
    let hook = HookCommand::new(Path::new("/usr/bin/boathook-hook"))
        .arg(Stage::CreateRuntime.subcommand());
    let bundle = Bundle::builder(Rootfs::Busybox)
        .args(["sh", "/read-frame", "OTHER"])
        .env("CAMERA_VISIBLE_DEVICES", "camera-vivid.0")
        .hook(Stage::CreateRuntime, hook)
        .build()?;
    let mut copy = Command::new("sh");
    copy.args(["-euc", COPY, "sh"])
        .arg(runc)
        .arg(binaries::program("boathook-hook")?)
        .arg(tree.join("device-class/classes"))
        .arg(bundle.directory())
        .arg(tree.join("tests/programs/vm/read-frame"))
        .current_dir(files);
    Captured::run(&mut copy)?.success().map(drop)
}
