//! `--restart` on a host with Docker and containerd, where systemctl is a program of the test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Output;

use serde_json::{Map, Value, json};

use crate::site::{Site, docker_daemon, fixture, with_mounts, write};

const RUNTIME: &str = "/opt/boathook/current/bin/boathook-runtime";
const LIVE_RESTORE: &str = "{\"live-restore\": true}\n";
const RESTART: &str = "restart docker.service";
const PROGRAMS_NOTE: &str = "it searches for the programs of --gpus only when it starts";

/// Makes a host with two engines that run, and a release with the names of the toolkit `vendor`,
/// which dockerd has. systemctl fails for the unit whose name is in the file `fails`.
fn site(daemon_json: &str, keeps_containers: bool) -> (Site, UnixListener) {
    site_with_runtimes(daemon_json, keeps_containers, &["boathook", "vendor"])
}

/// Makes the same host as [`site`], with a dockerd that has the runtimes `names`.
fn site_with_runtimes(
    daemon_json: &str,
    keeps_containers: bool,
    names: &[&str],
) -> (Site, UnixListener) {
    let site = Site::with_containerd();
    site.add_program("dockerd");
    site.write("etc/docker/daemon.json", daemon_json);
    site.write("etc/crictl.yaml", "");
    site.add_toolkit();
    site.make_dirs(&["run/systemd/system", "run/containerd", "proc"]);
    site.write("run/docker.pid", "70\n");
    add_systemctl(&site, "/run/containerd/containerd.sock");
    let daemon = UnixListener::bind(site.path("run/containerd/containerd.sock")).unwrap();
    let runtimes: Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), json!({"path": RUNTIME})))
        .collect();
    let answer = json!({
        "Runtimes": runtimes,
        "DefaultRuntime": "runc",
        "LiveRestoreEnabled": keeps_containers,
    });
    docker_daemon(&site.path("run/docker.sock"), vec![answer.to_string(); 200]);
    // The kernel's coarse clock, which gives the times of files, ticks every few milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(20));
    (site, daemon)
}

/// Adds a systemctl that makes the socket of the restarted engine newer. It fails for the units
/// whose names are in the file `fails`.
fn add_systemctl(site: &Site, socket: &str) {
    let systemctl = format!(
        "#!/bin/sh\necho \"$*\" >>/calls\n\
         while read -r name; do case \"$*\" in *$name*) echo broken >&2; exit 1;; esac; done </fails\n\
         case \"$*\" in *boathook*|daemon-reload) ;; *) /bin/chmod 600 {socket};; esac\n"
    );
    let program = site.path("usr/bin/systemctl");
    write(&program, systemctl);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for file in ["calls", "fails"] {
        site.write(file, "");
    }
}

/// Runs an installation on a host whose programs can be executed. Returns its output and the calls of
/// systemctl for the engines. Returns `None`, and the test is skipped, if this process may not
/// mount.
fn install(site: &Site, options: &str) -> Option<(Output, Vec<String>)> {
    let (root, install) = (site.root().display(), site.install_line());
    let line = format!(
        "cd {root}; mkdir -p bin dev lib lib64 usr/lib; cp /bin/sh /bin/chmod bin; \
         for dir in lib lib64 usr/lib; do [ ! -d /$dir ] || mount --bind /$dir $dir; done; \
         touch dev/null; mount --bind /dev/null dev/null; mount -t proc none proc; \
         {install} {options}"
    );
    let output = with_mounts(&line)?;
    let calls = site.read("calls");
    site.write("calls", "");
    let is_of_engine = |call: &&str| {
        ["docker", "containerd", "k3s"]
            .iter()
            .any(|e| call.contains(e))
    };
    Some((
        output,
        calls
            .lines()
            .filter(is_of_engine)
            .map(str::to_owned)
            .collect(),
    ))
}

