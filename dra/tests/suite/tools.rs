//! Tests of the parts of shipped classes. Scripts simulate the vendors' tools: they keep their
//! state in files, and fail or kill the driver at each of their steps.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use serde_json::Value;

use crate::node::{Node, refused, unprepare};
use crate::parts::{calls, mode, name, node};

/// A vendor's tool, and the class that uses it.
struct Tool {
    class: &'static str,
    text: &'static str,
    program: &'static str,
    script: &'static str,
    /// Files with their contents, by paths below the host's root.
    files: &'static [(&'static str, &'static str)],
    directories: &'static [&'static str],
    nodes: &'static [(&'static str, u64, u64)],
    /// The names of two parts that overlap, as slices have them.
    parts: [&'static str; 2],
    /// The directory in which each part has a file or directory, and the beginning of the
    /// names there.
    state: (&'static str, &'static str),
    /// The number of parts that are published.
    offered: usize,
    /// The steps of making a part, and the steps of removing one.
    steps: [&'static [usize]; 2],
}

const NVIDIA: Tool = Tool {
    class: "nvidia-gpu",
    text: include_str!("../../../device-class/classes/nvidia-gpu.toml"),
    program: "usr/bin/nvidia-smi",
    script: include_str!("tools/nvidia-smi"),
    files: &[
        ("proc/uptime", "5000.25 39000.10\n"),
        (
            "proc/devices",
            "Character devices:\n195 nvidia\n237 nvidia-caps\n",
        ),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Thu Jan 1 00:00:00 UTC 2026\n",
        ),
        ("proc/driver/nvidia/params", "ModifyDeviceFiles: 1\n"),
        (
            "proc/driver/nvidia/gpus/0000:17:00.0/information",
            "Model: \t\t NVIDIA H100\nGPU UUID: \t GPU-3c1de7a2-9f5b-4a53-8d25-0f6a1b6f4e10\nDevice Minor: \t 0\n",
        ),
        (
            "sys/bus/pci/devices/0000:17:00.0/config",
            "(the configuration space)",
        ),
        ("opt/minor", "10\n"),
        ("opt/gi", "3\n"),
        (
            "opt/profiles",
            "|   0  MIG 1g.10gb         19     7/7        9.62       No     16     1     0   |\n\
             |                                                               1     1     0   |\n\
             |   0  MIG 3g.40gb          9     2/2       39.25       No     60     3     0   |\n\
             |                                                               3     3     0   |\n\
             |   0  MIG 7g.80gb          0     1/1       78.50       No     132    7     0   |\n\
             |                                                               8     7     1   |\n",
        ),
        (
            "opt/places",
            "GPU  0 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1\n\
             GPU  0 Profile ID  9 Placements: {0,4}:4\nGPU  0 Profile ID  0 Placement : {0}:8\n",
        ),
    ],
    directories: &[
        "dev/nvidia-caps",
        "proc/driver/nvidia/capabilities/gpu0/mig",
    ],
    nodes: &[("dev/nvidia0", 195, 0), ("dev/nvidiactl", 195, 255)],
    parts: ["3g-40gb-4", "7g-80gb-0"],
    state: ("host/proc/driver/nvidia/capabilities/gpu0/mig", "gi"),
    offered: 7 + 2 + 1,
    steps: [&[0, 1, 2], &[3, 4, 5, 6]],
};

const ASCEND: Tool = Tool {
    class: "ascend-npu",
    text: include_str!("../../../device-class/classes/ascend-npu.toml"),
    program: "usr/local/sbin/npu-smi",
    script: include_str!("tools/npu-smi"),
    files: &[
        ("proc/uptime", "5000.25 39000.10\n"),
        ("sys/bus/pci/devices/0000:01:00.0/device", "0xd802\n"),
        (
            "opt/templates",
            "|vir10_4c_16g_m      10        16        4         9              0              24        |\n\
             |                                                  0              2              4         |\n\
             |vir05_1c_8g         5         8         1         2              0              6         |\n\
             |                                                  0              0              1         |\n",
        ),
    ],
    directories: &["opt/vnpus", "dev"],
    nodes: &[("dev/davinci_manager", 238, 0), ("dev/davinci0", 236, 0)],
    parts: ["vir05-1c-8g-1", "vir10-4c-16g-m-1"],
    state: ("host/opt/vnpus", ""),
    offered: 2 * 8,
    steps: [&[0, 1, 2], &[3, 5, 6]],
};

