//! Whether a running engine has taken up its configuration, and making it.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::engine::{Engine, Liveness, Reload};
use crate::error::Error;
use crate::host::HostRoot;
use crate::options::HANDLER;
use crate::record::Record;

/// How long Docker's API may take to answer.
const API_TIMEOUT: Duration = Duration::from_secs(5);
/// The most that is read of the API's answer.
const MAX_ANSWER: u64 = 1 << 20;

/// Whether a running engine has taken up its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loaded {
    /// It has.
    Yes,
    /// It runs, but started before the configuration was written.
    No,
    /// It does not run, and will take it up when it starts.
    NotRunning,
}

/// Finds out whether an engine has taken up what the record describes.
///
/// A daemon makes its socket anew whenever it starts, so one that is older
/// than the configuration belongs to a daemon that has not read it. Docker,
/// which can reload without that, is asked.
pub fn loaded(host: &HostRoot, engine: Engine, record: &Record) -> Loaded {
    match engine.profile().liveness {
        Liveness::NoDaemon => Loaded::Yes,
        Liveness::DockerApi(socket) => docker(host, Path::new(socket)),
        Liveness::Socket(socket) => {
            let Some(started) = changed(host, Path::new(socket)) else {
                return Loaded::NotRunning;
            };
            let written = record.paths().filter_map(|p| changed(host, p)).max();
            if written.is_some_and(|w| w > started) {
                Loaded::No
            } else {
                Loaded::Yes
            }
        }
    }
}

/// When a file was last changed: seconds and nanoseconds.
fn changed(host: &HostRoot, path: &Path) -> Option<(i64, i64)> {
    let meta = host.locate(path).ok()?.symlink_metadata().ok()?;
    Some((meta.ctime(), meta.ctime_nsec()))
}

fn docker(host: &HostRoot, socket: &Path) -> Loaded {
    let Some(answer) = host.locate(socket).ok().and_then(|at| ask(&at).ok()) else {
        return Loaded::NotRunning;
    };
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let info: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let found = info.get("Runtimes").and_then(|r| r.get(HANDLER)).is_some();
    if found { Loaded::Yes } else { Loaded::No }
}

/// `GET /info` of Docker's API; HTTP 1.0, so that the answer is not chunked.
fn ask(socket: &Path) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(API_TIMEOUT))?;
    stream.set_write_timeout(Some(API_TIMEOUT))?;
    stream.write_all(b"GET /info HTTP/1.0\r\nHost: docker\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer)?;
    Ok(answer)
}

/// Makes a running engine take up its configuration, by systemd where the host
/// has it, else by signal. Says what was done.
///
/// This process's root must be the host's (chroot(2) first if it is not), for
/// systemctl is the host's own program.
///
/// # Errors
/// systemctl failed, or there is neither systemd nor a way by signal.
pub fn reload(engine: Engine) -> Result<String, Error> {
    let systemd = Path::new("/run/systemd/system").is_dir();
    match engine.reload() {
        Reload::NotNeeded => Ok(format!("{engine} reads its configuration at each start")),
        Reload::Restart(units) if systemd => systemctl("try-restart", units),
        Reload::Hangup { unit, .. } if systemd => systemctl("reload", &[unit]),
        Reload::Hangup { pid_file, .. } => hang_up(Path::new(pid_file)),
        Reload::Restart(_) => Err(Error::Io {
            action: "restart the engine by",
            path: "/run/systemd/system".into(),
            source: std::io::ErrorKind::NotFound.into(),
        }),
    }
}

fn systemctl(verb: &str, units: &[&str]) -> Result<String, Error> {
    let said = format!("systemctl {verb} {}", units.join(" "));
    let failed = Error::io("run", Path::new("systemctl"));
    let output = Command::new("systemctl")
        .arg(verb)
        .args(units)
        .env("SYSTEMD_IGNORE_CHROOT", "1")
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(said),
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(failed(std::io::Error::other(format!("{said}: {message}"))))
        }
        Err(e) => Err(failed(e)),
    }
}

fn hang_up(pid_file: &Path) -> Result<String, Error> {
    let text = fs::read_to_string(pid_file).map_err(Error::io("read", pid_file))?;
    let wrong = || Error::io("use", pid_file)(std::io::ErrorKind::InvalidData.into());
    let pid: i32 = text.trim().parse().map_err(|_| wrong())?;
    // Never a process that merely got the number: the daemon's own alone.
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).map_err(|_| wrong())?;
    if pid <= 1 || name.trim() != "dockerd" {
        return Err(wrong());
    }
    kill(Pid::from_raw(pid), Signal::SIGHUP)
        .map_err(|e| Error::io("signal the process in", pid_file)(e.into()))?;
    Ok(format!("SIGHUP to process {pid}"))
}
