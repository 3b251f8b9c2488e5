//! The units that keep CDI specifications right on hosts without Kubernetes.

use std::fs;

use harness::binaries;
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::patience::wait_until;
use harness::scratch;
use harness::systemd_host::{Distribution, SystemdHost};

fn has_specifications(host: &SystemdHost) -> bool {
    let listed = host.run("ls", &["/run/cdi"]).unwrap_or_default();
    listed.lines().any(|name| name.starts_with("boathook-"))
}

#[test]
fn specifications_are_written_at_boot_and_after_changes() {
    let (distribution, view) = (Distribution::OfThisMachine, CgroupView::V1);
    if let Some(reason) = SystemdHost::missing(distribution, view) {
        return skip::report("the units for CDI", &reason);
    }
    let host = SystemdHost::boot(distribution, view).unwrap();
    let devices = DemoHost::new().unwrap();
    let config = fs::read(devices.config_file()).unwrap();
    fs::write(
        host.configuration().join("etc/boathook/config.toml"),
        config,
    )
    .unwrap();

    let units = scratch::directory("units").unwrap();
    for name in ["boathook-cdi.service", "boathook-cdi.timer"] {
        let shipped = binaries::source_tree().join("dist/systemd").join(name);
        fs::copy(shipped, units.path().join(name)).unwrap();
    }
    // The program is not in the PATH of this host, and the class is one of a test's own, in
    // /var/tmp.
    let program = SystemdHost::program("boathook");
    let program = format!(
        "[Service]\nPrivateTmp=no\nExecStart=\nExecStart={} cdi generate --all\n",
        program.display()
    );
    let changed = units.path().join("boathook-cdi.service.d");
    fs::create_dir(&changed).unwrap();
    fs::write(changed.join("program.conf"), program).unwrap();
    let units = format!("{}/.", units.path().display());
    host.run("cp", &["-r", &units, "/run/systemd/system"])
        .unwrap();
    host.run("systemctl", &["daemon-reload"]).unwrap();

    host.run("systemctl", &["start", "boathook-cdi.service"])
        .unwrap();
    assert!(has_specifications(&host));

    // As 71-boathook-cdi.rules does for each of a burst of events.
    host.run("rm", &["-r", "/run/cdi"]).unwrap();
    for _ in 0..3 {
        host.run("systemctl", &["restart", "boathook-cdi.timer"])
            .unwrap();
    }
    let has_run = wait_until(|| has_specifications(&host));
    assert!(has_run, "the timer has not run the service");
}
