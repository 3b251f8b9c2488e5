use std::fs;

use tempfile::TempDir;

use super::*;

const POD: &str = "0f3f3a0e-5f0e-4a53-9f55-3c0a2f3f7a11";
const OTHER: &str = "11111111-5f0e-4a53-9f55-3c0a2f3f7a11";

struct Host {
    root: TempDir,
    history: HolderHistory,
}

impl Host {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/fs/cgroup")).unwrap();
        fs::write(root.path().join("sys/fs/cgroup/cgroup.procs"), "").unwrap();
        let history = HolderHistory::new(root.path().join("checkpoint"), root.path());
        Host { root, history }
    }

    /// Writes a checkpoint with the pods that have the device `a.b/c`, `x`.
    fn record(&self, pods: &[&str]) {
        let entry = |pod: &&str| {
            format!(
                r#"{{"PodUID":"{pod}","ContainerName":"main","ResourceName":"a.b/c","DeviceIDs":{{"-1":["x"]}}}}"#
            )
        };
        let entries: Vec<String> = pods.iter().map(entry).collect();
        let text = format!(
            r#"{{"Data":{{"PodDeviceEntries":[{}]}}}}"#,
            entries.join(",")
        );
        fs::write(self.root.path().join("checkpoint"), text).unwrap();
    }

    fn lose_record(&self) {
        fs::remove_file(self.root.path().join("checkpoint")).unwrap();
    }

    /// Makes the cgroups of a pod's sandbox and of one container, which runs or has ended.
    fn make_pod(&self, pod: &str, parent: &str, is_running: bool) {
        for (name, tasks) in [("sandbox", 1), ("container", u8::from(is_running))] {
            let directory = self.root.path().join(parent).join(pod).join(name);
            fs::create_dir_all(&directory).unwrap();
            let (file, text) = if parent.contains("/pids/") {
                ("pids.current", format!("{tasks}\n"))
            } else {
                ("cgroup.events", format!("populated {tasks}\nfrozen 0\n"))
            };
            fs::write(directory.join(file), text).unwrap();
        }
    }

    /// Allocates the device, and returns the pods with which that is a conflict.
    fn allocate(&mut self, then: impl FnOnce(&Self)) -> Vec<String> {
        let device = ("a.b/c".to_owned(), "x".to_owned());
        let now = Instant::now();
        assert_eq!(self.history.check_allocations(&[device], now), []);
        then(self);
        let conflicts = self
            .history
            .check_allocations(&[], now + CONFIRMATION_DELAY);
        conflicts
            .into_iter()
            .map(|(_, holder)| holder.pod_uid)
            .collect()
    }
}

/// The cgroups of pods on hosts with cgroup v2 and v1, managed by systemd and by the kubelet.
fn places() -> [(String, &'static str); 5] {
    let slice = format!("kubepods-burstable-pod{}.slice", POD.replace('-', "_"));
    let burstable = "sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice";
    [
        (slice, burstable),
        (format!("pod{POD}"), "sys/fs/cgroup/kubepods/besteffort"),
        (format!("pod{POD}"), "sys/fs/cgroup/kubepods"),
        (format!("pod{POD}"), "sys/fs/cgroup/other/kubepods"),
        (format!("pod{POD}"), "sys/fs/cgroup/pids/kubepods/burstable"),
    ]
}

#[test]
fn a_device_of_a_running_pod_that_the_kubelet_has_forgotten_is_a_conflict() {
    for (pod, parent) in places() {
        let mut host = Host::new();
        host.record(&[POD]);
        host.make_pod(&pod, parent, true);
        host.history.check_allocations(&[], Instant::now());
        host.lose_record();
        // However long ago the checkpoint was lost.
        host.history.check_allocations(&[], Instant::now());
        assert_eq!(
            host.allocate(|host| host.record(&[OTHER])),
            [POD],
            "{parent}"
        );
    }
}

#[test]
fn the_holders_are_known_after_a_start_without_a_checkpoint() {
    let (pod, parent) = &places()[0];
    let mut host = Host::new();
    host.record(&[POD]);
    host.make_pod(pod, parent, true);
    host.history.check_allocations(&[], Instant::now());
    let file = host.root.path().join("run/boathook/release/holders.json");
    let saved = fs::read_to_string(&file).unwrap();
    let start = |host: &mut Host| {
        host.history = HolderHistory::new(host.root.path().join("checkpoint"), host.root.path());
    };
    for (text, conflicts) in [(saved.as_str(), &[POD][..]), ("[{", &[]), ("", &[])] {
        fs::write(&file, text).unwrap();
        host.lose_record();
        start(&mut host);
        assert_eq!(
            host.allocate(|host| host.record(&[OTHER])),
            conflicts,
            "{text}"
        );
    }
    // A pod that has ended is no longer in the file.
    fs::write(&file, saved).unwrap();
    host.make_pod(pod, parent, false);
    start(&mut host);
    host.history.check_allocations(&[], Instant::now());
    let saved = fs::read_to_string(&file).unwrap();
    assert!(!saved.contains(POD), "{saved}");
}

/// What happens before the allocation.
type Preparation = fn(&Host);

/// What happens after the allocation, with the name and the parent of the pod's cgroup.
type LaterEvent = fn(&Host, &str, &str);

#[test]
fn a_legitimate_allocation_is_no_conflict() {
    let (pod, parent) = &places()[0];
    let cases: [(&str, Preparation, LaterEvent); 5] = [
        (
            "an init container's device",
            |host| host.record(&[POD]),
            |_, _, _| {},
        ),
        (
            "a container that is started again without a record",
            Host::lose_record,
            |host, _, _| host.record(&[POD]),
        ),
        (
            "the pod has ended, and the kubelet has removed it from its record",
            |host| host.record(&[]),
            |host, pod, parent| host.make_pod(pod, parent, false),
        ),
        (
            "the cgroup of the pod is gone",
            |host| host.record(&[]),
            |host, _, _| fs::remove_dir_all(host.root.path().join("sys")).unwrap(),
        ),
        (
            "the record cannot be read",
            |host| fs::write(host.root.path().join("checkpoint"), "{").unwrap(),
            |_, _, _| {},
        ),
    ];
    for (case, before, then) in cases {
        let mut host = Host::new();
        host.record(&[POD]);
        host.make_pod(pod, parent, true);
        host.history.check_allocations(&[], Instant::now());
        before(&host);
        let conflicts = host.allocate(|host| then(host, pod, parent));
        assert_eq!(conflicts, [""; 0], "{case}");
    }
}
