//! Devices that a module makes without hardware.

use anyhow::{Result, ensure};
use harness::vm::Vm;

use super::case::{Case, expect, with_class};

pub(super) const CASES: &[Case] = &[
    Case {
        name: "camera",
        modules: &["vivid node_types=0x101"],
        test: camera,
    },
    Case {
        name: "drm",
        modules: &["vgem"],
        test: drm,
    },
    Case {
        name: "fuse",
        modules: &[],
        test: fuse,
    },
    Case {
        name: "tun",
        modules: &[],
        test: tun,
    },
    Case {
        name: "kvm",
        modules: &["kvm_amd"],
        test: kvm,
    },
    Case {
        name: "loader",
        modules: &[],
        test: loader,
    },
    Case {
        name: "disks",
        modules: &["null_blk nr_devices=2", "zram", "loop"],
        test: disks,
    },
];

/// A frame is read by each engine, and no other camera.
fn camera(vm: &mut Vm) -> Result<String> {
    // The kernels' drivers have frames of different sizes.
    let bytes = vm.run("dd if=/dev/video0 bs=4M count=1 status=none | wc -c")?;
    ensure!(bytes.trim() != "0", "no frame on the host");
    let seen = vm.run(
        "one=CAMERA_VISIBLE_DEVICES=camera-vivid.0 other=$(cat /sys/class/video4linux/video1/dev)
        script=/root/programs/read-frame
        echo docker; docker run --rm -i --network none --runtime boathook -e $one busybox sh -s $other <$script
        echo podman; podman run --rm -i --network none --cap-add MKNOD -e $one busybox sh -s $other <$script
        echo ctr; ctr run --rm --runc-binary /opt/boathook/current/bin/boathook-runtime --env $one \
            --env PATH=/bin:/usr/bin --rootfs /root/busybox camera /bin/sh -c \"$(cat $script)\" sh $other",
    )?;
    vm.run("modprobe -r vivid")?;
    for engine in ["docker", "podman", "ctr"] {
        let wanted = format!(
            "{engine}\ncameras: /dev/video0\nbytes: {bytes}\
             dd: can't open '/dev/other': Operation not permitted\n"
        );
        expect(&seen, &wanted)?;
    }
    Ok("Docker, podman and containerd read a frame; the other camera is refused".to_string())
}

/// The driver says its name.
fn drm(vm: &mut Vm) -> Result<String> {
    let class = r#"
        request = { env = "RENDER_VISIBLE_DEVICES" }
        [[discover]]
        path = "/dev/dri/renderD{number:number}"
        attributes = [{ name = "driver", link = "/sys/class/drm/renderD{number}/device" }]
        [device]
        id = "{driver}"
        nodes = ["/dev/dri/renderD{number}"]"#;
    let use_it =
        "full -e RENDER_VISIBLE_DEVICES=vgem -- /root/programs/drm-version /dev/dri/renderD128";
    let seen = with_class(vm, "render", class, use_it)?;
    vm.run("modprobe -r vgem")?;
    expect(&seen, "driver: vgem")?;
    Ok("vgem answers in a container".to_string())
}

/// A file system is mounted in a container.
fn fuse(vm: &mut Vm) -> Result<String> {
    let seen = vm.run(
        "full --cap-add SYS_ADMIN --security-opt apparmor=unconfined -e FUSE_VISIBLE_DEVICES=all -- sh -euc '
            mount -t tmpfs none /mnt; mkdir /mnt/u /mnt/w /mnt/m
            fuse-overlayfs -o lowerdir=/etc,upperdir=/mnt/u,workdir=/mnt/w /mnt/m
            echo written >/mnt/m/new; cat /mnt/u/new; grep /mnt/m /proc/mounts'",
    )?;
    expect(&seen, "written")?;
    expect(&seen, "fuse-overlayfs /mnt/m fuse.fuse-overlayfs")?;
    Ok("fuse-overlayfs in a container".to_string())
}

