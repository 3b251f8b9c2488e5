//! RDMA over Ethernet in software (rdma_rxe), on an emulated card.

use anyhow::{Result, ensure};
use harness::vm::Vm;

use super::case::{Case, expect, wait_for, with_class};

pub(super) const HARDWARE: &str =
    "-netdev user,id=wire,restrict=on -device e1000e,netdev=wire,addr=0x10";

pub(super) const CASES: &[Case] = &[Case {
    name: "rdma",
    modules: &["rdma_rxe", "ib_umad", "rdma_ucm"],
    test: rdma,
}];

/// Two containers exchange messages. The shipped class is for PCI cards; this one takes
/// what has none.
fn rdma(vm: &mut Vm) -> Result<String> {
    let class = r#"
        request = { env = "SOFT_RDMA_VISIBLE_DEVICES" }
        [[discover]]
        path = "/sys/class/infiniband_verbs/uverbs{number:number}"
        attributes = [{ name = "ibdev", file = "ibdev" }]
        [device]
        id = "{ibdev}"
        nodes = ["/dev/infiniband/uverbs{number}"]
        [[edits]]
        nodes = ["/dev/infiniband/rdma_cm"]"#;
    vm.run(
        "net=$(ls /sys/bus/pci/devices/0000:00:10.0/net)
        ip address replace 10.9.0.1/24 dev $net; ip link set $net up
        rdma link add rxe0 type rxe netdev $net; udevadm settle",
    )?;
    wait_for(vm, "rdma link", "state ACTIVE")?;
    let use_it = "
        boathook list soft-rdma >&2
        rdma='full --network host --ulimit memlock=-1 -e SOFT_RDMA_VISIBLE_DEVICES=all --'
        $rdma ibv_devinfo -d rxe0
        $rdma timeout 100 ibv_rc_pingpong -d rxe0 -g 1 -n 20 >/run/server & server=$!
        for try in 1 2 3 4 5 6 7 8; do
            $rdma timeout 20 ibv_rc_pingpong -d rxe0 -g 1 -n 20 127.0.0.1 && break
            sleep 2
        done
        wait $server; cat /run/server";
    let seen = with_class(vm, "soft-rdma", class, use_it)?;
    expect(&seen, "PORT_ACTIVE")?;
    ensure!(seen.matches("20 iters in").count() == 2, "{seen}");
    let shipped = vm.run("boathook list rdma-shared 2>&1")?;
    expect(&shipped, "no devices of rdma-shared")?;
    ensure!(!shipped.contains("warning"), "{shipped}");
    vm.run("rdma link delete rxe0; modprobe -r rdma_rxe")?;
    Ok("ibv_devinfo, and ibv_rc_pingpong between two containers".to_string())
}
