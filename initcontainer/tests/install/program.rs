//! Tests of the program `boathook-init` with its output.

use std::fs;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use harness::binaries;
use nix::sys::signal::Signal;

use crate::site::{Site, VERSION, complaint, docker_daemon, fixture, said, with_mounts};
use crate::tree;

#[test]
fn a_dry_run_prints_a_diff_and_changes_nothing() {
    let site = Site::with_containerd();
    let before = tree::snapshot(site.root());
    let text = said(&site.run(&["install", "--dry-run"]));
    let diff = "--- /etc/containerd/config.toml\n+++ /etc/containerd/config.toml\n";
    let link = format!("link /opt/boathook/current -> {VERSION}\n");
    assert!(text.contains(diff) && text.contains(&link), "{text}");
    let own = "+++ /opt/boathook/state/";
    assert!(!text.contains(own), "{text}");
    let verbose = said(&site.run(&["install", "--dry-run", "-v"]));
    for part in [own, "  bin/boathook\n", "  classes.d/dummy-npu.toml\n"] {
        assert!(verbose.contains(part), "no {part} in {verbose}");
    }
    assert_eq!(tree::snapshot(site.root()), before);
    site.run(&["install"]);
    let installed = tree::snapshot(site.root());
    let text = said(&site.run(&["uninstall", "--dry-run"]));
    let removed = format!("remove /opt/boathook/{VERSION}\n");
    assert!(text.contains(&removed), "{text}");
    assert_eq!(tree::snapshot(site.root()), installed);
}

