//! The cost of adding rules to systemd's units.

use std::fs;
use std::path::Path;

use harness::bundle::{Bundle, HookCommand, Stage};
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::figure::median;
use harness::rootfs::Rootfs;
use harness::systemd_host::{Container, Distribution, Driver, Program, Runtime, SystemdHost};

use super::device_source::SystemdIs;

/// Containers of each kind; the first of them only fill caches.
const ROUNDS: usize = 30;
const WARM_UP: usize = 3;
/// The time that the step may take, in milliseconds.
const LIMIT: f64 = 3.0;

/// A hook that calls systemd, and one that cannot see it, take turns.
#[test]
#[ignore = "a figure, for a release build on a quiet machine: make bench"]
fn telling_systemd_is_fast() {
    let view = CgroupView::V2;
    if let Some(reason) = SystemdHost::missing(Distribution::OfThisMachine, view) {
        return skip::report("telling_systemd_is_fast", &reason);
    }
    let host = SystemdHost::boot(Distribution::OfThisMachine, view).unwrap();
    let demo = DemoHost::new().unwrap();
    let times = demo.path().join("times");
    fs::create_dir(&times).unwrap();
    let (with, without) = (times.join("with"), times.join("without"));
    let stage = Stage::CreateRuntime;
    let hook = host.hook(stage, &demo.config_file());
    let reached = hook.clone().behind(timed(&with));
    let hidden = SystemdIs::Hidden.for_hook(hook.behind(timed(&without)));
    for _ in 0..ROUNDS {
        run(&host, stage, reached.clone());
        run(&host, stage, hidden.clone());
    }

    let [with, without] = [with, without].map(|file| median_of_times_in(&file));
    let added = with - without;
    println!(
        "added by telling systemd, cgroup v2 ({with:.2} ms with, {without:.2} ms without)  \
         {added:.2} ms  goal {LIMIT} or less"
    );
    assert!(added <= LIMIT, "telling systemd takes too long");
}

/// Creates and removes a container with a device.
fn run(host: &SystemdHost, stage: Stage, hook: HookCommand) {
    let runtime = Runtime {
        program: Program::Runc,
        driver: Driver::Systemd,
    };
    let bundle = Bundle::builder(Rootfs::Busybox)
        .hook(stage, hook)
        .env(DemoHost::VARIABLE, "npu-3")
        .cgroups_path(runtime.cgroups_path("cost"))
        .build()
        .unwrap();
    Container::run(host, runtime, &bundle, None).unwrap();
}

/// A program that records the duration of a hook.
fn timed(file: &Path) -> HookCommand {
    HookCommand::new(&SystemdHost::program("timed")).arg(&file.display().to_string())
}

/// In milliseconds.
fn median_of_times_in(file: &Path) -> f64 {
    let text = fs::read_to_string(file).unwrap();
    let times = text.lines().map(|line| line.parse().unwrap());
    median(times.skip(WARM_UP).collect())
}
