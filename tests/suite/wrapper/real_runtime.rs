//! The wrapper finds the real runtime, and refuses itself as one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use harness::binaries;
use harness::captured::Captured;

use super::{Lab, arguments, bundle, config, config_of};

/// Fails unless the wrapper gave up with one line that has `words` in it, in
/// finite time and with the bundle as it was.
fn assert_given_up(lab: &Lab, path: Option<&Path>, words: &str) {
    let text = config("npu-3").to_string();
    let bundle = bundle(&text);
    let directory = bundle.path().to_str().unwrap();
    for line in [
        &["create", "--bundle", directory, "c1"][..],
        &["state", "c1"],
    ] {
        let mut command = lab.command(line);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        let ran = Captured::run(&mut command).unwrap();
        let said = ran.stderr;
        assert_eq!(ran.status.code(), Some(3), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(words), "no `{words}` in {said}");
    }
    assert_eq!(config_of(bundle.path()), text);
}

#[test]
fn a_configured_runtime_that_is_none() {
    let lab = Lab::new();
    let file = lab.host.path().join("file");
    fs::write(&file, "").unwrap();
    lab.configure(&file);
    assert_given_up(&lab, None, "not a program");
    lab.configure(Path::new("/nowhere/runc"));
    assert_given_up(&lab, None, "/nowhere/runc cannot be run: No such file");
}

/// By its own name, by a link and by another name of the same file.
#[test]
fn the_wrapper_itself_is_no_runtime() {
    let lab = Lab::new();
    let own = binaries::program("boathook-runtime").unwrap();
    let link = lab.host.path().join("runc");
    symlink(&own, &link).unwrap();
    let second = own.with_file_name(format!("boathook-runtime-link-{}", std::process::id()));
    fs::hard_link(&own, &second).unwrap();
    for path in [&own, &link, &second] {
        lab.configure(path);
        assert_given_up(&lab, None, "leads back to this program");
    }
    fs::remove_file(second).unwrap();
}

/// No file shows these loops: they are ended after a few rounds.
#[test]
fn a_loop_through_another_program_ends() {
    let lab = Lab::new();
    let own = binaries::program("boathook-runtime").unwrap();
    for text in [
        format!("#!/bin/sh\nexec {} \"$@\"\n", own.display()),
        format!("#!/bin/sh\n{} \"$@\"\n", own.display()),
    ] {
        lab.configure_script(&text);
        let ran = lab.run(["state", "c1"]);
        assert_eq!(ran.status.code(), Some(3), "{}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("leads back to this program"));
    }
}

/// The engine's own PATH goes first, so that its own runtime is taken.
#[test]
fn the_runtime_is_looked_for() {
    let lab = Lab::new();
    lab.host.write_config("").unwrap();
    let directory = lab.host.path().join("bin");
    fs::create_dir(&directory).unwrap();
    let runtime = directory.join("runc");
    binaries::copy(&lab.runtime, &runtime).unwrap();
    let mut command = lab.command(["state", "c1"]);
    let ran = Captured::run(command.env("PATH", &directory)).unwrap();
    assert_eq!(arguments(&ran), [runtime.to_str().unwrap(), "state", "c1"]);
}
