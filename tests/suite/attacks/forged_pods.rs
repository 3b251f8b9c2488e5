//! Images and users that claim to be a pod, or a pod that they are not.

use harness::bundle::{Bundle, BundleBuilder, HookCommand, Stage};
use harness::cgroup_parent::CgroupParent;
use harness::cri::{Pod, Record};
use harness::demo_host::DemoHost;
use harness::rootfs::Rootfs;

use super::outcome::Outcome;
use crate::lab::{Lab, on_each_cgroup_version};

on_each_cgroup_version!(
    a_pod_that_the_cgroup_confirms_gets_its_devices,
    an_image_that_claims_to_be_a_pod_gets_nothing,
    an_annotation_of_an_image_does_not_override_the_user,
    a_pod_without_a_record_starts_with_a_warning,
    annotations_that_are_null_stop_nothing,
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
    let stage = Stage::CreateRuntime;
    let hook = HookCommand::boathook(stage, &host.config_file()).unwrap();
    Bundle::builder(Rootfs::Busybox).hook(stage, hook)
}

/// What containerd writes for a container of a pod.
fn containerd(builder: BundleBuilder, uid: &str, namespace: &str) -> BundleBuilder {
    builder
        .annotation("io.kubernetes.cri.container-type", "container")
        .annotation("io.kubernetes.cri.sandbox-uid", uid)
        .annotation("io.kubernetes.cri.sandbox-namespace", namespace)
        .annotation("io.kubernetes.cri.sandbox-name", "test-1")
        .annotation("io.kubernetes.cri.container-name", Pod::CONTAINER)
}

/// What CRI-O writes.
fn crio(builder: BundleBuilder, uid: &str, namespace: &str) -> BundleBuilder {
    let labels = format!(
        r#"{{"io.kubernetes.container.name":"{}","io.kubernetes.pod.name":"test-1","io.kubernetes.pod.namespace":"{namespace}","io.kubernetes.pod.uid":"{uid}"}}"#,
        Pod::CONTAINER
    );
    builder
        .annotation("io.kubernetes.cri-o.ContainerType", "container")
        .annotation("io.kubernetes.cri-o.Labels", &labels)
        .annotation("io.kubernetes.cri-o.Annotations", "{}")
}

type Engine = fn(BundleBuilder, &str, &str) -> BundleBuilder;
const ENGINES: [Engine; 2] = [containerd, crio];

/// The cgroup in which the kubelet would have this pod's container.
fn in_pod(parent: &CgroupParent, uid: &str) -> std::path::PathBuf {
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
        assert_eq!(Outcome::of(lab, builder).devices(), Some(vec![2]));
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
                Outcome::of(lab, claim()).assert_no_device(&case);
                let plain = claim().cgroups_path(parent.child("container"));
                Outcome::of(lab, plain).assert_no_device(&case);
                let other = claim().cgroups_path(in_pod(&parent, own));
                Outcome::of(lab, other).assert_no_device(&case);
            }
        }
    }
}

/// podman copies annotations from an image's manifest.
fn an_annotation_of_an_image_does_not_override_the_user(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let annotations = [
        ("devices.boathook.dev/dummy-npu", "all"),
        ("devices.boathook.dev/dummy-npu", "npu-3"),
        ("cdi.k8s.io/boathook", "dummy.com/npu=npu-3"),
    ];
    for (key, value) in annotations {
        for (variable, wanted) in [
            (Some("void"), vec![]),
            (Some("none"), vec![]),
            (Some(""), vec![]),
            (Some("npu-5"), vec![5]),
            (None, vec![]),
        ] {
            let mut builder = container(&host).annotation(key, value);
            if let Some(variable) = variable {
                builder = builder.env(DemoHost::VARIABLE, variable);
            }
            let devices = Outcome::of(lab, builder).devices();
            assert_eq!(devices, Some(wanted), "{key}={value}, {variable:?}");
        }
    }
}

/// On a node where no device was ever allocated the kubelet has no record. An
/// image's variable is no reason to refuse it; the plugin's annotation is.
fn a_pod_without_a_record_starts_with_a_warning(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    let missing = host.path().join("no-such-record");
    host.write_config(&format!("[trust]\nkubelet_checkpoint = {missing:?}\n"))
        .unwrap();
    let uid = victim().uid();
    for engine in ENGINES {
        let parent = CgroupParent::new();
        let pod = || {
            engine(container(&host), &uid, "default")
                .env(DemoHost::VARIABLE, "all")
                .cgroups_path(in_pod(&parent, &uid))
        };
        assert_eq!(Outcome::of(lab, pod()).devices(), Some(vec![]));
        assert!(host.log().contains("warning"), "{}", host.log());
    }
    let parent = CgroupParent::new();
    let allocated = containerd(container(&host), &uid, "default")
        .env(DemoHost::VARIABLE, "npu-2")
        .annotation("devices.boathook.dev/dummy-npu", "npu-2")
        .cgroups_path(in_pod(&parent, &uid));
    assert_eq!(Outcome::of(lab, allocated).devices(), None);
}

/// CRI-O 1.37 writes `null` for a container without annotations.
fn annotations_that_are_null_stop_nothing(lab: &Lab) {
    let host = node();
    let uid = victim().uid();
    for (request, wanted) in [(None, vec![]), (Some("npu-2"), vec![2])] {
        let parent = CgroupParent::new();
        let mut builder = crio(container(&host), &uid, "default")
            .annotation("io.kubernetes.cri-o.Annotations", "null")
            .cgroups_path(in_pod(&parent, &uid));
        if let Some(request) = request {
            builder = builder.env(DemoHost::VARIABLE, request);
        }
        assert_eq!(Outcome::of(lab, builder).devices(), Some(wanted));
    }
}
