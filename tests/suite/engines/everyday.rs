//! Everyday commands of docker and podman besides `run`, on engines of today.

use std::os::unix::fs::symlink;
use std::path::Path;

use harness::binaries;
use harness::captured::Captured;
use harness::demo_host::in_container;
use harness::engine_root::Generation;
use harness::rootfs::Rootfs;
use serde_json::json;

use super::docker::{self, DockerLike, UserNamespaces, name_of};
use super::engine::{ContainerSettings, Engine, printed};
use super::podman;
use crate::said::assert_says;

/// Starts a container that requests `npu-3`.
fn asking(engine: &DockerLike, name: &str, more: &[&str]) {
    let common = ["--network=none", "--env=DUMMY_VISIBLE_DEVICES=npu-3"];
    engine.run_waiting(name, &[&common[..], more].concat());
}

/// Its data are not in the engine's usual directory.
fn is_found_by_name(engine: &DockerLike, name: &str) {
    // The machine's own directories, and not those of its devices.
    let config = format!("classes = [{:?}]\n", engine.machine.devices.classes());
    engine.machine.write("/root/own.toml", &config).unwrap();
    let boathook = binaries::program("boathook").unwrap();
    let mut explain = engine.machine.private.command(boathook);
    explain.args(["--config=/root/own.toml", "explain", "--container", name]);
    let ran = Captured::run(&mut explain).unwrap();
    assert_says(&ran.stdout, &["DUMMY_VISIBLE_DEVICES=npu-3"]);
}

/// Docker removes the bundle of a container that it could not start, and keeps its own files.
fn is_examined_although_refused(engine: &DockerLike) {
    let mut refused = engine.command("run");
    let image = name_of(Rootfs::Busybox);
    let request = "--env=DUMMY_VISIBLE_DEVICES=npu-99";
    refused.args(["--name=refused", "--network=none", request, &image, "true"]);
    assert!(printed(&mut refused).is_err());
    let boathook = binaries::program("boathook").unwrap();
    let mut doctor = engine.machine.private.command(boathook);
    let ran = Captured::run(doctor.args(["--config=/root/own.toml", "doctor", "refused"])).unwrap();
    assert_eq!(ran.status.code(), Some(5), "{ran:?}");
    let words = [
        "not running: docker could not start it",
        "has no device `npu-99`",
    ];
    assert_says(&ran.stdout, &words);
    printed(engine.command("rm").arg("refused")).unwrap();
}

#[test]
fn docker_keeps_devices_over_updates_and_its_own_restart() {
    if let Some(reason) = docker::missing(Generation::Forky) {
        return skip::report("docker with live-restore", &reason);
    }
    let more = json!({"live-restore": true, "default-runtime": "boathook"});
    let engine = docker::with(Generation::Forky, UserNamespaces::None, &more).unwrap();
    // The default runtime, beside a device of the user's own.
    asking(&engine, "npu-user", &["--device=/dev/fuse:/dev/mine"]);
    assert_eq!(engine.devices("npu-user"), [3], "at the start");
    is_found_by_name(&engine, "npu-user");
    is_examined_although_refused(&engine);
    let mut mine = engine.command("exec");
    printed(mine.args(["npu-user", "test", "-c", "/dev/mine"])).unwrap();

    printed(engine.command("update").args(["--cpus=0.5", "npu-user"])).unwrap();
    assert_eq!(engine.devices("npu-user"), [3], "after an update");
    let kill = format!("kill -KILL $(cat {})", engine.machine.path("pid").display());
    printed(engine.machine.private.command("sh").args(["-c", &kill])).unwrap();
    let mut daemon = docker::start_daemon(&engine.machine).unwrap();
    assert_eq!(engine.devices("npu-user"), [3], "after the daemon's end");
    printed(engine.command("restart").arg("npu-user")).unwrap();
    assert_eq!(engine.devices("npu-user"), [3], "after its own restart");
    printed(engine.command("rm").args(["--force", "npu-user"])).unwrap();
    // It ends with its machine.
    drop(engine);
    daemon.wait().unwrap();
}

