//! PCI devices for user space, behind the machine's IOMMU.

use anyhow::Result;
use harness::vm::Vm;

use super::case::{Case, expect};

/// A spare card, and one with virtual functions. It is not behind a port, where a function
/// has no IOMMU group of its own on arm64 (seen with Linux 6.1).
pub(super) const HARDWARE: &str = "-device edu,addr=0x11 -device nvme-subsys,id=subsystem \
    -device nvme,serial=1,subsys=subsystem,addr=0x12,sriov_max_vfs=2,sriov_vq_flexible=4,sriov_vi_flexible=2";

pub(super) const CASES: &[Case] = &[
    Case {
        name: "vfio",
        modules: &["vfio_iommu_type1 allow_unsafe_interrupts=1", "vfio-pci"],
        test: card,
    },
    Case {
        name: "sr-iov",
        modules: &[
            "vfio_iommu_type1 allow_unsafe_interrupts=1",
            "vfio-pci",
            "nvme",
        ],
        test: function,
    },
    Case {
        name: "sr-iov-claim",
        modules: &[
            "vfio_iommu_type1 allow_unsafe_interrupts=1",
            "vfio-pci",
            "nvme",
        ],
        test: claim,
    },
];

/// A card is handed to a container.
fn card(vm: &mut Vm) -> Result<String> {
    hand_over(vm, "/sys/bus/pci/devices/0000:00:11.0", "1234:11e8")?;
    Ok("a container reads the card's configuration space".to_string())
}

/// Virtual functions appear, and one of two is handed to a container.
fn function(vm: &mut Vm) -> Result<String> {
    vm.run(
        "cd $(dirname /sys/bus/pci/devices/*/sriov_numvfs)
        echo 0 >sriov_drivers_autoprobe; echo 2 >sriov_numvfs; udevadm settle",
    )?;
    hand_over(vm, "/sys/bus/pci/devices/*/virtfn1", "1b36:0010")?;
    vm.run("echo 0 >$(echo /sys/bus/pci/devices/*/sriov_numvfs)")?;
    Ok("a container reads the configuration space of a function".to_string())
}

/// A claim has `boathook-dra` make functions: a test of its own suite, in this machine.
fn claim(vm: &mut Vm) -> Result<String> {
    let seen = vm.run(
        "BOATHOOK_TESTS_PROGRAMS=/root/dra /root/dra/dra-suite --ignored --nocapture real_functions::",
    )?;
    expect(&seen, "1 passed")?;
    Ok("a claim makes functions, and a container uses the one that it has".to_string())
}

/// Binds a device to vfio-pci, and has a container read its ids.
fn hand_over(vm: &mut Vm, device: &str, ids: &str) -> Result<()> {
    let seen = vm.run(&format!(
        "device=$(realpath {device}); name=$(basename $device)
        [ ! -e $device/driver ] || echo $name >$device/driver/unbind
        echo vfio-pci >$device/driver_override; echo $name >/sys/bus/pci/drivers_probe; udevadm settle
        group=$(basename $(realpath $device/iommu_group))
        boathook list vfio
        full --ulimit memlock=-1 -e VFIO_VISIBLE_DEVICES=$name -- /root/programs/vfio-read $group $name
        echo $name >$device/driver/unbind; echo >$device/driver_override"
    ))?;
    expect(&seen, &format!("device: {ids}"))
}
