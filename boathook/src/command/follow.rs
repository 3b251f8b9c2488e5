//! Implements `boathook follow`, which adds device nodes to running containers when devices are
//! plugged in, and removes them when devices are unplugged.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::live::Follower;
use device_class::config::Config;
use hook::exit::ExitCode;
use hook::log;
use hook::sys::uevent::UeventReceiver;
use injection_plan::follower::FollowerLock;
use nix::sched::{CloneFlags, setns};

use super::{CommandError, containers};

/// Updates running containers whenever the kernel or udev reports that a device has changed. If the
/// update of a container fails, tries again after `retry_seconds`. Returns only on an error.
pub(super) fn run(retry_seconds: NonZeroU32, config: &Config) -> Result<ExitCode, CommandError> {
    let event_receiver = UeventReceiver::open().map_err(CommandError::Uevents)?;
    hook::process::drop_privileges_keep_fds()?;
    log::enable_action_log(&config.host_root);
    log::label_containers_in_actions(create_label_formatter(config));
    let mut follower = Follower::new(retry_seconds, event_receiver, config)?;
    let _lock = acquire_follower_lock(config);
    follower.update_all_containers();
    // A test or a service manager waits for this line. After it, no device change is missed.
    writeln!(io::stdout().lock(), "following devices")?;
    loop {
        follower.wait_and_update().map_err(CommandError::Uevents)?;
    }
}

/// Returns a function that formats the label of a container for the log. The child processes of
/// each pass call it. Each of them reads the names once, so a new pass knows the new names.
fn create_label_formatter(config: &Config) -> impl Fn(&str) -> String + Send + Sync + 'static {
    let host_root = config.host_root.clone();
    let names_by_id = OnceLock::new();
    move |id| {
        let names_by_id: &BTreeMap<String, String> =
            names_by_id.get_or_init(|| containers::read_container_names_by_id(&host_root));
        containers::format_label(id, names_by_id.get(id).map(String::as_str))
    }
}

/// Acquires the lock that tells `boathook doctor` and `boathook check` that `boathook follow` is
/// running. If this fails, only logs the error. Devices are still followed, but the two commands
/// report that `boathook follow` does not run.
fn acquire_follower_lock(config: &Config) -> Option<FollowerLock> {
    let directory = log::list_log_directories(&config.host_root)
        .into_iter()
        .find(|directory| log::create_own_directory(directory).is_ok())?;
    match FollowerLock::acquire(&directory) {
        Ok(lock) => Some(lock),
        Err(error) => {
            log::warning(&format!(
                "{}: {error}: other commands will say that nothing follows devices",
                directory.display()
            ));
            None
        }
    }
}

/// Moves this process from its pod into the namespaces of the node's init process. There it sees
/// the node's files and cgroup paths, and receives udev's messages.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub(super) fn enter_node_namespaces() -> Result<(), CommandError> {
    let to_error = |path: &str| {
        let path = PathBuf::from(path);
        |error| CommandError::Node { path, error }
    };
    let namespaces = [
        ("cgroup", CloneFlags::CLONE_NEWCGROUP),
        ("net", CloneFlags::CLONE_NEWNET),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ];
    // All namespace files are opened before the first namespace is entered, because the node's
    // mount namespace has another `/proc`.
    let open_namespace = |(name, kind)| -> Result<_, CommandError> {
        let path = format!("/proc/1/ns/{name}");
        let file = File::open(&path).map_err(to_error(&path))?;
        Ok((path, file, kind))
    };
    let namespace_files: Vec<_> = namespaces
        .map(open_namespace)
        .into_iter()
        .collect::<Result<_, _>>()?;
    let own_namespace = fs::metadata("/proc/self/ns/mnt").map_err(to_error("/proc/self/ns/mnt"))?;
    for (path, file, kind) in namespace_files {
        let namespace = file.metadata().map_err(to_error(&path))?;
        if kind == CloneFlags::CLONE_NEWNS && namespace.ino() == own_namespace.ino() {
            let error = io::Error::other("that is the pod's own process");
            return Err(to_error(&path)(error));
        }
        setns(file, kind)
            .map_err(io::Error::from)
            .map_err(to_error(&path))?;
    }
    Ok(())
}
