//! Checks whether a running engine has read its configuration. Also makes a running engine read its
//! configuration again.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use host_files::rooted_path::read_regular_text;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::docker;
use crate::docker::Runtimes;
use crate::engine_properties::{Engine, LoadCheck, RUNTIME_HANDLER_NAME, ReloadMethod};
use crate::error::Error;
use crate::host::HostRoot;
use crate::processes::find_processes;
use crate::record::InstallationRecord;
use crate::unit;

/// The time limit for a reload. If the engine has not read its configuration by then, the reload
/// has failed.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(20);
/// The time between two checks whether an engine has read its configuration after a reload.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The maximum size in bytes of a file with a process id or a program name.
const MAX_PID_FILE_BYTES: u64 = 4096;

/// Whether a running engine has read its configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadState {
    /// The engine is running with this configuration.
    Loaded,
    /// The engine is running, but was started before the configuration was written, and has not
    /// read it.
    NotLoaded,
    /// The engine is not running. It reads the configuration when it starts.
    NotRunning,
}

/// Finds out whether a running engine has read the configuration that the record describes.
///
/// A daemon creates its socket each time it starts. If the socket is older than the configuration,
/// the daemon has not read the configuration. Docker can reload its configuration without a new
/// socket, so its API is queried instead.
pub fn find_load_state(host: &HostRoot, engine: Engine, record: &InstallationRecord) -> LoadState {
    match engine.properties().load_check {
        LoadCheck::NoDaemon => LoadState::Loaded,
        LoadCheck::DockerApi => match Runtimes::query_daemon(host) {
            None => LoadState::NotRunning,
            Some(runtimes) => {
                let daemon_json_text = record.paths().next().and_then(|path| host.read(path).ok());
                let daemon_json_text = daemon_json_text.flatten();
                if docker::are_runtimes_loaded(&runtimes, record, daemon_json_text.as_deref()) {
                    LoadState::Loaded
                } else {
                    LoadState::NotLoaded
                }
            }
        },
        LoadCheck::Socket(socket) => {
            let socket = find_daemon_socket(host, engine, socket);
            let Some(start_time) = socket.and_then(|socket| get_change_time(host, &socket)) else {
                return LoadState::NotRunning;
            };
            let write_time = record
                .paths()
                .filter_map(|path| get_change_time(host, path))
                .max();
            if write_time.is_some_and(|time| time > start_time) {
                LoadState::NotLoaded
            } else {
                LoadState::Loaded
            }
        }
    }
}

/// Returns whether the engine's daemon is running. The result is always `false` for an engine
/// without a daemon.
pub fn is_running(host: &HostRoot, engine: Engine) -> bool {
    match engine.properties().load_check {
        LoadCheck::NoDaemon => false,
        LoadCheck::DockerApi => Runtimes::query_daemon(host).is_some(),
        LoadCheck::Socket(socket) => find_daemon_socket(host, engine, socket).is_some(),
    }
}

/// Returns the path of the daemon's socket. If the default path does not exist, the path is taken
/// from the command line of a running daemon. That daemon must run as root and read the engine's
/// default configuration.
fn find_daemon_socket(host: &HostRoot, engine: Engine, default_path: &str) -> Option<PathBuf> {
    let default_path = PathBuf::from(default_path);
    if host.exists(&default_path) {
        return Some(default_path);
    }
    let default_config_dir = Path::new("/etc").join(engine.name());
    let processes = find_processes(host, |program| program == engine.name());
    let mut daemons = processes.iter().filter(|process| {
        let config = process.get_option_value(&["-c", "--config"]);
        process.uid == 0
            && config.is_none_or(|config| Path::new(config).starts_with(&default_config_dir))
    });
    daemons.find_map(|daemon| {
        let address = daemon.get_option_value(&["-a", "--address", "--listen"])?;
        let socket = PathBuf::from(address.strip_prefix("unix://").unwrap_or(address));
        host.exists(&socket).then_some(socket)
    })
}

/// Returns the time when a file was last changed (`st_ctime`), in seconds and nanoseconds.
fn get_change_time(host: &HostRoot, path: &Path) -> Option<(i64, i64)> {
    let stat = host.stat(path)?;
    Some((stat.st_ctime, stat.st_ctime_nsec))
}

/// Returns whether dockerd was started before one of the links `paths` was made. dockerd writes its
/// pid file each time it starts. Without a pid file at the default path the result is `false`.
pub fn was_docker_started_before<'p>(
    host: &HostRoot,
    mut paths: impl Iterator<Item = &'p PathBuf>,
) -> bool {
    let start_time = match Engine::Docker.properties().reload_method {
        ReloadMethod::Hangup { pid_file, .. } => get_change_time(host, Path::new(pid_file)),
        _ => None,
    };
    let get_link_time = |path: &Path| {
        let stat = host.find_entry(path)?.stat().ok()??;
        Some((stat.st_ctime, stat.st_ctime_nsec))
    };
    start_time.is_some_and(|start_time| {
        paths.any(|path| get_link_time(path).is_some_and(|time| time > start_time))
    })
}

