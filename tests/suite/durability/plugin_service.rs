//! The plugin as a service of a booted host is replaced by other versions while pods arrive.

use harness::cgroup_view::CgroupView;
use harness::kubelet::{Config, FakeKubelet};
use harness::patience::{PATIENCE, wait_until};
use harness::scratch;
use harness::systemd_host::{Distribution, SystemdHost};

use super::services::{WRITABLE, ask};

const PLUGIN: &str = "boathook-plugin.service";

const NPU: &str = "dummy.com/npu";

const CLASS: &str = r#"version = 1
resource = "dummy.com/npu"
request = { env = "DUMMY_VISIBLE_DEVICES" }
discover = [{ count = 64 }]
device = { id = "npu-{index}", index = "{index}" }
"#;

/// The kubelet's directory is one that the host shares with the test. Two instances have the same
/// address for their pages.
const DROP_IN: &str = r#"mkdir -p /etc/systemd/system/boathook-plugin.service.d
printf '[Service]\nExecStart=\nExecStart=%s run --delivery=handler --kubelet-dir=%s --http=127.0.0.1:9911\n' \
    /opt/boathook/current/bin/boathook-plugin "$0" \
    >/etc/systemd/system/boathook-plugin.service.d/kubelet.conf"#;

const ADD_CLASS: &str = r#"mkdir -p /etc/boathook/classes.d
printf %s "$0" >/etc/boathook/classes.d/npu.toml"#;

const UPGRADE: &str = r#"cp -r "$(dirname "$0")" /opt/next
echo "$1" >/opt/next/version
"$0" upgrade --source /opt/next
rm -r /opt/next"#;

const MAIN_PROGRAM: &str =
    r#"readlink "/proc/$(systemctl show --property=MainPID --value boathook-plugin.service)/exe""#;

const INSTANCES: &str = r#"cat /proc/[0-9]*/comm | grep -c "^boathook-plugin$""#;

const KILL: &str = r#"kill -KILL "$(systemctl show --property=MainPID --value "$0")""#;

#[test]
fn no_pod_is_refused_while_ten_versions_replace_the_service_of_the_plugin() {
    let (distribution, view) = (Distribution::OfThisMachine, CgroupView::V1);
    if let Some(reason) = SystemdHost::missing(distribution, view) {
        return skip::report("the service of the plugin", &reason);
    }
    let host = SystemdHost::boot(distribution, view).unwrap();
    let shell = |script: &str, argument: &str, other: &str| {
        host.run("/bin/sh", &["-euc", script, argument, other])
            .unwrap()
    };
    shell(WRITABLE, "", "");
    shell(ADD_CLASS, CLASS, "");
    // The host has the machine's directory of scratch files.
    let directory = scratch::directory("kubelet").unwrap();
    let kubelet = FakeKubelet::start(Config::new(directory.path())).unwrap();

    let program = SystemdHost::program("boathook-init").display().to_string();
    shell(DROP_IN, &directory.path().display().to_string(), "");
    let install = ["install", "--engine=containerd", "--classes=none"];
    host.run(&program, &[&install[..], &["--plugin-service"]].concat())
        .unwrap();
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    let arrivals = kubelet.let_pods_arrive(NPU, || {
        for number in 1..=10 {
            shell(UPGRADE, &program, &format!("9.9.{number}"));
            let main_program = shell(MAIN_PROGRAM, "", "");
            let wanted = format!("/opt/boathook/9.9.{number}/bin/boathook-plugin");
            assert_eq!(main_program.trim(), wanted);
            assert_eq!(shell(INSTANCES, "", "").trim(), "1");
        }
    });
    let admitted_count = arrivals.admitted_count;
    assert_eq!(
        arrivals.refusals, [""; 0],
        "beside {admitted_count} that were admitted"
    );
    assert!(admitted_count > 100, "{admitted_count}");
    let restarts = format!("--property=NRestarts {PLUGIN}");
    assert_eq!(ask(&host, "show", &restarts), "NRestarts=0");

    // systemd watches the process that it has not started.
    assert_eq!(ask(&host, "is-active", PLUGIN), "active");
    shell(KILL, PLUGIN, "");
    assert!(wait_until(|| ask(&host, "show", &restarts) == "NRestarts=1"));
    kubelet.wait_devices(PATIENCE, NPU).unwrap();
    host.run("systemctl", &["stop", PLUGIN]).unwrap();
    assert_eq!(ask(&host, "is-active", PLUGIN), "inactive");
}