/// A network interface is made.
fn tun(vm: &mut Vm) -> Result<String> {
    let seen = vm.run(
        "full --cap-add NET_ADMIN -e TUN_VISIBLE_DEVICES=all -- \
            sh -euc 'ip tuntap add name ours mode tap; ip -brief link show ours'",
    )?;
    expect(&seen, "ours")?;
    Ok("a container makes an interface".to_string())
}

/// A machine is made; the emulated processor has SVM.
fn kvm(vm: &mut Vm) -> Result<String> {
    // KVM_GET_API_VERSION and KVM_CREATE_VM (linux/kvm.h).
    let seen = vm.run(
        "full -e KVM_VISIBLE_DEVICES=all -- perl -e '
            open(my $kvm, \"+<\", \"/dev/kvm\") or die \"open: $!\";
            print \"version: \", ioctl($kvm, 0xae00, 0), \"\\n\";
            ioctl($kvm, 0xae01, 0) or die \"no machine: $!\"; print \"made\\n\"'",
    )?;
    ensure!(seen == "version: 12\nmade\n", "{seen}");
    vm.run("modprobe -r kvm_amd")?;
    Ok("a container makes a machine".to_string())
}

/// Debian's loader finds a library of the host by its name, before and after an `ldconfig`.
fn loader(vm: &mut Vm) -> Result<String> {
    let class = r#"
        request = { env = "LOADER_VISIBLE_DEVICES" }
        library_directories = ["/srv"]
        discover = [{ count = 1, nodes = ["/dev/null"] }]
        device = { id = "loader" }
        [[edits]]
        libraries = ["libvndr.so.2"]"#;
    // With a name that the image does not have, and where the image has another directory.
    vm.run(
        "mount -t tmpfs -o mode=755 none /srv
        sed s/libyajl.so.2/libvndr.so.2/g /usr/lib/*/libyajl.so.2 >/srv/libvndr.so.2",
    )?;
    let load_it = "
        full -e LOADER_VISIBLE_DEVICES=all -- sh -euc '
            load() { perl -MDynaLoader -e \"DynaLoader::dl_load_file(q(libvndr.so.2)) or die DynaLoader::dl_error(); print q(loaded )\"; }
            ldconfig -p | grep -o \"libvndr.so.2 .*\"; load; ldconfig; load'";
    let seen = with_class(vm, "loader", class, load_it)?;
    vm.run("umount /srv")?;
    expect(&seen, "=> /usr/lib/boathook/lib/libvndr.so.2")?;
    expect(&seen, "loaded loaded ")?;
    Ok("Debian's loader finds a library, also after ldconfig".to_string())
}

/// Block devices are read and written; one that was not requested is refused.
fn disks(vm: &mut Vm) -> Result<String> {
    let class = r#"
        request = { env = "DISK_VISIBLE_DEVICES" }
        [[discover]]
        path = "/dev/{name}"
        require = [{ exists = "/sys/class/block/{name}/queue" }]
        [device]
        id = "{name}"
        nodes = ["/dev/{name}"]"#;
    vm.run(
        "echo 16M >/sys/block/zram0/disksize
        truncate -s 1M /root/disk; losetup /dev/loop0 /root/disk",
    )?;
    let use_them = "
        full --cap-add MKNOD -e DISK_VISIBLE_DEVICES=nullb1,zram0,loop0 -- sh -euc '
            dd if=/dev/zero of=/dev/nullb1 bs=4k count=1 oflag=direct 2>&1 | grep copied
            for disk in zram0 loop0; do echo kept in $disk | dd of=/dev/$disk conv=sync status=none; done
            mknod /dev/other b $(tr : \" \" </sys/block/nullb0/dev); cat /dev/other || true' 2>&1
        head -c 13 /dev/zram0; head -c 13 /dev/loop0";
    let seen = with_class(vm, "disk", class, use_them)?;
    vm.run("losetup -d /dev/loop0; modprobe -r null_blk zram")?;
    for wanted in [
        "4096 bytes",
        "kept in zram0",
        "kept in loop0",
        "Operation not permitted",
    ] {
        expect(&seen, wanted)?;
    }
    Ok("null_blk, zram and loop are written to; another disk is refused".to_string())
}
