//! Serial adapters on USB that are plugged into the machine while it runs.

use anyhow::{Result, ensure};
use harness::vm::Vm;
use serde_json::json;

use super::case::wait_for;

/// A line for each adapter, with nothing at the other end. QEMU's monitor could not remove them at
/// once.
pub(super) const HARDWARE: &str = "-chardev null,id=line-F050 -chardev null,id=line-F051 \
    -chardev null,id=line-F052 -chardev null,id=line-F053 -chardev null,id=line-F054 -chardev null,id=line-F074";

/// The names of all ports begin with it.
pub(super) const ANY_PORT: &str = "/dev/ttyUSB";

/// An adapter with this serial number, one of those in [`HARDWARE`].
pub(super) struct Stick {
    pub(super) serial: &'static str,
}

impl Stick {
    /// Plugs the adapter into a port, such as `3`, or `5.1` for the first one of a hub. Waits until
    /// the host has it.
    pub(super) fn plug_in(&self, vm: &mut Vm, usb_port: &str) -> Result<()> {
        let Self { serial } = self;
        let device = json!({
            "driver": "usb-serial", "id": self.id(), "chardev": format!("line-{serial}"), "always-plugged": true,
            "serial": serial, "bus": "usb.0", "port": usb_port,
        });
        vm.monitor("device_add", device)?;
        wait_for(vm, "boathook list serial-port || true", serial).map(drop)
    }

    pub(super) fn pull_out(&self, vm: &mut Vm) -> Result<()> {
        vm.monitor("device_del", json!({ "id": self.id() }))?;
        Ok(())
    }

    fn id(&self) -> String {
        format!("stick-{}", self.serial)
    }
}

/// Waits until a program of the container has opened a port that begins with `port`. It has no
/// other one.
pub(super) fn wait_until_usable(
    vm: &mut Vm,
    engine: &str,
    container: &str,
    port: &str,
) -> Result<()> {
    let open = format!(
        "{engine} exec {container} sh -c \
        'for port in /dev/ttyUSB*; do stty -F $port 9600 && echo opened: $port; done' 2>&1 || true"
    );
    let opened = wait_for(vm, &open, &format!("opened: {port}")).map_err(|error| {
        let said = vm.run("journalctl --unit follow --unit boathook-follow --lines 20");
        error.context(said.unwrap_or_default())
    })?;
    ensure!(opened.lines().count() == 1, "{container}: {opened}");
    Ok(())
}

/// Waits until the container, which runs, has no port.
pub(super) fn wait_until_gone(vm: &mut Vm, engine: &str, container: &str) -> Result<()> {
    let list =
        format!("{engine} exec {container} sh -c 'echo ports: $(ls /dev | grep ttyUSB)' || true");
    wait_for(vm, &list, "ports:\n").map(drop)
}
