//! Files that a class puts below a path that engines mask, such as the board's properties in
//! /sys/firmware. runc masks these paths after the hook.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use harness::binaries;
use harness::bundle::{Bundle, BundleBuilder, HookCommand};
use harness::demo_host::{DemoHost, HostDirectory};
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;
use harness::runc::{self, Runc};
use serde_json::{Value, json};

use crate::lab::{Lab, STAGE, on_each_cgroup_version, requesting};
use crate::live::boathook;
use crate::said::assert_says;

on_each_cgroup_version!(
    behind_the_wrapper_only_the_files_of_the_class_are_visible,
    the_advice_of_a_shipped_class_works,
    the_hook_alone_names_the_mask,
    doctor_names_the_mask,
    a_profile_that_denies_files_is_named_before_the_start,
    attach_and_refresh_leave_out_what_the_mask_hides,
    a_container_that_could_remove_the_mask_keeps_the_engines,
);

const MODEL: &str = "/sys/firmware/devicetree/base/model";

/// A board with a device whose library reads the board's model.
fn host(edits: &str) -> HostDirectory {
    let host = HostDirectory::new().unwrap();
    add_board(&host, edits);
    host
}

fn add_board(host: &HostDirectory, edits: &str) {
    let class = format!(
        "version = 1\nresource = 'example.com/board'\nrequest = {{ env = 'BOARDS' }}\n\
         [[discover]]\ncount = 1\n[device]\nid = 'board-{{index}}'\n[[edits]]\n{edits}\n"
    );
    host.add_class("board", &class).unwrap();
    host.add_file(MODEL, "Board 5").unwrap();
    host.add_file("/sys/firmware/devicetree/base/serial-number", "secret")
        .unwrap();
    host.add_file("/sys/firmware/acpi/tables/DSDT", "secret")
        .unwrap();
    host.add_file("/proc/keys", "keys of the host").unwrap();
    let link = host.root().join("proc/device-tree");
    symlink("/sys/firmware/devicetree/base", link).unwrap();
    let program = runc::program().unwrap();
    host.write_config(&format!("[runtime]\npath = {program:?}\n"))
        .unwrap();
}

fn behind_wrapper(lab: &Lab, host: &HostDirectory) -> Runc {
    let runc = Runc::new(lab.runc.view()).unwrap();
    runc.behind_wrapper(&host.config_file())
}

fn running(script: &str) -> BundleBuilder {
    Bundle::builder(Rootfs::Busybox).args(["/bin/sh", "-c", script])
}

/// Returns a list of config.json, as the runtime has read it.
fn list_of_config(bundle: &Bundle, list: &str) -> Vec<String> {
    let text = fs::read_to_string(bundle.config_file()).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(config["linux"][list].clone()).unwrap()
}

fn behind_the_wrapper_only_the_files_of_the_class_are_visible(lab: &Lab) {
    const ALL: &str = "cd /sys/firmware; find . -type f; cat devicetree/base/model";
    for (edits, value, script, printed, unmasked) in [
        (
            "files = ['/sys/firmware/devicetree/base/model']",
            "all",
            ALL,
            "./devicetree/base/model\nBoard 5",
            Some("/sys/firmware"),
        ),
        // A link of the kernel leads below the masked path.
        (
            "files = ['/proc/device-tree/model']",
            "all",
            ALL,
            "./devicetree/base/model\nBoard 5",
            Some("/sys/firmware"),
        ),
        (
            "directories = ['/proc/device-tree']",
            "all",
            "cd /sys/firmware; ls . devicetree/base",
            ".:\ndevicetree\n\ndevicetree/base:\nmodel\nserial-number\n",
            Some("/sys/firmware"),
        ),
        // The masked file itself.
        (
            "files = ['/proc/keys']",
            "all",
            "cat /proc/keys; ls /sys/firmware",
            "keys of the host",
            Some("/proc/keys"),
        ),
        // A container that requests nothing.
        (
            "files = ['/proc/keys']",
            "void",
            "cat /proc/keys; ls /sys/firmware",
            "",
            None,
        ),
    ] {
        let host = host(edits);
        let runc = behind_wrapper(lab, &host);
        let bundle = running(script).env("BOARDS", value).build().unwrap();
        let before = list_of_config(&bundle, "maskedPaths");
        let ran = runc.run(&bundle).unwrap();
        assert_eq!(ran.stdout, printed, "{edits} {value}: {ran:?}");
        let mut after = list_of_config(&bundle, "maskedPaths");
        after.extend(unmasked.map(str::to_owned));
        after.sort();
        let mut before = before;
        before.sort();
        assert_eq!(after, before, "{edits} {value}");
        assert_eq!(host.logged_problems(), "", "{edits} {value}");
        lab.assert_nothing_left(&bundle);
    }
}

