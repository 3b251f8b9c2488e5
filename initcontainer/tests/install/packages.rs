//! Tests that the packages' scripts disable and stop the systemd units when a package is removed.

use std::os::unix::fs::PermissionsExt;
use std::{fs, iter};

use crate::site::{fixtures, said, with_mounts, write};

/// Runs a script as a package manager does on a host that has booted with systemd and has no
/// installation. Returns the calls of systemctl. Returns `None`, and the test is skipped, if this
/// process may not mount.
fn run_script(script: &str, argument: &str) -> Option<Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (program, calls, file) = (path("bin/systemctl"), path("calls"), path("script"));
    let text = format!("#!/bin/sh\necho \"$*\" >>{}\n", calls.display());
    write(&program, text);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    write(&file, script);
    let output = with_mounts(&format!(
        "for dir in /opt /var/lib /etc/systemd/system; do \
         [ ! -d $dir ] || mount -t tmpfs tmpfs $dir; done; \
         mount -t tmpfs tmpfs /run; mkdir -p /run/systemd/system; \
         PATH={directory}/bin:$PATH sh {file} {argument}",
        directory = directory.path().display(),
        file = file.display(),
    ))?;
    said(&output);
    let calls = fs::read_to_string(calls).unwrap();
    Some(calls.lines().map(ToOwned::to_owned).collect())
}

/// While their links are there, udev and the end of the service for facts start the timer that has
/// CDI specifications written again.
#[test]
fn a_removal_disables_units_before_it_stops_them() {
    const STOPPED: [&str; 6] = [
        "boathook-facts.timer",
        "boathook-facts.service",
        "boathook-cdi.timer",
        "boathook-cdi.service",
        "boathook-follow.service",
        "boathook-plugin.service",
    ];
    let packages = fixtures().join("../../dist/packages");
    let read = |name: &str| fs::read_to_string(packages.join(name)).unwrap();
    let spec = read("boathook.spec");
    let (_, removal) = spec.split_once("\n%preun\n").unwrap();
    let (removal, _) = removal.split_once("\n%postun\n").unwrap();
    let expected: Vec<String> = iter::once(format!("--quiet disable {}", STOPPED.join(" ")))
        .chain(STOPPED.map(|unit| format!("stop {unit}")))
        .collect();
    for (script, argument) in [(&*read("prerm"), "remove"), (removal, "0")] {
        let Some(calls) = run_script(script, argument) else {
            return;
        };
        assert_eq!(calls, expected, "{script}");
    }
}
