//! Containers on a host whose systemd takes a device's number from the node at
//! its path.

use anyhow::{Context, Result};
use harness::alias_device::AliasDevice;
use harness::cgroup_view::CgroupView;
use harness::systemd_host::{Distribution, Driver, Program, Runtime, SystemdHost};

use super::super::device_source::{DeviceSource, Giver, SystemdIs};
use super::super::table::{Row, Table};

const TABLE: Table = Table {
    kinds: ["cgroup", "systemd", "device given by"],
    events: super::runtimes::EVENTS.split_at(5).0,
};

/// Its systemd restricts no devices on v2.
const VIEW: CgroupView = CgroupView::V1;

const RUNTIME: Runtime = Runtime {
    program: Program::Runc,
    driver: Driver::Systemd,
};

#[test]
fn devices_last_with_an_old_systemd_as_documented() {
    let distribution = Distribution::Ubuntu1804;
    let Some((host, demo)) = super::host("an old systemd", distribution, VIEW) else {
        return TABLE.compare(&[], false);
    };
    let systemd = version(&host).unwrap();
    let row = |device_source: DeviceSource, and: &str| {
        let fates = super::runtimes::fates(TABLE.events, &host, &demo, RUNTIME, device_source)
            .with_context(|| format!("{device_source}{and}; {}", demo.log()))
            .unwrap();
        let device_source = format!("{device_source}{and}");
        let kind = [super::version(VIEW), systemd.clone(), device_source];
        Row { kind, fates }
    };
    let mut rows = vec![row(KINDS[0], ", no node in /dev")];
    let said = demo.log();
    assert!(said.contains("drops the device when it reloads"), "{said}");

    let device = demo.device(0);
    add_node(&host, device).unwrap();
    rows.extend(KINDS.map(|device_source| row(device_source, "")));
    let AliasDevice { major, minor } = device;
    let link = format!("/dev/char/{major}:{minor} created for an old systemd");
    assert_eq!(demo.log().matches(&link).count(), 1, "{}", demo.log());
    assert_eq!(host.stop(), Vec::<String>::new());
    TABLE.compare(&rows, true);
}

/// Both ways, with and without systemd.
const KINDS: [DeviceSource; 4] = {
    const fn device_source(giver: Giver, systemd: SystemdIs) -> DeviceSource {
        DeviceSource {
            giver,
            systemd,
            followed: false,
        }
    }
    [
        device_source(Giver::Hook, SystemdIs::Reached),
        device_source(Giver::Wrapper, SystemdIs::Reached),
        device_source(Giver::Hook, SystemdIs::Hidden),
        device_source(Giver::Wrapper, SystemdIs::Hidden),
    ]
};

/// On most hosts a driver has made it, under a name of its own.
fn add_node(host: &SystemdHost, device: AliasDevice) -> Result<()> {
    let number = [device.major, device.minor].map(|number| number.to_string());
    let command = ["/dev/accel0", "c", &number[0], &number[1]];
    host.run("mknod", &command).map(drop)
}

/// Its number, which is the first line's second word.
fn version(host: &SystemdHost) -> Result<String> {
    let printed = host.run("systemctl", &["--version"])?;
    let number = printed.split_whitespace().nth(1);
    Ok(number
        .context("systemctl does not tell its version")?
        .to_string())
}