#[test]
fn docker_is_restarted_for_new_programs_if_its_containers_stay() {
    let containerd = "try-restart containerd.service";
    for (daemon_json, keeps_containers, options, calls, reason) in [
        (
            LIVE_RESTORE,
            true,
            "--as vendor",
            &[containerd, RESTART][..],
            None,
        ),
        (
            "{}\n",
            false,
            "--as vendor",
            &[containerd],
            Some("`live-restore` is not set;"),
        ),
        // The key was removed, and the daemon was reloaded and not restarted since.
        (
            "{}\n",
            true,
            "--as vendor",
            &[containerd],
            Some("/etc/docker/daemon.json does not set `live-restore` any more"),
        ),
        // The key was added, and the daemon has not read it.
        (
            LIVE_RESTORE,
            false,
            "--as vendor",
            &[containerd],
            Some(
                "it has not read the `live-restore` of /etc/docker/daemon.json yet, which \
                 `systemctl reload docker.service` makes it do",
            ),
        ),
        (LIVE_RESTORE, true, "", &[containerd], None),
    ] {
        let case = format!("{daemon_json} {keeps_containers} {options}");
        let names: &[&str] = if options.is_empty() {
            &["boathook"]
        } else {
            &["boathook", "vendor"]
        };
        let (site, _daemon) = site_with_runtimes(daemon_json, keeps_containers, names);
        let Some((output, made_calls)) = install(&site, &format!("--restart {options}")) else {
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{case}: {output:?}");
        assert_eq!(made_calls, calls, "{case}");
        let has_note = reason.is_some();
        assert_eq!(text.contains(PROGRAMS_NOTE), has_note, "{case}: {text}");
        let reason = format!("because {}", reason.unwrap_or_default());
        assert_eq!(text.contains(&reason), has_note, "{case}: {text}");
        let next = text.split("\nnext:\n").nth(1).unwrap();
        assert_eq!(next.contains(RESTART), has_note, "{case}: {next}");
    }
}

/// A runtime that dockerd has of an earlier installation needs a reload. This dockerd never drops
/// it, which is said.
#[test]
fn docker_is_reloaded_without_the_names_that_were_taken_away() {
    let (site, _daemon) = site_with_runtimes("{}\n", false, &["boathook", "vendor"]);
    if install(&site, "--as vendor").is_none() {
        return;
    }
    let (output, _) = install(&site, "--no-as --restart").unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let failure = "docker was reloaded but still has its old configuration";
    assert!(text.contains(failure), "{output:?}");
}

/// The links are there, and nothing is left to do but the restart.
#[test]
fn a_later_run_restarts_docker_for_programs_of_an_earlier_one() {
    let (site, _daemon) = site(LIVE_RESTORE, true);
    let Some((_, calls)) = install(&site, "--as vendor") else {
        return;
    };
    assert_eq!(calls, [""; 0]);
    let restart = |options| install(&site, options).unwrap().1;
    let calls = restart("--as vendor --restart");
    assert!(calls.contains(&RESTART.to_owned()), "{calls:?}");
    // dockerd writes its pid file when it starts.
    site.write("run/docker.pid", "71\n");
    assert_eq!(restart("--as vendor --restart"), [""; 0]);
}

#[test]
fn a_restart_that_fails_does_not_stop_the_others() {
    for (failing, failure) in [
        ("containerd", "containerd is configured but not restarted"),
        (
            "docker",
            "docker is not restarted, and may lack the option --gpus",
        ),
    ] {
        let (site, _daemon) = site(LIVE_RESTORE, true);
        site.write("fails", &format!("{failing}\n"));
        let Some((output, calls)) = install(&site, "--as vendor --restart") else {
            return;
        };
        let expected = ["try-restart containerd.service", RESTART];
        assert_eq!(calls, expected, "{failing}");
        assert_eq!(output.status.code(), Some(1), "{failing}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(failure), "{text}");
        assert!(text.contains("broken"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        let text = String::from_utf8_lossy(&output.stdout);
        let next = text.split("\nnext:\n").nth(1).unwrap();
        assert!(
            next.contains(&format!("restart {failing}.service")),
            "{next}"
        );
    }
}

/// A server of k3s has no unit of an agent, and systemctl fails for a missing unit.
#[test]
fn only_units_of_the_host_are_restarted() {
    let site = Site::new(&fixture("k3s/1.33-drop-in"));
    site.add_program("k3s");
    site.make_dirs(&["run/systemd/system", "run/k3s/containerd", "proc"]);
    add_systemctl(&site, "/run/k3s/containerd/containerd.sock");
    site.write("fails", "k3s-agent\n");
    site.write("etc/systemd/system/k3s.service", "[Service]\n");
    let _daemon = UnixListener::bind(site.path("run/k3s/containerd/containerd.sock")).unwrap();
    // The kernel's coarse clock, which gives the times of files, ticks every few milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let Some((output, calls)) = install(&site, "--restart") else {
        return;
    };
    assert!(output.status.success(), "{output:?}");
    assert_eq!(calls, ["try-restart k3s.service"]);
}

/// dockerd has the setting on its command line, in its unit.
#[test]
fn docker_is_restarted_if_its_unit_says_that_containers_stay() {
    for (option, is_restarted) in [
        ("--live-restore", true),
        ("--live-restore=true --debug", true),
        ("--live-restore=1", true),
        ("--live-restore=false", false),
        ("--live-restore --live-restore=false", false),
    ] {
        let (site, _daemon) = site("{}\n", true);
        let unit = format!("[Service]\nExecStart=/usr/bin/dockerd -H fd:// {option}\n");
        site.write("etc/systemd/system/docker.service", &unit);
        let Some((_, calls)) = install(&site, "--as vendor --restart") else {
            return;
        };
        assert_eq!(
            calls.contains(&RESTART.to_owned()),
            is_restarted,
            "{option}"
        );
    }
}
