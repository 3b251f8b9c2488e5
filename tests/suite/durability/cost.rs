//! What it costs to tell systemd.

use std::fs;
use std::path::Path;
use std::thread::available_parallelism;

use harness::bundle::{Bundle, HookCommand, Stage};
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::privilege::report_skip;
use harness::rootfs::Rootfs;
use harness::systemd_host::{Container, Driver, Program, Runtime, SystemdHost};

use super::given_by::without_systemd;

/// Containers of each kind; the first of them only fill caches.
const ROUNDS: usize = 30;
const WARM_UP: usize = 3;
/// What the step may cost, in milliseconds; twice that where tests run side by
/// side.
const LIMIT: f64 = 3.0;

/// A hook that tells systemd, and one to which systemd is hidden, take turns.
#[test]
fn telling_systemd_is_fast() {
    let view = CgroupView::V2;
    if let Some(reason) = SystemdHost::missing(view) {
        return report_skip("telling_systemd_is_fast", &reason);
    }
    let host = SystemdHost::boot(view).unwrap();
    let demo = DemoHost::new().unwrap();
    let times = demo.path().join("times");
    fs::create_dir(&times).unwrap();
    let (with, without) = (times.join("with"), times.join("without"));
    let stage = Stage::CreateRuntime;
    let hook = host.hook(stage, &demo.config_file());
    let reached = hook.clone().behind(timed(&with));
    let hidden = hook.behind(timed(&without)).behind(without_systemd());
    for _ in 0..ROUNDS {
        run(&host, stage, reached.clone());
        run(&host, stage, hidden.clone());
    }

    let (with, without) = (times_in(&with), times_in(&without));
    let added = |share| with.at(share) - without.at(share);
    println!(
        "telling systemd adds {:.2} ms to the hook (median; {:.2} ms with, {:.2} ms without), \
         {:.2} ms at the fastest tenth; goal {LIMIT} or less",
        added(0.5),
        with.at(0.5),
        without.at(0.5),
        added(0.1),
    );
    // Every wait for systemd is also one for a processor.
    let limit = if busy() { 2.0 * LIMIT } else { LIMIT };
    assert!(added(0.1) <= limit, "telling systemd takes too long");
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
    Container::run(host, runtime, &bundle).unwrap();
}

/// What writes down how long a hook takes.
fn timed(file: &Path) -> HookCommand {
    HookCommand::new(&SystemdHost::program("timed")).arg(&file.display().to_string())
}

/// Whether more wants to run than there are processors (proc_loadavg(5)).
fn busy() -> bool {
    let text = fs::read_to_string("/proc/loadavg").unwrap();
    let load: f64 = text.split(' ').next().unwrap().parse().unwrap();
    load > available_parallelism().unwrap().get() as f64
}

/// Times in milliseconds, the shortest first.
struct Times(Vec<f64>);

impl Times {
    /// The time that this share of them is not above.
    fn at(&self, share: f64) -> f64 {
        self.0[(self.0.len() as f64 * share) as usize]
    }
}

fn times_in(file: &Path) -> Times {
    let text = fs::read_to_string(file).unwrap();
    let times = text.lines().map(|line| line.parse().unwrap());
    let mut times: Vec<f64> = times.skip(WARM_UP).collect();
    times.sort_by(f64::total_cmp);
    Times(times)
}
