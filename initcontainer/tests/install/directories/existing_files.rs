//! A host that has files in the directories of an installation: of a killed run, of an
//! administrator, or of somebody else.

use std::fs;

use device_class::config::InstalledDirectories;
use initcontainer::compatibility::ReplacedToolkits;
use initcontainer::host::Host;
use initcontainer::install;
use initcontainer::{step, uninstall};
use runtime_config::Engine;

use super::{RECORD, install_arguments, run_mounted};
use crate::site::{Site, VERSION, complaint, fixture, options, said};
use crate::tree;

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
        let names = ReplacedToolkits::default();
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
