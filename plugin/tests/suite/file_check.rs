//! `check-files` beside the plugin, as in the DaemonSet: the plugin's container has nothing
//! of the host's libraries, and the other one's user has no right.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use harness::kubelet::Event;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::node::{NPU, Node, PATIENCE, wait_until};

const CLASS: &str = r#"
version = 1
resource = "dummy.com/npu"
request = { env = "DUMMY_VISIBLE_DEVICES" }
discover = [{ count = 1 }]
device = { id = "npu-{index}" }
edits = [{ files = ["/opt/npu/firmware"] }]
"#;

/// Debian's nobody.
const NOBODY: u32 = 65534;

/// A running `check-files`.
struct FileCheck(Child);

impl FileCheck {
    fn start(node: &Node) -> Self {
        let program = node.path("program");
        // By another process, or what is started just then could keep it open.
        let copied = Command::new("/bin/cp")
            .args([
                env!("CARGO_BIN_EXE_boathook-plugin").as_ref(),
                program.as_os_str(),
            ])
            .status();
        assert!(copied.unwrap().success());
        let log = File::create(node.path("check.log")).unwrap();
        let child = Command::new(program)
            .args(["check-files", "--interval=0.1", "--config"])
            .arg(node.path("config.toml"))
            .arg("--host-root")
            .arg(node.path("whole-host"))
            .arg("--report")
            .arg(node.path("reports/files.json"))
            .uid(NOBODY)
            .gid(NOBODY)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        FileCheck(child.unwrap())
    }

    /// Ends it as the kubelet does.
    fn end(mut self) {
        kill(
            Pid::from_raw(self.0.id().try_into().unwrap()),
            Signal::SIGTERM,
        )
        .unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for FileCheck {
    fn drop(&mut self) {
        // After a failure; else it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_plugin_learns_of_missing_files_from_a_process_without_rights() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        let reason = "needs root, to start a process as another user";
        return skip::report("files that are missing on a mounted host", reason);
    }
    let node = Node::new(&[]);
    let (host, report) = (node.path("host"), node.path("reports/files.json"));
    let [host, file] = [&host, &report].map(|path| path.to_str().unwrap());
    let mut node = node.with_arguments(&["--host-root", host, "--file-report", file]);
    // Both read the class at its place on the host.
    for host in ["host", "whole-host"] {
        node.write(
            &format!("{host}/etc/boathook/classes.d/dummy-npu.toml"),
            CLASS,
        );
    }
    node.write("whole-host/opt/npu/other", "");
    node.write("config.toml", "");
    fs::create_dir(node.path("reports")).unwrap();
    chown(node.path("reports"), Some(NOBODY), None).unwrap();
    fs::set_permissions(node.path(""), Permissions::from_mode(0o755)).unwrap();

    let kubelet = node.serve(NPU);
    let check = FileCheck::start(&node);
    let wait = |wanted: &str| {
        let is_it = |event: &Event| match event {
            Event::Devices { devices, .. } => devices.iter().all(|npu| npu.health == wanted),
            _ => false,
        };
        kubelet.wait(PATIENCE, is_it).unwrap();
    };
    wait("Unhealthy");
    node.wait_log("/opt/npu/firmware");
    node.write("whole-host/opt/npu/firmware", "");
    wait("Healthy");

    // What this user may not read is not missing.
    let directory = node.path("whole-host/opt/npu");
    let old = fs::metadata(&report).unwrap().ino();
    fs::set_permissions(directory, Permissions::from_mode(0o700)).unwrap();
    let logged = || {
        let log = fs::read_to_string(node.path("check.log")).unwrap();
        log.contains("dummy-npu: not checked, /opt/npu/firmware cannot be read by this user")
    };
    wait_until("the check's warning", logged);
    wait_until("another report", || {
        fs::metadata(&report).unwrap().ino() != old
    });
    assert_eq!(fs::read_to_string(&report).unwrap(), "{}");
    check.end();

    // A report that is none keeps what is known.
    fs::write(&report, "[").unwrap();
    node.wait_log("missing libraries are not seen");
}
