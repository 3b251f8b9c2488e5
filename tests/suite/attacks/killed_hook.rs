//! A hook that is killed while a program of the host prepares a device.

use std::fs;
use std::path::Path;

use harness::bundle::{Bundle, HookCommand};
use harness::patience::wait_until;
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::lab::{Lab, STAGE, hook, on_each_cgroup_version};

on_each_cgroup_version!(the_program_ends_with_the_hook);

const CLASS: &str = r#"
version = 1
resource = "slow.com/npu"
[request]
env = "SLOW_VISIBLE_DEVICES"
[request.pairs]
select_env = "SLOW_DEVICE_"
select = "{index}"
value_env = "SLOW_STATE_"
attribute = "wanted"
[[discover]]
path = "/sys/slow/npu{index:number}"
[device]
id = "slow-{index}"
[prepare]
program = "/usr/bin/slow-prepare"
arguments = ["{index}"]
timeout = 60
file = "state"
equals = "{wanted}"
"#;

/// Runs the hook until the program has started, and kills it.
const KILLED: &str = r#"
    exec 3<&0
    "$@" <&3 3<&- &
    while [ ! -s "$STARTED" ] && kill -0 $!; do sleep 0.05; done
    kill -KILL $!
    exit 1
"#;

fn the_program_ends_with_the_hook(lab: &Lab) {
    let host = RecordedHost::bare("file /sys/slow/npu0/state\n| idle\n").unwrap();
    host.add_class("slow", CLASS).unwrap();
    let started = host.path().join("started");
    let script = format!(
        "#!/bin/sh\nsleep 1000 &\necho $$ $! > {}\nwait\n",
        started.display()
    );
    host.add_program("/usr/bin/slow-prepare", &script).unwrap();

    let shell = HookCommand::new(Path::new("/bin/sh")).arg("-c");
    let script = KILLED.replace("$STARTED", &started.display().to_string());
    let bundle = Bundle::builder(Rootfs::Busybox)
        .hook(STAGE, hook(&host).behind(shell.arg(&script).arg("sh")))
        .env("SLOW_VISIBLE_DEVICES", "all")
        .env("SLOW_DEVICE_0", "0")
        .env("SLOW_STATE_0", "ready")
        .build()
        .unwrap();
    let refused = lab.runc.create(&bundle).map(drop).unwrap_err();
    let Ok(pids) = fs::read_to_string(&started) else {
        panic!("the program was not started: {refused:#}");
    };
    for pid in pids.split_whitespace() {
        assert_ends(Pid::from_raw(pid.parse().unwrap()));
    }
    lab.assert_nothing_left(&bundle);
}

#[track_caller]
fn assert_ends(pid: Pid) {
    let process = Path::new("/proc").join(pid.to_string());
    if !wait_until(|| !is_alive(&process)) {
        kill(pid, Signal::SIGKILL).unwrap();
        panic!("process {pid} outlives the hook");
    }
}

/// Dead processes may wait for somebody to reap them.
fn is_alive(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    status.contains("State:") && !status.contains("\nState:\tZ")
}
