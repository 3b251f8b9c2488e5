//! Messages: one line each wherever they go, whatever an image puts into them.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::{DemoHost, HostDirectory};
use serde_json::json;

use super::{boathook, bundle, code, hook, state, succeeds};
use crate::said::assert_says;

const HOSTILE: &str = "c1\nboathook: forged\u{1b}[2J\u{202e}";
const ESCAPED: &str = "c1\\nboathook: forged\\u{1b}[2J\\u{202e}";

#[test]
fn control_characters_reach_no_log() {
    let host = HostDirectory::new().unwrap();
    let bundle = bundle(&[(DemoHost::VARIABLE, "no-such-device")]);
    let mut state = state(bundle.path());
    state["id"] = json!(HOSTILE);
    let ran = hook(&host, &["prestart"], state.to_string().as_bytes());
    assert_eq!(ran.status.code(), Some(code::REQUEST), "{}", ran.stderr);
    for text in [&ran.stderr, &host.log()] {
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(ESCAPED), "{text}");
        assert!(!text.trim_end_matches('\n').contains(char::is_control));
    }
}

/// crun does not show a hook's stderr.
#[test]
fn messages_of_the_hook_are_kept_on_the_node() {
    let host = HostDirectory::new().unwrap();
    let bundle = bundle(&[(DemoHost::VARIABLE, "no-such-device")]);
    let mut state = state(bundle.path());
    let id = format!("kept-{}-{HOSTILE}", std::process::id());
    state["id"] = json!(id);
    let ran = hook(&host, &["prestart"], state.to_string().as_bytes());
    let message = ran.stderr.trim_end().to_owned();
    let log = succeeds(&host, &["log"]).stdout;
    assert_eq!(
        log.lines().filter(|line| line.ends_with(&message)).count(),
        1,
        "{message} in {log}"
    );
}

/// Lines of two containers, one long ago.
fn host_with_lines() -> HostDirectory {
    let host = HostDirectory::new().unwrap();
    let lines = "2020-01-01T10:00:00Z boathook: container c1: old\n\
                 2099-01-01T10:00:00Z boathook: container c1: new\n\
                 2099-01-01T11:00:00Z boathook: container d12: other\n";
    host.add_file("/run/boathook/log", lines).unwrap();
    let directory = host.root().join("run/boathook");
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
    host
}

#[test]
fn lines_are_chosen_by_container_and_time() {
    let host = host_with_lines();
    // A container that Docker keeps is meant by its name.
    let config = json!({ "ID": "d12", "Name": "/web", "State": {}, "Config": {} });
    host.add_file(
        "/var/lib/docker/containers/d12/config.v2.json",
        &config.to_string(),
    )
    .unwrap();
    for (arguments, ends) in [
        (&[][..], &["old", "new", "other"][..]),
        (&["--container", "c1"], &["old", "new"]),
        (&["--container", "web"], &["other"]),
        (&["--container", "nobody"], &[]),
        (&["--since", "1h"], &["new", "other"]),
        (&["--since=2099-01-01T10:30", "--container=c1"], &[]),
        (&["--since=2099-01-01"], &["new", "other"]),
    ] {
        let text = succeeds(&host, &[&["log"], arguments].concat()).stdout;
        let last = |line: &str| line.rsplit(' ').next().unwrap().to_owned();
        let found: Vec<String> = text.lines().map(last).collect();
        assert_eq!(found, ends, "{arguments:?}");
    }
    let wrong = boathook(&host, &["log", "--since", "yesterday"], b"");
    assert_eq!(wrong.status.code(), Some(code::USAGE));
    assert!(
        wrong.stderr.contains("write a span such as 30s"),
        "{wrong:?}"
    );
}

/// The name is that of the engine, for Docker's, podman's and a pod's containers.
#[test]
fn containers_are_named_as_their_engine_names_them() {
    let host = host_with_lines();
    let id = "d12d12d12d12d12d12";
    let config = json!({ "ID": id, "Name": "/web", "State": { "Running": true }, "Config": {} });
    let file = format!("/var/lib/docker/containers/{id}/config.v2.json");
    host.add_file(&file, &config.to_string()).unwrap();
    let storage = "/var/lib/containers/storage/overlay-containers";
    let list = json!([{ "id": "e12", "names": ["frigate"] }]).to_string();
    host.add_file(&format!("{storage}/containers.json"), &list)
        .unwrap();
    let config = json!({ "root": { "path": "r" } }).to_string();
    host.add_file(&format!("{storage}/e12/userdata/config.json"), &config)
        .unwrap();
    let lines = format!(
        "2099-01-01T10:00:00Z boathook: info: container {id}: a\n\
         2099-01-01T10:00:00Z boathook: warning: container e12: b\n\
         2099-01-01T10:00:00Z boathook: container unknown: of e12\n"
    );
    host.add_file("/run/boathook/log", &lines).unwrap();
    let text = succeeds(&host, &["log"]).stdout;
    assert_says(
        &text,
        &[
            "info: container web (d12d12d12d12): a\n",
            "warning: container frigate (e12): b\n",
            "boathook: container unknown: of e12\n",
        ],
    );
    // Programs get the lines as they are.
    let json = succeeds(&host, &["log", "--json"]).stdout;
    assert!(json.contains(&format!("container {id}: a")), "{json}");
}

