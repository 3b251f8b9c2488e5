//! The loaders of the root file systems find what they should, and only that.

use harness::bundle::Bundle;
use harness::demo_host::{DemoHost, VendorLibrary};
use harness::loader::{self, Loaded};

use crate::lab::{Lab, images_with_a_loader, on_each_cgroup_version};

on_each_cgroup_version!(
    the_vendor_library_is_not_found_without_the_hook,
    the_vendor_library_loads_where_it_is_found
);

/// No image has the vendor's library of itself.
fn the_vendor_library_is_not_found_without_the_hook(lab: &Lab) {
    for rootfs in images_with_a_loader() {
        let loaded = load(lab, Bundle::builder(rootfs));
        assert!(
            matches!(&loaded[..], [Loaded::Failed { .. }]),
            "{rootfs:?}: {loaded:?}"
        );
    }
}

/// Named by LD_LIBRARY_PATH, it is: the library is sound for every libc.
fn the_vendor_library_loads_where_it_is_found(lab: &Lab) {
    let host = DemoHost::new().unwrap();
    for rootfs in images_with_a_loader() {
        let bundle = Bundle::builder(rootfs)
            .bind(&host.libraries(), "/vendor")
            .env("LD_LIBRARY_PATH", "/vendor");
        let expected = Loaded::Found {
            soname: "libdummy-npu.so.1".to_string(),
            path: "/vendor/libdummy-npu.so.1".into(),
            answer: "1.2.3".to_string(),
        };
        assert_eq!(load(lab, bundle), [expected], "{rootfs:?}");
    }
}

fn load(lab: &Lab, bundle: harness::bundle::BundleBuilder) -> Vec<Loaded> {
    let command = loader::command(&[VendorLibrary::dummy_npu().wanted()]);
    loader::parse(&lab.run(&bundle.args(command).build().unwrap())).unwrap()
}
