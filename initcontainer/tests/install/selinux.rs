//! Labels of SELinux. There is no kernel with SELinux here: the host has the file by which it is
//! recognised, and programs that write down how they are called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::site::{Site, VERSION, fixture, said, write};

const BUSYBOX: &str = "/bin/busybox";

/// Returns a host on which SELinux is enabled. Its tools end with `status`.
fn host(status: u8) -> Option<Site> {
    if !nix::unistd::geteuid().is_root() || !Path::new(BUSYBOX).exists() {
        skip::report("labels of SELinux", "needs root and busybox-static");
        return None;
    }
    let site = Site::new(&fixture("docker/20.10-nvidia-runtime"));
    site.make_dirs(&["usr/bin", "usr/sbin", "opt", "var/lib", "sys/fs/selinux"]);
    write(&site.path("sys/fs/selinux/enforce"), "1");
    write(&site.path("dev/null"), "");
    fs::create_dir_all(site.path("bin")).unwrap();
    fs::copy(BUSYBOX, site.path("bin/busybox")).unwrap();
    for tool in ["usr/sbin/restorecon", "usr/bin/chcon"] {
        let script = format!(
            "#!/bin/busybox sh\necho ${{0##*/}} \"$@\" >>/calls\necho no policy >&2\nexit {status}\n"
        );
        write(&site.path(tool), script);
        fs::set_permissions(site.path(tool), fs::Permissions::from_mode(0o755)).unwrap();
    }
    Some(site)
}

fn take_calls(site: &Site) -> String {
    let calls = fs::read_to_string(site.path("calls")).unwrap_or_default();
    let _ = fs::remove_file(site.path("calls"));
    calls
}

/// The policy of Fedora has the type of programs for /opt, and not for /var/lib.
#[test]
fn files_get_the_types_of_the_policy() {
    let Some(site) = host(0) else {
        return;
    };
    said(&site.run(&["install", "--engine", "none"]));
    assert_eq!(
        take_calls(&site),
        "restorecon -R -i /opt/boathook /etc/boathook\n"
    );
    // Nothing is labelled where nothing has changed.
    said(&site.run(&["install", "--engine", "none"]));
    assert_eq!(take_calls(&site), "");
    site.write_release_version("9.9.9");
    said(&site.run(&["upgrade"]));
    assert_eq!(
        take_calls(&site),
        "restorecon -R -i /opt/boathook /etc/boathook\n"
    );
    said(&site.run(&["uninstall"]));

    site.write_release_version(VERSION);
    let prefix = [
        "install",
        "--engine",
        "none",
        "--prefix",
        "/var/lib/boathook",
    ];
    said(&site.run(&prefix));
    assert_eq!(
        take_calls(&site),
        format!(
            "restorecon -R -i /var/lib/boathook /etc/boathook\n\
             restorecon -i /var/lib/boathook.toml\n\
             chcon -h -t usr_t /var/lib/boathook /var/lib/boathook/current\n\
             chcon -R -h -t usr_t /var/lib/boathook/{VERSION}\n\
             chcon -R -t bin_t /var/lib/boathook/{VERSION}/bin\n"
        )
    );
}

#[test]
fn files_of_engines_and_of_udev_get_their_types_too() {
    let Some(site) = host(0) else {
        return;
    };
    site.make_dirs(&["etc/systemd/system", "etc/udev", "run/systemd/system"]);
    said(&site.run(&["install", "--engine", "docker"]));
    let calls = take_calls(&site);
    let labelled = calls.lines().last().unwrap_or_default();
    for file in [
        "/etc/docker/daemon.json",
        "/etc/systemd/system/boathook-follow.service",
        "/etc/udev/rules.d/71-boathook-cdi.rules",
    ] {
        assert!(site.path(&file[1..]).exists(), "{file}");
        assert!(labelled.starts_with("restorecon -i "), "{calls}");
        assert!(
            labelled.split(' ').any(|word| word == file),
            "{file}: {calls}"
        );
    }
}

#[test]
fn a_failure_is_a_note_with_the_command() {
    let Some(site) = host(1) else {
        return;
    };
    let output = site.run(&["install", "--engine", "none"]);
    let text = said(&output) + &String::from_utf8_lossy(&output.stderr);
    let expected = "SELinux: `restorecon -R -i /opt/boathook /etc/boathook` failed: exit status: 1 \
                    (no policy); run it";
    assert!(text.contains(expected), "{text}");
    assert!(site.path("opt/boathook/current/bin/boathook-hook").exists());
    fs::remove_file(site.path("usr/sbin/restorecon")).unwrap();
    said(&site.run(&["uninstall"]));
    let output = site.run(&["install", "--engine", "none"]);
    let text = said(&output) + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("No such file or directory"), "{text}");
}

#[test]
fn without_selinux_nothing_is_called() {
    let Some(site) = host(1) else {
        return;
    };
    fs::remove_file(site.path("sys/fs/selinux/enforce")).unwrap();
    said(&site.run(&["install", "--engine", "none"]));
    assert_eq!(take_calls(&site), "");
}