/// The files of which rockchip-npu says that the wrapper shows them, on the boards that were
/// recorded.
fn the_advice_of_a_shipped_class_works(lab: &Lab) {
    let testdata = binaries::source_tree().join("device-class/testdata");
    let sensor = "axi/pcie@1000120000/rp1/i2c@88000/imx708@1a/compatible";
    for (board, variable, property, printed) in [
        (
            "rockchip-npu",
            "ROCKCHIP_NPU_VISIBLE_DEVICES",
            "compatible",
            "rockchip,rk3588",
        ),
        (
            "rockchip-npu/rocket",
            "ROCKCHIP_NPU_VISIBLE_DEVICES",
            "compatible",
            "rockchip,rk3588",
        ),
        (
            "pi-camera",
            "PI_CAMERA_VISIBLE_DEVICES",
            sensor,
            "sony,imx708",
        ),
    ] {
        let class = board.split('/').next().unwrap();
        let recording = fs::read_to_string(testdata.join(board).join("host.txt")).unwrap();
        let host = RecordedHost::new(class, &recording).unwrap();
        let program = runc::program().unwrap();
        host.write_config(&format!("[runtime]\npath = {program:?}\n"))
            .unwrap();
        let base = "/sys/firmware/devicetree/base";
        host.add_file(&format!("{base}/serial-number"), "secret")
            .unwrap();
        let script = format!("cat {base}/{property}; ls /sys/firmware; cat {base}/serial-number");
        let bundle = running(&script).env(variable, "all").build().unwrap();
        let masked = list_of_config(&bundle, "maskedPaths");
        assert!(masked.iter().any(|path| path == "/sys/firmware"), "{board}");
        let ran = behind_wrapper(lab, &host).run(&bundle).unwrap();
        let words: Vec<&str> = ran.stdout.split_whitespace().collect();
        assert_eq!(words, [printed, "devicetree"], "{board}: {ran:?}");
        assert_eq!(host.logged_problems(), "", "{board}");
        lab.assert_nothing_left(&bundle);
    }
}

fn the_hook_alone_names_the_mask(lab: &Lab) {
    for (edits, command, printed, says) in [
        (
            "files = ['/proc/keys']",
            "cat /proc/keys",
            "",
            &[
                "board: the container does not see /proc/keys, because config.json masks /proc/keys: \
                 use the runtime boathook, which shows only that, or remove the mask (Docker: \
                 --security-opt systempaths=unconfined, podman: --security-opt unmask=/proc/keys)",
            ][..],
        ),
        (
            "directories = [{ path = '/proc/bus', writable = true }]",
            "touch /proc/bus/new",
            "",
            &["the container cannot write to /proc/bus, which is in readonlyPaths of config.json"],
        ),
        (
            "files = ['/etc/board.conf']",
            "cat /etc/board.conf",
            "conf",
            &[],
        ),
    ] {
        let host = host(edits);
        host.add_file("/etc/board.conf", "conf").unwrap();
        fs::create_dir_all(host.root().join("proc/bus")).unwrap();
        let bundle = requesting(&host, Rootfs::Busybox, "BOARDS", "all")
            .args(["/bin/sh", "-c", command])
            .build()
            .unwrap();
        let ran = lab.runc.run(&bundle).unwrap();
        assert_eq!(ran.stdout, printed, "{edits}: {ran:?}");
        assert!(!host.root().join("proc/bus/new").exists(), "{edits}");
        let log = host.logged_problems();
        assert_says(&log, says);
        assert_eq!(log.is_empty(), says.is_empty(), "{edits}: {log}");
        // With the wrapper in front, the directory can be written to.
        let behind = running(command).env("BOARDS", "all").build().unwrap();
        let ran = behind_wrapper(lab, &host).run(&behind).unwrap();
        assert!(ran.status.success(), "{edits}: {ran:?}");
    }
}

