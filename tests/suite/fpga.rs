//! An FPGA from request to container: a pod requests it by a friendly name, the webhook
//! writes the plugin's resource and the hook's variables, the kubelet allocates a port,
//! and the hook has it programmed before the container starts.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::webhook::api::AcceleratorFunctionSpec;
use cluster::webhook::mappings::{MappingKind, MappingObject};
use cluster::webhook::review::Reviewer;
use harness::bundle::Bundle;
use harness::cgroup_parent::CgroupParent;
use harness::kubelet::{Allocated, Allocation};
use harness::node::Node;
use harness::probe::{Access, Questions};
use harness::recorded_host::RecordedHost;
use harness::rootfs::Rootfs;
use serde_json::{Value, json};

use crate::lab::{Lab, asking, on_each_cgroup_version};

on_each_cgroup_version!(two_jobs_of_which_one_requests_a_missing_function);

const INTERFACE: &str = "ce48969398f05f33946d560708be108a";
const NLB0: &str = "d8424dc4a4a3c413f89e433683f9040b";
const NLB3: &str = "f7df405cbd7acf7222f144b0b93acd18";
const NONE: &str = "ffffffffffffffffffffffffffffffff";

const PORT: &str = "/dev/intel-fpga-port.0";
const FUNCTION_FILE: &str = "sys/devices/pci0000:5e/0000:5e:00.0/fpga/intel-fpga-dev.0/\
                             intel-fpga-port.0/afu_id";

fn two_jobs_of_which_one_requests_a_missing_function(lab: &Lab) {
    let node = Fpga::start();
    // Both names are mapped; the bitstream of only one is on the node.
    let names = [("nlb3-orchestrated", NLB3), ("nlb0-orchestrated", NLB0)];
    let reviewer = webhook(&names);

    let good = admitted(&reviewer, "nlb3-orchestrated");
    let given = node.allocate(&good);
    let questions = Questions::new().path(PORT.to_owned());
    let bundle = node.container(&given, asking(&questions));
    let report = lab.probe(&bundle.bundle);
    assert_eq!(report.path(PORT).unwrap().read, Access::Granted);
    assert_eq!(node.function(), NLB3);
    assert_eq!(node.calls(), 1);
    // A second pod finds the function there.
    let again = node.container(&given, asking(&questions));
    let report = lab.probe(&again.bundle);
    assert_eq!(report.path(PORT).unwrap().read, Access::Granted);
    assert_eq!(node.calls(), 1);

    let wrong = admitted(&reviewer, "nlb0-orchestrated");
    let given = node.allocate(&wrong);
    let command = ["touch", "/ran"].map(str::to_owned).to_vec();
    let container = node.container(&given, command);
    let ran = lab.runc.run(&container.bundle).unwrap();
    assert!(!ran.status.success());
    let reason = format!("fpgaconf failed (exit status: 1): no bitstream {NLB0}.gbs");
    assert!(ran.stderr.contains(&reason), "{}", ran.stderr);
    assert!(!container.bundle.in_rootfs("/ran").exists());
    // The other job's function stays.
    assert_eq!(node.function(), NLB3);
    node.node.stop().unwrap();
}

/// A webhook with these names of functions, in mode region.
fn webhook(names: &[(&str, &str)]) -> Reviewer {
    let reviewer = Reviewer::default();
    reviewer.change_mappings(|mappings| {
        let mut listed = std::collections::BTreeSet::new();
        for (name, function) in names {
            let spec = AcceleratorFunctionSpec {
                afu_id: (*function).to_owned(),
                interface_id: INTERFACE.to_owned(),
                mode: "region".to_owned(),
            };
            assert_eq!(
                mappings.set("default", name, MappingObject::Function(spec)),
                None
            );
            listed.insert(("default".to_owned(), (*name).to_owned()));
        }
        mappings.retain_listed(MappingKind::Function, &listed);
        mappings.retain_listed(MappingKind::Region, &std::collections::BTreeSet::new());
    });
    reviewer
}

