//! Hooks are called as specified, and their failure
//! stops the container.

use std::path::Path;

use harness::bundle::{Bundle, HookCommand, Stage};
use harness::compile::{self, Libc};
use harness::rootfs::{BUSYBOX, Rootfs};

use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    an_empty_hook_is_called,
    a_hook_gets_the_state,
    a_failing_hook_stops_the_container
);

/// A hook that does nothing changes nothing.
fn an_empty_hook_is_called(lab: &Lab) {
    let empty = compile::program("empty-hook.c", Libc::Glibc, &["-static"]).unwrap();
    for stage in Stage::ALL {
        let bundle = Bundle::builder(Rootfs::Busybox)
            .hook(stage, HookCommand::new(&empty))
            .args(["echo", "hello"])
            .build()
            .unwrap();
        assert_eq!(lab.run(&bundle), "hello\n", "{stage:?}");
    }
}

/// The state comes on standard input, and the environment is the hook's own.
fn a_hook_gets_the_state(lab: &Lab) {
    let seen = tempfile::NamedTempFile::new().unwrap();
    let script = format!("cat > {0}; echo >> {0}; env >> {0}", seen.path().display());
    let hook = HookCommand::new(Path::new(BUSYBOX))
        .arg("sh")
        .arg("-c")
        .arg(&script)
        .env("OWN", "yes");
    let bundle = Bundle::builder(Rootfs::Busybox)
        .hook(Stage::CreateRuntime, hook)
        .annotation("org.example.note", "aye")
        .args(["true"])
        .build()
        .unwrap();
    lab.run(&bundle);

    let text = std::fs::read_to_string(seen.path()).unwrap();
    let (state, environment) = text.split_once('\n').unwrap();
    let state: serde_json::Value = serde_json::from_str(state).unwrap();
    assert_eq!(state["id"], bundle.id());
    assert_eq!(state["bundle"], bundle.directory().to_str().unwrap());
    assert_eq!(state["annotations"]["org.example.note"], "aye");
    assert!(environment.contains("OWN=yes"));
}

/// The message of a failing hook is in the runtime's error, and nothing is
/// left.
fn a_failing_hook_stops_the_container(lab: &Lab) {
    let script = "echo the reason >&2; exit 3";
    let hook = HookCommand::new(Path::new(BUSYBOX))
        .arg("sh")
        .arg("-c")
        .arg(script);
    for stage in Stage::ALL {
        let bundle = Bundle::builder(Rootfs::Busybox)
            .hook(stage, hook.clone())
            .args(["touch", "/ran"])
            .build()
            .unwrap();
        let ran = lab.runc.run(&bundle).unwrap();
        assert!(!ran.status.success(), "{stage:?}");
        assert!(
            ran.stderr.contains("the reason"),
            "{stage:?}: {}",
            ran.stderr
        );
        assert!(!bundle.in_rootfs("/ran").exists(), "{stage:?}");
        lab.assert_nothing_left(&bundle);
    }
}
