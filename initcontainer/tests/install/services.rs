//! The systemd units of an installation, and their links.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::site::{Site, complaint, said, with_mounts, write};
use crate::tree;

const UNITS: &str = "etc/systemd/system";
const FOLLOW: &str = "etc/systemd/system/multi-user.target.wants/boathook-follow.service";
const CDI: &str = "etc/systemd/system/multi-user.target.wants/boathook-cdi.service";

const FACTS: &str = "etc/systemd/system/timers.target.wants/boathook-facts.timer";

fn with_systemd() -> Site {
    let site = Site::with_containerd();
    site.make_dirs(&[UNITS, "etc/udev"]);
    site
}

fn link(site: &Site, path: &str) -> Option<String> {
    let target = fs::read_link(site.path(path)).ok()?;
    Some(target.to_str().unwrap().to_owned())
}

#[test]
fn units_are_placed_and_enabled_by_options() {
    let site = with_systemd();
    let before = tree::snapshot(site.root());
    said(&site.run(&["install"]));
    let unit = site.read("etc/systemd/system/boathook-follow.service");
    let start = "ExecStart=/opt/boathook/current/bin/boathook follow\n";
    assert!(unit.contains(start), "{unit}");
    assert!(
        site.path("etc/udev/rules.d/71-boathook-cdi.rules")
            .is_file()
    );
    assert_eq!((link(&site, FOLLOW), link(&site, CDI)), (None, None));

    said(&site.run(&["install", "--follow", "--cdi"]));
    let target = |name: &str| Some(format!("/{UNITS}/boathook-{name}.service"));
    let both = (target("follow"), target("cdi"));
    assert_eq!((link(&site, FOLLOW), link(&site, CDI)), both);
    site.write_release_version("0.9.2");
    said(&site.run(&["upgrade"]));
    assert_eq!((link(&site, FOLLOW), link(&site, CDI)), both);

    // An installation for another purpose ends no service.
    said(&site.run(&["install", "--engine=none"]));
    assert_eq!((link(&site, FOLLOW), link(&site, CDI)), both);

    let text = said(&site.run(&["install", "--no-follow"]));
    let note = "boathook-follow.service is disabled; install with --follow to enable it again\n";
    assert!(text.contains(note), "{text}");
    assert_eq!((link(&site, FOLLOW), link(&site, CDI)), (None, both.1));
    said(&site.run(&["install"]));
    assert_eq!(link(&site, FOLLOW), None);
    said(&site.run(&["uninstall"]));
    assert_eq!(tree::snapshot(site.root()), before);
}

/// udev restarts a unit for each device or driver. Beyond systemd's limit, 5 starts in 10 seconds, the
/// unit would end as failed and stay so.
#[test]
fn a_unit_that_udev_restarts_has_no_limit_of_starts() {
    let site = with_systemd();
    said(&site.run(&["install"]));
    let mut timers = Vec::new();
    for entry in fs::read_dir(site.path("etc/udev/rules.d")).unwrap() {
        let rules = fs::read_to_string(entry.unwrap().path()).unwrap();
        let restarted = rules.split("systemctl --no-block restart ").skip(1);
        timers.extend(restarted.map(|text| text.split('"').next().unwrap().to_owned()));
    }
    timers.sort();
    assert_eq!(timers, ["boathook-cdi.timer", "boathook-facts.timer"]);
    // This timer starts its service a second later, the other one after 10 seconds.
    for unit in timers
        .into_iter()
        .chain(["boathook-cdi.service".to_owned()])
    {
        let text = site.read(&format!("{UNITS}/{unit}"));
        let (_, section) = text.split_once("[Unit]\n").unwrap();
        let mut lines = section.lines().take_while(|line| !line.starts_with('['));
        assert!(
            lines.any(|line| line == "StartLimitIntervalSec=0"),
            "{text}"
        );
    }
}

/// Makes a host with Docker that has a device whose class has a program for facts.
fn with_facts() -> Site {
    let site = with_systemd();
    site.add_program("dockerd");
    site.add_program("card-smi");
    let class = "version = 1\nresource = \"vendor.com/card\"\n\
        request = { env = \"CARDS\" }\ndiscover = [{ path = \"/dev/card{index:number}\" }]\n\
        device = { id = \"card-{index}\" }\n[[facts]]\nprogram = [\"/usr/bin/card-smi\"]\n\
        lines = [{ line = '^(?<version>.*)', facts = { version = \"{version}\" } }]\n";
    write(&site.release().join("classes.d/vendor-card.toml"), class);
    site.write("dev/card0", "");
    site
}