fn doctor_names_the_mask(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    add_board(&host, "files = ['/sys/firmware/devicetree/base/model']");
    for (masks, code, says) in [
        (
            json!(["/sys/firmware"]),
            0,
            &[
                "the container does not see /sys/firmware/devicetree/base/model, because config.json \
                 masks /sys/firmware",
                "not in the container: /sys/firmware/devicetree/base/model",
                "create the container again, with the runtime boathook or without the masks",
            ][..],
        ),
        // The mask is not the reason.
        (
            json!([]),
            17,
            &["board=board-0` gives them back now; or create the container again"],
        ),
    ] {
        let idle = HookCommand::new(&host.root().join("boathook-hook"));
        host.add_file("boathook-hook", "#!/bin/sh\n").unwrap();
        fs::set_permissions(
            host.root().join("boathook-hook"),
            Permissions::from_mode(0o755),
        )
        .unwrap();
        let bundle = Bundle::builder(Rootfs::Busybox)
            .hook(STAGE, idle)
            .env("BOARDS", "all")
            .build()
            .unwrap();
        let text = fs::read_to_string(bundle.config_file()).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["linux"]["maskedPaths"] = masks;
        fs::write(bundle.config_file(), config.to_string()).unwrap();
        let _running = lab.start(&bundle);
        let ran = boathook(lab, &host, &["doctor", "--container", bundle.id()]);
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        assert_says(&ran.stdout, says);
    }
}

/// The profiles of engines deny /sys/firmware, also if the engine does not mask it.
fn a_profile_that_denies_files_is_named_before_the_start(lab: &Lab) {
    const SAYS: &str = "board: the AppArmor profile docker-default denies the container to read \
        /sys/firmware/devicetree/base/model: use a profile without a rule for /sys/firmware, or \
        none (Docker and podman: --security-opt apparmor=unconfined, a pod: appArmorProfile of \
        the type Unconfined)";
    let host = DemoHost::new().unwrap();
    add_board(&host, "files = ['/proc/device-tree/model']");
    for (profile, masks, is_denied) in [
        (json!("docker-default"), json!([]), true),
        (json!("docker-default"), json!(["/sys/firmware"]), true),
        (json!("unconfined"), json!([]), false),
        (json!(null), json!(["/sys/firmware"]), false),
    ] {
        let case = format!("{profile} {masks}");
        let bundle = running("true").env("BOARDS", "all").build().unwrap();
        let text = fs::read_to_string(bundle.config_file()).unwrap();
        let mut config: Value = serde_json::from_str(&text).unwrap();
        config["linux"]["maskedPaths"] = masks;
        config["process"]["apparmorProfile"] = profile;
        fs::write(bundle.config_file(), config.to_string()).unwrap();
        let directory = bundle.directory().to_str().unwrap();
        let ran = boathook(lab, &host, &["explain", "--bundle", directory]);
        let said = ran.success().unwrap().stdout;
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.contains(SAYS), is_denied, "{case}: {said}");
        assert_eq!(words.contains("AppArmor"), is_denied, "{case}: {said}");
    }
}

/// The hook refuses to mask for a container that can unmount the mask.
fn attach_and_refresh_leave_out_what_the_mask_hides(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    add_board(
        &host,
        &format!("files = ['{MODEL}']\n[[edits]]\nlibraries = ['libdummy-npu.so.1']"),
    );
    let bundle = running("exec sleep 1000").build().unwrap();
    let container = lab.start(&bundle);
    let attached = boathook(lab, &host, &["attach", bundle.id(), "board=0"]);
    let attached = attached.success().unwrap();
    let hidden = format!("does not see {MODEL}, because config.json masks /sys/firmware");
    assert_says(&attached.stderr, &[&hidden]);
    let library = "/usr/lib/boathook/lib/libdummy-npu.so.1.2.3";
    container.output(&["test", "-e", library]).unwrap();
    boathook(lab, &host, &["refresh", bundle.id()])
        .success()
        .unwrap();
    boathook(lab, &host, &["detach", bundle.id()])
        .success()
        .unwrap();
}

fn a_container_that_could_remove_the_mask_keeps_the_engines(lab: &Lab) {
    let host = host("files = [{ path = '/proc/keys' }]");
    let bundle = running("cat /proc/keys")
        .env("BOARDS", "all")
        .user_namespace()
        .sys_admin()
        .build()
        .unwrap();
    let before = list_of_config(&bundle, "maskedPaths");
    let ran = behind_wrapper(lab, &host).run(&bundle).unwrap();
    assert_eq!(ran.stdout, "", "{ran:?}");
    assert_eq!(list_of_config(&bundle, "maskedPaths"), before);
    assert_says(&host.log(), &["because config.json masks /proc/keys"]);
}
