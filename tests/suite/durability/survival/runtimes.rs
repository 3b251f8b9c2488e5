//! Containers that a runtime runs from a bundle.

use std::path::Path;

use anyhow::{Context, Result};
use harness::cgroup_view::CgroupView;
use harness::demo_host::DemoHost;
use harness::probe::{Questions, Report};
use harness::systemd_host::{Container, Distribution, Driver, Program, Runtime, SystemdHost};
use serde_json::{Value, json};

use super::super::device_source::SystemdIs::{Hidden, OnTheBus, Reached};
use super::super::device_source::{DeviceSource, Giver};
use super::super::event::Event;
use super::super::running_container::RunningContainer;
use super::super::table::{Fate, Row, Table};

const TABLE: Table = Table {
    kinds: ["cgroup", "runtime", "device given by"],
    events: EVENTS,
};

/// The events that can happen to a container without an engine.
pub(super) const EVENTS: &[Event] = &[
    Event::DaemonReload,
    Event::DaemonReexec,
    Event::SetProperty,
    Event::RuntimeUpdate,
    Event::ContainerRestart,
    Event::Replugged,
];

#[test]
fn devices_last_as_documented() {
    super::compare(&TABLE, measured);
}

/// The rows of one view of cgroups; none if there is no host with it.
fn measured(view: CgroupView) -> Vec<Row> {
    let Some((host, demo)) = super::host("what runtimes run", Distribution::OfThisMachine, view)
    else {
        return Vec::new();
    };
    let row = |(runtime, device_source): (Runtime, DeviceSource)| {
        let fates = fates(EVENTS, &host, &demo, runtime, device_source).with_context(|| {
            let log = demo.log();
            format!("{view}, {runtime}, {device_source}; {log}")
        });
        Row {
            kind: [
                super::version(view),
                runtime.to_string(),
                device_source.to_string(),
            ],
            fates: fates.unwrap(),
        }
    };
    let rows = kinds(view).into_iter().map(row).collect();
    assert_eq!(host.stop(), Vec::<String>::new());
    rows
}

/// Both ways with every runtime and driver that runs here; where systemd may
/// make a difference, with less of it too.
fn kinds(view: CgroupView) -> Vec<(Runtime, DeviceSource)> {
    use Driver::{Cgroupfs, Systemd, SystemdInClosedSlice};
    let runc = |driver| (Program::Runc, driver);
    let crun = |driver| (Program::Crun, driver);
    let runtimes = match view {
        CgroupView::V1 => [runc(Cgroupfs), runc(Systemd), crun(Cgroupfs), crun(Systemd)].to_vec(),
        // crun needs CAP_SYS_RESOURCE there, which the machine may not have. On
        // v1 runc fails in such a slice: a cgroup cannot allow what its parent
        // denies.
        CgroupView::V2 => [runc(Cgroupfs), runc(Systemd), runc(SystemdInClosedSlice)].to_vec(),
    };
    let mut kinds = Vec::new();
    for (program, driver) in runtimes {
        let runtime = Runtime { program, driver };
        let ways: &[_] = match runtime.driver {
            Cgroupfs => &[Reached],
            Systemd => &[Reached, OnTheBus, Hidden],
            SystemdInClosedSlice => &[Reached, Hidden],
        };
        for systemd in ways.iter().copied() {
            let mut givers = vec![Giver::Hook, Giver::Wrapper];
            if systemd == Reached {
                givers.push(Giver::Attach);
            }
            for followed in [false, true] {
                let source = |giver: &Giver| DeviceSource {
                    giver: *giver,
                    systemd,
                    followed,
                };
                if systemd == Reached || !followed {
                    kinds.extend(givers.iter().map(|giver| (runtime, source(giver))));
                }
            }
        }
    }
    kinds
}

/// Returns the results for the devices of one row's containers, event by event.
pub(super) fn fates(
    events: &[Event],
    host: &SystemdHost,
    demo: &DemoHost,
    runtime: Runtime,
    device_source: DeviceSource,
) -> Result<Vec<Fate>> {
    let mut fates = Vec::new();
    while let Some(event) = events.get(fates.len()) {
        let name = event.to_string().replace(' ', "-");
        if runtime.driver == Driver::SystemdInClosedSlice {
            host.close_slice()?;
        }
        demo.write_config(device_source.follow())?;
        let bundle = device_source
            .bundle(host, demo)
            .cgroups_path(runtime.cgroups_path(&name))
            .build()?;
        let config = demo.config_file();
        let is_wrapped = device_source.giver == Giver::Wrapper;
        if is_wrapped {
            let program = Path::new(runtime.program.path());
            device_source.configure(demo, program, "")?;
        }
        let wrapper_config = is_wrapped.then_some(&*config);
        let container = Container::run(host, runtime, &bundle, wrapper_config)?;
        if device_source.giver == Giver::Attach {
            container.attach(&config, "dummy-npu=npu-3")?;
        }
        let unit = runtime.unit(&name);
        let container = OfBundle { container, unit };
        super::go_through(events, host, demo, device_source, &container, &mut fates)?;
    }
    Ok(fates)
}

/// The device rules of an engine's own spec, which podman and containerd send
/// along with any update.
fn engines_rules() -> Vec<Value> {
    let mut rules = vec![
        json!({"allow": false, "access": "rwm"}),
        json!({"allow": true, "type": "c", "access": "m"}),
        json!({"allow": true, "type": "b", "access": "m"}),
    ];
    for (major, minor) in [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)] {
        rules.push(json!({
            "allow": true, "type": "c", "major": major, "minor": minor, "access": "rwm",
        }));
    }
    rules
}

/// A container of a bundle's.
struct OfBundle<'a> {
    container: Container<'a>,
    unit: Option<String>,
}

impl RunningContainer for OfBundle<'_> {
    fn probe(&self, questions: &Questions) -> Result<Report> {
        self.container.probe(questions)
    }

    fn unit(&self) -> Option<String> {
        self.unit.clone()
    }

    fn update(&self, cpu_shares: Option<u32>) -> Result<()> {
        let mut resources = json!({"devices": engines_rules()});
        if let Some(shares) = cpu_shares {
            resources["cpu"] = json!({"shares": shares});
        }
        self.container.update(&resources)
    }

    fn restart(&self) -> Result<()> {
        self.container.restart()
    }
}
