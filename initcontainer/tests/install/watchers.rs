//! Containers that prevent a removal are found by the processes that monitor them. No other
//! process is taken for such a process.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use initcontainer::uninstall;
use runtime_config::Engine;

use crate::site::{Site, complaint, with_mounts};

const RUNTIME: &str = "/opt/boathook/current/bin/boathook-runtime";
/// The id of a user other than root.
const USER: u32 = 1000;

/// The process with the id 10, as /proc shows it.
struct Process<'a> {
    uid: u32,
    /// The process's ids in its pid namespaces, from the outermost one on.
    pids: &'a str,
    name: &'a str,
    /// The executable. `None` means that the link may not be read.
    exe: Option<&'a str>,
}

impl Process<'_> {
    fn appears(&self, site: &Site, arguments: &[&str]) -> PathBuf {
        let (uid, pids) = (self.uid, self.pids);
        let status = format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{pids}\n");
        site.write("proc/10/status", &status);
        site.write("proc/10/comm", &format!("{}\n", self.name));
        site.write("proc/10/cmdline", &(arguments.join("\0") + "\0"));
        let dir = site.path("proc/10");
        if let Some(exe) = self.exe {
            // The kernel's links lead to the host's files; this link leads there below the root.
            symlink(format!("../..{exe}"), dir.join("exe")).unwrap();
        }
        dir
    }
}

const ROOTS: Process<'_> = Process {
    uid: 0,
    pids: "10",
    name: "conmon",
    exe: None,
};

/// Makes a host with containerd and an installation.
fn installed() -> Site {
    let site = Site::with_containerd();
    site.install("0.1.0", &[Engine::Containerd]);
    site
}

/// Returns the ids of the containers that prevent the removal.
fn ids(site: &Site) -> String {
    match uninstall::plan(&site.host, &[], false) {
        Err(error) => {
            let text = error.to_string();
            let (_, ids) = text.split_once("without it: ").expect(&text);
            ids.split_once("; stop").unwrap().0.to_owned()
        }
        Ok(_) => String::new(),
    }
}

#[test]
fn a_conmon_with_our_runtime_holds_the_removal_up() {
    let conmon = |id, runtime| ["conmon", "-c", id, "-r", runtime];
    for (name, arguments, held) in [
        ("conmon", conmon("of-podman", RUNTIME), "of-podman"),
        ("conmon", conmon("of-runc", "/usr/bin/runc"), ""),
        ("vim", conmon("text", RUNTIME), ""),
    ] {
        let site = installed();
        Process { name, ..ROOTS }.appears(&site, &arguments);
        assert_eq!(ids(&site), held, "{arguments:?}");
    }
}

#[test]
fn a_process_is_believed_by_what_it_runs_and_not_by_its_name() {
    if !nix::unistd::geteuid().is_root() {
        return skip::report("processes that pass as conmon", "needs root's files");
    }
    let held = "id (process 10 of user 1000)";
    for (uid, pids, exe, held) in [
        (USER, "10", Some("/usr/bin/conmon"), held),
        (USER, "10", None, ""),
        (USER, "10", Some("/usr/bin/sleep"), ""),
        (USER, "10", Some("/home/conmon"), ""),
        (USER, "10", Some("/home/link/conmon"), ""),
        (0, "10\t1", None, ""),
        (0, "10\t1", Some("/overlay/usr/bin/conmon"), ""),
        (0, "10", Some("/usr/bin/sleep"), ""),
    ] {
        let site = installed();
        for program in ["conmon", "sleep"] {
            site.add_program(program);
        }
        for file in ["home/conmon", "overlay/usr/bin/conmon"] {
            site.write(file, "");
        }
        let home = site.path("home");
        symlink("../usr/bin", home.join("link")).unwrap();
        for theirs in ["", "conmon"] {
            std::os::unix::fs::chown(home.join(theirs), Some(USER), None).unwrap();
        }
        // The file belongs to root, but every user can change its directory.
        let shared = site.path("overlay");
        fs::set_permissions(shared, fs::Permissions::from_mode(0o777)).unwrap();
        let name = "conmon";
        let process = Process {
            uid,
            pids,
            name,
            exe,
        };
        process.appears(&site, &["conmon", "-c", "id", "-r", RUNTIME]);
        assert_eq!(ids(&site), held, "{uid} {pids} {exe:?}");
    }
}

#[test]
fn the_bundles_beside_a_shims_hold_the_removal_up() {
    let site = installed();
    let elsewhere = bundles(&["first", "second"]);
    fs::write(elsewhere.path().join("first/options.json"), "{}").unwrap();
    let shim = Process {
        name: "containerd-shim",
        ..ROOTS
    };
    let shim = shim.appears(&site, &["containerd-shim-runc-v2"]);
    symlink(elsewhere.path().join("first"), shim.join("cwd")).unwrap();
    assert_eq!(ids(&site), "second");
}

