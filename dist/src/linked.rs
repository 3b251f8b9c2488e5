//! Finds the libraries that are linked into released programs: crates, the standard library of
//! Rust, and the C library.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

/// A set of programs that are released together. Each set has one list of components.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgramSet {
    /// The programs of a node, which the archive, the packages and the node image contain.
    Node,
    /// The programs of the cluster, which the cluster image contains.
    Cluster,
    /// Everything that the source archive contains: what its programs and their tests are built of.
    Sources,
}

/// One call of cargo in `scripts/build-programs`, which builds packages for one C library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CargoBuild {
    pub(crate) packages: &'static [&'static str],
    is_musl: bool,
    /// The crates that cargo compiles for these programs but the linker leaves out, because no
    /// function of theirs is called. A test checks this by the programs' symbols.
    unused_crates: &'static [&'static str],
}

/// Crates that oci-spec uses only to parse image references and the field `execCPUAffinity` of
/// config.json. No program of a node does either, so the linker takes nothing of them.
const UNUSED_CRATES_OF_THE_HOOK: [&str; 4] =
    ["aho-corasick", "regex", "regex-automata", "regex-syntax"];

impl ProgramSet {
    pub(crate) fn list_builds(self) -> &'static [CargoBuild] {
        match self {
            Self::Node => &[
                CargoBuild {
                    packages: &["boathook", "boathook-hook"],
                    is_musl: true,
                    unused_crates: &UNUSED_CRATES_OF_THE_HOOK,
                },
                CargoBuild {
                    packages: &["boathook-plugin"],
                    is_musl: true,
                    unused_crates: &[],
                },
                CargoBuild {
                    packages: &["boathook-initcontainer"],
                    is_musl: false,
                    unused_crates: &[],
                },
            ],
            Self::Cluster => &[CargoBuild {
                packages: &["boathook-cluster", "boathook-dra"],
                is_musl: false,
                unused_crates: &[],
            }],
            // The source archive contains no linked programs.
            Self::Sources => &[],
        }
    }
}

/// A library that is part of the toolchain, such as musl. cargo does not list such a library.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ToolchainLibrary {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) license: &'static str,
}

impl ToolchainLibrary {
    /// Returns the package URL (purl) of the library, such as `pkg:generic/musl@1.2.5`.
    pub(crate) fn url(&self) -> String {
        format!("pkg:generic/{}@{}", self.name, self.version)
    }
}

impl CargoBuild {
    /// Returns the name and version of each package that is linked into the programs. Omits
    /// procedural macros and their dependencies, because they run only in the compiler.
    pub(crate) fn list_crates(self, target: &str) -> Result<BTreeSet<(String, String)>> {
        let mut cargo_tree = Command::new("cargo");
        cargo_tree.args(["tree", "--locked", "--edges=normal,no-proc-macro"]);
        cargo_tree.args(["--prefix=none", "--format={p}", "--target"]);
        cargo_tree.arg(self.choose_target_triple(target));
        for package in self.packages {
            cargo_tree.args(["--package", package]);
        }
        let text = run_and_read_output(&mut cargo_tree)?;
        let lines = text.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| {
                let mut words = line.split(' ');
                let name = words
                    .next()
                    .context("a line of cargo tree without a name")?;
                let version = words
                    .next()
                    .context("a line of cargo tree without a version")?;
                Ok((name.to_owned(), version.trim_start_matches('v').to_owned()))
            })
            .filter(|package| match package {
                Ok((name, _)) => !self.unused_crates.contains(&name.as_str()),
                Err(_) => true,
            })
            .collect()
    }

    /// Returns the libraries that the toolchain links into the programs: the standard library of
    /// Rust, and musl or glibc.
    pub(crate) fn list_toolchain_libraries(self, target: &str) -> Result<[ToolchainLibrary; 2]> {
        let compiler = run_and_read_output(Command::new("rustc").arg("-vV"))?;
        let release = compiler
            .lines()
            .find_map(|line| line.strip_prefix("release: "));
        let rust_std = ToolchainLibrary {
            name: "rust-std",
            version: release.context("rustc prints no release")?.to_owned(),
            license: "MIT OR Apache-2.0",
        };
        let libc = if self.uses_musl() {
            ToolchainLibrary {
                name: "musl",
                version: find_musl_version(&self.choose_target_triple(target))?,
                license: "MIT",
            }
        } else {
            // The cross compiler is installed from packages whose C library has the same version as
            // that of this machine.
            let text = run_and_read_output(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
            let version = text.trim().strip_prefix("glibc ");
            ToolchainLibrary {
                name: "glibc",
                version: version
                    .context("getconf prints no version of glibc")?
                    .to_owned(),
                license: "LGPL-2.1-or-later",
            }
        };
        Ok([rust_std, libc])
    }

    /// Returns whether the programs are linked with musl. If the environment variable
    /// `BOATHOOK_LIBC` is `glibc`, as in packages of distributions, `scripts/build-programs` builds
    /// all programs for glibc.
    fn uses_musl(self) -> bool {
        self.is_musl && std::env::var_os("BOATHOOK_LIBC").is_none_or(|libc| libc != "glibc")
    }

    /// Returns the Rust target triple for the C library that this build uses. `target` is the
    /// triple for glibc.
    fn choose_target_triple(self, target: &str) -> String {
        if self.uses_musl() {
            target.replace("-gnu", "-musl")
        } else {
            target.to_owned()
        }
    }
}

/// Returns the version of the toolchain's musl library. The binary file of the library contains the
/// version as a text.
fn find_musl_version(target: &str) -> Result<String> {
    let sysroot = run_and_read_output(Command::new("rustc").args(["--print", "sysroot"]))?;
    let libc_path = format!("lib/rustlib/{target}/lib/self-contained/libc.a");
    let file = Path::new(sysroot.trim()).join(libc_path);
    let bytes = fs::read(&file).with_context(|| file.display().to_string())?;
    find_version_text(&bytes).with_context(|| format!("{} has no version of musl", file.display()))
}

/// Returns the first printable text in `bytes` that is only a version with three numbers, such as
/// `1.2.5`.
fn find_version_text(bytes: &[u8]) -> Option<String> {
    let is_printable = |byte: &u8| (b' '..=b'~').contains(byte);
    let is_version = |text: &&[u8]| {
        let numbers: Vec<&[u8]> = text.split(|byte| *byte == b'.').collect();
        let is_decimal =
            |number: &&[u8]| !number.is_empty() && number.iter().all(u8::is_ascii_digit);
        numbers.len() == 3 && numbers.iter().all(is_decimal)
    };
    let version = bytes.split(|byte| !is_printable(byte)).find(is_version)?;
    Some(String::from_utf8_lossy(version).into_owned())
}

/// Runs a command, and returns its output. If the command fails, the error contains the command and
/// its messages.
fn run_and_read_output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {stderr}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_only_as_a_whole_text() {
        for (bytes, version) in [
            (&b"\x7fELF\0lib 1.2.3\0 1.2\x001.2.5\0"[..], Some("1.2.5")),
            (b"10.0.0.1\0a1.2.3\0..\0", None),
        ] {
            assert_eq!(find_version_text(bytes).as_deref(), version);
        }
    }
}
