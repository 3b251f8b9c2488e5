//! The commands on class files.

use std::path::PathBuf;

use clap::Subcommand;
use device_class::name::ClassName;

/// The commands on class files.
#[derive(Debug, Subcommand)]
pub(crate) enum ClassCommand {
    /// Check a class file, and show what it matches on this host
    Check {
        /// The class file, named CLASS.toml
        file: PathBuf,
        /// Match it against a recorded host (`class record`) instead of this one
        #[arg(long, value_name = "HOST.txt")]
        host: Option<PathBuf>,
        /// Also report what the plugin cannot read in its container
        #[arg(long)]
        as_plugin: bool,
    },
    /// Print a first class file for a device, with comments
    New {
        /// A path in /dev, pci:VENDOR:DEVICE or usb:VENDOR:PRODUCT
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
        /// The directory for the file host.txt, which must not exist yet
        directory: PathBuf,
        /// Only what this class reads; can be given several times
        #[arg(long = "class", value_name = "CLASS")]
        classes: Vec<ClassName>,
    },
    /// Print a JSON Schema of class files, for editors
    Schema,
}