/// Only a limited number of names is read in a user's directory, and no link in it is followed.
#[test]
fn a_user_cannot_keep_the_installer_busy() {
    if !nix::unistd::geteuid().is_root() {
        return skip::report("bundles of a user", "needs root's files");
    }
    let site = installed();
    site.add_program("containerd-shim-runc-v2");
    let shim = Process {
        uid: USER,
        name: "containerd-shim",
        exe: Some("/usr/bin/containerd-shim-runc-v2"),
        ..ROOTS
    };
    let shim = shim.appears(&site, &["containerd-shim-runc-v2"]);
    let names: Vec<String> = (0..300).map(|number| number.to_string()).collect();
    let many = bundles(&names);
    symlink(many.path().join("0"), shim.join("cwd")).unwrap();
    // The message names 16 ids and counts the rest of the 256.
    assert!(ids(&site).ends_with(" and 240 more"), "{}", ids(&site));

    let links = tempfile::tempdir().unwrap();
    for name in &names {
        symlink(many.path().join(name), links.path().join(name)).unwrap();
    }
    fs::create_dir(links.path().join("own")).unwrap();
    fs::remove_file(shim.join("cwd")).unwrap();
    symlink(links.path().join("own"), shim.join("cwd")).unwrap();
    assert_eq!(ids(&site), "");
}

/// Makes bundles with these names, which all name Boathook's runtime.
fn bundles<S: AsRef<Path>>(names: &[S]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let bundle = dir.path().join(name);
        fs::create_dir(&bundle).unwrap();
        let options = format!("{{\"binary_name\":\"{RUNTIME}\"}}");
        fs::write(bundle.join("options.json"), options).unwrap();
    }
    dir
}

/// Control characters in a process's command line are escaped before a terminal shows them.
#[test]
fn a_name_that_a_terminal_acts_on_is_escaped() {
    let site = installed();
    let id = "\x1b]0;title\x07\nboathook is uninstalled";
    ROOTS.appears(&site, &["conmon", "-c", id, "-r", RUNTIME]);
    let output = site.run(&["uninstall"]);
    let message = complaint(&output);
    let escaped = "\\u{1b}]0;title\\u{7}\\nboathook is uninstalled; stop them first";
    assert!(message.contains(escaped), "{message}");
    assert_eq!(message.matches(char::is_control).count(), 1, "{message:?}");
    let output = site.run(&["uninstall", "--json"]);
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let message = printed["error"]["message"].as_str().unwrap();
    assert!(message.contains(id), "{message}");
}

/// Docker has the names of its containers, and other engines choose ids at random.
#[test]
fn a_container_is_named_by_its_name_and_its_short_id() {
    let site = installed();
    let [web, other] = ["0a1b", "0a2c"].map(|start| start.repeat(16));
    for id in [&*web, &*other, "of-a-user"] {
        ROOTS.appears(&site, &["conmon", "-c", id, "-r", RUNTIME]);
        let directory = site.path(format!("var/lib/docker/containers/{web}"));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("config.v2.json"), r#"{"Name": "/web"}"#).unwrap();
        let message = complaint(&site.run(&["uninstall"]));
        let label = match id {
            "of-a-user" => id,
            _ if id == web => "web (0a1b0a1b0a1b)",
            _ => "0a2c0a2c0a2c",
        };
        let words = format!("cannot be stopped without it: {label}; stop them first");
        assert!(message.contains(&words), "{message}");
    }
}

/// A real process of a user has the name and the command line of a conmon.
#[test]
fn a_users_process_does_not_hold_the_removal_up() {
    let site = installed();
    let above = site.root().parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
    let script = above.join("conmon");
    fs::write(&script, "#!/bin/sh\nread line\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(site.path("proc")).unwrap();
    let root = site.root().display();
    let uninstall = format!(
        "mount --rbind /proc {root}/proc; {} --host-root {root} uninstall",
        env!("CARGO_BIN_EXE_boathook-init")
    );
    let mut attacker = Command::new(&script);
    attacker.args(["-c", "forged", "-r", RUNTIME]);
    if nix::unistd::geteuid().is_root() {
        attacker.uid(USER).gid(USER);
    }
    let mut attacker = attacker.stdin(Stdio::piped()).spawn().unwrap();
    let name = fs::read_to_string(format!("/proc/{}/comm", attacker.id())).unwrap();
    assert_eq!(name, "conmon\n");
    let output = with_mounts(&uninstall);
    assert!(attacker.try_wait().unwrap().is_none(), "the attacker ended");
    drop(attacker.stdin.take());
    attacker.wait().unwrap();
    if let Some(output) = output {
        crate::site::said(&output);
    }
}
