//! Images and users that claim to be a pod, or a pod that they are not.

use harness::bundle::{Bundle, BundleBuilder};
use harness::cgroup_parent::CgroupParent;
use harness::cri::{Pod, Record};
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use super::outcome::Outcome;
use crate::lab::{Lab, STAGE, granting, hook, on_each_cgroup_version};
use crate::said::assert_says;

on_each_cgroup_version!(
    a_pod_that_the_cgroup_confirms_gets_its_devices,
    an_image_that_claims_to_be_a_pod_gets_nothing,
    a_restored_image_is_no_other_pod_and_no_sandbox,
    an_annotated_cdi_device_must_be_recorded_under_each_of_its_names,
    a_cdi_device_that_nothing_names_must_be_recorded,
    what_is_for_trusted_pods_is_not_for_a_claims,
    a_container_without_devices_gets_harmless_files_only,
);

/// The namespace that the administrator trusts in these tests.
const TRUSTED: &str = "monitoring";

/// A host whose kubelet recorded `npu-2` for [`victim`], and that gives nothing on
/// a variable outside Kubernetes.
fn node() -> DemoHost {
    let host = DemoHost::new().unwrap();
    let mut record = Record::new(&host.path().join("kubelet_internal_checkpoint"));
    record.add(&victim()).unwrap();
    let more = format!(
        "{}allow_env_outside_kubernetes = false\ntrusted_pods = [\"{TRUSTED}\"]\n",
        record.config()
    );
    host.write_config(&more).unwrap();
    host
}

/// The pod whose devices the attacker wants.
fn victim() -> Pod {
    Pod::new(1, Rootfs::Busybox).devices(Some("npu-2"))
}

fn container(host: &DemoHost) -> BundleBuilder {
    Bundle::builder(Rootfs::Busybox).hook(STAGE, hook(host))
}

/// Adds the annotations that containerd writes for a container of a pod.
pub(crate) fn containerd(builder: BundleBuilder, uid: &str, namespace: &str) -> BundleBuilder {
    builder
        .annotation("io.kubernetes.cri.container-type", "container")
        .annotation("io.kubernetes.cri.sandbox-uid", uid)
        .annotation("io.kubernetes.cri.sandbox-namespace", namespace)
        .annotation("io.kubernetes.cri.sandbox-name", "test-1")
        .annotation("io.kubernetes.cri.container-name", Pod::CONTAINER)
}

/// Adds the annotations that CRI-O writes.
fn crio(builder: BundleBuilder, uid: &str, namespace: &str) -> BundleBuilder {
    let labels = format!(
        r#"{{"io.kubernetes.container.name":"{}","io.kubernetes.pod.name":"test-1","io.kubernetes.pod.namespace":"{namespace}","io.kubernetes.pod.uid":"{uid}"}}"#,
        Pod::CONTAINER
    );
    let builder = builder
        .annotation("io.kubernetes.cri-o.ContainerType", "container")
        .annotation("io.kubernetes.cri-o.Labels", &labels)
        .annotation("io.kubernetes.cri-o.Annotations", "{}");
    builder
        .annotation("io.kubernetes.container.name", Pod::CONTAINER)
        .annotation("io.kubernetes.pod.name", "test-1")
        .annotation("io.kubernetes.pod.namespace", namespace)
        .annotation("io.kubernetes.pod.uid", uid)
}

type Engine = fn(BundleBuilder, &str, &str) -> BundleBuilder;
const ENGINES: [Engine; 2] = [containerd, crio];

/// The cgroup in which the kubelet would have this pod's container.
pub(crate) fn in_pod(parent: &CgroupParent, uid: &str) -> std::path::PathBuf {
    parent.child(&format!("pod{uid}")).join("container")
}

/// The devices that the attacks below try to get exist.
fn a_pod_that_the_cgroup_confirms_gets_its_devices(lab: &Lab) {
    let host = node();
    let uid = victim().uid();
    for engine in ENGINES {
        let parent = CgroupParent::new();
        let builder = engine(container(&host), &uid, "default")
            .env(DemoHost::VARIABLE, "npu-2")
            .cgroups_path(in_pod(&parent, &uid));
        assert_eq!(Outcome::run(lab, builder).devices(), Some(vec![2]));
    }
}

