//! Libraries that play a vendor's user-space driver.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

use crate::compile::{self, Libc};
use crate::loader::LibraryCall;

/// A shared library with a soname, a version and a function that returns it.
#[derive(Clone, Debug)]
pub struct VendorLibrary {
    /// The part of the library's name between `lib` and `.so`.
    pub name: String,
    /// The version, whose first part is that of the soname.
    pub version: String,
}

impl VendorLibrary {
    /// The library of the class `dummy-npu`.
    pub fn dummy_npu() -> Self {
        Self::new("dummy-npu", "1.2.3")
    }

    /// The library `lib<name>.so.<version>`.
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            name: name.to_string(),
            version: version.to_string(),
        }
    }

    /// The soname, such as `libdummy-npu.so.1`.
    pub fn soname(&self) -> String {
        let major = self.version.split('.').next().unwrap_or_default();
        format!("lib{}.so.{major}", self.name)
    }

    /// The name of the real file, such as `libdummy-npu.so.1.2.3`.
    pub fn file_name(&self) -> String {
        format!("lib{}.so.{}", self.name, self.version)
    }

    /// Returns the call of the library that a probe in a container makes for its version.
    pub fn wanted(&self) -> LibraryCall {
        LibraryCall {
            soname: self.soname(),
            function: self.function(),
        }
    }

    /// Puts the file and the link named like the soname into `directory`.
    ///
    /// It is linked with nothing, so that one file serves every C library.
    pub fn install(&self, directory: &Path) -> Result<()> {
        let built = compile::program("vendor-library.c", Libc::Glibc, &self.compiler_arguments())?;
        let file = directory.join(self.file_name());
        fs::copy(&built, &file).with_context(|| format!("cannot write {}", file.display()))?;
        let link = directory.join(self.soname());
        symlink(self.file_name(), &link)
            .with_context(|| format!("cannot make the link {}", link.display()))
    }

    fn function(&self) -> String {
        format!("{}_version", self.name.replace('-', "_"))
    }

    fn compiler_arguments(&self) -> [String; 6] {
        [
            "-shared".to_string(),
            "-fPIC".to_string(),
            "-nostdlib".to_string(),
            format!("-Wl,-soname,{}", self.soname()),
            format!("-DVERSION_FUNCTION={}", self.function()),
            format!("-DVERSION=\"{}\"", self.version),
        ]
    }
}
