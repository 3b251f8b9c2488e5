//! Libraries that stand for a vendor's user-space driver.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

use crate::compile::{self, Libc};
use crate::loader::LibraryCall;

/// A shared library with a soname, and a function that returns its version.
#[derive(Clone, Debug)]
pub struct VendorLibrary {
    /// The part of the library's name between `lib` and `.so`.
    pub name: String,
    /// The version. Its first number is also the number in the soname.
    pub version: String,
}

impl VendorLibrary {
    /// Returns the library of the class `dummy-npu`.
    pub fn dummy_npu() -> Self {
        Self::new("dummy-npu", "1.2.3")
    }

    /// Returns the library `lib<name>.so.<version>`.
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            name: name.to_string(),
            version: version.to_string(),
        }
    }

    /// Returns the soname, such as `libdummy-npu.so.1`.
    pub fn soname(&self) -> String {
        let major = self.version.split('.').next().unwrap_or_default();
        format!("lib{}.so.{major}", self.name)
    }

    /// Returns the name of the library's file, such as `libdummy-npu.so.1.2.3`.
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

    /// Installs the file, and a link with the soname, in `directory`.
    ///
    /// The library is not linked with a C library, so that one file serves programs of every C
    /// library.
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
