//! Installations on hosts whose /opt, /etc or /usr cannot be written to, and in directories that
//! the administrator names. A host here is mounted as its distribution mounts it.

mod existing_files;

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;

use crate::site::{Site, VERSION, complaint, fixture, said, with_mounts};
use crate::tree;

const RECORD: &str = "var/lib/boathook.toml";

/// A host as a distribution mounts it.
struct Platform {
    name: &'static str,
    directories: &'static [&'static str],
    links: &'static [(&'static str, &'static str)],
    /// Directories that can be written to, with further options of their mounts. The root cannot.
    writable: &'static [(&'static str, &'static str)],
    /// The directories that are chosen.
    programs: &'static str,
    configuration: &'static str,
}

const PLATFORMS: [Platform; 7] = [
    Platform {
        name: "Debian",
        directories: &["opt", "usr/local/bin"],
        links: &[],
        writable: &[("", "")],
        programs: "/opt/boathook",
        configuration: "/etc/boathook",
    },
    Platform {
        name: "Container-Optimized OS",
        directories: &["usr/local/bin", "var/lib", "home/kubernetes/bin"],
        links: &[],
        writable: &[("etc", ""), ("var", ",noexec"), ("home/kubernetes/bin", "")],
        programs: "/home/kubernetes/bin/boathook",
        configuration: "/etc/boathook",
    },
    Platform {
        name: "Bottlerocket",
        directories: &["opt", "var/lib"],
        links: &[],
        writable: &[("etc", ""), ("var", ""), ("opt", "")],
        programs: "/opt/boathook",
        configuration: "/etc/boathook",
    },
    Platform {
        name: "Flatcar",
        directories: &["opt", "usr/local/bin", "usr/local/share", "var/lib"],
        links: &[],
        writable: &[("etc", ""), ("var", ""), ("opt", "")],
        programs: "/opt/boathook",
        configuration: "/etc/boathook",
    },
    Platform {
        name: "Fedora CoreOS",
        directories: &["var/opt", "var/usrlocal/bin", "var/lib"],
        links: &[("opt", "var/opt"), ("usr/local", "../var/usrlocal")],
        writable: &[("etc", ""), ("var", "")],
        programs: "/opt/boathook",
        configuration: "/etc/boathook",
    },
    Platform {
        name: "NixOS",
        directories: &["var/lib", "nix"],
        links: &[],
        writable: &[("", "")],
        programs: "/opt/boathook",
        configuration: "/etc/boathook",
    },
    Platform {
        name: "an appliance with an image and /var",
        directories: &["usr/local/bin", "var/lib"],
        links: &[],
        writable: &[("var", "")],
        programs: "/var/lib/boathook",
        configuration: "/var/lib/boathook-config/boathook",
    },
];

impl Platform {
    fn site(&self) -> Site {
        let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
        site.make_dirs(&["usr/bin"]);
        site.make_dirs(self.directories);
        for (link, target) in self.links {
            symlink(target, site.path(link)).unwrap();
        }
        site
    }

    /// Returns the lines that mount the host.
    fn mounts(&self) -> String {
        if self.writable == [("", "")] {
            return "mount --bind . .; cd $PWD".to_owned();
        }
        let mut lines = "mount --bind . .; cd $PWD".to_owned();
        for (directory, options) in self.writable {
            lines += &format!("; mount --bind {directory} {directory}");
            if !options.is_empty() {
                lines += &format!("; mount -o remount,bind{options} {directory}");
            }
        }
        lines + "; mount -o remount,bind,ro $PWD"
    }

    /// Runs boathook-init with these arguments on the mounted host.
    fn run(&self, site: &Site, arguments: &str) -> Option<Output> {
        run_mounted(site, &self.mounts(), arguments)
    }
}

fn run_mounted(site: &Site, mounts: &str, arguments: &str) -> Option<Output> {
    let (program, root) = (env!("CARGO_BIN_EXE_boathook-init"), site.root().display());
    with_mounts(&format!(
        "cd {root}; {mounts}; {program} --host-root {root} {arguments}"
    ))
}

fn install_arguments(site: &Site, engine: &str) -> String {
    let release = site.release();
    format!("install --engine {engine} --source {}", release.display())
}

