//! A small host of its own: a directory that holds all that the hook looks for
//! on a host, so that tests have devices and vendor libraries on any machine.
//!
//! The hook is pointed at it by `host_root` in its configuration.

mod vendor;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

pub use vendor::VendorLibrary;

use crate::alias_device::AliasDevice;
use crate::rootfs::{make_loader_cache, multiarch};
use crate::{binaries, scratch};

/// A host directory, removed when dropped.
#[derive(Debug)]
pub struct DemoHost {
    directory: TempDir,
    granted: AliasDevice,
    other: AliasDevice,
}

impl DemoHost {
    /// The resource that the class `dummy-npu` offers.
    pub const RESOURCE: &'static str = "dummy.com/npu";
    /// The variable by which a container asks for its devices.
    pub const VARIABLE: &'static str = "DUMMY_VISIBLE_DEVICES";
    /// How many of its 64 devices have a node: the first ones.
    pub const NODES: usize = 8;
    /// The one among them whose device number is that of no other, so that
    /// giving the others does not give this one.
    pub const UNLIKE: usize = 7;

    /// A host with the class `dummy-npu`, the first [`Self::NODES`] of its
    /// nodes, its library and a loader cache that knows it.
    pub fn new() -> Result<Self> {
        let (granted, other) = AliasDevice::pair()?;
        let host = Self {
            directory: scratch::directory("host")?,
            granted,
            other,
        };
        for directory in [
            host.root().join("dev"),
            host.root().join("etc"),
            host.libraries(),
            host.classes(),
        ] {
            fs::create_dir_all(&directory)
                .with_context(|| format!("cannot make {}", directory.display()))?;
        }
        for index in 0..Self::NODES {
            host.device(index).make_node(&host.node(index))?;
        }
        host.add_shipped_class("dummy-npu")?;
        host.write_config("")?;
        host.install(&[VendorLibrary::dummy_npu()])?;
        Ok(host)
    }

    /// What the hook takes for `/`.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// The node of the device with this index.
    pub fn node(&self, index: usize) -> PathBuf {
        self.root().join("dev").join(format!("dummy-npu{index}"))
    }

    /// The device number that the node with this index bears.
    pub fn device(&self, index: usize) -> AliasDevice {
        if index == Self::UNLIKE {
            self.other
        } else {
            self.granted
        }
    }

    /// Where the vendor's libraries lie.
    pub fn libraries(&self) -> PathBuf {
        self.root().join("usr/lib").join(multiarch())
    }

    /// The directory of class files.
    pub fn classes(&self) -> PathBuf {
        self.directory.path().join("classes")
    }

    /// The hook's configuration.
    pub fn config_file(&self) -> PathBuf {
        self.directory.path().join("config.toml")
    }

    /// The hook's log, which it makes when it has something to say.
    pub fn log_file(&self) -> PathBuf {
        self.directory.path().join("boathook.log")
    }

    /// Adds a class file.
    pub fn add_class(&self, name: &str, text: &str) -> Result<()> {
        let file = self.classes().join(format!("{name}.toml"));
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Adds one of the classes that the project ships.
    pub fn add_shipped_class(&self, name: &str) -> Result<()> {
        let source = binaries::source_tree().join(format!("device-class/classes/{name}.toml"));
        let text = fs::read_to_string(&source)
            .with_context(|| format!("cannot read {}", source.display()))?;
        self.add_class(name, &text)
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

    /// Writes the hook's configuration: this host, and `more` lines of TOML.
    pub fn write_config(&self, more: &str) -> Result<()> {
        let text = format!(
            "classes = [{:?}]\nhost_root = {:?}\nlog_file = {:?}\n{more}",
            self.classes(),
            self.root(),
            self.log_file()
        );
        let file = self.config_file();
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// What the hook has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// The host directory itself, with the root and all beside it.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}