async fn host(tool: &Tool) -> Option<Node> {
    let node = node(0).await?;
    fs::remove_file(node.path("classes/npu.toml")).unwrap();
    node.write(&format!("classes/{}.toml", tool.class), tool.text);
    node.configure(&format!("[class.{}]\nserve = 'dra'\n", tool.class));
    for directory in tool.directories {
        fs::create_dir_all(node.path("host").join(directory)).unwrap();
    }
    for (file, text) in tool.files {
        node.write(&format!("host/{file}"), text);
    }
    for (path, major, minor) in tool.nodes {
        let path = node.path("host").join(path);
        let number = makedev(*major, *minor);
        mknod(&path, SFlag::S_IFCHR, Mode::S_IRWXU, number).unwrap();
    }
    let program = node.path("host").join(tool.program);
    fs::create_dir_all(program.parent().unwrap()).unwrap();
    node.write("script", tool.script);
    let script = node.path("script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    // Another process copies the file, so that no child of this process inherits it open for
    // writing.
    let copied = Command::new("/bin/cp").args([&script, &program]).status();
    assert!(copied.unwrap().success());
    Some(node)
}

/// Lists the parts that the tool has made, including those that are only half made.
fn list_made_parts(node: &Node, tool: &Tool) -> Vec<String> {
    let mut names = node.names(tool.state.0);
    names.retain(|name| name.starts_with(tool.state.1));
    names
}

async fn fails_at_each_step(tool: &Tool) {
    let Some(mut node) = host(tool).await else {
        return;
    };
    let mut driver = node.start().await;
    let is_part = |one: &&Value| one["attributes"].get("part").is_some();
    let are_all = |all: &[Value]| all.iter().filter(is_part).count() == tool.offered;
    node.wait_devices("all parts", are_all).await;
    let devices = node.devices();
    let mut parts = devices.iter().filter(is_part);
    assert!(parts.all(|one| one["taints"].is_null()), "{devices:#?}");
    let name_of = |part: &str| {
        let mut names = devices.iter().map(name);
        names.find(|name| name.ends_with(part)).unwrap()
    };
    let [small, large] = tool.parts.map(name_of);
    for kind in ["fail", "kill"] {
        // The first part is made. It is removed when the second part needs its room.
        for (part, steps) in [(small, tool.steps[0]), (large, tool.steps[1])] {
            for step in steps {
                // The other part exists before this one is made.
                let other = if part == small { large } else { small };
                node.prepare(&driver, tool.class, other).await.unwrap();
                unprepare(&driver, other).await;
                mode(&node, &format!("{kind}-{step}"));
                let result = node.prepare(&driver, tool.class, part).await;
                mode(&node, "well");
                if kind == "kill" {
                    assert!(result.is_err(), "{step}");
                    driver = node.start().await;
                }
                let fault = format!("{}: {kind} {step}: {result:?}", tool.class);
                node.prepare(&driver, tool.class, part).await.expect(&fault);
                assert_eq!(
                    list_made_parts(&node, tool).len(),
                    1,
                    "{fault}, {:?}",
                    calls(&node)
                );
                // A claim that is prepared already is not prepared again.
                node.prepare(&driver, tool.class, part).await.unwrap();
                unprepare(&driver, part).await;
            }
        }
    }
    // Two parts that do not overlap exist at the same time.
    node.prepare(&driver, tool.class, small).await.unwrap();
    let other = small
        .replace("gb-4", "gb-0")
        .replace("-1c-8g-1", "-1c-8g-2");
    node.prepare(&driver, tool.class, &other).await.unwrap();
    assert_eq!(list_made_parts(&node, tool).len(), 2);
    let prepared = node.prepare(&driver, tool.class, large);
    refused(prepared, "there is no room for").await;
}

#[tokio::test]
async fn nvidia_smi_fails_at_each_step() {
    fails_at_each_step(&NVIDIA).await;
}

#[tokio::test]
async fn npu_smi_fails_at_each_step() {
    fails_at_each_step(&ASCEND).await;
}