#[test]
fn the_timer_for_facts_is_kept_like_other_services() {
    let site = with_systemd();
    let before = tree::snapshot(site.root());
    let is_enabled = |arguments: &[&str]| {
        said(&site.run(arguments));
        link(&site, FACTS).is_some()
    };
    assert!(!is_enabled(&["install"]));
    let unit = site.read("etc/systemd/system/boathook-facts.service");
    let start = "ExecStart=/opt/boathook/current/bin/boathook facts\n";
    assert!(unit.contains(start), "{unit}");
    assert!(is_enabled(&["install", "--facts"]));
    let timer = format!("/{UNITS}/boathook-facts.timer");
    assert_eq!(link(&site, FACTS), Some(timer));
    assert!(is_enabled(&["install"]));
    site.write_release_version("0.9.2");
    assert!(is_enabled(&["upgrade"]));
    assert!(!is_enabled(&["install", "--no-facts"]));
    assert!(!is_enabled(&["install"]));
    said(&site.run(&["install", "--facts"]));
    said(&site.run(&["uninstall"]));
    assert_eq!(tree::snapshot(site.root()), before);
}

#[test]
fn a_first_installation_enables_the_timer_where_devices_have_facts() {
    type Change = fn(&Site);
    let cases: [(&[&str], Change, bool); 9] = [
        (&[], |_| (), true),
        (&["--engine=docker"], |_| (), true),
        (&["--engine=containerd"], |_| (), false),
        (&["--no-facts"], |_| (), false),
        (&["--plugin-service"], Site::add_plugin, false),
        (
            &[],
            |site| site.make_dirs(&["var/lib/kubelet/device-plugins"]),
            false,
        ),
        (
            &[],
            |site| fs::remove_file(site.path("usr/bin/card-smi")).unwrap(),
            false,
        ),
        (
            &[],
            |site| fs::remove_file(site.path("dev/card0")).unwrap(),
            false,
        ),
        // A host with another init.
        (
            &[],
            |site| fs::remove_dir_all(site.path("etc/systemd")).unwrap(),
            false,
        ),
    ];
    for (index, (options, change, expected)) in cases.into_iter().enumerate() {
        let site = with_facts();
        change(&site);
        let install = [&["install"], options].concat();
        said(&site.run(&install));
        assert_eq!(
            link(&site, FACTS).is_some(),
            expected,
            "{index}: {options:?}"
        );
        // A later installation, with or without hardware, changes nothing of it.
        said(&site.run(&["install", "--engine=none"]));
        said(&site.run(&["install"]));
        assert_eq!(
            link(&site, FACTS).is_some(),
            expected,
            "{index}: {options:?}"
        );
    }
}

/// A host with another init has no place for a unit, to which a link would lead.
#[test]
fn a_host_without_systemd_gets_no_link_to_a_unit() {
    let site = Site::with_containerd();
    let before = tree::snapshot(site.root());
    for option in ["--follow", "--cdi", "--facts"] {
        let text = complaint(&site.run(&["install", option]));
        let reason = "cannot be written, because this host has no /etc/systemd/system";
        assert!(text.contains(&format!("{option}: ")), "{text}");
        assert!(text.contains(reason), "{text}");
        assert_eq!(tree::snapshot(site.root()), before, "{option}");
    }
    said(&site.run(&["install"]));
}

/// On NixOS the directory of the units is a link into a store that is read-only.
#[test]
fn units_that_are_read_only_get_no_timer() {
    const STORE: &str = "nix/store/units";
    let site = with_facts();
    fs::remove_dir(site.path(UNITS)).unwrap();
    site.make_dirs(&[STORE]);
    symlink(format!("/{STORE}"), site.path(UNITS)).unwrap();
    let store = site.path("nix");
    let Some(output) = with_mounts(&format!(
        "mount --bind {store} {store}; mount -o remount,bind,ro {store}; {}",
        site.install_line(),
        store = store.display(),
    )) else {
        return;
    };
    said(&output);
    assert!(site.path("opt/boathook/current").exists());
    assert_eq!(link(&site, FACTS), None);
    assert_eq!(fs::read_dir(site.path(STORE)).unwrap().count(), 0);
    said(&site.run(&["uninstall"]));
    said(&site.run(&["install"]));
    assert!(site.path(STORE).join("timers.target.wants").is_dir());
}

#[test]
fn an_upgrade_leaves_disabled_what_the_administrator_disabled() {
    let site = with_systemd();
    said(&site.run(&["install", "--follow", "--cdi"]));
    fs::remove_file(site.path(FOLLOW)).unwrap();
    site.write_release_version("0.9.2");
    said(&site.run(&["upgrade"]));
    assert_eq!(link(&site, FOLLOW), None);
    assert!(link(&site, CDI).is_some());
    said(&site.run(&["install", "--cdi"]));
    assert_eq!(link(&site, FOLLOW), None);
    said(&site.run(&["install", "--follow", "--cdi"]));
    assert!(link(&site, FOLLOW).is_some());
}

