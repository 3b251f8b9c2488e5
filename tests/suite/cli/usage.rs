//! Command lines and configurations that are wrong.

use std::fs;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::HostDirectory;

use super::{assert_refused, bundle, code, state, with_private_run};
use crate::said::assert_says;

/// podman calls the hook for every container.
#[test]
fn a_wrong_configuration_does_not_stop_a_container_that_requests_nothing() {
    let host = HostDirectory::new().unwrap();
    let program = host.path().join("bin/boathook-hook");
    fs::create_dir(host.path().join("bin")).unwrap();
    binaries::copy(&binaries::program("boathook-hook").unwrap(), &program).unwrap();
    fs::rename(host.classes(), host.path().join("classes.d")).unwrap();
    let run = |config: &str, env: (&str, &str)| {
        let text = format!("host_root = {:?}\n{config}\n", host.root());
        fs::write(host.config_file(), text).unwrap();
        let mut command = with_private_run();
        command
            .arg(&program)
            .arg("--config")
            .arg(host.config_file());
        let bundle = bundle(&[env]);
        let state = state(bundle.path()).to_string();
        Captured::run_with_input(command.arg("prestart"), state.as_bytes()).unwrap()
    };
    let (nothing, one) = (("PATH", "/bin"), ("DUMMY_VISIBLE_DEVICES", "0"));
    let started = run("log_levl = 'info'", nothing);
    assert_eq!(started.status.code(), Some(code::SUCCESS), "{started:?}");
    let said = "the-container requests nothing and is started";
    assert_says(&started.stderr, &[said, "did you mean `log_level`"]);
    let words = ["container the-container", "config.toml:2"];
    assert_refused(&run("log_levl = 'info'", one), code::CONFIG, &words);
    let classes = format!("classes = [\n  {:?},\n]", host.path().join("classes.d"));
    for mistake in ["log_levl = 'info'", "[class", "[class.x]\nenable = 1"] {
        let config = format!("{classes}\n{mistake}");
        let started = run(&config, nothing);
        assert_eq!(
            started.status.code(),
            Some(code::SUCCESS),
            "{config}: {started:?}"
        );
        let words = ["container the-container", "config.toml:"];
        assert_refused(&run(&config, one), code::CONFIG, &words);
    }
    // The classes are not known.
    assert_refused(&run("clases = []", nothing), code::CONFIG, &words);
}

/// One that was named must be there; the default one need not.
#[test]
fn a_configuration_that_is_named_has_to_be_there() {
    let mut command = Command::new(binaries::program("boathook").unwrap());
    command.args(["--config", "/nowhere/config.toml", "list"]);
    let ran = Captured::run(&mut command).unwrap();
    assert_refused(&ran, code::CONFIG, &["/nowhere/config.toml"]);
}