/// A unit that may not see its program cannot start. `ProtectHome=yes` and `tmpfs` hide the
/// directories for programs of Container-Optimized OS, and those that an administrator may name.
#[test]
fn a_unit_sees_the_program_that_it_starts() {
    for programs in [
        "/home/kubernetes/bin/boathook",
        "/root/boathook",
        "/home/user/boathook",
    ] {
        let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
        site.make_dirs(&["usr/bin", "var/lib", "etc/systemd/system"]);
        site.add_plugin();
        let services = ["install", "--cdi", "--follow", "--plugin-service"];
        said(&site.run(&[&services[..], &["--engine", "none", "--prefix", programs]].concat()));
        for unit in ["cdi", "follow", "plugin"] {
            let text = site.read(&format!("etc/systemd/system/boathook-{unit}.service"));
            assert!(
                text.contains(&format!("={programs}/current/bin/")),
                "{text}"
            );
            let hidden = text.lines().find(|line| {
                ["ProtectHome=yes", "ProtectHome=true", "ProtectHome=tmpfs"].contains(line)
                    || line.starts_with("InaccessiblePaths=")
                    || line.starts_with("TemporaryFileSystem=")
            });
            assert_eq!(hidden, None, "{unit}: {programs}");
        }
    }
}

/// Everything that is installed, and what refers to it, follows the directories; another run, an
/// upgrade, `status` and the removal find them.
#[test]
fn each_platform_has_its_directories() {
    for platform in &PLATFORMS {
        let site = platform.site();
        let before = tree::snapshot(site.root());
        let is_etc_writable = platform.configuration == "/etc/boathook";
        // Without its configuration an engine calls the hook by CDI.
        let engine = if is_etc_writable { "docker" } else { "none" };
        let install = install_arguments(&site, engine);
        let Some(output) = platform.run(&site, &install) else {
            return;
        };
        let (name, programs) = (platform.name, platform.programs);
        let text = said(&output);
        let summary = format!("is installed in {programs}\n");
        assert!(text.contains(&summary), "{name}: {text}");
        let in_host = |path: &str| site.path(path.trim_start_matches('/'));
        let bin = in_host(programs).join(VERSION).join("bin");
        assert!(bin.join("boathook-hook").is_file(), "{name}");
        let configuration = in_host(platform.configuration).join("config.toml");
        let configuration = fs::read_to_string(configuration).unwrap();
        for line in [
            format!("\"{programs}/current/classes.d\""),
            format!("\"{}/classes.d\"", platform.configuration),
        ] {
            assert!(configuration.contains(&line), "{name}: {configuration}");
        }
        if is_etc_writable {
            let daemon = site.read("etc/docker/daemon.json");
            let runtime = format!("{programs}/current/bin/boathook-runtime");
            assert!(daemon.contains(&runtime), "{name}: {daemon}");
        }
        let is_usual = programs == "/opt/boathook" && is_etc_writable;
        assert_eq!(site.path(RECORD).exists(), !is_usual, "{name}");
        let status = platform.run(&site, "status").unwrap();
        assert!(said(&status).starts_with("boathook "), "{name}");
        let again = said(&platform.run(&site, &install).unwrap());
        assert!(again.contains("nothing to do"), "{name}: {again}");
        site.write_release_version("9.9.9");
        let upgrade = format!("upgrade --source {}", site.release().display());
        said(&platform.run(&site, &upgrade).unwrap());
        let current = fs::read_link(in_host(programs).join("current")).unwrap();
        assert_eq!(current.to_str(), Some("9.9.9"), "{name}");
        said(&platform.run(&site, "uninstall").unwrap());
        assert_eq!(tree::snapshot(site.root()), before, "{name}");
    }
}

