use std::fs::File;
use std::time::Instant;

use daemon::host_inventory::{ScanState, scan_host};
use device_class::host::RecordedHost;
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::*;
use crate::catalog::{ClaimedDevices, build_resources};

/// More than the tests of this program have open together.
const MOST_DESCRIPTORS: u64 = 4096;

/// Scans a host with one device, writes its file, and returns whether the device is healthy.
fn scan_and_write(files: &mut CdiFiles, class: &DeviceClass) -> bool {
    let host = RecordedHost::default();
    let classes = std::slice::from_ref(class);
    let scan = scan_host(classes, &host, &mut ScanState::new(), Instant::now());
    let specification_form = files.specification_form();
    let mut scan = build_resources(scan, &ClaimedDevices::default(), Some(specification_form));
    let described = std::mem::take(&mut scan.cdi_devices);
    let unusable = UnusableClasses::default();
    files.write(described, &mut scan.resources, &unusable);
    let resource = scan.resources.into_values().next().unwrap();
    resource.devices()[0].is_healthy()
}

/// Opens files until the thread has no descriptor left.
fn exhaust_descriptors() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// The files of an instance that has ended are taken over once there are descriptors. Until then
/// the files that this process wrote are still there.
#[test]
fn devices_stay_healthy_if_files_are_taken_over_without_a_free_descriptor() {
    let (_, hard_limit) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let limit = MOST_DESCRIPTORS.min(hard_limit);
    setrlimit(Resource::RLIMIT_NOFILE, limit, hard_limit).unwrap();
    // This thread has descriptors of its own, so that other tests keep theirs.
    unshare(CloneFlags::CLONE_FILES).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let cdi = directory.path().join("cdi");
    let allocations = PodAllocations::new(directory.path().join("checkpoint"), directory.path());
    let hook_path = "/opt/boathook/current/bin/boathook-hook".into();
    let mut files = CdiFiles::new(cdi.clone(), hook_path, "/".into(), allocations);
    let text = "version = 1\nresource = 'x.com/npu'\nrequest = { env = 'X' }\n\
                device = { id = 'x-{index}' }\n[[discover]]\ncount = 1\n";
    let name = "x".to_owned().try_into().unwrap();
    let class = DeviceClass::parse(name, "x.toml".as_ref(), text).unwrap();
    assert!(scan_and_write(&mut files, &class));
    let left_behind = cdi.join("boathook-old.example.pods.boathook.dev-x.json");
    std::fs::write(
        &left_behind,
        "{\"kind\": \"old.example.pods.boathook.dev/x\"}",
    )
    .unwrap();

    files.take_over_all_files();
    let open_files = exhaust_descriptors();
    assert!(scan_and_write(&mut files, &class));
    drop(open_files);
    assert!(left_behind.exists());
    assert!(scan_and_write(&mut files, &class));
    assert!(!left_behind.exists());
}