/// The ways in which a running engine can still use Boathook's runtime, whose program is about to
/// be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuntimeUse {
    /// The engine does not have Boathook's runtime, or drops it without a restart.
    None,
    /// A container can name Boathook's runtime.
    Runtime,
    /// Boathook's runtime is the default runtime of all containers.
    DefaultRuntime,
}

/// Returns how a running Docker can still use Boathook's runtime. At a reload Docker ignores absent
/// keys. So it keeps a runtime that was removed from its configuration until it is restarted.
pub fn find_runtime_use(host: &HostRoot, engine: Engine) -> RuntimeUse {
    if engine.properties().load_check != LoadCheck::DockerApi {
        return RuntimeUse::None;
    }
    match Runtimes::query_daemon(host) {
        Some(runtimes) if runtimes.is_boathook_default() => RuntimeUse::DefaultRuntime,
        Some(runtimes) if runtimes.has_runtime(RUNTIME_HANDLER_NAME) => RuntimeUse::Runtime,
        _ => RuntimeUse::None,
    }
}

/// Waits until an engine has reloaded its configuration, and calls `is_reloaded` every 100 ms.
///
/// # Errors
/// Returns an error after 20 seconds.
pub fn wait_for_reload(engine: Engine, is_reloaded: impl Fn() -> bool) -> Result<(), Error> {
    let start = Instant::now();
    while !is_reloaded() {
        if start.elapsed() > RELOAD_TIMEOUT {
            return Err(Error::Other(format!(
                "{engine} was reloaded but still has its old configuration after {} s; restart it, \
                 and see its log",
                RELOAD_TIMEOUT.as_secs()
            )));
        }
        sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Returns those of the units that exist on the host, because systemctl fails for a missing unit.
/// If no unit is found, the result is the whole list: systemd may have generated the units.
pub fn find_existing_units(host: &HostRoot, units: &[&'static str]) -> Vec<&'static str> {
    let mut existing_units = units.to_vec();
    existing_units.retain(|name| unit::has_unit(host, name));
    if existing_units.is_empty() {
        return units.to_vec();
    }
    existing_units
}

/// Makes a running engine read its configuration again. If the host runs systemd, systemctl does
/// this. Otherwise a signal is sent. Returns a description of the action for messages.
///
/// systemctl is the host's own program, so the root directory of this process must be the host's
/// root directory (see chroot(2)).
///
/// # Errors
/// Fails if systemctl fails. Also fails if the host does not run systemd and the engine has no
/// signal for a reload.
pub fn reload_engine(host: &HostRoot, engine: Engine) -> Result<String, Error> {
    match engine.properties().reload_method {
        ReloadMethod::NotNeeded => Ok(format!("{engine} reads its configuration at each start")),
        ReloadMethod::Restart(units) if has_systemd() => {
            run_systemctl("try-restart", &find_existing_units(host, units))
        }
        ReloadMethod::Hangup { unit, .. } if has_systemd() => run_systemctl("reload", &[unit]),
        ReloadMethod::Hangup { pid_file, .. } => send_hangup(Path::new(pid_file)),
        ReloadMethod::Restart(_) => Err(Error::Io {
            action: "restart the engine by",
            path: "/run/systemd/system".into(),
            cause: std::io::ErrorKind::NotFound.into(),
        }),
    }
}

/// Returns whether systemd runs on the host whose root directory this process has (sd_booted(3)).
pub fn has_systemd() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// Runs systemctl, and returns its command line. The root directory of this process must be the
/// host's root directory.
///
/// # Errors
/// Fails if systemctl fails. The error has the message of systemctl.
pub fn run_systemctl(verb: &str, units: &[&str]) -> Result<String, Error> {
    let command = format!("systemctl {verb} {}", units.join(" "));
    let to_error = Error::io("run", Path::new("systemctl"));
    let output = Command::new("systemctl")
        .arg(verb)
        .args(units)
        .env("SYSTEMD_IGNORE_CHROOT", "1")
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(command),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            let message = stderr.lines().collect::<Vec<_>>().join(" ");
            Err(Error::Systemctl { command, message })
        }
        Err(error) => Err(to_error(error)),
    }
}

/// Sends SIGHUP to the dockerd whose process id is in the pid file. Returns a description of this
/// action for messages.
fn send_hangup(pid_file: &Path) -> Result<String, Error> {
    let text =
        read_regular_text(pid_file, MAX_PID_FILE_BYTES).map_err(Error::io("read", pid_file))?;
    let new_error = || Error::io("use", pid_file)(std::io::ErrorKind::InvalidData.into());
    let pid: i32 = text.trim().parse().map_err(|_| new_error())?;
    // The pid file may be left over from a daemon that has ended, and another process may have its
    // process id now. So the signal is sent only if the name of the process is `dockerd`.
    let comm_path = format!("/proc/{pid}/comm");
    let name =
        read_regular_text(Path::new(&comm_path), MAX_PID_FILE_BYTES).map_err(|_| new_error())?;
    if pid <= 1 || name.trim() != "dockerd" {
        return Err(new_error());
    }
    kill(Pid::from_raw(pid), Signal::SIGHUP)
        .map_err(|e| Error::io("signal the process in", pid_file)(e.into()))?;
    Ok(format!("SIGHUP to process {pid}"))
}