/// `systemctl enable` made the link, and not the installer. The unit's program is removed.
#[test]
fn a_removal_disables_what_an_administrator_enabled() {
    let site = with_systemd();
    said(&site.run(&["install"]));
    site.make_dirs(&["etc/systemd/system/graphical.target.wants"]);
    let enabled = "etc/systemd/system/graphical.target.wants/boathook-follow.service";
    symlink("../boathook-follow.service", site.path(enabled)).unwrap();
    said(&site.run(&["install"]));
    assert!(link(&site, enabled).is_some());
    said(&site.run(&["uninstall"]));
    assert_eq!(link(&site, enabled), None);
    assert_eq!(fs::read_dir(site.path(UNITS)).unwrap().count(), 1);
}

#[test]
fn the_units_of_a_package_are_used() {
    let site = with_systemd();
    said(&site.run(&["install", "--follow"]));
    let packaged = "usr/lib/systemd/system/boathook-follow.service";
    site.write(packaged, "[Service]\nExecStart=boathook follow\n");
    said(&site.run(&["uninstall"]));
    said(&site.run(&["install", "--follow"]));
    assert!(
        !site
            .path("etc/systemd/system/boathook-follow.service")
            .exists()
    );
    assert_eq!(link(&site, FOLLOW), Some(format!("/{packaged}")));
    said(&site.run(&["uninstall"]));
    assert_eq!(link(&site, FOLLOW), None);
    assert!(site.path(packaged).is_file());
}

#[test]
fn a_unit_of_the_administrator_stays() {
    let site = with_systemd();
    let unit = "etc/systemd/system/boathook-follow.service";
    site.write(unit, "[Service]\nExecStart=/srv/boathook follow\n");
    let text = site.read(unit);
    said(&site.run(&["install", "--follow"]));
    assert_eq!(site.read(unit), text);
    said(&site.run(&["uninstall"]));
    assert_eq!(site.read(unit), text);
}

#[test]
fn a_host_without_systemd_gets_no_units() {
    let site = with_facts();
    fs::remove_dir_all(site.path("etc/systemd")).unwrap();
    said(&site.run(&["install"]));
    assert!(!site.path(Path::new("etc/systemd")).exists());
}

/// The plugin is a program of the release that is installed only for its service.
#[test]
fn the_plugin_is_installed_for_its_service_alone() {
    const UNIT: &str = "etc/systemd/system/boathook-plugin.service";
    const PROGRAM: &str = "opt/boathook/current/bin/boathook-plugin";
    let site = with_systemd();
    let before = tree::snapshot(site.root());
    site.add_plugin();
    said(&site.run(&["install", "--engine=none"]));
    assert!(!site.path(UNIT).exists() && !site.path(PROGRAM).exists());

    said(&site.run(&["install", "--engine=none", "--plugin-service"]));
    let unit = site.read(UNIT);
    for line in [
        "ExecStartPre=/opt/boathook/current/bin/boathook-plugin check-engine",
        "ExecStart=/opt/boathook/current/bin/boathook-plugin run",
        "WantedBy=multi-user.target",
    ] {
        assert!(unit.lines().any(|it| it == line), "{line}: {unit}");
    }
    assert!(unit.contains("\nBefore=kubelet.service "), "{unit}");
    assert!(site.path(PROGRAM).is_file());
    let enabled = "etc/systemd/system/multi-user.target.wants/boathook-plugin.service";
    assert_eq!(link(&site, enabled), Some(format!("/{UNIT}")));

    said(&site.run(&["uninstall"]));
    assert_eq!(tree::snapshot(site.root()), before);
}

/// They are in the unit and in the manifest, from which an upgrade takes them. An installation
/// without them writes a unit without them.
#[test]
fn the_plugins_service_has_the_arguments_of_the_operator() {
    const UNIT: &str = "etc/systemd/system/boathook-plugin.service";
    let site = with_systemd();
    site.add_plugin();
    let start = || {
        let unit = site.read(UNIT);
        let mut lines = unit.lines();
        lines
            .find_map(|line| line.strip_prefix("ExecStart="))
            .unwrap()
            .to_owned()
    };
    let install = ["install", "--engine=none", "--plugin-service"];
    let arguments = ["--plugin-arg=--http=[::]:9911", "--plugin-arg=--take-over"];
    said(&site.run(&[&install[..], &arguments].concat()));
    let expected = "/opt/boathook/current/bin/boathook-plugin run --http=[::]:9911 --take-over";
    assert_eq!(start(), expected);
    said(&site.run(&["upgrade"]));
    assert_eq!(start(), expected);
    said(&site.run(&install));
    assert_eq!(start(), "/opt/boathook/current/bin/boathook-plugin run");

    // A package's unit has no arguments, and one in /etc takes precedence.
    fs::remove_file(site.path(UNIT)).unwrap();
    site.write(
        "usr/lib/systemd/system/boathook-plugin.service",
        "[Service]\nExecStart=boathook-plugin run\n",
    );
    said(&site.run(&install));
    assert!(!site.path(UNIT).exists());
    said(&site.run(&[&install[..], &arguments].concat()));
    assert_eq!(start(), expected);

    for refused in [
        &["install", "--plugin-arg=--take-over"][..],
        &["install", "--plugin-service", "--plugin-arg=list"],
        &["install", "--plugin-service", "--plugin-arg=--hook=/bin/sh"],
        &["install", "--plugin-service", "--plugin-arg=--config=a b"],
    ] {
        let output = site.run(refused);
        assert_eq!(output.status.code(), Some(2), "{refused:?}: {output:?}");
    }
}