/// The container of a pod that requests a name, as it is after its admission.
fn admitted(reviewer: &Reviewer, name: &str) -> Value {
    let amounts = json!({format!("fpga.intel.com/{name}"): "1"});
    let mut pod = json!({"metadata": {"name": "job"}, "spec": {"containers": [
        {"name": "main", "image": "x", "resources": {"limits": amounts, "requests": amounts}},
    ]}});
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "namespace": "default", "object": pod,
            "resource": {"group": "", "version": "v1", "resource": "pods"},
        },
    });
    let answer = reviewer.review(review.to_string().as_bytes());
    let answer = serde_json::to_value(answer.unwrap()).unwrap();
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
    let patch = answer["response"]["patch"].as_str().unwrap();
    let patch = STANDARD.decode(patch).unwrap();
    let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
    json_patch::patch(&mut pod, &patch).unwrap();
    pod["spec"]["containers"][0].clone()
}

/// A node with one port, whose region can be programmed.
struct Fpga {
    node: Node,
    host: RecordedHost,
}

/// A container, in a cgroup as the kubelet names it.
struct Container {
    bundle: Bundle,
    _parent: CgroupParent,
}

impl Fpga {
    fn start() -> Self {
        let device = "pci0000:5e/0000:5e:00.0/fpga/intel-fpga-dev.0";
        let host = RecordedHost::bare(&format!(
            "link /sys/class/fpga/intel-fpga-dev.0 ../../devices/{device}\n\
             file /sys/devices/{device}/intel-fpga-port.0/afu_id\n| {NONE}\n\
             file /sys/devices/{device}/intel-fpga-fme.0/pr/interface_id\n| {INTERFACE}\n\
             char {PORT} 240:0\n"
        ))
        .unwrap();
        host.add_shipped_class("intel-fpga-region").unwrap();
        let bitstream = format!("/srv/intel.com/fpga/{INTERFACE}/{NLB3}.gbs");
        host.add_file(&bitstream, "bits").unwrap();
        let root = host.root().display().to_string();
        let programmer = format!(
            "#!/bin/sh\n[ -f {root}$7 ] || {{ echo \"no bitstream ${{7##*/}}\" >&2; exit 1; }}\n\
             echo \"$7\" >> {root}/calls\nbasename \"$7\" .gbs > {root}/{FUNCTION_FILE}\n"
        );
        host.add_program("/usr/bin/fpgaconf", &programmer).unwrap();
        let enabled = "[class.intel-fpga-region]\nenabled = true\n";
        let resource = format!("fpga.intel.com/region-{INTERFACE}");
        let node = Node::start(&host, enabled, &resource).unwrap();
        assert_eq!(node.devices(), 1);
        Self { node, host }
    }

    /// Allocates what a container requests, with the variables of its pod.
    fn allocate(&self, container: &Value) -> Allocated {
        let limits = container["resources"]["limits"].as_object().unwrap();
        let [(resource, count)] = limits.iter().collect::<Vec<_>>()[..] else {
            panic!("{limits:?}");
        };
        let mut allocation = Allocation::new(resource, count.as_str().unwrap().parse().unwrap());
        // The first job has ended: the kubelet gives its port to the second one.
        allocation.ids = vec!["intel-fpga-port.0".to_owned()];
        for variable in container["env"].as_array().unwrap() {
            let text = |key: &str| variable[key].as_str().unwrap().to_owned();
            allocation.env.insert(text("name"), text("value"));
        }
        self.node.allocate(allocation).unwrap()
    }

    fn container(&self, given: &Allocated, command: Vec<String>) -> Container {
        let parent = CgroupParent::new();
        let builder = self.node.container(Rootfs::Busybox, given, &parent);
        Container {
            bundle: builder.unwrap().args(command).build().unwrap(),
            _parent: parent,
        }
    }

    /// The function of the port.
    fn function(&self) -> String {
        let text = fs::read_to_string(self.host.root().join(FUNCTION_FILE)).unwrap();
        text.trim().to_owned()
    }

    /// Returns the number of times that the port was programmed.
    fn calls(&self) -> usize {
        let calls = fs::read_to_string(self.host.root().join("calls"));
        calls.unwrap_or_default().lines().count()
    }
}