#[test]
fn podman_gives_devices_to_containers_of_pods_and_to_builds() {
    if let Some(reason) = podman::missing(Generation::Forky) {
        return skip::report("podman's pods and builds", &reason);
    }
    let engine = podman::by_hooks_d(Generation::Forky).unwrap();
    let parent = format!("--cgroup-parent={}", engine.machine.parent.path().display());
    let mut pod = engine.command("pod");
    printed(pod.args(["create", "--infra=false", &parent, "--name", "p"])).unwrap();
    asking(&engine, "npu-user", &["--pod=p"]);
    assert_eq!(engine.devices("npu-user"), [3], "in a pod");
    is_found_by_name(&engine, "npu-user");
    printed(engine.command("pod").args(["rm", "--force", "p"])).unwrap();

    let directory = engine.machine.path("build");
    std::fs::create_dir(&directory).unwrap();
    let image = name_of(Rootfs::Busybox);
    let steps = format!(
        "FROM {image}\nENV DUMMY_VISIBLE_DEVICES=npu-3\nRUN test -c /dev/dummy-npu3 && echo yes > /seen\n"
    );
    std::fs::write(directory.join("Containerfile"), steps).unwrap();
    let build = |more: &[&str]| {
        let mut build = engine.command("build");
        build.args([
            "--network=none",
            "--isolation=oci",
            "--no-cache",
            "--tag=built",
            "--ulimit=nofile=1024:1024",
            "--ulimit=nproc=1024:1024",
        ]);
        build.arg(&parent).args(more).arg(&directory);
        Captured::run(&mut build).unwrap().success().unwrap().stderr
    };
    // A warning for each RUN, unless the directory is named.
    let warning = "Implicit hook directories are deprecated";
    assert_eq!(build(&[]).matches(warning).count(), 1);
    let explicit = build(&["--hooks-dir=/etc/containers/oci/hooks.d"]);
    assert!(!explicit.contains(warning), "{explicit}");
    let changes = printed(engine.command("diff").args(["built", &image])).unwrap();
    let changed: Vec<&str> = changes
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    assert!(changed.contains(&"/seen"), "{changes}");
    const LINK: &str = "/usr/lib/libdummy-npu.so.1";
    // Of the device and its files nothing stays but directories to mount on, what the loader
    // reads, and the link by which programs open the library.
    for path in &changed {
        let ours = [
            "/etc/ld.so.cache",
            "/etc/ld.so.conf",
            "/usr/lib/boathook",
            LINK,
            "/seen",
        ];
        let directory = [
            "/etc", "/usr", "/usr/lib", "/run", "/dev", "/proc", "/sys", "/tmp",
        ];
        let is_expected =
            ours.iter().any(|known| path.starts_with(known)) || directory.contains(path);
        assert!(is_expected, "{path} in {changes}");
    }
    assert!(!changes.replace(LINK, "").contains("npu"), "{changes}");
}

#[test]
fn containers_of_docker_are_attached_devices_while_they_run() {
    if let Some(reason) = docker::missing(Generation::OfThisMachine) {
        return skip::report("attach with docker", &reason);
    }
    let engine = docker::engine(Generation::OfThisMachine).unwrap();
    // Docker keeps names in its directory, which a host's root has.
    let format = ["--format", "{{.DockerRootDir}}"];
    let directory = printed(engine.command("info").args(format)).unwrap();
    let directory = Path::new(directory.trim());
    let root = engine.machine.devices.root();
    let below = root.join(directory.strip_prefix("/").unwrap());
    std::fs::create_dir_all(below.parent().unwrap()).unwrap();
    symlink(directory, below).unwrap();
    attach_and_detach(&engine);
}

