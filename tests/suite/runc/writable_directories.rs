//! Directories of the host that a class lets a container write to.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use harness::captured::Captured;
use harness::demo_host::HostDirectory;
use harness::rootfs::Rootfs;

use crate::lab::{Lab, on_each_cgroup_version, requesting};

on_each_cgroup_version!(only_a_writable_directory_can_be_written_to);

const STORE: &str = r#"version = 1
resource = "example.com/store"
request = { env = "STORES" }
[[discover]]
path = "/sys/store{index:number}"
[device]
id = "store-{index}"
index = "{index}"
directories = [{ path = "/var/lib/store/{index}", writable = true }]
[[edits]]
directories = [
  "/etc/store",
  { path = "/var/lib/shared", container_path = "/dev/shm", writable = true },
]
"#;

/// As far as its user may write on the host; the written files are the host's.
fn only_a_writable_directory_can_be_written_to(lab: &Lab) {
    let host = HostDirectory::new().unwrap();
    host.add_class("store", STORE).unwrap();
    for file in ["sys/store0", "sys/store1", "etc/store/setting"] {
        host.add_file(file, "as it was").unwrap();
    }
    for index in [0, 1] {
        host.add_file(&format!("var/lib/store/{index}/old"), "as it was")
            .unwrap();
    }
    let shared = host.root().join("var/lib/shared");
    fs::create_dir_all(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let run = |user: u32, command: &str| -> Captured {
        let bundle = requesting(&host, Rootfs::Busybox, "STORES", "0")
            .user(user, user)
            .args(["/bin/sh", "-c", command])
            .build()
            .unwrap();
        let ran = lab.runc.run(&bundle).unwrap();
        lab.assert_nothing_left(&bundle);
        ran
    };
    let own = "cd /var/lib/store/0 && echo new >new && rm old && mkdir dir";
    run(0, own).success().unwrap();
    let host_own = host.root().join("var/lib/store/0");
    assert_eq!(fs::read_to_string(host_own.join("new")).unwrap(), "new\n");
    assert!(host_own.join("dir").is_dir() && !host_own.join("old").exists());

    for (user, command, message) in [
        (0, "echo x >/etc/store/setting", "Read-only file system"),
        (0, "echo x >/etc/store/new", "Read-only file system"),
        (0, "ls /var/lib/store/1", "No such file"),
        (1000, "echo x >/var/lib/store/0/new", "Permission denied"),
    ] {
        let ran = run(user, command);
        assert!(!ran.status.success(), "{user}: {command}");
        assert!(ran.stderr.contains(message), "{command}: {}", ran.stderr);
    }
    run(0, "cat /etc/store/setting").success().unwrap();
    // One in place of the container's own, such as a daemon's shared memory.
    run(1000, "echo new >/dev/shm/new").success().unwrap();
    assert!(shared.join("new").exists());
    // A file that it writes there is neither a device nor a program with its owner's rights.
    let mounts = run(0, "grep ' /var/lib/store/0 ' /proc/self/mountinfo").stdout;
    assert!(mounts.contains("rw,nosuid,nodev"), "{mounts}");
    let kept = host.root().join("var/lib/store/1/old");
    assert_eq!(fs::read_to_string(kept).unwrap(), "as it was");
}
