//! Hosts that are laid out in ways that administrators have, and edits of theirs between an
//! installation and its removal.

use std::fs;
use std::os::unix::fs::symlink;

use crate::site::{Site, complaint, fixture, said, with_mounts};
use crate::tree;

const RUNTIME: &str = "/opt/boathook/current/bin/boathook-runtime";

fn with_docker(daemon_json: &str) -> Site {
    let site = Site::new(&fixture("docker/missing"));
    site.add_program("dockerd");
    site.write("etc/docker/daemon.json", daemon_json);
    site
}

/// A volume or a file system of its own, in a root that is an image.
#[test]
fn a_configuration_directory_in_a_read_only_etc_is_kept_at_the_removal() {
    let site = Site::new(&fixture("docker/missing"));
    site.make_dirs(&["etc/boathook", "opt"]);
    let before = tree::snapshot(site.root());
    let root = site.root().display();
    let mounts = format!(
        "cd {root}; mount --bind . .; cd $PWD; mount --bind etc/boathook etc/boathook; \
         mount --bind opt opt; mount -o remount,bind,ro $PWD"
    );
    let install = site.install_line();
    let (program, _) = install.split_once(" install").unwrap();
    let output = with_mounts(&format!(
        "{mounts}; {install} --engine none; {program} uninstall"
    ));
    let Some(output) = output else {
        return;
    };
    said(&output);
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_directory_that_cannot_be_one_is_named() {
    let site = Site::new(&fixture("docker/missing"));
    site.write("srv/boathook", "");
    symlink("/mnt/data", site.path("data")).unwrap();
    let before = tree::snapshot(site.root());
    for (option, directory, problem) in [
        ("--prefix", "/srv/boathook", "/srv/boathook is a file"),
        (
            "--prefix",
            "/srv/boathook/boathook",
            "/srv/boathook is a file",
        ),
        (
            "--config-dir",
            "/data/boathook",
            "/data is a link to /mnt/data, which is not there",
        ),
    ] {
        let text = complaint(&site.run(&["install", "--engine=none", option, directory]));
        let expected = format!("{option} {directory}: {problem}; name a directory");
        assert!(text.contains(&expected), "{text}");
        assert_eq!(tree::snapshot(site.root()), before, "{directory}");
    }
    // The next candidate is used, as for a directory that cannot be written to.
    symlink("/mnt/opt", site.path("opt")).unwrap();
    site.make_dirs(&["usr/bin", "var/lib"]);
    let text = said(&site.run(&["install", "--engine=none"]));
    assert!(text.contains("installed in /var/lib/boathook\n"), "{text}");
}

/// Shells complete the names of directories with a slash.
#[test]
fn a_slash_at_the_end_of_a_directory_does_not_matter() {
    let site = Site::new(&fixture("docker/missing"));
    site.make_dirs(&["srv", "var/lib"]);
    let before = tree::snapshot(site.root());
    let directories = ["--prefix=/srv/boathook/", "--config-dir=/srv/etc/boathook/"];
    let install = [&["install", "--engine=none"], directories.as_slice()].concat();
    let text = said(&site.run(&install));
    assert!(text.contains("installed in /srv/boathook\n"), "{text}");
    assert!(said(&site.run(&install)).contains("nothing to do"));
    said(&site.run(&["uninstall"]));
    assert_eq!(tree::snapshot(site.root()), before);
}

/// The administrator's directory is elsewhere, and a link leads there.
#[test]
fn a_link_to_a_configuration_directory_does_not_stop_the_removal() {
    let site = Site::new(&fixture("docker/missing"));
    site.make_dirs(&["srv/boathook", "etc"]);
    symlink("/srv/boathook", site.path("etc/boathook")).unwrap();
    let before = tree::snapshot(site.root());
    let text = said(&site.run(&["uninstall"]));
    assert_eq!(text, "nothing to do\n");
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn an_engine_that_cannot_be_configured_is_named_with_a_way_to_leave_it_out() {
    for (daemon_json, broken) in [
        ("{\n", "docker: /etc/docker/daemon.json:2: EOF"),
        ("[]\n", "docker: /etc/docker/daemon.json"),
    ] {
        let site = with_docker(daemon_json);
        site.add_program("podman");
        site.add_program("crio");
        let before = tree::snapshot(site.root());
        let text = complaint(&site.run(&["install"]));
        assert!(text.contains(broken), "{text}");
        let advice = "; or leave it out by --engine crio,podman\n";
        assert!(text.ends_with(advice), "{text}");
        assert_eq!(tree::snapshot(site.root()), before, "{daemon_json}");
        said(&site.run(&["install", "--engine", "crio,podman"]));
    }
}

#[test]
fn a_read_only_directory_of_an_engine_is_named_with_it() {
    let site = Site::with_containerd();
    site.add_program("crio");
    site.make_dirs(&["etc/crio/crio.conf.d", "opt"]);
    let (root, install) = (site.root().display(), site.install_line());
    let mounts =
        format!("cd {root}; mount --bind etc/crio etc/crio; mount -o remount,bind,ro etc/crio");
    for (engines, advice) in [
        ("containerd,crio", "or leave it out by --engine containerd"),
        ("crio", "or place the programs alone by --engine none"),
    ] {
        let Some(output) = with_mounts(&format!("{mounts}; {install} --engine {engines}")) else {
            return;
        };
        let text = complaint(&output);
        assert!(text.contains("crio: cannot write to "), "{text}");
        assert!(text.contains("Read-only file system"), "{text}");
        assert!(text.contains(advice), "{text}");
        assert!(!site.path("opt/boathook").exists());
    }
}

/// `root` cannot write to it, so `run as root` alone would be no advice.
#[test]
fn an_immutable_file_is_named_as_such() {
    let site = with_docker("{}\n");
    let file = site.path("etc/docker/daemon.json");
    let set_attribute = |attribute: &str| {
        let mut command = std::process::Command::new("chattr");
        let output = command.arg(attribute).arg(&file).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !set_attribute("+i") {
        return skip::report(
            "an immutable file",
            "needs chattr and a file system with it",
        );
    }
    let output = site.run(&["install", "--engine", "docker"]);
    assert!(set_attribute("-i"));
    let text = complaint(&output);
    assert!(text.contains("is immutable (lsattr)"), "{text}");
    assert!(!site.path("opt/boathook").exists());
}

/// A tool of the administrator may write a drop-in with this name.
#[test]
fn a_drop_in_that_somebody_else_wrote_is_not_replaced() {
    for (engine, file, text) in [
        ("crio", "etc/crio/crio.conf.d/99-boathook.conf", "[crio]\n"),
        (
            "podman",
            "etc/containers/oci/hooks.d/99-boathook.json",
            "{}\n",
        ),
    ] {
        let site = Site::new(&fixture("docker/missing"));
        site.write(file, text);
        let before = tree::snapshot(site.root());
        let text = complaint(&site.run(&["install", "--engine", engine]));
        let expected = format!("/{file} is there, and boathook-init did not write it");
        assert!(text.contains(&expected), "{text}");
        said(&site.run(&["uninstall", "--engine", engine]));
        assert_eq!(tree::snapshot(site.root()), before, "{engine}");
        // One of an installation whose record is gone is replaced.
        fs::remove_file(site.path(file)).unwrap();
        said(&site.run(&["install", "--engine", engine]));
        fs::remove_dir_all(site.path("opt/boathook")).unwrap();
        said(&site.run(&["install", "--engine", engine]));
    }
}

/// The engine would not start a container, or would not start at all, once it can read the file.
#[test]
fn an_edited_file_that_still_names_boathook_is_told_at_the_removal() {
    let site = Site::with_containerd();
    site.add_program("dockerd");
    site.write("etc/docker/daemon.json", "{}\n");
    site.write("etc/crictl.yaml", "");
    said(&site.run(&["install"]));
    let text = site.read("etc/docker/daemon.json") + "broken\n";
    site.write("etc/docker/daemon.json", &text);
    let text = site.read("etc/containerd/config.toml");
    let text = text.replace("# boathook: end\n", "[debug]\n");
    site.write("etc/containerd/config.toml", &text);
    let text = said(&site.run(&["uninstall"]));
    for file in ["/etc/docker/daemon.json", "/etc/containerd/config.toml"] {
        let line = format!(
            "kept {file}: it was edited and still names {RUNTIME}, which goes with the \
             uninstallation: take that out\n"
        );
        assert!(text.contains(&line), "{text}");
    }
}

#[test]
fn an_edited_file_that_still_names_the_drop_in_is_told_at_the_removal() {
    let site = Site::new(&fixture("containerd/2.1-imports-list"));
    site.add_program("containerd");
    said(&site.run(&["install"]));
    let text = site.read("etc/containerd/config.toml") + "broken\n";
    site.write("etc/containerd/config.toml", &text);
    let text = said(&site.run(&["uninstall"]));
    let line = "kept /etc/containerd/config.toml: it was edited and still names \
                /etc/containerd/conf.d/99-boathook.toml, which goes with";
    assert!(text.contains(line), "{text}");
}

/// Without Boathook's parts, the file would have the default runtime twice.
#[test]
fn an_edited_file_that_a_removal_would_damage_is_kept() {
    let site = Site::with_containerd();
    site.write("etc/crictl.yaml", "");
    said(&site.run(&["install", "--set-default"]));
    let edited = site.read("etc/containerd/config.toml").replace(
        "default_runtime_name = \"boathook\" # boathook: added\n",
        "default_runtime_name = \"kata\"\n# a comment between the lines\n",
    );
    site.write("etc/containerd/config.toml", &edited);
    let text = said(&site.run(&["uninstall"]));
    assert_eq!(site.read("etc/containerd/config.toml"), edited);
    let line = format!(
        "kept /etc/containerd/config.toml: it was edited and still names {RUNTIME}, which goes"
    );
    assert!(text.contains(&line), "{text}");
}

/// Somebody has removed the directory and not uninstalled, so the records are gone.
#[test]
fn a_part_of_an_engines_file_without_a_record_is_told_at_the_removal() {
    let site = with_docker("{}\n");
    site.add_program("podman");
    said(&site.run(&["install"]));
    fs::remove_dir_all(site.path("opt/boathook")).unwrap();
    let text = said(&site.run(&["uninstall"]));
    for engine in ["docker", "podman"] {
        let line = format!("to take that out, run boathook-init uninstall --engine {engine}\n");
        assert!(text.contains(&line), "{engine}: {text}");
    }
    said(&site.run(&["uninstall", "--engine", "docker,podman"]));
    assert!(!site.read("etc/docker/daemon.json").contains("boathook"));
    let hook = "etc/containers/oci/hooks.d/99-boathook.json";
    assert!(!site.path(hook).exists());
    let text = said(&site.run(&["uninstall"]));
    assert!(!text.contains("kept"), "{text}");
}