/// The victim's name, that of a trusted pod, and a uid in the cgroup that is
/// another pod's.
fn an_image_that_claims_to_be_a_pod_gets_nothing(lab: &Lab) {
    let host = node();
    let uid = victim().uid();
    let own = "00000000-0000-4000-8000-000000000099";
    for engine in ENGINES {
        for namespace in ["default", TRUSTED] {
            for request in ["all", "npu-2"] {
                let claim =
                    || engine(container(&host), &uid, namespace).env(DemoHost::VARIABLE, request);
                let case = format!("{namespace}, {request}");
                let parent = CgroupParent::new();
                Outcome::run(lab, claim()).assert_no_device(&case);
                let plain = claim().cgroups_path(parent.child("container"));
                Outcome::run(lab, plain).assert_no_device(&case);
                let other = claim().cgroups_path(in_pod(&parent, own));
                Outcome::run(lab, other).assert_no_device(&case);
            }
        }
    }
}

/// What a restored image carries replaces CRI-O's own, but for the labels that CRI-O
/// writes last.
fn a_restored_image_is_no_other_pod_and_no_sandbox(lab: &Lab) {
    let host = node();
    let uid = victim().uid();
    let labels = |key: &str, value: &str| {
        let mut labels = serde_json::json!({
            "io.kubernetes.container.name": Pod::CONTAINER,
            "io.kubernetes.pod.name": "test-1",
            "io.kubernetes.pod.namespace": "default",
            "io.kubernetes.pod.uid": uid,
        });
        labels[format!("io.kubernetes.{key}")] = value.into();
        ("io.kubernetes.cri-o.Labels", labels.to_string())
    };
    let other = "00000000-0000-4000-8000-000000000099";
    let json = r#"{"devices.boathook.dev/dummy-npu":"npu-3"}"#;
    let request = ("io.kubernetes.cri-o.Annotations", json.to_owned());
    let sandbox = ("io.kubernetes.cri-o.ContainerType", "sandbox".to_owned());
    for (forged, own, request_of) in [
        (labels("pod.namespace", TRUSTED), vec![], "all"),
        (labels("pod.name", "other"), vec![], "all"),
        (labels("container.name", "other"), vec![], "all"),
        (labels("pod.uid", other), vec![], "all"),
        (("io.kubernetes.cri-o.Labels", "{}".into()), vec![], "all"),
        (sandbox.clone(), vec![], "all"),
        (request, vec![], "npu-2"),
        // The same without what is forged: the record's device.
        (labels("pod.name", "test-1"), vec![2], "all"),
    ] {
        let parent = CgroupParent::new();
        let builder = crio(container(&host), &uid, "default")
            .annotation(forged.0, &forged.1)
            .env(DemoHost::VARIABLE, request_of)
            .cgroups_path(in_pod(&parent, &uid));
        let devices = Outcome::run(lab, builder).devices();
        assert_eq!(devices.unwrap_or_default(), own, "{forged:?}");
    }
}

/// An engine with CDI adds the hook that grants a device when an annotation names it, by
/// whichever of its names, and on CRI-O a restored image has the annotations.
fn an_annotated_cdi_device_must_be_recorded_under_each_of_its_names(lab: &Lab) {
    let host = node();
    for (name, granted) in [
        ("npu-3", "npu-3"),
        ("3", "npu-3"),
        ("all", "all"),
        ("2", "npu-2"),
    ] {
        for kind in ["container", "sandbox"] {
            let parent = CgroupParent::new();
            let builder = by_cdi(&host, crio, granted, &parent)
                .annotation("io.kubernetes.cri-o.ContainerType", kind)
                .annotation("cdi.k8s.io/boathook", &format!("dummy.com/npu={name}"));
            let devices = Outcome::run(lab, builder).devices();
            let own = (name == "2" && kind == "container").then(|| vec![2]);
            assert_eq!(devices, own, "{name}, {kind}");
        }
    }
}

/// containerd 2.1.0 takes names from a restored image, too, and does not show it; a claim's
/// file has another pod's uid.
fn a_cdi_device_that_nothing_names_must_be_recorded(lab: &Lab) {
    let host = node();
    let claims = serde_json::json!([{"ClaimUID": "u-1", "PodUIDs": {victim().uid(): {}}},
        {"ClaimUID": "u-2", "PodUIDs": {"00000000-0000-4000-8000-000000000099": {}}}]);
    write_claims(&host, &claims);
    for (granted, own) in [
        ("npu-2", Some(vec![2])),
        ("npu-3", None),
        ("3", None),
        ("all", None),
        ("npu-3@u-1", Some(vec![2, 3])),
        ("npu-3@u-2", None),
        ("npu-3@u-3", None),
    ] {
        for engine in ENGINES {
            let parent = CgroupParent::new();
            let builder = by_cdi(&host, engine, granted, &parent);
            assert_eq!(Outcome::run(lab, builder).devices(), own, "{granted}");
        }
    }
}

