//! The libraries that a container's loader finds, tested by `programs/dlopen-probe.c`,
//! which is in the root file systems that have a dynamic C library.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Deserialize;

/// The path of the program in the container.
pub const PATH: &str = "/bin/dlopen-probe";

/// A library to load and a function in it to call.
#[derive(Clone, Debug)]
pub struct LibraryCall {
    /// The soname that an application would request.
    pub soname: String,
    /// A function without arguments that returns text.
    pub function: String,
}

/// The result of loading one library.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged, deny_unknown_fields)]
pub enum Loaded {
    /// The loader found it.
    Found {
        soname: String,
        /// The file that the loader found.
        path: PathBuf,
        /// The value that the function returned.
        answer: String,
    },
    /// It did not.
    Failed {
        soname: String,
        /// The loader's message.
        error: String,
    },
}

/// The command that loads all of `wanted` in one process.
pub fn command(wanted: &[LibraryCall]) -> Vec<String> {
    let arguments = wanted
        .iter()
        .map(|one| format!("{}:{}", one.soname, one.function));
    std::iter::once(PATH.to_string()).chain(arguments).collect()
}

/// Parses the output of that command.
pub fn parse(printed: &str) -> Result<Vec<Loaded>> {
    printed
        .lines()
        .map(|line| {
            serde_json::from_str(line)
                .with_context(|| format!("not the loader probe's answer: {line}"))
        })
        .collect()
}
