//! CAN buses: two cards of a real driver on one emulated bus.

use anyhow::Result;
use harness::vm::Vm;

use super::case::{Case, expect, wait_for};

pub(super) const HARDWARE: &str = "-object can-bus,id=can-bus -device kvaser_pci,canbus=can-bus,addr=0x13 \
    -device kvaser_pci,canbus=can-bus,addr=0x14";

pub(super) const CASES: &[Case] = &[Case {
    name: "can",
    modules: &["can_raw", "kvaser_pci"],
    test: can,
}];

/// A card's interface is moved into a container, which sends a frame to the host's other card, and
/// is the host's again when the container has ended.
fn can(vm: &mut Vm) -> Result<String> {
    let list = vm.run("boathook list can")?;
    expect(&list, "can-0000:00:13.0")?;
    expect(&list, "can-0000:00:14.0")?;
    let seen = vm.run(
        "mine=$(ls /sys/bus/pci/devices/0000:00:13.0/net) other=$(ls /sys/bus/pci/devices/0000:00:14.0/net)
        for bus in $mine $other; do ip link set $bus type can bitrate 500000; done
        ip link set $other up
        timeout 200 /root/programs/can-frame receive $other >/run/received & receiver=$!
        sleep 1
        full --cap-add NET_ADMIN --cap-add NET_RAW -e CAN_VISIBLE_DEVICES=can-0000:00:13.0 -- sh -euc \"
            ip -brief link show $other 2>&1 || true
            ip link set $mine up
            /root/programs/can-frame send $mine\"
        wait $receiver; cat /run/received; rm /run/received",
    )?;
    expect(&seen, "does not exist")?;
    expect(&seen, "sent")?;
    expect(&seen, "frame 123 boathook")?;
    wait_for(
        vm,
        "ls /sys/bus/pci/devices/0000:00:13.0/net || true",
        "can",
    )?;
    vm.run("modprobe -r kvaser_pci")?;
    Ok("a container sends a frame to the host's other card; the interface comes back".to_owned())
}
