//! Devices that are taken away from a container that runs, or replaced, under systemd.

use harness::captured::Captured;
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::probe::{Access, Questions};
use harness::systemd_host::{Container, Distribution, Driver, Program, Runtime, SystemdHost};

use super::device_source::{DeviceSource, Giver, NODE, SystemdIs};

#[test]
fn rules_of_units_follow_too() {
    for view in CgroupView::ALL {
        let distribution = Distribution::OfThisMachine;
        match SystemdHost::missing(distribution, view) {
            Some(reason) => skip::report(&format!("units of followed devices ({view})"), &reason),
            None => follow_and_detach(SystemdHost::boot(distribution, view).unwrap()),
        }
    }
}

fn follow_and_detach(host: SystemdHost) {
    const OTHER: usize = DemoHost::UNLIKE;
    let demo = DemoHost::new().unwrap();
    demo.write_config("[class.dummy-npu]\nfollow = true\n")
        .unwrap();
    let config = demo.config_file();
    let runtime = Runtime {
        program: Program::Runc,
        driver: Driver::Systemd,
    };
    for giver in [Giver::Hook, Giver::Attach] {
        let source = DeviceSource {
            giver,
            systemd: SystemdIs::Reached,
            followed: true,
        };
        let bundle = source.bundle(&host, &demo);
        let bundle = bundle
            .cgroups_path(runtime.cgroups_path("live"))
            .build()
            .unwrap();
        let container = Container::run(&host, runtime, &bundle, None).unwrap();
        if giver == Giver::Attach {
            container.attach(&config, "dummy-npu=npu-3").unwrap();
        }
        let after_each = |opens: Option<usize>, closed: &[usize]| {
            let unit = "boathook-live.scope";
            for event in [
                &["show"][..],
                &["daemon-reload"],
                &["daemon-reexec"],
                &["set-property", "--runtime", unit, "TasksMax=4096"],
            ] {
                host.run("systemctl", event).unwrap();
                host.wait_until_running().unwrap();
                assert_access(&container, &demo, opens, closed, &event.join(" "));
            }
        };
        after_each(Some(3), &[OTHER]);
        std::fs::remove_file(demo.node(3)).unwrap();
        demo.device(OTHER).make_node(&demo.node(3)).unwrap();
        follow(&host, &demo);
        after_each(Some(OTHER), &[3]);
        std::fs::remove_file(demo.node(3)).unwrap();
        follow(&host, &demo);
        after_each(None, &[3, OTHER]);
        demo.device(3).make_node(&demo.node(3)).unwrap();
        follow(&host, &demo);
        after_each(Some(3), &[OTHER]);
        if giver == Giver::Attach {
            container.detach(&config).unwrap();
            after_each(None, &[3, OTHER]);
        }
    }
    assert_eq!(host.stop(), Vec::<String>::new());
}

/// For a second.
fn follow(host: &SystemdHost, demo: &DemoHost) {
    let mut follow = host.command("timeout").unwrap();
    follow.arg("1").arg(SystemdHost::program("boathook"));
    follow.arg("--config").arg(demo.config_file()).arg("follow");
    let ran = Captured::run(&mut follow).unwrap();
    assert_eq!(ran.status.code(), Some(124));
    // It says what it did, and nothing else.
    let is_action = |line: &str| line.starts_with("boathook: info: container ");
    assert!(ran.stderr.lines().all(is_action), "{}", ran.stderr);
}

/// The container's node is this device, which opens; others do not, whoever makes nodes.
fn assert_access(
    container: &Container<'_>,
    demo: &DemoHost,
    opens: Option<usize>,
    closed: &[usize],
    when: &str,
) {
    let mut questions = Questions::new().path(NODE);
    for index in closed {
        let (major, minor) = demo.device(*index).number();
        questions = questions.new_node(format!("/dev/made{index}"), major, minor);
    }
    let report = container.probe(&questions).unwrap();
    let seen = report.path(NODE).unwrap();
    let expected = opens.map(|index| demo.device(index).number());
    assert_eq!(seen.number(), expected, "{when}");
    if opens.is_some() {
        assert_eq!(seen.read, Access::Granted, "{when}");
    }
    for index in closed {
        let attempt = report.new_node(format!("/dev/made{index}")).unwrap();
        let refused = Some(Access::refused("EPERM"));
        assert_eq!(attempt.read, refused, "{index} {when}");
    }
}