/// The kubelet's record of claims, where the hook looks for it.
fn write_claims(host: &DemoHost, claims: &serde_json::Value) {
    let kubelet = host.path().join("kubelet");
    let plugins = kubelet.join("device-plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    let mut record = Record::new(&plugins.join("kubelet_internal_checkpoint"));
    record.add(&victim()).unwrap();
    host.write_config(&record.config()).unwrap();
    let data = serde_json::json!({ "ClaimInfoStateList": claims }).to_string();
    let text = serde_json::json!({"Data": data, "Checksum": 1}).to_string();
    std::fs::write(kubelet.join("dra_manager_state"), text).unwrap();
}

/// The victim's container, in which a CDI specification grants devices; no annotation names
/// them.
fn by_cdi(host: &DemoHost, engine: Engine, granted: &str, parent: &CgroupParent) -> BundleBuilder {
    let hook = granting(host, &format!("dummy-npu={granted}"));
    let uid = victim().uid();
    let builder = Bundle::builder(Rootfs::Busybox).hook(STAGE, hook);
    engine(builder, &uid, "default").cgroups_path(in_pod(parent, &uid))
}

/// A container chooses capabilities by a variable, also of a device that a claim grants.
fn what_is_for_trusted_pods_is_not_for_a_claims(lab: &Lab) {
    let host = node();
    let class = std::fs::read_to_string(host.classes().join("dummy-npu.toml")).unwrap();
    let request = format!("env = \"{}\"", DemoHost::VARIABLE);
    assert!(class.contains(&request), "{class}");
    let trusted = "capabilities_env = 'CAPABILITIES'\ntrusted_capabilities = ['manage']\n";
    let class = class.replacen(&request, &format!("{request}\n{trusted}"), 1);
    let class = format!("{class}\n[[edits]]\ncapability = 'manage'\nfiles = ['/etc/npu.conf']\n");
    host.add_class("dummy-npu", &class).unwrap();
    host.add_file("/etc/npu.conf", "file").unwrap();
    let claims = serde_json::json!([{"ClaimUID": "u-1", "PodUIDs": {victim().uid(): {}}}]);
    write_claims(&host, &claims);
    for granted in ["npu-2", "npu-3@u-1"] {
        let parent = CgroupParent::new();
        let builder = || by_cdi(&host, containerd, granted, &parent);
        assert!(Outcome::run(lab, builder()).devices().is_some());
        let chosen = builder().env("CAPABILITIES", "manage");
        let Outcome::Refused(said) = Outcome::run(lab, chosen) else {
            panic!("{granted}: it has what trusted pods have");
        };
        assert!(said.contains("manage"), "{said}");
    }
}

/// `none` requests the files of a class, and takes no allocation. A container that has
/// none gets no directory and no socket; one that may have nothing gets nothing.
fn a_container_without_devices_gets_harmless_files_only(lab: &Lab) {
    let host = node();
    for (path, text) in [("/etc/npu.conf", "file"), ("/var/lib/npu/table", "table")] {
        host.add_file(path, text).unwrap();
    }
    std::os::unix::net::UnixListener::bind(host.root().join("etc/npu.sock")).unwrap();
    let class = std::fs::read_to_string(host.classes().join("dummy-npu.toml")).unwrap();
    let class = format!(
        "{class}\n[[edits]]\nfiles = ['/etc/npu.conf', {{ path = '/etc/npu.sock', type = 'socket' }}]\n\
         directories = [{{ path = '/var/lib/npu', writable = true }}]\n"
    );
    host.add_class("dummy-npu", &class).unwrap();
    let uid = victim().uid();
    let other = "00000000-0000-4000-8000-000000000099";
    let parent = CgroupParent::new();
    let seen = |builder: BundleBuilder| {
        let script = "ls -d /etc/npu.conf /etc/npu.sock /var/lib/npu /usr/lib/boathook; echo done";
        let bundle = builder
            .env(DemoHost::VARIABLE, "none")
            .args(["/bin/sh", "-c", script])
            .build()
            .unwrap();
        lab.run(&bundle)
    };
    for engine in ENGINES {
        let pod =
            |uid: &str| engine(container(&host), uid, "default").cgroups_path(in_pod(&parent, uid));
        let with_device = seen(pod(&uid));
        assert_says(
            &with_device,
            &["/etc/npu.conf", "/etc/npu.sock", "/var/lib/npu"],
        );
        assert_eq!(seen(pod(other)), "/etc/npu.conf\n/usr/lib/boathook\ndone\n");
    }
    // allow_env_outside_kubernetes = false
    assert_eq!(seen(container(&host)), "done\n");
}
