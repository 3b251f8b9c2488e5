//! The reference work, with which the cost of the hook is measured: device nodes, and libraries,
//! each with a link and an entry in the loader's cache.

use std::fmt::Write;
use std::ops::Deref;

use anyhow::Result;

use crate::demo_host::{DemoHost, VendorLibrary};

/// A host with a class that gives the whole reference work to a container.
#[derive(Debug)]
pub struct ReferenceWork {
    host: DemoHost,
    libraries: Vec<VendorLibrary>,
}

impl ReferenceWork {
    /// The variable by which a container requests the work.
    pub const VARIABLE: &'static str = "BENCH_VISIBLE_DEVICES";
    /// The number of device nodes that a container gets.
    pub const NODES: usize = 5;
    /// The number of libraries that a container gets.
    pub const LIBRARIES: usize = 40;

    /// Creates a host with the usual number of nodes and libraries.
    pub fn new() -> Result<Self> {
        Self::with_size(Self::NODES, Self::LIBRARIES)
    }

    /// Creates a host with the given number of nodes and libraries.
    pub fn with_size(nodes: usize, libraries: usize) -> Result<Self> {
        let host = DemoHost::new()?;
        for index in DemoHost::NODES..nodes {
            host.device(index).make_node(&host.node(index))?;
        }
        let libraries: Vec<_> = (0..libraries)
            .map(|number| VendorLibrary::new(&format!("bench-{number}"), "1.0.0"))
            .collect();
        host.install(&libraries)?;
        host.add_class("bench", &class(nodes, &libraries)?)?;
        Ok(Self { host, libraries })
    }

    /// Returns the libraries that a container gets.
    pub fn libraries(&self) -> &[VendorLibrary] {
        &self.libraries
    }
}

impl Deref for ReferenceWork {
    type Target = DemoHost;

    fn deref(&self) -> &DemoHost {
        &self.host
    }
}

fn class(nodes: usize, libraries: &[VendorLibrary]) -> Result<String> {
    let mut text = format!(
        "version = 1\n\
         description = \"the work that the hook's cost is measured at\"\n\
         resource = \"bench.com/npu\"\n\
         [request]\n\
         env = \"{}\"\n\
         [[discover]]\n\
         count = {nodes}\n\
         [device]\n\
         id = \"bench-{{index}}\"\n\
         index = \"{{index}}\"\n\
         nodes = [\"/dev/dummy-npu{{index}}\"]\n\
         [[edits]]\n\
         libraries = [\n",
        ReferenceWork::VARIABLE
    );
    for library in libraries {
        writeln!(text, "  {:?},", library.soname())?;
    }
    text.push_str("]\n");
    Ok(text)
}
