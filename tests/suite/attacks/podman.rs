//! podman, which copies the annotations of an image's manifest into config.json,
//! and which has pods of its own.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use harness::captured::Captured;
use harness::cri::{Pod, Record};
use harness::demo_host::DemoHost;
use harness::image::Image;
use harness::probe;
use harness::rootfs::Rootfs;

use crate::engines::machine::Machine;
use crate::engines::{cdi, podman};
use harness::engine_root::Generation;

/// The pod whose devices the attacker wants: `npu-2`.
fn victim() -> Pod {
    Pod::new(1, Rootfs::Busybox).devices(Some("npu-2"))
}

/// podman, with the kubelet's record of [`victim`] and more of [trust].
pub(super) fn machine(more: &str) -> Option<Machine> {
    if let Some(reason) = podman::missing(Generation::OfThisMachine) {
        skip::report("attacks by podman's images", &reason);
        return None;
    }
    let (machine, _options) = podman::machine(Generation::OfThisMachine).unwrap();
    let mut record = Record::new(&machine.path("kubelet_internal_checkpoint"));
    record.add(&victim()).unwrap();
    let runtime = harness::runc::program().unwrap();
    let text = format!("[runtime]\npath = {runtime:?}\n{}{more}", record.config());
    machine.devices.write_config(&text).unwrap();
    let text = std::fs::read_to_string(machine.devices.config_file()).unwrap();
    machine.write("/etc/boathook/config.toml", &text).unwrap();
    Some(machine)
}

/// Loads an image with these annotations in its manifest.
pub(super) fn load(machine: &Machine, name: &str, annotations: &[(&str, &str)]) -> String {
    let name = format!("localhost/{name}:1");
    let image = Image::new(Rootfs::Busybox).unwrap();
    let archive = image
        .annotated_archive(&name, &[probe::PATH, probe::PAUSE], annotations)
        .unwrap();
    let mut load = machine.private.command("podman");
    let loaded = Captured::run(load.args(["load", "--input"]).arg(archive));
    loaded.and_then(Captured::success).unwrap();
    name
}

/// The names of the demo host's devices in a container; `None` if it was refused
/// by the hook.
fn devices(machine: &Machine, options: &[&str], image: &str) -> Option<String> {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut command: Command = machine.private.command("podman");
    command.args(["run", "--rm", "--name", &format!("attack-{number}")]);
    command.args(["--network=none", "--cgroups=enabled"]);
    command.args(options).arg(image);
    let ran = Captured::run(command.args(["/bin/sh", "-c", "cd /dev; echo dummy*"])).unwrap();
    if ran.status.success() {
        return Some(ran.stdout.trim().replace("dummy*", ""));
    }
    assert!(ran.stderr.contains("boathook: "), "{}", ran.stderr);
    None
}

fn asking(request: &str) -> String {
    format!("--env={}={request}", DemoHost::VARIABLE)
}

#[test]
fn an_image_cannot_claim_to_be_a_pod() {
    let more = "allow_env_outside_kubernetes = false\ntrusted_pods = [\"monitoring\"]\n";
    let Some(machine) = machine(more) else { return };
    let uid = victim().uid();
    let labels = format!(
        r#"{{"io.kubernetes.container.name":"main","io.kubernetes.pod.name":"test-1","io.kubernetes.pod.namespace":"monitoring","io.kubernetes.pod.uid":"{uid}"}}"#
    );
    let containerd = |namespace| {
        [
            ("io.kubernetes.cri.container-type", "container"),
            ("io.kubernetes.cri.sandbox-uid", uid.as_str()),
            ("io.kubernetes.cri.sandbox-namespace", namespace),
            ("io.kubernetes.cri.sandbox-name", "test-1"),
            ("io.kubernetes.cri.container-name", "main"),
        ]
    };
    let crio = [
        ("io.kubernetes.cri-o.ContainerType", "container"),
        ("io.kubernetes.cri-o.Labels", labels.as_str()),
        ("io.kubernetes.cri-o.Annotations", "{}"),
    ];
    let claims: [(&str, &[_]); 3] = [
        ("victim", &containerd("default")),
        ("trusted", &containerd("monitoring")),
        ("crio", &crio),
    ];
    for (name, annotations) in claims {
        let image = load(&machine, name, annotations);
        for request in ["all", "npu-2"] {
            let given = devices(&machine, &[&asking(request)], &image);
            assert_eq!(given.unwrap_or_default(), "", "{name}, {request}");
        }
    }
}

#[test]
fn an_images_annotation_does_not_override_the_user() {
    let Some(machine) = machine("") else { return };
    let all = [("devices.boathook.dev/dummy-npu", "all")];
    let image = load(&machine, "asks", &all);
    for (request, wanted) in [("void", ""), ("none", ""), ("npu-3", "dummy-npu3")] {
        let given = devices(&machine, &[&asking(request)], &image);
        assert_eq!(given.as_deref(), Some(wanted), "{request}");
    }
    assert_eq!(devices(&machine, &[], &image).as_deref(), Some(""));
}

/// The host has specifications of all devices. An image's author can write neither
/// those nor a hook, and none of these annotations names a device of them.
#[test]
fn an_image_cannot_name_cdi_devices() {
    let Some(machine) = machine("") else { return };
    cdi::generate(&machine, &[]).unwrap();
    let device = "dummy.com/npu=npu-3";
    let annotations = [
        ("cdi.k8s.io/boathook", device),
        ("cdi.k8s.io/boathook_npu-3", device),
        ("io.podman.annotations.cdi", device),
        ("devices.boathook.dev/dummy-npu", "npu-3"),
    ];
    let image = load(&machine, "names", &annotations);
    assert_eq!(devices(&machine, &[], &image).as_deref(), Some(""));
    // Whoever starts the container can.
    let given = devices(&machine, &["--device=dummy.com/npu=npu-5"], &image);
    assert_eq!(given.as_deref(), Some("dummy-npu5"));
}

/// A pod of podman is not a Kubernetes pod, whatever its cgroup's name is.
#[test]
fn a_container_in_a_pod_of_podmans_gets_its_devices() {
    let Some(machine) = machine("") else { return };
    let image = load(&machine, "plain", &[]);
    let podman = |arguments: &[&str]| {
        let mut command = machine.private.command("podman");
        let ran = Captured::run(command.args(arguments));
        ran.and_then(Captured::success).unwrap()
    };
    podman(&["pod", "create", "--infra=false", "--name", "mine"]);
    let given = devices(&machine, &["--pod=mine", &asking("npu-3")], &image);
    assert_eq!(given.as_deref(), Some("dummy-npu3"));
}
