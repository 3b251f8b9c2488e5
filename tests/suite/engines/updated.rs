//! Updates by which a runtime sets a container's device rules again: `boathook follow` gives
//! back what is lost.

use std::fs;
use std::process::Command;

use anyhow::Result;
use harness::binaries;
use harness::bundle::Bundle;
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::engine_root::Generation;
use harness::patience::wait_until;
use serde_json::json;

use super::docker::Container;
use super::engine::{Running, printed};
use super::followed::{has_device, opens};
use super::machine::Machine;
use super::replugged::{FOLLOWED, MAY_MAKE_NODES, said, start_follower, start_follower_by};
use super::{bundles, podman};
use crate::live::follow::{replug, with_device};

const OTHER: usize = DemoHost::UNLIKE;

/// crun sets the rules again at each update, and runc does not.
#[test]
fn what_an_update_takes_away_is_given_back() {
    // podman 4.3 sends no rules along.
    let generation = Generation::Forky;
    let missing = podman::missing(generation).or_else(|| bundles::missing(generation, "crun"));
    if let Some(reason) = missing {
        return skip::report("updates of podman with crun", &reason);
    }
    let engine = podman::by_crun(generation).unwrap();
    let machine = &engine.machine;
    let host = &machine.devices;
    let start = |name: &str, option: &[&str]| {
        let cgroup = format!("--cgroup-parent={}", machine.parent.path().display());
        let usual = ["--network=none", &cgroup, MAY_MAKE_NODES];
        engine.run_waiting(name, &[&usual, option].concat());
        Container {
            engine: &engine,
            name: name.to_owned(),
        }
    };
    let given = start("given", &["--env=DUMMY_VISIBLE_DEVICES=npu-3"]);
    let update = |container: &Container<'_>, shares: u32| {
        let mut update = engine.command("update");
        printed(update.args([&format!("--cpu-shares={shares}"), &container.name])).unwrap();
    };
    assert!(has_device(&given, host, 3, Some(3)));
    update(&given, 512);
    let kept = has_device(&given, host, 3, Some(3));
    assert!(!kept, "crun has kept the rules: nothing is shown");
    drop(given);

    // Of a class that is not followed, what is attached is given back all the same.
    start_follower(machine, "");
    let attached = start("attached", &[]);
    let boathook = |arguments: &[&str]| {
        let mut command = machine
            .private
            .command(binaries::program("boathook").unwrap());
        printed(command.args(arguments)).unwrap()
    };
    boathook(&["attach", "attached", "dummy-npu=npu-3"]);
    for shares in [512, 513, 514] {
        update(&attached, shares);
        let is_back = wait_until(|| has_device(&attached, host, 3, Some(3)));
        assert!(is_back, "{shares}: {}", said(machine));
        assert!(!opens(&attached, host, OTHER));
    }
    boathook(&["detach", "attached"]);
    update(&attached, 515);
    assert!(has_device(&attached, host, 3, None));
    assert!(!opens(&attached, host, 3));
    drop(attached);

    start_follower(machine, FOLLOWED);
    let given = start("given", &["--env=DUMMY_VISIBLE_DEVICES=npu-3"]);
    for (shares, now) in [
        (516, Some(3)),
        (517, None),
        (518, Some(OTHER)),
        (519, Some(3)),
    ] {
        replug(host, 3, now);
        update(&given, shares);
        let is_so = wait_until(|| has_device(&given, host, 3, now));
        assert!(is_so, "{shares}: {}", said(machine));
        let gone = [3, OTHER].into_iter().filter(|index| Some(*index) != now);
        for gone in gone {
            let is_so = wait_until(|| !opens(&given, host, gone));
            assert!(is_so, "{shares}: {gone}");
        }
    }
}

/// On cgroup v2 crun loads another program, and then writes the limits.
#[test]
fn what_an_update_takes_away_on_cgroup_v2_is_given_back() {
    let generation = Generation::Forky;
    let missing = bundles::missing(generation, "crun").or_else(|| CgroupView::V2.missing());
    if let Some(reason) = missing {
        return skip::report("updates of crun on cgroup v2", &reason);
    }
    let machine = Machine::new(generation, "crun").unwrap();
    let view = || {
        machine
            .private
            .command(binaries::program("cgroup2-view").unwrap())
    };
    let host = &machine.devices;
    host.write_config(FOLLOWED).unwrap();
    let mut follow = view();
    follow.arg(binaries::program("boathook").unwrap());
    start_follower_by(&machine, follow, FOLLOWED);
    let bundle = with_device(host, "npu-3").cgroups_path(machine.parent.unique_child());
    let container = OfCrun {
        view: &view,
        bundle: bundle.build().unwrap(),
        machine: &machine,
    };
    let directory = container.bundle.directory().display().to_string();
    container
        .crun(&["create", "--bundle", &directory, container.bundle.id()])
        .unwrap();
    container.crun(&["start", container.bundle.id()]).unwrap();
    let update = |pages: u32| {
        let allow =
            |major: u32| json!({"allow": true, "type": "c", "major": major, "access": "rwm"});
        let resources = json!({
            "devices": [{"allow": false, "access": "rwm"}, allow(1), allow(5)],
            "hugepageLimits": [{"pageSize": "2MB", "limit": pages << 21}],
        });
        let file = container.bundle.directory().join("resources.json");
        fs::write(&file, resources.to_string()).unwrap();
        let file = file.display().to_string();
        container
            .crun(&["update", "--resources", &file, container.bundle.id()])
            .unwrap();
    };
    for (pages, now) in [(1, Some(3)), (2, None), (3, Some(OTHER))] {
        replug(host, 3, now);
        update(pages);
        let is_so = wait_until(|| has_device(&container, host, 3, now));
        assert!(is_so, "{pages}: {}", said(&machine));
    }
    // No device changes here, so the follower only restores the rules, and then logs this. It may
    // have logged the same for an earlier update.
    let restored = || {
        said(&machine)
            .matches("its device rules are set again")
            .count()
    };
    let earlier = restored();
    update(4);
    let is_said = wait_until(|| restored() > earlier);
    assert!(is_said, "crun has kept the rules: {}", said(&machine));
    let is_back = wait_until(|| has_device(&container, host, 3, Some(OTHER)));
    assert!(is_back, "{}", said(&machine));
}

struct OfCrun<'a> {
    view: &'a dyn Fn() -> Command,
    bundle: Bundle,
    machine: &'a Machine,
}

impl OfCrun<'_> {
    fn crun(&self, arguments: &[&str]) -> Result<String> {
        let mut crun = (self.view)();
        let program = self.machine.generation.program("crun").unwrap();
        crun.arg(program)
            .arg("--root")
            .arg(self.machine.path("state"));
        printed(crun.args(arguments))
    }
}

impl Running for OfCrun<'_> {
    fn exec(&self, args: &[String]) -> Result<String> {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.crun(&[&["exec", self.bundle.id()], &args[..]].concat())
    }

    fn restart(&self) -> Result<()> {
        anyhow::bail!("it is not restarted")
    }
}

impl Drop for OfCrun<'_> {
    fn drop(&mut self) {
        let _ = self.crun(&["delete", "--force", self.bundle.id()]);
    }
}