#[test]
fn status_shows_what_is_installed_and_what_is_missing() {
    let site = Site::with_containerd();
    let output = site.run(&["status"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    let wanted = "boathook is not installed; boathook-init install";
    assert!(text.starts_with(wanted), "{text}");

    site.run(&["install"]);
    let text = said(&site.run(&["status"]));
    let expected = format!(
        "boathook {VERSION} is installed\n\n\
         ENGINE      CONFIGURED  LOADED       FOUND BY\n\
         containerd  yes         not running  /usr/bin/containerd\n"
    );
    assert_eq!(text, expected);

    site.write("etc/containerd/config.toml", "version = 2\n");
    let output = site.run(&["status", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["engines"][0]["configured"], false);
    let missing = "containerd: /etc/containerd/config.toml was changed: install again";
    assert_eq!(status["missing"][0], missing);
}

/// The daemon's process shows the socket. A process with another configuration is not used.
#[test]
fn status_finds_a_daemon_with_another_socket() {
    let loaded = |options: &str| {
        let site = Site::with_containerd();
        site.run(&["install"]);
        // The socket is newer than the configuration, so the daemon was started after it, too.
        site.make_dirs(&["srv"]);
        let _socket = UnixListener::bind(site.path("srv/c.sock")).unwrap();
        site.write("proc/77/status", "Uid:\t0\t0\t0\t0\n");
        site.write("proc/77/comm", "containerd\n");
        let line = format!("/usr/bin/containerd {options}").replace(' ', "\0");
        site.write("proc/77/cmdline", &line);
        let output = site.run(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        status["engines"][0]["loaded"].as_str().unwrap().to_owned()
    };
    let other = "--config /srv/other.toml --address /srv/c.sock";
    for (options, expected) in [
        ("--address /srv/c.sock", "yes"),
        ("--config /etc/containerd/config.toml -a /srv/c.sock", "yes"),
        (other, "not running"),
        ("--address /srv/gone.sock", "not running"),
        ("", "not running"),
    ] {
        assert_eq!(loaded(options), expected, "{options}");
    }
}

#[test]
fn status_prints_json_also_for_an_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_boathook-init"));
    command.args(["--host-root", "/nowhere", "status", "--json"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("/nowhere"), "{message}");
}

/// If CDI specifications bring the hook, the engine's own files are not changed.
#[test]
fn for_no_engine_only_the_programs_are_installed() {
    let site = Site::with_containerd();
    let engine = tree::snapshot(&site.path("etc/containerd"));
    let text = said(&site.run(&["install", "--engine=none"]));
    assert!(text.contains("engines: none\n"), "{text}");
    assert_eq!(tree::snapshot(&site.path("etc/containerd")), engine);
    let text = said(&site.run(&["install", "--engine=none"]));
    assert!(text.starts_with("nothing to do"), "{text}");
}

#[test]
fn an_engine_that_starts_no_pods_is_passed_over() {
    let site = Site::new(&fixture("containerd/refused-cri-disabled"));
    site.add_program("containerd");
    site.add_program("dockerd");
    let text = said(&site.run(&["install"]));
    assert!(text.starts_with("containerd: left out: "), "{text}");
    assert!(site.path("etc/docker/daemon.json").exists());
}

#[test]
fn installing_and_removing_tell_what_must_be_restarted() {
    let site = Site::with_containerd();
    site.make_dirs(&["run/containerd"]);
    let _daemon = UnixListener::bind(site.path("run/containerd/containerd.sock")).unwrap();
    // The kernel's coarse clock, which gives the times of files, ticks every few milliseconds.
    std::thread::sleep(std::time::Duration::from_millis(20));
    let advice = "systemctl try-restart containerd.service\n";
    let text = said(&site.run(&["install"]));
    let next = format!("next:\n  {advice}  /opt/boathook/current/bin/boathook list\n");
    assert!(text.ends_with(&next), "{text}");
    let text = said(&site.run(&["uninstall"]));
    assert!(text.ends_with(&format!("next: {advice}")), "{text}");
    assert!(said(&site.run(&["uninstall"])).ends_with("nothing to do\n"));
}

#[test]
fn the_advice_names_only_units_of_the_host() {
    for (units, restarted) in [
        (&["etc/systemd/system/k3s.service"][..], "k3s.service"),
        (
            &["usr/lib/systemd/system/k3s-agent.service"],
            "k3s-agent.service",
        ),
        (&[], "k3s.service k3s-agent.service"),
    ] {
        let site = Site::new(&fixture("k3s/1.33-drop-in"));
        site.add_program("k3s");
        for unit in units {
            site.write(unit, "[Service]\n");
        }
        let socket = site.path("run/k3s/containerd/containerd.sock");
        fs::create_dir_all(socket.parent().unwrap()).unwrap();
        let _daemon = UnixListener::bind(socket).unwrap();
        // The kernel's coarse clock, which gives the times of files, ticks every few milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let text = said(&site.run(&["install"]));
        let advice = format!("  systemctl try-restart {restarted}\n");
        assert!(text.contains(&advice), "{text}");
    }
}

#[test]
fn restart_sends_docker_a_hangup_where_there_is_no_systemd() {
    let site = Site::new(&fixture("docker/empty-object"));
    site.make_dirs(&["run", "proc"]);
    // The signal is only sent to a process with the daemon's name.
    let daemon = site.release().join("dockerd");
    binaries::copy(Path::new("/bin/sleep"), &daemon).unwrap();
    // Under nohup the tests ignore SIGHUP, and a child process inherits that (signal(7)).
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(daemon).arg("60");
    let mut daemon = command.spawn().unwrap();
    let name = format!("/proc/{}/comm", daemon.id());
    while fs::read_to_string(&name).unwrap() != "dockerd\n" {
        std::thread::yield_now();
    }
    site.write("run/docker.pid", &daemon.id().to_string());
    // The first answers lack the runtime, like those of a daemon that is still reloading.
    let answers = ["{}", "{}", "{}", "{\"boathook\": {}}"];
    let answers = answers.map(|runtimes| format!("{{\"Runtimes\": {runtimes}}}"));
    let api = docker_daemon(&site.path("run/docker.sock"), answers.into());
    let (root, install) = (site.root().display(), site.install_line());
    let output = with_mounts(&format!(
        "mount -t proc none {root}/proc; {install} --engine docker --restart"
    ));
    let Some(output) = output else {
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        return;
    };
    let text = said(&output);
    let told = format!("docker: SIGHUP to process {}\n", daemon.id());
    assert!(text.contains(&told), "{text}");
    assert_eq!(daemon.wait().unwrap().signal(), Some(1));
    api.join().unwrap();
}

/// The reload fails because dockerd was started with another pid file.
#[test]
fn a_restart_that_fails_names_the_command() {
    if !nix::unistd::geteuid().is_root() {
        return skip::report("program::a_restart_that_fails", "needs root");
    }
    let site = Site::new(&fixture("docker/empty-object"));
    let answers = vec!["{\"Runtimes\": {}}".to_owned(); 100];
    docker_daemon(&site.path("run/docker.sock"), answers);
    let text = complaint(&site.run(&["install", "--engine", "docker", "--restart"]));
    for words in [
        "is configured but not restarted",
        "/run/docker.pid",
        "`systemctl reload docker",
    ] {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn an_output_without_a_reader_stops_nothing() {
    let site = Site::with_containerd();
    let closed = || {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        write
    };
    let run = |arguments: &[&str]| {
        let mut command = site.command(arguments);
        command.stdout(closed()).stderr(closed());
        command.status().unwrap().code()
    };
    let before = tree::snapshot(site.root());
    assert_eq!(run(&["install", "--dry-run"]), Some(0));
    assert_eq!(tree::snapshot(site.root()), before);
    assert_eq!(run(&["status"]), Some(1));
    assert_eq!(run(&["install"]), Some(0));
    assert_eq!(run(&["status"]), Some(0));
    assert_eq!(run(&["status", "--json"]), Some(0));
    assert_eq!(run(&["uninstall", "--dry-run"]), Some(0));
    assert_eq!(run(&["uninstall"]), Some(0));
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn waiting_ends_with_a_signal() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGQUIT] {
        let site = Site::with_containerd();
        let mut waiting = site.without_source(&["wait"]).spawn().unwrap();
        let call = format!("/proc/{}/syscall", waiting.id());
        let is_waiting = || {
            let text = fs::read_to_string(&call).unwrap();
            let number = text.split(' ').next().unwrap_or_default();
            number.parse() == Ok(nix::libc::SYS_rt_sigtimedwait)
        };
        while !is_waiting() {
            assert!(waiting.try_wait().unwrap().is_none());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let pid = nix::unistd::Pid::from_raw(waiting.id().cast_signed());
        nix::sys::signal::kill(pid, signal).unwrap();
        assert!(waiting.wait().unwrap().success(), "{signal}");
    }
}

/// The plugin writes the file, and no longer runs when its node is uninstalled.
#[test]
fn uninstall_removes_the_labels_of_the_node() {
    let features = "etc/kubernetes/node-feature-discovery/features.d";
    for (file, option) in [
        (format!("{features}/boathook"), None),
        (
            "srv/features.d/boathook".to_owned(),
            Some("--node-labels=/srv/features.d/boathook"),
        ),
    ] {
        let site = Site::with_containerd();
        site.run(&["install"]);
        let other = file.replace("boathook", "other");
        for path in [&file, &other] {
            site.write(path, "vendor.example/chip.count=1\n");
        }
        let arguments = ["uninstall"].into_iter().chain(option);
        let text = said(&site.run(&arguments.collect::<Vec<_>>()));
        assert!(text.contains(&format!("/{file}")), "{text}");
        assert!(!site.path(&file).exists());
        assert!(site.path(&other).exists());
    }
}
