//! Declares the command line of `boathook`: its options, its subcommands and their arguments. The
//! doc comments of these types are the texts of `--help`.

mod attach;
mod class;
mod container_selector;
mod list_target;
mod log;

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use device_class::config::LogLevel;
use device_class::name::ClassName;
use hook::exit::ExitCode;
use hook::oci::CdiGrant;
use hook::planner::Caller;
use hook::start::{StartOptions, parse_log_level};

pub(crate) use attach::{AttachArguments, DetachArguments, RefreshArguments, RunningContainer};
pub(crate) use class::{CheckArguments, ClassCommand};
pub(crate) use container_selector::ContainerSelector;
use container_selector::parse_variable;
pub(crate) use list_target::ListTarget;
pub(crate) use log::LogArguments;

/// Make devices available in containers: the commands for administrators.
///
/// A container runtime runs `boathook-hook` for every container, which gives the container
/// its devices. Of the commands of `boathook`, `attach`, `detach`, `refresh` and `follow` change
/// containers that run, and `cdi generate`, `class check --update`, `class record` and `facts`
/// write files. `class test` starts a container of its own; the other commands only read.
#[derive(Debug, Parser)]
#[command(name = "boathook", version, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[arg(
        long = "config",
        global = true,
        value_name = "FILE",
        help = "The configuration [default: /etc/boathook/config.toml, which may be absent]"
    )]
    pub config_path: Option<PathBuf>,

    // The time limit of the hook in seconds. The container does not start if the hook exceeds it.
    // Tests set a shorter limit than the default of 10 seconds.
    #[arg(long = "deadline", hide = true, value_name = "SECONDS")]
    pub deadline_seconds: Option<NonZeroU32>,

    // An additional directory of class files. `boathook class test` starts a container and passes
    // the directory of the tested class to the container's hook.
    #[arg(long = "also-classes", hide = true, value_name = "DIR")]
    pub additional_class_dir: Option<PathBuf>,

    /// Which messages are reported on stderr and in the log [default: log_level in the
    /// configuration]
    #[arg(long, global = true, value_name = "LEVEL", value_parser = parse_log_level)]
    log_level: Option<LogLevel>,

    /// Also report what was injected and which files were read; same as --log-level info
    #[arg(
        short = 'v',
        long = "verbose",
        global = true,
        conflicts_with = "log_level"
    )]
    pub(crate) is_verbose: bool,

    /// Print the result as JSON, and a failure as {"error": ...}
    #[arg(long = "json", global = true)]
    pub is_json: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Parses the command line of this process. If the command line is wrong or requests help,
    /// prints a message and ends the process with the exit code 2 or 0.
    pub(crate) fn parse_arguments() -> Self {
        Self::try_parse().unwrap_or_else(|error| {
            // If there is an error, clap returns no parsed options, so this code searches for
            // `--json` itself.
            let is_json = std::env::args_os().any(|argument| argument == "--json");
            if error.use_stderr() && is_json {
                let text = error.to_string();
                // The first paragraph is the error message. The following paragraphs are clap's
                // hints, which are left out.
                let paragraph = text.split("\n\n").next().unwrap_or_default();
                let message = paragraph.trim_start_matches("error: ");
                let words: Vec<&str> = message.split_whitespace().collect();
                ExitCode::Usage.print_failure(&words.join(" "));
            }
            error.exit()
        })
    }

    /// Returns the log level that `--log-level` or `-v` sets. Returns `None` if neither is given:
    /// then `log_level` in config.toml applies.
    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        if self.is_verbose {
            Some(LogLevel::Info)
        } else {
            self.log_level
        }
    }
}

const AFTER_HELP: &str = "\
Examples:
  boathook check                                 check the host's prerequisites, and show fixes
  boathook list                                  the devices, and the variables that request them
  boathook list --watch                          and each device that comes or goes
  boathook list --used                           which containers have them
  boathook explain --bundle /run/.../container   what that container gets, and what authorizes it
  boathook explain --env TUN_VISIBLE_DEVICES=0   what one would get that sets this variable
  boathook log --container 4f1c2a --since 1h     what the hook said about it
  boathook doctor 4f1c2a                         why that container has no device
  boathook cdi generate                          devices by name, for docker run --device
  boathook cdi list                              these names
  boathook class new /dev/mychip0 > mychip.toml  a first class file for your own device
  boathook class test mychip.toml                a container that opens it

