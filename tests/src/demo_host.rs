//! A demo host: a directory with everything that the hook uses on a host, so that tests have
//! devices and vendor libraries on any machine.

mod directory;
pub mod in_container;
mod vendor;

use std::fs;
use std::ops::Deref;
use std::path::PathBuf;

use anyhow::Result;

pub use directory::HostDirectory;
pub use vendor::VendorLibrary;

use crate::alias_device::AliasDevice;
use crate::rootfs::{make_loader_cache, multiarch};

/// A demo host with devices and libraries. Root is required to create one.
#[derive(Debug)]
pub struct DemoHost {
    directory: HostDirectory,
    granted: AliasDevice,
    other: AliasDevice,
}

impl DemoHost {
    /// The resource that the class `dummy-npu` offers.
    pub const RESOURCE: &'static str = "dummy.com/npu";
    /// The variable by which containers request the devices.
    pub const VARIABLE: &'static str = "DUMMY_VISIBLE_DEVICES";
    /// The number of devices that have a node. The class has 64 devices, and the first ones have
    /// nodes.
    pub const NODES: usize = 8;
    /// The index of the device whose device number no other device has, so that a rule for another
    /// device does not allow access to it.
    pub const UNLIKE: usize = 7;

    /// Creates a host with the class `dummy-npu`, the first [`Self::NODES`] device nodes, the
    /// vendor's library, and a loader cache that lists the library.
    pub fn new() -> Result<Self> {
        let (granted, other) = AliasDevice::pair()?;
        let host = Self {
            directory: HostDirectory::new()?,
            granted,
            other,
        };
        fs::create_dir_all(host.libraries())?;
        for index in 0..Self::NODES {
            host.device(index).make_node(&host.node(index))?;
        }
        host.install(&[VendorLibrary::dummy_npu()])?;
        Ok(host)
    }

    /// Returns the path of the device node with this index.
    pub fn node(&self, index: usize) -> PathBuf {
        self.root().join("dev").join(format!("dummy-npu{index}"))
    }

    /// Returns the device whose number the node with this index has.
    pub fn device(&self, index: usize) -> AliasDevice {
        if index == Self::UNLIKE {
            self.other
        } else {
            self.granted
        }
    }

    /// Returns the directory of the vendor's libraries.
    pub fn libraries(&self) -> PathBuf {
        self.root().join("usr/lib").join(multiarch())
    }

    /// Adds libraries, and rebuilds the loader cache as a vendor's package does.
    pub fn install(&self, libraries: &[VendorLibrary]) -> Result<()> {
        for library in libraries {
            library.install(&self.libraries())?;
        }
        let configuration = self.root().join("etc/ld.so.conf");
        fs::write(&configuration, format!("/usr/lib/{}\n", multiarch()))?;
        make_loader_cache(&self.root())
    }
}

impl Deref for DemoHost {
    type Target = HostDirectory;

    fn deref(&self) -> &HostDirectory {
        &self.directory
    }
}