#[test]
fn containers_of_podman_are_attached_devices_while_they_run() {
    // The newer one mounts a root with users of its own in its monitor's namespace alone.
    for generation in [Generation::OfThisMachine, Generation::Forky] {
        match podman::missing(generation) {
            Some(reason) => skip::report(&format!("attach with podman {generation:?}"), &reason),
            None => attach_and_detach(&podman::by_hooks_d(generation).unwrap()),
        }
    }
}

/// crun says of such a container neither where its bundle is nor where its root was, which it
/// mounts in /var/tmp: there a local user's configuration must not count.
#[test]
fn a_user_namespace_and_a_device_of_the_engines_own_do_not_hinder_each_other() {
    if let Some(reason) = podman::missing(Generation::Forky) {
        return skip::report("devices of podman beside --device", &reason);
    }
    let mut engine = podman::by_crun(Generation::Forky).unwrap();
    engine
        .options
        .push("--device=/dev/zero:/dev/own".to_owned());
    let planted = json!({
        "root": {"path": "rootfs"},
        "process": {"env": ["DUMMY_VISIBLE_DEVICES=npu-5"]},
    });
    let plant = "printf %s \"$1\" > /var/tmp/config.json && chown 1000:1000 /var/tmp/config.json";
    let mut local_user = engine.machine.private.command("sh");
    printed(local_user.args(["-c", plant, "sh", &planted.to_string()])).unwrap();
    for devices in [None, Some("npu-3")] {
        let wanted = ContainerSettings {
            user_namespace: true,
            ..ContainerSettings::new(Rootfs::Glibc, devices)
        };
        let running = engine.start(&wanted).unwrap();
        let seen = in_container::devices_by(|asked| running.exec(asked)).unwrap();
        let expected: &[usize] = if devices.is_some() { &[3] } else { &[] };
        assert_eq!(seen, expected);
    }
    // This directory is the machine's, and crun leaves the one in which it mounted the root.
    let remove = "rm -f /var/tmp/config.json; rmdir /var/tmp/intermediate-mountpoint-*; true";
    let mut removal = engine.machine.private.command("sh");
    printed(removal.args(["-c", remove])).unwrap();
}

/// The container is found by the process that watches over it.
fn attach_and_detach(engine: &DockerLike) {
    for user_namespace in [false, true] {
        let wanted = ContainerSettings {
            user_namespace,
            ..ContainerSettings::new(Rootfs::Glibc, None)
        };
        let running = engine.start(&wanted).unwrap();
        let id = printed(engine.command("ps").args(["-q", "--no-trunc"])).unwrap();
        let boathook = |arguments: &[&str]| {
            let program = binaries::program("boathook").unwrap();
            let mut command = engine.machine.private.command(program.to_str().unwrap());
            printed(command.args(arguments)).unwrap()
        };
        let devices = || in_container::devices_by(|asked| running.exec(asked)).unwrap();
        assert!(devices().is_empty());
        boathook(&["attach", &id.trim()[..12], "dummy-npu=npu-3,npu-5"]);
        assert_eq!(devices(), [3, 5]);
        let healthy = boathook(&["doctor", "--container", id.trim()]);
        assert!(healthy.contains("every device is allowed"), "{healthy}");
        let name = printed(engine.command("ps").args(["--format", "{{.Names}}"])).unwrap();
        // Shells complete the names of containers by this list.
        let listed = boathook(&["containers"]);
        assert!(listed.lines().any(|line| line == name.trim()), "{listed}");
        let used = boathook(&["list", "--used"]);
        let called = format!("{} (attached)", name.trim());
        assert_eq!(used.matches(&called).count(), 2, "{name}: {used}");
        let detached = boathook(&["detach", name.trim(), "dummy-npu=npu-3"]);
        let changed = format!("container {} ({})", id.trim(), name.trim());
        assert!(detached.contains(&changed), "{detached}");
        assert_eq!(devices(), [5]);
        boathook(&["detach", id.trim()]);
        assert!(devices().is_empty());
    }
}