/// systemd takes the command line of a drop-in, and a unit of the administrator is kept.
#[test]
fn a_command_line_of_the_administrator_is_noted_if_arguments_are_given() {
    const UNIT: &str = "etc/systemd/system/boathook-plugin.service";
    let start = "[Service]\nExecStart=\nExecStart=/opt/boathook/current/bin/boathook-plugin run\n";
    for (path, text, is_noted) in [
        (format!("{UNIT}.d/override.conf"), start, true),
        (
            format!("{UNIT}.d/override.conf"),
            "[Service]\nNice=1\n",
            false,
        ),
        (UNIT.to_owned(), start, true),
    ] {
        let site = with_systemd();
        site.add_plugin();
        site.write(&path, text);
        let install = ["install", "--engine=none", "--plugin-service"];
        let note = format!("/{path} sets the command line of boathook-plugin.service");
        let without = said(&site.run(&install));
        assert!(!without.contains(&note), "{without}");
        let with = said(&site.run(&[&install[..], &["--plugin-arg=--take-over"]].concat()));
        assert_eq!(with.contains(&note), is_noted, "{path}: {with}");
    }
}

/// With a runtime handler the engine need not know CDI.
#[test]
fn the_plugins_service_does_not_rely_on_cdi_beside_a_handler() {
    let site = with_systemd();
    site.add_plugin();
    said(&site.run(&["install", "--engine=containerd", "--plugin-service"]));
    let unit = site.read("etc/systemd/system/boathook-plugin.service");
    let start = "\nExecStart=/opt/boathook/current/bin/boathook-plugin run --delivery=handler\n";
    assert!(unit.contains(start), "{unit}");
    assert!(!unit.contains("check-engine\n"), "{unit}");
}

/// The unit of a package delivers by CDI, and one in /etc takes precedence.
#[test]
fn a_packages_plugin_service_is_overridden_beside_a_handler() {
    const UNIT: &str = "etc/systemd/system/boathook-plugin.service";
    let site = with_systemd();
    site.add_plugin();
    site.write(
        "usr/lib/systemd/system/boathook-plugin.service",
        "[Service]\nExecStart=boathook-plugin run\n",
    );
    said(&site.run(&["install", "--engine=none", "--plugin-service"]));
    assert!(!site.path(UNIT).exists());
    said(&site.run(&["install", "--engine=containerd", "--plugin-service"]));
    assert!(site.read(UNIT).contains("run --delivery=handler\n"));
}

#[test]
fn the_delivery_follows_the_engines_that_are_configured_now() {
    const CONFIGURATION: &str = "etc/containerd/config.toml";
    let site = with_systemd();
    site.add_plugin();
    let before = site.read(CONFIGURATION);
    said(&site.run(&["install", "--engine=containerd", "--plugin-service"]));
    let is_by_handler = || {
        said(&site.run(&["install", "--engine=none", "--plugin-service"]));
        let unit = site.read("etc/systemd/system/boathook-plugin.service");
        unit.contains("--delivery=handler")
    };
    assert!(is_by_handler());
    site.write(CONFIGURATION, &before);
    assert!(!is_by_handler());
}

/// The init container of a chart without the option has not mounted the directory of the units.
#[test]
fn a_service_whose_unit_cannot_be_seen_stays_recorded() {
    let site = with_systemd();
    said(&site.run(&["install", "--engine=none", "--follow"]));
    fs::rename(site.path("etc/systemd"), site.path("away")).unwrap();
    let text = said(&site.run(&["install", "--engine=none", "--no-follow"]));
    let note = "boathook-follow.service is enabled and stays so";
    assert!(text.contains(note), "{text}");

    fs::rename(site.path("away"), site.path("etc/systemd")).unwrap();
    let text = said(&site.run(&["install", "--engine=none", "--no-follow"]));
    assert!(
        text.contains("boathook-follow.service is disabled"),
        "{text}"
    );
    assert_eq!(link(&site, FOLLOW), None);
}