Exit codes:
  0  success, or nothing was requested
  1  a check found an error, or an unexpected error
  2  invalid command line
  3  invalid configuration or class file
  4  invalid container state or config.json
  5  the request was denied or cannot be satisfied
  6  the devices could not be injected into the container
  7  the deadline of 10 seconds was exceeded
  8  a device was detached, but its node stays in the container, where it cannot be opened
  10 and above: what `boathook doctor` found (`boathook doctor --help`)";

const DOCTOR_AFTER_HELP: &str = "\
Examples:
  boathook doctor 4f1c2a
  boathook doctor --device example.com/gpu=all
  boathook doctor --pod default/training
  boathook doctor --env DUMMY_VISIBLE_DEVICES=0,1

Exit codes, determined by the first fault:
  0  no fault found
  3  invalid configuration or class file
  4  invalid config.json
  5  the request was denied or cannot be satisfied
 10  no-container      there is no such container, or its engine could not start it
 11  no-request        the container requests no device
 12  similar-variable  a variable is similar to that of a class
 13  no-hook           nothing calls the hook for the container
 14  hook-missing      the program that is called as the hook does not exist
 15  no-device         the host has no usable device of the class
 16  not-granted       the devices were not granted
 17  not-injected      the container lacks files or nodes that it was to get
 18  cgroup-denies     the container's cgroup denies a device
 19  user-denied       the container's user may not open a node";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    // Installations of old releases, which had no program `boathook-hook`, call this subcommand as
    // the hook.
    /// Run as the hook of the stage `prestart`, with the container's state on stdin
    #[command(hide = true)]
    Prestart(HookArguments),
    // Installations of old releases, which had no program `boathook-hook`, call this subcommand as
    // the hook.
    /// Run as the hook of the stage `createRuntime`, with the container's state on stdin
    #[command(hide = true)]
    CreateRuntime(HookArguments),
    /// Show what a container would get, and what authorizes it
    Explain {
        /// The bundle: the directory of the container's config.json
        #[arg(long, value_name = "DIR", required_unless_present_any = ["container", "env"])]
        bundle: Option<PathBuf>,
        /// A container of this host, by its id, its name, or the first characters of its id
        #[arg(long, value_name = "ID", conflicts_with = "bundle")]
        container: Option<String>,
        /// No container: what would one get that sets this variable?
        #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable, conflicts_with_all = ["bundle", "container"])]
        env: Vec<String>,
    },
    /// Give a container that runs devices, as if it had been started with them (as root)
    Attach(AttachArguments),
    /// Take devices away that were attached, and name programs that have them open (as root)
    Detach(DetachArguments),
    /// Give a container that runs the files of a driver that was updated since (as root)
    ///
    /// Programs that are started in it from now on use them; those that run keep the old ones.
    /// `boathook check` names the containers that have old files.
    Refresh(RefreshArguments),
    /// Give containers that run their devices again when these are unplugged and come back
    ///
    /// It runs until it is stopped, and follows classes with `follow = true`, such as serial
    /// ports and cameras; config.toml can set it for others.
    Follow {
        // The number of seconds after which a failed change of a container is tried again. Tests
        // set a shorter time than the default.
        #[arg(
            long = "pause",
            hide = true,
            value_name = "SECONDS",
            default_value = "10"
        )]
        retry_seconds: NonZeroU32,
        /// In a pod that has the node's processes: enter the namespaces of the node's first one
        #[arg(long = "from-pod")]
        should_enter_node_namespaces: bool,
    },
    /// List the classes and their devices on this host
    List {
        /// Only these classes; or, by a path in /dev, which device it is, and how a container gets
        /// it
        #[arg(value_name = "CLASS", value_parser = ListTarget::parse)]
        targets: Vec<ListTarget>,
        /// Also virtual devices, and on a node of a cluster classes that are not offered to pods
        #[arg(long = "all")]
        include_all_classes: bool,
        /// Then print a line for each device that comes, goes or changes, until stopped
        #[arg(long = "watch", conflicts_with = "only_held_devices")]
        should_watch: bool,
        /// Only devices of containers that run, which have them from their start or attached
        #[arg(long = "used")]
        only_held_devices: bool,
        /// The state directory of the runtime, if it is not the default (`runc --root DIR`)
        #[arg(long = "root", value_name = "DIR", requires = "only_held_devices")]
        state_root: Option<PathBuf>,
    },
    /// Show why a container has no device, and how to fix it
    #[command(after_help = DOCTOR_AFTER_HELP)]
    Doctor {
        #[command(flatten)]
        selector: ContainerSelector,
        /// The state directory of the runtime, if it is not the default (`runc --root DIR`)
        #[arg(long = "root", value_name = "DIR")]
        state_root: Option<PathBuf>,
    },
    /// Work on specifications of the Container Device Interface (CDI)
    Cdi {
        /// What to do with them.
        #[command(subcommand)]
        command: CdiCommand,
    },
    /// Work on class files
    Class {
        /// What to do with them.
        #[command(subcommand)]
        command: ClassCommand,
    },
    /// Check the host's prerequisites and the classes, and show fixes
    Check {
        /// Only these classes
        #[arg(value_name = "CLASS")]
        classes: Vec<ClassName>,
        /// The state directory of the runtime, if it is not the default (`runc --root DIR`)
        #[arg(long = "root", value_name = "DIR")]
        state_root: Option<PathBuf>,
    },
    /// Write what only the driver's programs know of the devices, for hook and plugin
    Facts {
        /// Only these classes
        #[arg(value_name = "CLASS")]
        classes: Vec<ClassName>,
    },
    /// Print the names of the containers that run, for shell completions
    #[command(hide = true)]
    Containers,
    /// Print what hooks have reported on this node
    Log(LogArguments),
}

