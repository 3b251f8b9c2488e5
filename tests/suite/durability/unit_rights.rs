//! The rights of the shipped services, by the exposure that systemd-analyze computes, from 0 to 10.

use std::fs;
use std::process::Command;

use harness::binaries;
use harness::captured::Captured;

/// Each service with the exposure that it stays below, and a part of the reason for more than 3 that
/// its unit has as a comment.
const LIMITS: [(&str, f32, &str); 4] = [
    ("boathook-cdi.service", 3.0, ""),
    (
        "boathook-facts.service",
        7.0,
        "# It runs programs of drivers, which open devices",
    ),
    (
        "boathook-follow.service",
        9.5,
        "# It works in the namespaces, cgroups and files of containers",
    ),
    (
        "boathook-plugin.service",
        9.5,
        "# It reads all devices, sockets of the engine",
    ),
];

#[test]
fn services_have_few_rights_or_a_reason() {
    let directory = binaries::source_tree().join("dist/systemd");
    let services = fs::read_dir(&directory).unwrap();
    let services = services.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut services: Vec<String> = services.filter(|name| name.ends_with(".service")).collect();
    services.sort();
    assert_eq!(services, LIMITS.map(|(name, _, _)| name));
    for (name, limit, reason) in LIMITS {
        let unit = directory.join(name);
        assert!(
            fs::read_to_string(&unit).unwrap().contains(reason),
            "{name}"
        );
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=yes", "--no-pager"]);
        // systemd before 250 has no such option.
        let ran = Captured::run(analyze.arg(&unit)).ok();
        let Some(ran) = ran.filter(|ran| ran.stdout.contains("Overall exposure level")) else {
            return skip::report("systemd-analyze", "needs systemd 250 or later");
        };
        let level = ran.stdout.lines().find_map(|line| {
            let (_, level) = line.split_once(&format!("{name}: "))?;
            level.split(' ').next()?.parse::<f32>().ok()
        });
        assert!(level.is_some_and(|level| level < limit), "{}", ran.stdout);
    }
}
