//! `boathook follow`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use device_class::config::Config;
use nix::sched::{CloneFlags, setns};

use super::CommandError;
use crate::exit::ExitCode;
use crate::live::Follower;
use crate::sys::uevent::Uevents;

/// Follows devices for as long as it runs: it sleeps until the kernel or udev says that
/// something has changed. A container that could not be changed is left alone for `pause` seconds.
pub(super) fn run(pause: NonZeroU32, config: &Config) -> Result<ExitCode, CommandError> {
    let events = Uevents::open().map_err(CommandError::Uevents)?;
    crate::process::confine_opened()?;
    let mut follower = Follower::new(pause, events, config)?;
    follower.begin();
    // For who starts it and waits.
    writeln!(io::stdout().lock(), "following devices")?;
    loop {
        follower.wait().map_err(CommandError::Uevents)?;
    }
}

/// Moves this process, which is in a pod, to where the node's own would be: the files are the
/// node's from then on, and so are cgroups' names and udev's messages.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel")]
pub(super) fn enter_node() -> Result<(), CommandError> {
    let failed = |path: &str| {
        let path = PathBuf::from(path);
        |error| CommandError::Node { path, error }
    };
    let namespaces = [
        ("cgroup", CloneFlags::CLONE_NEWCGROUP),
        ("net", CloneFlags::CLONE_NEWNET),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ];
    // All are opened before the files change.
    let open = |(name, kind)| -> Result<_, CommandError> {
        let path = format!("/proc/1/ns/{name}");
        let file = File::open(&path).map_err(failed(&path))?;
        Ok((path, file, kind))
    };
    let opened: Vec<_> = namespaces.map(open).into_iter().collect::<Result<_, _>>()?;
    let own = fs::metadata("/proc/self/ns/mnt").map_err(failed("/proc/self/ns/mnt"))?;
    for (path, file, kind) in opened {
        let there = file.metadata().map_err(failed(&path))?;
        if kind == CloneFlags::CLONE_NEWNS && there.ino() == own.ino() {
            let error = io::Error::other("that is the pod's own process");
            return Err(failed(&path)(error));
        }
        setns(file, kind)
            .map_err(io::Error::from)
            .map_err(failed(&path))?;
    }
    Ok(())
}
