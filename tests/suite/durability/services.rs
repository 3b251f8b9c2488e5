//! The services that `boathook-init install` enables on a booted host, and that a removal stops.

use std::fs;

use harness::binaries;
use harness::captured::Captured;
use harness::cgroup_view::CgroupView;
use harness::patience::wait_until;
use harness::systemd_host::{Distribution, SystemdHost};

/// The root file system of the host is read-only.
pub(super) const WRITABLE: &str = "mount -t tmpfs -o mode=755 tmpfs /opt
mount -t tmpfs -o mode=755 tmpfs /usr/local
cp -a /etc /run/etc
mount --bind /run/etc /etc";

const FOLLOW: &str = "boathook-follow.service";
const CDI: &str = "boathook-cdi.service";
const FACTS: &str = "boathook-facts.timer";
const PLUGIN: &str = "boathook-plugin.service";

/// Returns what systemctl prints about a unit, whatever its exit status.
pub(super) fn ask(host: &SystemdHost, verb: &str, unit: &str) -> String {
    let mut command = host.command("systemctl").unwrap();
    let asked = Captured::run(command.arg(verb).args(unit.split(' '))).unwrap();
    asked.stdout.trim().to_owned()
}

#[test]
fn services_are_enabled_by_the_installer_and_stopped_by_a_removal() {
    let (distribution, view) = (Distribution::OfThisMachine, CgroupView::V1);
    if let Some(reason) = SystemdHost::missing(distribution, view) {
        return skip::report("the services of an installation", &reason);
    }
    let host = SystemdHost::boot(distribution, view).unwrap();
    host.run("/bin/sh", &["-euc", WRITABLE]).unwrap();
    let program = SystemdHost::program("boathook-init").display().to_string();
    let install = ["install", "--engine=none", "--classes=none"];
    let installed = "/opt/boathook/current/bin/boathook-init";

    host.run(&program, &[&install[..], &["--follow", "--cdi"]].concat())
        .unwrap();
    assert_eq!(ask(&host, "is-active", FOLLOW), "active");
    assert_eq!(ask(&host, "is-enabled", FOLLOW), "enabled");
    assert_eq!(ask(&host, "is-enabled", CDI), "enabled");
    assert_upgrade_restarts_services(&host, &program);
    assert_facts_are_refreshed(&host, &program);
    start_endless_facts(&host);
    host.run(installed, &["uninstall"]).unwrap();
    assert_eq!(ask(&host, "is-active", FOLLOW), "inactive");
    assert_eq!(ask(&host, "is-active", FACTS), "inactive");
    assert_eq!(ask(&host, "is-active", "boathook-cdi.timer"), "inactive");
    assert_eq!(ask(&host, "list-unit-files", "--no-legend boathook-*"), "");

    // It waits for the kubelet, of which this host has nothing.
    let handler = ["install", "--engine=containerd", "--classes=none"];
    host.run(&program, &[&handler[..], &["--plugin-service"]].concat())
        .unwrap();
    assert_eq!(ask(&host, "is-active", PLUGIN), "active");
    assert_eq!(ask(&host, "is-enabled", PLUGIN), "enabled");
    let before = ask(&host, "show", "--property=Before boathook-plugin.service");
    assert!(before.contains("kubelet.service"), "{before}");
    host.run(installed, &["uninstall"]).unwrap();
    assert_eq!(ask(&host, "is-active", PLUGIN), "inactive");

    // As the documents say, on a host that has the units and has not enabled them.
    host.run(&program, &install).unwrap();
    assert_eq!(ask(&host, "is-enabled", FOLLOW), "disabled");
    host.run("systemctl", &["enable", "--now", FOLLOW]).unwrap();
    assert_eq!(ask(&host, "is-active", FOLLOW), "active");
    host.run(installed, &["uninstall"]).unwrap();
    assert_eq!(ask(&host, "is-active", FOLLOW), "inactive");
    let links = host.run("find", &["/etc/systemd", "-name", "boathook-*"]);
    assert_eq!(links.unwrap(), "");
    assert_unit_of_make_install_starts(&host);
}

/// `make install` places the unit as it is shipped, and systemd finds the program by its name.
fn assert_unit_of_make_install_starts(host: &SystemdHost) {
    const INSTALL: &str = r#"mkdir -p /usr/local/bin /usr/local/lib/systemd/system
ln -s "$0" /usr/local/bin/boathook
printf %s "$1" >/usr/local/lib/systemd/system/boathook-follow.service
systemctl daemon-reload"#;
    let unit = binaries::source_tree().join("dist/systemd/boathook-follow.service");
    let unit = fs::read_to_string(unit).unwrap();
    let program = SystemdHost::program("boathook").display().to_string();
    host.run("/bin/sh", &["-euc", INSTALL, &program, &unit])
        .unwrap();
    host.run("systemctl", &["enable", "--now", FOLLOW]).unwrap();
    assert_eq!(ask(host, "is-active", FOLLOW), "active");
    let path = ask(
        host,
        "show",
        "--property=FragmentPath boathook-follow.service",
    );
    assert!(
        path.ends_with("=/usr/local/lib/systemd/system/boathook-follow.service"),
        "{path}"
    );
}

