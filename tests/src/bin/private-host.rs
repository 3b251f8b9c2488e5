//! `private-host`: namespaces of mounts, processes and networks of their own,
//! for an engine to run in as if it had the machine to itself.
//!
//! What is written to /etc, /run and /dev/shm there is gone afterwards. Prints
//! the process id to enter by (nsenter(1)), and stays until its standard input
//! ends; then every process in the namespaces is killed.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use harness::exit;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::wait;

/// The argument of the first process in the namespaces.
const FIRST: &str = "--first";

/// Where the first process says that all is mounted.
const READY: &str = "/run/private-host";

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let ran = match argument.as_deref() {
        None => outside(),
        Some(FIRST) => first(),
        Some(_) => Err(anyhow::anyhow!("usage: private-host")),
    };
    exit::with("private-host", ran)
}

fn outside() -> Result<()> {
    // This process keeps its mounts: it would not find others in a new /proc.
    let new = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNET;
    unshare(new).context("cannot make namespaces")?;
    let mut command = Command::new("/proc/self/exe");
    let mut first = command.arg(FIRST).stdin(Stdio::null()).spawn()?;
    let ready = format!("/proc/{}/root{READY}", first.id());
    while !Path::new(&ready).exists() {
        if let Some(status) = first.try_wait()? {
            bail!("the first process ended ({status})");
        }
        sleep(Duration::from_millis(5));
    }
    println!("{}", first.id());
    // Whoever wanted this lets go of the other end by closing it or by dying.
    io::copy(&mut io::stdin().take(u64::MAX), &mut io::sink())?;
    first.kill()?;
    first.wait()?;
    Ok(())
}

/// Mounts what is private, and clears away dead processes as init does.
fn first() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("cannot leave the mount namespace")?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .context("cannot make the mounts private")?;
    fresh("proc", "/proc", none)?;
    fresh("tmpfs", "/run", None)?;
    fresh("tmpfs", "/dev/shm", None)?;
    for directory in ["/run/etc", "/run/etc-work", "/run/lock"] {
        std::fs::create_dir(directory)?;
    }
    let layers = "lowerdir=/etc,upperdir=/run/etc,workdir=/run/etc-work";
    fresh("overlay", "/etc", Some(layers))?;
    std::fs::write(READY, "")?;
    loop {
        if wait() == Err(Errno::ECHILD) {
            sleep(Duration::from_millis(50));
        }
    }
}

fn fresh(kind: &str, target: &str, options: Option<&str>) -> Result<()> {
    mount(Some(kind), target, Some(kind), MsFlags::empty(), options)
        .with_context(|| format!("cannot mount {kind} on {target}"))
}