#[test]
fn lines_that_come_are_printed_until_the_program_is_stopped() {
    let host = host_with_lines();
    for (arguments, first, added) in [
        (
            ["log", "-f", "--log-level=error"],
            "container c1: old",
            "container c1: late",
        ),
        (["log", "--follow", "--json"], "{\"line\":", "{\"line\":"),
    ] {
        let mut command = Command::new(binaries::program("boathook").unwrap());
        command
            .arg("--config")
            .arg(host.config_file())
            .args(arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut next = || lines.next().unwrap().unwrap();
        assert!(next().contains(first));
        let mut log = OpenOptions::new();
        let log = log.append(true).open(host.root().join("run/boathook/log"));
        writeln!(
            log.unwrap(),
            "2099-01-01T12:00:00Z boathook: container c1: late"
        )
        .unwrap();
        let late = loop {
            let line = next();
            if line.contains("late") {
                break line;
            }
        };
        assert!(late.contains(added), "{late}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// By the option, else by config.toml. Nothing is given to a process of this machine: the
/// request is for no device.
#[test]
fn the_level_selects_what_is_reported() {
    let host = HostDirectory::new().unwrap();
    let bundle = bundle(&[("DUMY_VISIBLE_DEVICES", "1")]);
    let directory = bundle.path().to_str().unwrap();
    let list = |arguments: &[&str]| {
        let all = [arguments, &["explain", "--bundle", directory]].concat();
        succeeds(&host, &all).stderr
    };
    let read = "boathook: info: configuration ";
    assert_eq!(list(&[]), "");
    for verbose in [["-v"].as_slice(), &["--verbose"], &["--log-level", "info"]] {
        assert!(list(verbose).starts_with(read), "{verbose:?}");
    }
    assert_eq!(list(&["--log-level=warning"]), "");
    for (arguments, word) in [
        (
            ["--log-level=loud", "list"].as_slice(),
            "write error, warning or info",
        ),
        (&["-v", "--log-level=info", "list"], "cannot be used with"),
    ] {
        let ran = boathook(&host, arguments, b"");
        assert_eq!(ran.status.code(), Some(code::USAGE), "{arguments:?}");
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
    host.write_config("log_level = 'loud'\n").unwrap();
    let ran = boathook(&host, &["list"], b"");
    assert_eq!(ran.status.code(), Some(code::CONFIG), "{}", ran.stderr);
    assert!(ran.stderr.contains("warning"), "{}", ran.stderr);
}

/// A class file that cannot be read is a warning of the hook.
#[test]
fn a_level_of_the_configuration_holds_for_the_hook() {
    let host = HostDirectory::new().unwrap();
    fs::create_dir(host.classes().join("broken.toml")).unwrap();
    let bundle = bundle(&[(DemoHost::VARIABLE, "void")]);
    let state = state(bundle.path()).to_string();
    let reported = |arguments: &[&str]| {
        let ran = hook(&host, arguments, state.as_bytes());
        ran.success().unwrap().stderr
    };
    assert!(reported(&["prestart"]).contains("boathook: warning: "));
    assert_eq!(reported(&["--log-level=error", "prestart"]), "");
    host.write_config("log_level = 'error'\n").unwrap();
    assert_eq!(reported(&["prestart"]), "");
    assert!(reported(&["--log-level=warning", "prestart"]).contains("warning"));
}

/// A rootless engine's user has the right to the messages of that engine alone.
#[test]
fn a_user_sees_the_messages_of_the_own_engine() {
    if !nix::unistd::geteuid().is_root() {
        return skip::report("log of a user", "needs root, to be another user");
    }
    const USER: u32 = 4242;
    let host = HostDirectory::new().unwrap();
    let own = host.root().join(format!("run/user/{USER}/boathook"));
    let roots = host.root().join("run/boathook");
    for (directory, message) in [(&roots, "of root\n"), (&own, "of the user\n")] {
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join("log"), message).unwrap();
    }
    fs::set_permissions(&roots, fs::Permissions::from_mode(0o700)).unwrap();
    fs::set_permissions(host.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // The user may not be able to enter the build's own directory.
    let program = host.path().join("boathook");
    binaries::copy(&binaries::program("boathook").unwrap(), &program).unwrap();
    let mut command = Command::new(program);
    command.arg("--config").arg(host.config_file()).arg("log");
    command.uid(USER).gid(USER);
    let ran = Captured::run(&mut command).unwrap().success().unwrap();
    assert_eq!(ran.stdout, "of the user\n");
    assert!(ran.stderr.contains("run as root"), "{}", ran.stderr);
}
