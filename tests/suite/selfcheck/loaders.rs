//! The loaders of the root file systems find only what they should.

use harness::bundle::Bundle;
use harness::demo_host::VendorLibrary;
use harness::loader::{self, Loaded};

use crate::lab::{Lab, images_with_a_loader, on_each_cgroup_version};

on_each_cgroup_version!(the_vendor_library_is_not_found_without_the_hook);

/// No image has the vendor's library of itself.
fn the_vendor_library_is_not_found_without_the_hook(lab: &Lab) {
    let command = loader::command(&[VendorLibrary::dummy_npu().wanted()]);
    for rootfs in images_with_a_loader() {
        let bundle = Bundle::builder(rootfs).args(command.clone());
        let loaded = loader::parse(&lab.run(&bundle.build().unwrap())).unwrap();
        assert!(
            matches!(&loaded[..], [Loaded::Failed { .. }]),
            "{rootfs:?}: {loaded:?}"
        );
    }
}
