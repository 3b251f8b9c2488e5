//! Installations on hosts whose /opt, /etc or /usr cannot be written to, and in directories that
//! the administrator names. A host here is mounted as its distribution mounts it.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;

use device_class::config::InstalledDirectories;
use initcontainer::compatibility::OfferedNames;
use initcontainer::host::Host;
use initcontainer::install;
use initcontainer::{step, uninstall};
use runtime_config::Engine;

use crate::site::{Site, VERSION, complaint, fixture, options, said, with_mounts};
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
        "/data/boathook/",
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

/// An image may bring a configuration and nothing that can be written to in /etc.
#[test]
fn a_configuration_of_the_image_is_used() {
    let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
    site.make_dirs(&["usr/bin", "var/lib"]);
    let text = "classes = [\"/var/lib/boathook/current/classes.d\"]\n";
    site.write("etc/boathook/config.toml", text);
    let before = tree::snapshot(site.root());
    let mounts = "mount --bind . .; cd $PWD; mount --bind var var; mount -o remount,bind,ro $PWD";
    let Some(output) = run_mounted(&site, mounts, &install_arguments(&site, "none")) else {
        return;
    };
    assert!(said(&output).contains("is installed in /var/lib/boathook\n"));
    assert_eq!(site.read("etc/boathook/config.toml"), text);
    assert!(!site.path("var/lib/boathook-config").exists());
    said(&run_mounted(&site, mounts, "uninstall").unwrap());
    assert_eq!(tree::snapshot(site.root()), before);
}

/// An installation would replace these, and a removal take them away.
#[test]
fn files_of_somebody_else_in_the_directory_are_kept() {
    let install = ["install", "--engine", "none", "--prefix", "/data/boathook"];
    let version = format!("data/boathook/{VERSION}");
    for file in [
        format!("{version}/notes.txt"),
        "data/boathook/state/precious".to_owned(),
        "data/boathook/current".to_owned(),
    ] {
        let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
        site.make_dirs(&["usr/bin", "var/lib"]);
        site.write(&file, "precious");
        let before = tree::snapshot(site.root());
        let refused = complaint(&site.run(&install));
        assert!(
            refused.contains("exists already, and no installation"),
            "{file}: {refused}"
        );
        said(&site.run(&["uninstall"]));
        assert_eq!(tree::snapshot(site.root()), before, "{file}");
    }
    // A release that was unpacked there, with other files beside.
    let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
    site.make_dirs(&["usr/bin", "var/lib"]);
    let unpacked = site.path(&version);
    fs::create_dir_all(&unpacked).unwrap();
    tree::copy(&site.release(), &unpacked);
    fs::write(unpacked.join("notes.txt"), "precious").unwrap();
    let before = tree::snapshot(site.root());
    let mut command = site.without_source(&install);
    let output = command.arg("--source").arg(&unpacked).output().unwrap();
    let refused = complaint(&output);
    assert!(
        refused.contains("exists already, and no installation"),
        "{refused}"
    );
    assert_eq!(tree::snapshot(site.root()), before);
    // An uninstallation leaves files that somebody has added after the installation.
    fs::remove_dir_all(site.path("data")).unwrap();
    site.make_dirs(&["data"]);
    said(&site.run(&install));
    for file in ["data/boathook/state/precious", "data/boathook/notes.txt"] {
        site.write(file, "precious");
    }
    let text = said(&site.run(&["uninstall"]));
    assert!(
        text.contains("/data/boathook/state: it holds precious"),
        "{text}"
    );
    let left = ["notes.txt", "state"].map(str::to_owned);
    let names = |directory: &str| {
        let entries = fs::read_dir(site.path(directory)).unwrap().flatten();
        let mut names: Vec<_> = entries
            .map(|it| it.file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names("data/boathook"), left);
    assert_eq!(names("data/boathook/state"), ["precious"]);
}

/// A configuration that a removal has kept names the directory of an earlier installation.
#[test]
fn a_kept_configuration_that_leaves_out_the_installed_classes_is_noted() {
    let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
    site.make_dirs(&["usr/bin", "data", "var/lib"]);
    let install = ["install", "--engine", "none", "--prefix", "/data/boathook"];
    for (text, is_noted) in [
        ("classes = [\"/opt/boathook/current/classes.d\"]\n", true),
        ("classes = [\"/data/boathook/current/classes.d\"]\n", false),
        ("[class.dummy-npu]\nenabled = true\n", false),
    ] {
        site.write("etc/boathook/config.toml", text);
        let said = said(&site.run(&install));
        let note = "do not name /data/boathook/current/classes.d: the installed class files";
        assert_eq!(said.contains(note), is_noted, "{text}: {said}");
        crate::site::said(&site.run(&["uninstall"]));
        assert_eq!(site.read("etc/boathook/config.toml"), text);
    }
}

/// A run that is killed after any step is completed by the next one, without an option.
#[test]
fn a_killed_run_leaves_directories_that_the_next_one_finds() {
    let directories = InstalledDirectories {
        programs_dir: "/data/boathook".into(),
        config_dir: "/srv/a/boathook".into(),
    };
    let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
    site.make_dirs(&["usr/bin", "var/lib"]);
    let before = tree::snapshot(site.root());
    let steps = |version: &str| {
        let host = Host::open(site.root())
            .unwrap()
            .with_directories(directories.clone());
        let engines = [(Engine::Docker, options(&host))];
        let payload = site.payload(version);
        let names = OfferedNames::default();
        install::plan(&host, &payload, &engines, &names, false)
            .unwrap()
            .steps
    };
    let run = |steps: &[step::Step]| step::execute_steps(&site.host, steps, |_| Ok(())).unwrap();
    let uninstall = || {
        let host = Host::open(site.root()).unwrap();
        uninstall::plan(&host, &[], false).unwrap().steps
    };
    let count = steps("0.1.0").len();
    assert!(count > 8, "{count}");
    for killed in 0..=count {
        run(&steps("0.1.0")[..killed]);
        run(&uninstall());
        assert_eq!(
            tree::snapshot(site.root()),
            before,
            "installation, step {killed}"
        );
        run(&steps("0.1.0")[..killed]);
        run(&steps("0.1.0"));
        assert!(
            site.path("data/boathook/current/bin/boathook-hook")
                .is_file()
        );
        run(&uninstall());
        assert_eq!(
            tree::snapshot(site.root()),
            before,
            "second run, step {killed}"
        );
    }
    run(&steps("0.1.0"));
    let count = uninstall().len();
    for killed in 0..=count {
        let removal = uninstall();
        run(&removal[..killed]);
        run(&uninstall());
        assert_eq!(
            tree::snapshot(site.root()),
            before,
            "removal, step {killed}"
        );
        run(&steps("0.1.0"));
    }
}

/// Whoever can change the record decides what root runs.
#[test]
fn a_record_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
    site.write(
        RECORD,
        "programs = \"/data/boathook\"\nconfiguration = \"/etc/boathook\"\n",
    );
    let file = site.path(RECORD);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    for command in ["install", "status", "uninstall"] {
        let refused = complaint(&site.run(&[command]));
        assert!(refused.contains("boathook.toml"), "{refused}");
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    site.write(RECORD, "programs = 1\n");
    assert!(complaint(&site.run(&["install"])).contains("programs"));
}
