//! Declares the command-line arguments of `boathook class`, whose subcommands help to write and
//! test class files.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use device_class::name::ClassName;

#[derive(Debug, Subcommand)]
pub(crate) enum ClassCommand {
    /// Check a class file, and show what it matches on this host
    ///
    /// The names of its variable and resource are compared with those of the installed classes.
    #[command(after_help = CHECK_AFTER_HELP)]
    Check(CheckArguments),
    /// Print a first class file for a device, with comments
    New {
        /// A node or directory in /dev, pci:VENDOR:DEVICE or usb:VENDOR:PRODUCT
        device: String,
        /// Further nodes that a container needs, of the same device or for all
        #[arg(value_name = "NODE")]
        nodes: Vec<String>,
    },
    /// Start a container with a device of a class, and report what it can open (as root)
    ///
    /// It needs an OCI runtime and no image. The nodes are opened for reading, which some
    /// boards take as a reason to reset.
    Test {
        /// The class file, named CLASS.toml
        file: PathBuf,
        /// The device, in place of the first healthy one
        #[arg(long, value_name = "DEVICE")]
        device: Option<String>,
    },
    /// Open nodes, and print how that came out: run in the container of `class test`
    #[command(hide = true)]
    Open { nodes: Vec<PathBuf> },
    /// Record what the classes read on this host, as a test case
    Record {
        /// The directory in which host.txt is written; it must not have a host.txt yet
        directory: PathBuf,
        /// Only what the classes in these files read, which need not be installed
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Only what this installed class reads; can be given several times
        #[arg(long = "class", value_name = "CLASS")]
        classes: Vec<ClassName>,
    },
    /// Print a JSON Schema of class files, for editors
    Schema {
        /// That of config.toml instead
        #[arg(long = "of-config")]
        is_for_config: bool,
    },
}

const CHECK_AFTER_HELP: &str = "\
Examples:
  boathook class check mychip.toml
  boathook class check --strict --expect 2 mychip.toml
  boathook class check --host host.txt --golden mychip.txt mychip.toml

Exit codes:
  0  no error was found
  1  an error was found: a name of another class, something that the host lacks, a golden file that
     differs; with --strict also a warning, or no device; with --expect also another number of
     devices, one that is unhealthy, or one that is left out
  2  invalid command line, or invalid recorded host
  3  invalid class file or configuration";

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The class file, named CLASS.toml
    pub file: PathBuf,
    /// Match it against a recorded host (`class record`) instead of this one
    #[arg(long = "host", value_name = "HOST.txt")]
    pub recorded_host_path: Option<PathBuf>,
    /// Also report what the plugin cannot read in its container
    #[arg(long = "as-plugin")]
    pub should_check_plugin_mounts: bool,
    /// Warnings are errors, and so is a host without a device of the class
    #[arg(long = "strict")]
    pub is_strict: bool,
    /// An error if the class does not have this many devices, if one of them is unhealthy, or if a
    /// match is left out
    #[arg(long = "expect", value_name = "NUMBER")]
    pub expected_device_count: Option<usize>,
    /// Golden file to compare with the devices on the recorded host and the edits of a container
    #[arg(long = "golden", value_name = "FILE", requires = "recorded_host_path")]
    pub golden_path: Option<PathBuf>,
    /// Write the golden file, if it differs or does not exist
    #[arg(long = "update", requires = "golden_path")]
    pub should_update_golden: bool,
}
