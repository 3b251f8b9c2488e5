//! Devices of pods that are unplugged and come back: `boathook follow` runs in a container of
//! the same engine, with what its DaemonSet gives it and nothing else.

use std::fs;

use harness::binaries;
use harness::demo_host::DemoHost;
use harness::demo_host::in_container::node;
use harness::engine_root::Generation;
use harness::image::name_of;
use harness::manifests::{documents, repository};
use harness::patience::wait_until;
use harness::probe::{Access, Kind, Questions, Report};
use harness::rootfs::Rootfs;

use super::cri::{Cri, How};
use super::ctr;
use super::engine::{ContainerSettings, Engine, Running, printed};
use super::replugged::said;
use crate::live::follow::replug;

const OTHER: usize = DemoHost::UNLIKE;

/// The capabilities that `ctr run` gives a container unless they are dropped.
const USUAL: &str = "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP \
    NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE";

#[test]
fn devices_of_pods_are_followed_from_a_pod() {
    for (generation, how) in [
        (Generation::Forky, How::Cdi),
        (Generation::OfThisMachine, How::BinaryName),
        (Generation::OfThisMachine, How::BaseRuntimeSpec),
    ] {
        match ctr::missing(generation) {
            Some(reason) => skip::report("follow in a pod", &reason),
            None => follow(&Cri::new(generation, how).unwrap()),
        }
    }
}

fn follow(engine: &Cri) {
    let machine = engine.machine();
    let host = &machine.devices;
    let file = machine.private.file("/etc/boathook/config.toml");
    let config = fs::read_to_string(&file).unwrap();
    fs::write(&file, config + "\n[class.dummy-npu]\nfollow = true\n").unwrap();
    let start = |devices: &str| {
        let wanted = ContainerSettings {
            readonly: true,
            ..ContainerSettings::new(Rootfs::Busybox, Some(devices))
        };
        engine.start(&wanted).unwrap()
    };
    let pods = ["npu-3", "npu-3,npu-7", "npu-4"].map(start);
    start_follower(engine);
    // The second has two, of which one may be away; the third has neither.
    let is = |now: Option<usize>| {
        for pod in &pods[..2] {
            assert!(wait_until(|| has_device(&**pod, host, 3, now)), "{now:?}");
        }
        assert!(has_device(&*pods[1], host, OTHER, Some(OTHER)));
        assert!(has_device(&*pods[2], host, 4, Some(4)));
        // No container may open a number that its device has no more.
        let gone = [3, OTHER].into_iter().filter(|index| Some(*index) != now);
        for gone in gone {
            assert!(!opens(&*pods[0], host, gone), "{gone}, now {now:?}");
        }
        assert_eq!(opens(&*pods[1], host, 3), now == Some(3), "{now:?}");
    };
    for _ in 0..2 {
        is(Some(3));
        for now in [None, Some(OTHER), Some(3)] {
            replug(host, 3, now);
            is(now);
        }
        engine.containerd.restart().unwrap();
    }
    // The kubelet has given them to others meanwhile.
    let nothing = r#"{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}},"Checksum":0}"#;
    replug(host, 3, None);
    is(None);
    fs::write(machine.path("checkpoint"), nothing).unwrap();
    replug(host, 3, Some(OTHER));
    wait_until_it_says(engine, "the kubelet did not allocate");
    is(None);
}

/// Whether the node of a device has the number of this one and opens, or is away.
pub(super) fn has_device(
    pod: &dyn Running,
    host: &DemoHost,
    index: usize,
    like: Option<usize>,
) -> bool {
    let questions = Questions::new().path(node(index)).command().unwrap();
    // An engine that was restarted answers a moment later.
    let Ok(report) = pod.exec(&questions) else {
        return false;
    };
    let report = Report::parse(&report).unwrap();
    let seen = report.path(node(index)).unwrap();
    match like {
        None => seen.kind == Kind::Missing,
        Some(like) => {
            let number = host.device(like).number();
            seen.number() == Some(number) && seen.read == Access::Granted
        }
    }
}

/// Whether a container may open a device whose node it makes itself.
pub(super) fn opens(pod: &dyn Running, host: &DemoHost, index: usize) -> bool {
    let device = host.device(index);
    let questions = Questions::new().new_node("/dev/own", device.major, device.minor);
    let report = pod.exec(&questions.command().unwrap()).unwrap();
    let report = Report::parse(&report).unwrap();
    pod.exec(&["/bin/sh", "-c", "rm -f /dev/own; echo"].map(str::to_owned))
        .unwrap();
    let seen = report.new_node("/dev/own").unwrap();
    assert_eq!(seen.made, Access::Granted);
    seen.read == Some(Access::Granted)
}

/// With the capabilities of the DaemonSet, the engine's own seccomp profile, and no volume but
/// the program, which is in the image.
fn start_follower(engine: &Cri) {
    let manifest = repository("deploy/components/follow/daemon-set.yaml");
    let manifest = documents(&fs::read_to_string(manifest).unwrap()).unwrap();
    let pod = &manifest[0]["spec"]["template"]["spec"];
    assert_eq!(
        (&pod["hostPID"], &pod["volumes"]),
        (&true.into(), &serde_json::Value::Null)
    );
    let container = &pod["containers"][0];
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let list = |value: &serde_json::Value| value.as_array().unwrap().iter().map(text).collect();
    let added: Vec<String> = list(&container["securityContext"]["capabilities"]["add"]);
    let command: Vec<String> = list(&container["command"]);
    let arguments: Vec<String> = list(&container["args"]);
    let mut run = engine.containerd.ctr();
    run.args(["run", "--detach", "--read-only", "--seccomp", "--with-ns"]);
    run.arg("pid:/proc/1/ns/pid");
    for usual in USUAL.split_whitespace() {
        if !added.iter().any(|name| name == usual) {
            run.arg(format!("--cap-drop=CAP_{usual}"));
        }
    }
    for name in added
        .iter()
        .filter(|name| !USUAL.split_whitespace().any(|it| it == *name))
    {
        run.arg(format!("--cap-add=CAP_{name}"));
    }
    let program = binaries::program("boathook").unwrap();
    let (program, log) = (program.display(), engine.machine().path("follow.log"));
    run.arg(format!(
        "--mount=type=bind,src={program},dst={},options=rbind:ro",
        command[0]
    ));
    run.arg("--log-uri")
        .arg(format!("file://{}", log.display()));
    run.arg("--cgroup")
        .arg(engine.machine().parent.child("follow"));
    run.args([&name_of(Rootfs::Busybox), "follow"])
        .args(&command)
        .args(&arguments);
    printed(&mut run).unwrap();
    wait_until_it_says(engine, "following devices");
}

fn wait_until_it_says(engine: &Cri, words: &str) {
    let is_so = wait_until(|| said(engine.machine()).contains(words));
    assert!(is_so, "{}", said(engine.machine()));
}
