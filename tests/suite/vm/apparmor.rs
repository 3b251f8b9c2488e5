//! AppArmor's profiles of engines, which the engines load themselves.

use anyhow::{Result, ensure};
use harness::vm::Vm;

use super::case::{Case, expect, with_class};

pub(super) const CASES: &[Case] = &[Case {
    name: "apparmor",
    modules: &[],
    test: apparmor,
}];

/// A file of the firmware that each architecture's kernel has, and that everybody may read.
const FIRMWARE: &str = "ls /sys/firmware/memmap/0/type /sys/firmware/devicetree/base/compatible";

/// Options by which an engine shows the container what is below /sys/firmware. The wrapper does
/// that for Docker, and podman's containers have the hook alone.
const ENGINES: [(&str, &str, &str); 2] = [
    ("docker", "--runtime boathook", "docker-default"),
    (
        "podman",
        "--security-opt unmask=/sys/firmware",
        "containers-default-",
    ),
];

/// The script of a container, which uses the device node, the library and the firmware file.
const USE: &str = r#"cat /proc/self/attr/current
[ -c /dev/fuse ] && (exec 3<>/dev/fuse) && echo opened
head -c 4 /usr/lib/boathook/lib/libyajl.so.2 | tail -c 3; echo
cat "$0" && echo read"#;

/// Under an engine's profile a container uses a device and a library, and the file that the profile
/// denies is named. Without the profile the container reads the file.
fn apparmor(vm: &mut Vm) -> Result<String> {
    let listed = vm.run(&format!("{FIRMWARE} 2>/dev/null || true"))?;
    let firmware = listed.lines().next().unwrap_or_default();
    ensure!(!firmware.is_empty(), "the kernel has no file of {FIRMWARE}");
    let class = format!(
        r#"
        request = {{ env = "BOARD_VISIBLE_DEVICES" }}
        discover = [{{ count = 1, nodes = ["/dev/fuse"] }}]
        device = {{ id = "board" }}
        [[edits]]
        libraries = ["libyajl.so.2"]
        files = ["{firmware}"]"#
    );
    for (engine, options, profile) in ENGINES {
        for (name, option) in [
            ("board-on", ""),
            ("board-off", "--security-opt apparmor=unconfined"),
        ] {
            let lines = format!(
                "{engine} run -d --name {name} --network none {options} {option} \
                    -e BOARD_VISIBLE_DEVICES=all busybox sleep 9999 >&2
                {engine} exec {name} sh -c '{USE}' {firmware} 2>&1 || true
                boathook log --container {name}
                {engine} rm -f {name} >&2"
            );
            let seen = with_class(vm, "board", &class, &lines)?;
            expect(&seen, "\nopened\nELF\n")?;
            let warning = format!(" denies the container to read {firmware}: ");
            if option.is_empty() {
                ensure!(seen.starts_with(profile), "{engine}: {seen}");
                expect(&seen, "Permission denied\n")?;
                expect(&seen, &format!("board: the AppArmor profile {profile}"))?;
                expect(&seen, &warning)?;
            } else {
                ensure!(seen.starts_with("unconfined"), "{engine}: {seen}");
                expect(&seen, "\nread\n")?;
                ensure!(!seen.contains(&warning), "{engine}: {seen}");
            }
        }
    }
    Ok("Docker's and podman's profiles: a node and a library are used, the denied file is named, and read without them".to_string())
}
