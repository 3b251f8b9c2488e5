//! The survival table. Every cell is a container that opens its device, goes
//! through something, and tries to open it again, and one that it was not given.

use std::thread;

use anyhow::{Context, Result, bail};
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::privilege::report_skip;
use harness::probe::{Access, Questions};
use harness::systemd_host::{Container, Driver, Program, Runtime, SystemdHost};

use super::event::Event;
use super::given_by::SystemdIs::{Hidden, Reached};
use super::given_by::{GivenBy, Giver, NODE};
use super::table::{self, Fate, Row};

/// Both ways with every runtime and driver that runs here; without systemd where
/// that may make a difference.
fn kinds(view: CgroupView) -> Vec<(Runtime, GivenBy)> {
    use Driver::{Cgroupfs, Systemd};
    let programs = match view {
        CgroupView::V1 => &[Program::Runc, Program::Crun][..],
        // crun needs CAP_SYS_RESOURCE there, which the machine may not have.
        CgroupView::V2 => &[Program::Runc][..],
    };
    let mut kinds = Vec::new();
    for program in programs {
        for driver in [Cgroupfs, Systemd] {
            let runtime = Runtime {
                program: *program,
                driver,
            };
            for systemd in [Reached, Hidden] {
                if driver == Systemd || systemd == Reached {
                    kinds.extend(
                        [Giver::Hook, Giver::Wrapper]
                            .map(|giver| (runtime, GivenBy { giver, systemd })),
                    );
                }
            }
        }
    }
    kinds
}

#[test]
fn devices_last_as_the_documentation_says() {
    let hosts = thread::scope(|scope| {
        let hosts = CgroupView::ALL.map(|view| scope.spawn(move || measured(view)));
        hosts.map(|host| host.join().unwrap())
    });
    let head = table::head().to_vec();
    let all_measured = hosts.iter().all(|lines| !lines.is_empty());
    let table: Vec<String> = head
        .into_iter()
        .chain(hosts.into_iter().flatten())
        .collect();
    println!("{}", table.join("\n"));

    let documented = table::documented();
    let wrong: Vec<_> = table
        .iter()
        .filter(|line| !documented.contains(line))
        .collect();
    assert!(
        wrong.is_empty(),
        "docs/durability.md has no such lines: {wrong:#?}"
    );
    if all_measured {
        assert_eq!(
            table, documented,
            "docs/durability.md has more, or another order"
        );
    }
}

/// The rows of one view of cgroups; none if there is no host with it.
fn measured(view: CgroupView) -> Vec<String> {
    if let Some(reason) = SystemdHost::missing(view) {
        report_skip(&format!("the survival table ({view})"), &reason);
        return Vec::new();
    }
    let host = SystemdHost::boot(view).unwrap();
    let demo = DemoHost::new().unwrap();
    let mut rows = Vec::new();
    for (runtime, given_by) in kinds(view) {
        let fate = |event: Event| {
            fate(&host, &demo, runtime, given_by, event)
                .with_context(|| format!("{view}, {runtime}, {given_by}: {event}; {}", demo.log()))
                .unwrap()
        };
        let fates = Event::ALL.map(fate).to_vec();
        let row = Row {
            view,
            runtime,
            given_by,
            fates,
        };
        rows.push(row.to_string());
    }
    assert_eq!(host.stop(), Vec::<String>::new());
    rows
}

/// One cell.
fn fate(
    host: &SystemdHost,
    demo: &DemoHost,
    runtime: Runtime,
    given_by: GivenBy,
    event: Event,
) -> Result<Fate> {
    let name = format!("{event}").replace(' ', "-");
    let bundle = given_by
        .bundle(host, demo)
        .cgroups_path(runtime.cgroups_path(&name))
        .build()?;
    let config = demo.config_file();
    let container = match given_by.giver {
        Giver::Hook => Container::run(host, runtime, &bundle)?,
        Giver::Wrapper => {
            given_by.configure_wrapper(demo, runtime)?;
            Container::run_wrapped(host, runtime, &bundle, &config)?
        }
    };
    if !opens(&container, demo)? {
        bail!("the device does not open to begin with");
    }
    let unit = runtime.unit(&name);
    if !event.happen(host, &container, unit.as_deref())? {
        return Ok(Fate::NoUnit);
    }
    Ok(if opens(&container, demo)? {
        Fate::Kept
    } else {
        Fate::Lost
    })
}

/// Whether the container's device opens in it. One that it was not given must
/// not, whatever happened.
fn opens(container: &Container<'_>, demo: &DemoHost) -> Result<bool> {
    let other = demo.device(DemoHost::UNLIKE);
    let made = "/dev/not-given";
    let questions = Questions::new()
        .path(NODE)
        .new_node(made, other.major, other.minor);
    let report = container.probe(&questions)?;
    let refused = Access::refused("EPERM");
    let attempt = report.new_node(made)?;
    if attempt.made != Access::Granted || attempt.read.as_ref() != Some(&refused) {
        bail!("a device that was not given: {attempt:?}");
    }
    match &report.path(NODE)?.read {
        Access::Granted => Ok(true),
        access if *access == refused => Ok(false),
        access => bail!("the device was given, and opening it gives {access}"),
    }
}