/// A class whose device has a name only by a fact.
const CLASS: &str = r#"version = 1
resource = "test.com/card"
request = { env = "CARDS" }
discover = [{ count = 1 }]
attributes = [{ name = "serial", fact = "serial", default = "none" }]
device = { id = "card-{serial}", nodes = [{ path = "/dev/null" }] }
[[facts]]
program = ["/bin/echo", "serial seven"]
lines = [{ line = '^serial (?<serial>.+)', facts = { serial = "{serial}" } }]
"#;

/// The service writes facts, and has the CDI specifications that depend on them written again.
fn assert_facts_are_refreshed(host: &SystemdHost, program: &str) {
    const ADD_CLASS: &str = r#"mkdir -p /etc/boathook/classes.d
printf %s "$0" >/etc/boathook/classes.d/fact-card.toml"#;
    host.run("/bin/sh", &["-euc", ADD_CLASS, CLASS]).unwrap();
    let install = ["install", "--engine=none", "--classes=none", "--facts"];
    host.run(program, &install).unwrap();
    assert_eq!(ask(host, "is-active", FACTS), "active");
    assert_eq!(ask(host, "is-enabled", FACTS), "enabled");
    // Its timer does so at a boot, and at these times in the next minutes.
    let timers = ask(
        host,
        "show",
        "--property=TimersMonotonic boathook-facts.timer",
    );
    assert_eq!(timers.matches("OnActiveUSec=").count(), 5, "{timers}");
    let has_card = || {
        let specification = host.run("cat", &["/run/cdi/boathook-test.com-card.json"]);
        specification.is_ok_and(|text| text.contains("card-seven"))
    };
    assert!(wait_until(has_card));
    let facts = host.run("cat", &["/run/boathook/facts/fact-card"]).unwrap();
    assert!(facts.contains("serial\tseven\n"), "{facts}");
    assert_docker_waits_for_facts(host);
    host.run(
        "/bin/sh",
        &["-euc", "rm -r /etc/boathook/classes.d/fact-card.toml"],
    )
    .unwrap();
}

/// At a boot, systemd starts the timer and Docker together. Docker starts when the facts are there,
/// also if the driver's program is slow.
fn assert_docker_waits_for_facts(host: &SystemdHost) {
    const START: &str = r#"systemctl stop boathook-facts.timer boathook-facts.service
sed -i 's|"/bin/echo", "serial seven"|"/bin/sh", "-c", "sleep 2; echo serial seven"|' \
    /etc/boathook/classes.d/fact-card.toml
rm /run/boathook/facts/fact-card
printf '[Service]\nType=oneshot\nExecStart=/bin/cp /run/boathook/facts/fact-card /run/seen\n' \
    >/run/systemd/system/docker.service
systemctl daemon-reload
systemctl start boathook-facts.timer docker.service
cat /run/seen
rm /run/systemd/system/docker.service
systemctl daemon-reload"#;
    let facts = host.run("/bin/sh", &["-euc", START]).unwrap();
    assert!(facts.contains("serial\tseven\n"), "{facts}");
}

/// Starts the service for facts with a program that does not end by itself. When the service is
/// stopped, it starts the timer that has CDI specifications written.
fn start_endless_facts(host: &SystemdHost) {
    const START: &str = r#"mkdir -p /run/systemd/system/boathook-facts.service.d
printf '[Service]\nExecStart=\nExecStart=/bin/sleep infinity\n' \
    >/run/systemd/system/boathook-facts.service.d/endless.conf
systemctl daemon-reload
systemctl start --no-block boathook-facts.service"#;
    host.run("/bin/sh", &["-euc", START]).unwrap();
    let is_running = || ask(host, "is-active", "boathook-facts.service") == "activating";
    assert!(wait_until(is_running));
}

/// A service that runs goes on with the program of the new version.
fn assert_upgrade_restarts_services(host: &SystemdHost, program: &str) {
    const UPGRADE: &str = r#"cp -r "$(dirname "$0")" /opt/next
echo 9.9.9 >/opt/next/version
"$0" upgrade --source /opt/next
rm -r /opt/next"#;
    const EXECUTABLE: &str =
        r#"readlink "/proc/$(systemctl show --property=MainPID --value "$0")/exe""#;
    host.run("/bin/sh", &["-euc", UPGRADE, program]).unwrap();
    let executable = || host.run("/bin/sh", &["-euc", EXECUTABLE, FOLLOW]);
    // systemd reports a restart before the new process has executed the program.
    let is_new =
        || executable().is_ok_and(|path| path.trim() == "/opt/boathook/9.9.9/bin/boathook");
    assert!(wait_until(is_new), "{:?}", executable());
    assert_eq!(ask(host, "is-active", FOLLOW), "active");
}
