//! Replaces the running instance of a host service by a new one, which `systemctl reload` does. The
//! new instance serves the kubelet before the earlier one ends, so that the kubelet refuses no pod.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use host_files::rooted_path::read_regular_file;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::cli::REPORT_READY_OPTION;

/// The time within which an instance must end after SIGTERM, and again after SIGKILL. systemd
/// limits the time of a reload (`TimeoutStartSec=` of the unit). That limit is longer than both
/// times and the minute within which the new instance must serve.
const END_TIMEOUT: Duration = Duration::from_secs(15);

/// The interval at which this program checks whether the earlier instance has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The maximum size in bytes of `/proc/PID/cmdline`. A larger file is an error.
const MAX_COMMAND_LINE_BYTES: u64 = 2 << 20;

/// The environment variable with the address of the socket to which a service sends its messages
/// for systemd (sd_notify(3)).
const NOTIFY_SOCKET: &str = "NOTIFY_SOCKET";

/// Starts this version of the program with the arguments of the instance `pid`, waits until it
/// serves the kubelet, makes it the main process of the service, and ends the instance `pid`.
///
/// # Errors
/// Fails if the new instance does not serve the kubelet within `ready_timeout`. The new instance is
/// then ended, and the earlier one continues. If this process is killed before the change of the
/// main process, the new instance ends by itself.
pub fn replace(pid: i32, ready_timeout: Duration) -> anyhow::Result<()> {
    let arguments = read_arguments(pid)?;
    let earlier_instance = Pid::from_raw(pid);
    let service_manager = ServiceManager::connect()?;
    let program = env::args_os().next().context("the program has no name")?;
    let mut new_instance = Command::new(&program)
        .args(arguments)
        .arg(REPORT_READY_OPTION)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let replacement = wait_until_ready(&mut new_instance, ready_timeout)
        .and_then(|()| service_manager.set_main_process(process_id(new_instance.id())?))
        .and_then(|()| {
            confirm_main_process(&mut new_instance).or_else(|error| {
                // The new instance is ended below. If it stayed the main process, systemd would end
                // the service with it.
                service_manager.set_main_process(earlier_instance)?;
                Err(error)
            })
        });
    if let Err(error) = replacement {
        end_process(process_id(new_instance.id())?, || {
            matches!(new_instance.try_wait(), Ok(None))
        })?;
        return Err(error.context(
            "the earlier instance goes on; solve what follows, or run `systemctl restart \
             boathook-plugin.service`, with which the kubelet refuses pods until this version serves",
        ));
    }
    end_process(earlier_instance, || kill(earlier_instance, None).is_ok())
}

/// Reads the command-line arguments of process `pid`, without `--report-ready`, which only
/// [`replace`] adds. Fails if the process is not boathook-plugin.
fn read_arguments(pid: i32) -> anyhow::Result<Vec<OsString>> {
    let path = format!("/proc/{pid}/cmdline");
    let command_line = read_regular_file(Path::new(&path), MAX_COMMAND_LINE_BYTES)
        .with_context(|| format!("cannot read {path}"))?;
    let words = command_line.strip_suffix(b"\0").unwrap_or(&command_line);
    let mut words = words.split(|byte| *byte == 0).map(OsStr::from_bytes);
    let program = words.next().unwrap_or_default();
    let is_plugin = Path::new(program).file_name() == Some(OsStr::new("boathook-plugin"));
    ensure!(
        is_plugin,
        "process {pid} is {}, and not boathook-plugin",
        program.display()
    );
    let arguments = words.filter(|word| *word != REPORT_READY_OPTION);
    Ok(arguments.map(OsStr::to_owned).collect())
}

/// Waits until the new instance reports by a line on its standard output that it serves the
/// kubelet.
fn wait_until_ready(new_instance: &mut Child, ready_timeout: Duration) -> anyhow::Result<()> {
    let stdout = new_instance.stdout.take();
    let mut stdout = stdout.context("the new instance has no standard output")?;
    let (sender, reports) = mpsc::channel();
    // The thread ends when the new instance writes its line, or exits.
    spawn(move || {
        let is_ready = read_report(&mut stdout);
        // The result is ignored, because nobody receives it after the time limit.
        let _ = sender.send(is_ready);
    });
    match reports.recv_timeout(ready_timeout) {
        Ok(true) => Ok(()),
        Ok(false) => bail!("the new instance has ended; its log says why"),
        Err(_) => bail!(
            "the new instance does not serve the kubelet after {} s; its log says why",
            ready_timeout.as_secs_f64()
        ),
    }
}

fn read_report(stdout: &mut ChildStdout) -> bool {
    stdout.read_exact(&mut [0]).is_ok()
}

/// Writes a line to the new instance's standard input, which tells it that it is the main process
/// of the service. If this process ends without writing the line, the new instance ends, too.
fn confirm_main_process(new_instance: &mut Child) -> anyhow::Result<()> {
    let stdin = new_instance.stdin.as_mut();
    let stdin = stdin.context("the new instance has no standard input")?;
    stdin
        .write_all(b"\n")
        .context("the new instance has ended; its log says why")
}

/// Sends SIGTERM to a process, and SIGKILL if it still runs after [`END_TIMEOUT`].
fn end_process(process: Pid, mut is_running: impl FnMut() -> bool) -> anyhow::Result<()> {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        match kill(process, signal) {
            Err(Errno::ESRCH) => return Ok(()),
            result => result.with_context(|| format!("cannot end process {process}"))?,
        }
        let start = Instant::now();
        while start.elapsed() < END_TIMEOUT {
            if !is_running() {
                return Ok(());
            }
            sleep(POLL_INTERVAL);
        }
    }
    bail!("process {process} does not end")
}

fn process_id(id: u32) -> anyhow::Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(id)?))
}

/// A connection to systemd, which has started this program for a reload of its service.
struct ServiceManager {
    socket: UnixDatagram,
}

impl ServiceManager {
    fn connect() -> anyhow::Result<Self> {
        let name = env::var_os(NOTIFY_SOCKET).with_context(|| {
            format!(
                "{NOTIFY_SOCKET} is not set: `systemctl reload boathook-plugin.service` sets it, if \
                 the unit has NotifyAccess=all"
            )
        })?;
        let connect = || -> io::Result<UnixDatagram> {
            let socket = UnixDatagram::unbound()?;
            match name.as_bytes().strip_prefix(b"@") {
                Some(abstract_name) => {
                    socket.connect_addr(&SocketAddr::from_abstract_name(abstract_name)?)?;
                }
                None => socket.connect(&name)?,
            }
            Ok(socket)
        };
        let socket = connect().with_context(|| format!("cannot connect to {}", name.display()))?;
        Ok(ServiceManager { socket })
    }

    /// Makes `process` the main process of the service. The service then continues when the earlier
    /// main process ends.
    fn set_main_process(&self, process: Pid) -> anyhow::Result<()> {
        let message = format!("MAINPID={process}\n");
        self.socket
            .send(message.as_bytes())
            .context("cannot tell the service manager the new process")?;
        Ok(())
    }
}