#[test]
fn the_directories_can_be_named() {
    let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
    site.make_dirs(&[
        "usr/bin",
        "usr/local/bin",
        "etc/systemd/system",
        "data",
        "var/lib",
    ]);
    site.add_plugin();
    let before = tree::snapshot(site.root());
    let named = [
        "--prefix",
        "/data/boathook",
        "--config-dir",
        "/data/etc/boathook",
    ];
    let arguments = [
        &["install", "--engine", "docker", "--cdi", "--plugin-service"],
        named.as_slice(),
    ]
    .concat();
    let text = said(&site.run(&arguments));
    assert!(text.contains("is installed in /data/boathook\n"), "{text}");
    let link = fs::read_link(site.path("usr/local/bin/boathook")).unwrap();
    assert_eq!(link.to_str(), Some("/data/boathook/current/bin/boathook"));
    let unit = site.read("etc/systemd/system/boathook-cdi.service");
    let line = "ExecStart=/data/boathook/current/bin/boathook cdi generate\n";
    assert!(unit.contains(line), "{unit}");
    let unit = site.read("etc/systemd/system/boathook-plugin.service");
    let option = " --hook=/data/boathook/current/bin/boathook-hook\n";
    assert!(unit.contains(option), "{unit}");
    let configuration = site.read("data/etc/boathook/config.toml");
    assert!(configuration.contains("\"/data/etc/boathook/classes.d\""));
    assert!(!site.path("opt").exists() && !site.path("etc/boathook").exists());
    // Without the options the recorded directories are used, and others are refused.
    assert!(said(&site.run(&arguments[..5])).contains("nothing to do"));
    for other in [
        ["--prefix", "/srv/boathook"],
        ["--config-dir", "/etc/boathook"],
    ] {
        let refused = complaint(&site.run(&[&["install"], other.as_slice()].concat()));
        assert!(
            refused.contains("run boathook-init uninstall first"),
            "{refused}"
        );
    }
    said(&site.run(&["uninstall"]));
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_with_its_option() {
    let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
    site.make_dirs(&["usr/bin", "opt", "var/lib", "data"]);
    let before = tree::snapshot(site.root());
    for wrong in [
        "boathook",
        "/data/tools",
        "/data/../boathook",
        "/data//boathook",
        "/a\nb/boathook",
        "/a b/boathook",
        "/",
    ] {
        for option in ["--prefix", "--config-dir"] {
            let refused = complaint(&site.run(&["install", option, wrong]));
            assert!(refused.contains("ends in /boathook"), "{refused}");
        }
    }
    for (programs, configuration) in [
        ("/data/boathook", "/data/boathook"),
        ("/data/boathook", "/data/boathook/etc/boathook"),
        ("/etc/boathook/boathook", "/etc/boathook"),
    ] {
        let named = ["--prefix", programs, "--config-dir", configuration];
        let refused = complaint(&site.run(&[&["install"], &named[..]].concat()));
        assert!(refused.contains("cannot be in the other"), "{refused}");
    }
    for directory in ["/tmp/boathook", "/var/tmp/a/boathook", "/run/boathook"] {
        for option in ["--prefix", "--config-dir"] {
            let refused = complaint(&site.run(&["install", option, directory]));
            let expected = "is emptied at a boot or by a timer";
            assert!(
                refused.contains(expected),
                "{option} {directory}: {refused}"
            );
        }
    }
    // The removal would remove the link, and leave what it leads to.
    for link in ["data/boathook", "opt/boathook"] {
        symlink("/var/lib", site.path(link)).unwrap();
        let named = ["install", "--prefix", "/data/boathook"];
        let arguments = if link.starts_with("opt") {
            &named[..1]
        } else {
            &named[..]
        };
        let refused = complaint(&site.run(arguments));
        let expected =
            format!("/{link} is a link to /var/lib: name the directory itself with --prefix");
        assert!(refused.contains(&expected), "{refused}");
        fs::remove_file(site.path(link)).unwrap();
    }
    let read_only = "mount --bind . .; cd $PWD; mount -o remount,bind,ro $PWD";
    let noexec = "mount --bind . .; cd $PWD; mount -o remount,bind,noexec $PWD";
    let install = install_arguments(&site, "none");
    for (mounts, more, expected) in [
        (
            read_only,
            "",
            "no directory for the programs: /opt is on a read-only file system; /var/lib",
        ),
        (
            noexec,
            "",
            "/var/lib is mounted noexec; name one with --prefix",
        ),
        (
            noexec,
            " --prefix /data/boathook",
            "--prefix /data/boathook: the file system of /data",
        ),
        (
            read_only,
            " --prefix /data/boathook",
            "/data is on a read-only file system; name",
        ),
    ] {
        let Some(output) = run_mounted(&site, mounts, &format!("{install}{more}")) else {
            return;
        };
        let refused = complaint(&output);
        assert!(refused.contains(expected), "{refused}");
    }
    // The hook would use the configuration at the usual place.
    site.write("etc/boathook/config.toml", "");
    let refused = complaint(&site.run(&["install", "--config-dir", "/data/boathook"]));
    assert!(refused.contains("would be used in its place"), "{refused}");
    fs::remove_dir_all(site.path("etc/boathook")).unwrap();
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_directory_may_be_below_a_link() {
    let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
    site.make_dirs(&["usr/bin", "usr/local/bin", "var/lib", "disk/data"]);
    symlink("disk/data", site.path("data")).unwrap();
    let before = tree::snapshot(site.root());
    let named = [
        "--prefix",
        "/data/boathook",
        "--config-dir",
        "/data/etc/boathook",
    ];
    said(&site.run(&[&["install", "--engine", "docker"], &named[..]].concat()));
    let hook = site.path("disk/data/boathook/current/bin/boathook-hook");
    assert!(hook.is_file());
    let daemon = site.read("etc/docker/daemon.json");
    assert!(
        daemon.contains("/data/boathook/current/bin/boathook-runtime"),
        "{daemon}"
    );
    site.write_release_version("9.9.9");
    said(&site.run(&["upgrade"]));
    let current = fs::read_link(site.path("disk/data/boathook/current")).unwrap();
    assert_eq!(current.to_str(), Some("9.9.9"));
    said(&site.run(&["uninstall"]));
    assert_eq!(tree::snapshot(site.root()), before);
}

/// In the init container of a DaemonSet only the mounted directories are the host's. Another one
/// would be the container's own.
#[test]
fn a_container_chooses_no_directory_that_is_not_mounted() {
    let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
    site.make_dirs(&["opt", "var/lib"]);
    for (option, problem) in [
        ("ro", "on a read-only file system"),
        ("noexec", "mounted noexec"),
    ] {
        let mounts = format!("mount --bind opt opt; mount -o remount,bind,{option} opt");
        let Some(output) = run_mounted(&site, &mounts, &install_arguments(&site, "none")) else {
            return;
        };
        let refused = complaint(&output);
        for expected in [problem, "installDir"] {
            assert!(refused.contains(expected), "{refused}");
        }
    }
    assert!(!site.path("var/lib/boathook").exists());
}

/// The chart mounts single directories of the host into the init container or, for a restart of the
/// engine, all of it. What the engine calls has the path that the host has, and so has its
/// configuration.
#[test]
fn an_init_container_configures_an_engine_for_other_directories() {
    let programs = "/home/kubernetes/bin/boathook";
    let configuration = "/home/kubernetes/bin/boathook-config/boathook";
    for is_whole_host_visible in [false, true] {
        let site = Site::with_containerd();
        // The kubelet makes the directories of volumes.
        let made = [programs, configuration].map(|path| path.trim_start_matches('/'));
        site.make_dirs(&[made[0], made[1], "var/lib", "opt", "run/containerd"]);
        let before = tree::snapshot(site.root());
        let view = site.release().with_file_name("view");
        let (program, root) = (env!("CARGO_BIN_EXE_boathook-init"), site.root().display());
        let run = |volumes: &[&str], arguments: &str| {
            let view = view.display();
            let mut line = format!("mkdir -p {view}; cd {view}");
            if is_whole_host_visible {
                line += &format!("; mount --bind {root} {view}; mount -o remount,bind,ro {view}");
            }
            for volume in volumes {
                line += &format!(
                    "; mkdir -p {view}{volume}; mount --bind {root}{volume} {view}{volume}"
                );
            }
            line += &format!("; ! touch {view}/opt/file; {program} --host-root {view} {arguments}");
            with_mounts(&line)
        };
        let directories = format!("--prefix {programs} --config-dir {configuration}");
        let install = format!("{} {directories}", install_arguments(&site, "containerd"));
        let volumes = ["/var/lib", programs, configuration, "/etc/containerd"];
        let Some(output) = run(&volumes, &install) else {
            return;
        };
        said(&output);
        let engine = site.read("etc/containerd/config.toml");
        let runtime = format!("BinaryName = \"{programs}/current/bin/boathook-runtime\"");
        assert!(engine.contains(&runtime), "{engine}");
        assert!(
            site.path(made[0])
                .join("current/bin/boathook-runtime")
                .exists()
        );
        assert!(site.path(made[1]).join("config.toml").exists());
        assert!(site.read(RECORD).contains(configuration));
        let again = said(&run(&volumes, &install).unwrap());
        assert!(again.contains("nothing to do"), "{again}");

        let volumes = ["/home/kubernetes/bin", "/var/lib", "/etc/containerd"];
        said(&run(&volumes, "uninstall").unwrap());
        fs::create_dir_all(site.path(made[0])).unwrap();
        fs::create_dir_all(site.path(made[1])).unwrap();
        assert_eq!(tree::snapshot(site.root()), before);
    }
}
