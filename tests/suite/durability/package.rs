//! The Debian package on a booted host: its services run the new programs after an upgrade, and none
//! runs after the removal.

use harness::cgroup_view::CgroupView;
use harness::patience::wait_until;
use harness::systemd_host::{Distribution, SystemdHost};

use super::services::{WRITABLE, ask};
use crate::release::upgrade::{NEW, OLD, Packages};

const FOLLOW: &str = "boathook-follow.service";
const CDI: &str = "boathook-cdi.service";

/// dpkg writes to these directories of the host, which are read-only.
const OVERLAYS: &str = "for directory in usr var/lib; do
    mkdir -p /run/upper/$directory /run/work/$directory
    mount -t overlay -o lowerdir=/$directory,upperdir=/run/upper/$directory,workdir=/run/work/$directory \
        overlay /$directory
done";

/// Prints the program of each process of the host that is one of Boathook's, with the version at the
/// end of the program's file.
const RUNNING_PROGRAMS: &str = "for process in /proc/[0-9]*; do
    program=$(readlink $process/exe || true)
    case $program in
    *boathook*) echo \"$program $(tail -c 5 $process/exe)\" ;;
    esac
done";

#[test]
fn the_package_leaves_no_service_with_an_earlier_program() {
    const TEST: &str = "the package on a booted host";
    let (distribution, view) = (Distribution::OfThisMachine, CgroupView::V1);
    if let Some(reason) = SystemdHost::missing(distribution, view) {
        return skip::report(TEST, &reason);
    }
    let packages = Packages::with_tool();
    let packages =
        [OLD, NEW].map(|version| packages.find(version, "deb").map(|path| (version, path)));
    let [Some(old), Some(new)] = packages else {
        return skip::report(TEST, "needs dpkg-deb");
    };
    let host = SystemdHost::boot(distribution, view).unwrap();
    let run = |script: &str| host.run("/bin/sh", &["-euc", script]).unwrap();
    run(WRITABLE);
    run(OVERLAYS);
    let install = |(version, package): &(&str, std::path::PathBuf)| {
        run(&format!("dpkg --install {}", package.display()));
        // The unit of the package names the package's own program.
        format!("/usr/lib/boathook/bin/boathook {version}")
    };

    let program = install(&old);
    // The package starts nothing by itself.
    assert_eq!(ask(&host, "is-active", FOLLOW), "inactive");
    run("boathook-init install --engine none --classes none --follow --cdi");
    assert_eq!(ask(&host, "is-active", FOLLOW), "active");
    assert_eq!(run(RUNNING_PROGRAMS).trim(), program);

    let program = install(&new);
    assert!(wait_until(|| run(RUNNING_PROGRAMS).trim() == program));
    assert_eq!(ask(&host, "is-active", FOLLOW), "active");
    assert_eq!(ask(&host, "is-enabled", CDI), "enabled");

    run("dpkg --remove boathook");
    assert_eq!(ask(&host, "is-active", FOLLOW), "inactive");
    assert_eq!(run(RUNNING_PROGRAMS), "");
    assert_eq!(ask(&host, "list-unit-files", "--no-legend boathook-*"), "");
    assert_eq!(run("find /etc/systemd /run/systemd -name 'boathook-*'"), "");
    assert_eq!(run("ls /opt"), "");
}