/// The subcommands of `boathook cdi`.
#[derive(Debug, Subcommand)]
pub(crate) enum CdiCommand {
    /// Write the specifications of this host's devices, for engines to read
    Generate {
        /// Only these classes
        #[arg(value_name = "CLASS")]
        classes: Vec<ClassName>,
        /// The directory of the specifications, or - to print them, one document for each kind
        #[arg(long = "output", value_name = "DIR", default_value = "/var/run/cdi")]
        output_dir: PathBuf,
        /// Only this device, by a name that the specifications have: NAME or KIND=NAME (may be
        /// repeated)
        #[arg(long = "device", value_name = "NAME")]
        devices: Vec<String>,
        /// Also classes that are not offered to pods by default
        #[arg(long = "all")]
        include_all_classes: bool,
        /// Whether the hook adds the files at a container's start, or the specification lists them
        #[arg(long = "form", value_name = "FORM", value_enum, default_value = "thin")]
        spec_style: CdiSpecStyle,
    },
    /// List the names that `--device` accepts, by the specifications of engines
    List {
        /// A directory of specifications, in place of /etc/cdi and /var/run/cdi
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
    },
}

/// Whether a CDI specification describes a device completely, or leaves most of it to the hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CdiSpecStyle {
    /// Nodes, and the hook for everything else
    Thin,
    /// Nodes and mounts, no hook
    Plain,
}

/// The arguments of a hook. They are trusted, because only root can write them to a CDI
/// specification or to config.json.
#[derive(Debug, Default, Args)]
pub(crate) struct HookArguments {
    /// A device that a CDI specification grants; a container has one hook for each
    #[arg(long = "cdi", value_name = "CLASS=DEVICE", value_parser = CdiGrant::parse)]
    cdi_grant: Option<CdiGrant>,
    /// A path that boathook-runtime has taken out of maskedPaths in config.json
    #[arg(long = "masked-path", value_name = "PATH")]
    masked_paths: Vec<PathBuf>,
}

impl HookArguments {
    pub(crate) fn to_start_options(&self, cli: &Cli) -> StartOptions {
        StartOptions {
            config_path: cli.config_path.clone(),
            deadline_seconds: cli.deadline_seconds,
            additional_class_dir: cli.additional_class_dir.clone(),
            log_level: cli.log_level(),
            is_json: cli.is_json,
            masked_paths: self.masked_paths.clone(),
            caller: self.cdi_grant.clone().map_or(Caller::Engine, Caller::Cdi),
        }
    }
}
