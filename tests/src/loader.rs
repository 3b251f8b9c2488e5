//! Finds the libraries that the loader of a container loads, with the program
//! `programs/dlopen-probe.c`. The root file systems with a dynamic C library have this program.

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
    /// The loader loaded the library.
    Found {
        soname: String,
        /// The file that the loader found.
        path: PathBuf,
        /// The value that the function returned.
        answer: String,
    },
    /// The loader did not load the library.
    Failed {
        soname: String,
        /// The loader's message.
        error: String,
    },
}

/// Returns the command that loads all the libraries in one process.
pub fn command(wanted: &[LibraryCall]) -> Vec<String> {
    let arguments = wanted
        .iter()
        .map(|one| format!("{}:{}", one.soname, one.function));
    std::iter::once(PATH.to_string()).chain(arguments).collect()
}

/// Parses the output of the command that loads libraries.
pub fn parse(printed: &str) -> Result<Vec<Loaded>> {
    printed
        .lines()
        .map(|line| {
            serde_json::from_str(line)
                .with_context(|| format!("not the loader probe's answer: {line}"))
        })
        .collect()
}
