//! A virtual machine with a kernel and drivers of its own.
//!
//! Only a driver shows whether a container can use a device, and a machine that runs tests need not
//! have any driver. Therefore QEMU boots a Debian with systemd as process 1, on any of Debian's
//! kernels, and the guest agent runs commands in it. What the machine writes to its disks is lost
//! when it ends.

mod architecture;
mod channel;
mod disks;
mod kernel;
mod once;
mod payload;
mod security_module;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;

pub use architecture::Architecture;
use channel::Channel;
pub use kernel::Kernel;
pub use once::run_once;
pub use payload::Payload;
pub use security_module::SecurityModule;

use crate::captured::Captured;
use crate::{mirror, privilege, scratch};

const MACHINE: &str = "-accel tcg,thread=multi -smp 2 -m 2048 -nodefaults -no-user-config \
                       -display none -serial file:{dir}/console";
/// The options of QEMU for the devices by which commands reach the machine and QEMU itself.
const AGENT: &str = "-device virtio-serial -chardev socket,id=agent,path={dir}/agent,server=on,wait=off \
                     -device virtserialport,chardev=agent,name=org.qemu.guest_agent.0 \
                     -qmp unix:{dir}/monitor,server=on,wait=off";
const COMMAND_LINE: &str = "loglevel=4 panic=1";
/// The time limit for booting. It allows for a busy machine.
const BOOT: Duration = Duration::from_secs(600);
/// The time limit for a command. It allows for a busy machine.
const COMMAND: Duration = Duration::from_secs(600);
/// The PATH of a login shell, followed by the directory of Boathook's programs.
const PATH: &str =
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/root/boathook/bin";

/// Returns the reason why a machine of this architecture cannot be booted here, or `None` if it
/// can.
pub fn missing(architecture: Architecture) -> Option<String> {
    let depmod = Path::new("/sbin/depmod");
    privilege::missing_for_engines()
        .or_else(mirror::missing)
        .or_else(|| architecture.missing())
        .or_else(|| (!depmod.is_file()).then(|| "needs /sbin/depmod (package kmod)".to_string()))
}

/// A booted machine. Dropping the value ends it.
#[derive(Debug)]
pub struct Vm {
    qemu: Child,
    directory: TempDir,
    agent: Channel,
    monitor: Channel,
    security_module: SecurityModule,
}

impl Vm {
    /// Boots a kernel with a security module, and copies the payload's files to the machine.
    /// `devices` are additional options of QEMU, in which `{dir}` stands for [`Vm::directory`].
    pub fn boot(
        kernel: &Kernel,
        security_module: SecurityModule,
        devices: &str,
        payload: &Payload,
    ) -> Result<Self> {
        let root = disks::root(kernel.architecture(), security_module)?;
        let directory = scratch::directory("vm")?;
        let at = directory.path();
        let mut command = qemu(kernel, security_module, &root, "snapshot=on", at)?;
        command
            .args(options(&format!("{AGENT} {devices}"), at))
            .args(["-drive", &drive(&payload.archive(), "snapshot=on")])
            .stdin(Stdio::null());
        let qemu = command.spawn().context("cannot start QEMU")?;
        let mut vm = Self {
            qemu,
            agent: Channel::new(at.join("agent")),
            monitor: Channel::new(at.join("monitor")),
            directory,
            security_module,
        };
        vm.monitor("qmp_capabilities", json!({}))?;
        vm.wait_until_up()?;
        vm.run("tar -xf /dev/vdc -C /")?;
        Ok(vm)
    }

    /// Returns the directory for files and sockets that QEMU's options name.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Runs lines of a shell, each of which must succeed, and returns their output.
    pub fn run(&mut self, lines: &str) -> Result<String> {
        Ok(self.try_run(lines)?.success()?.stdout)
    }

    /// Runs lines of a shell until one fails.
    pub fn try_run(&mut self, lines: &str) -> Result<Captured> {
        let start = Instant::now();
        let (program, first_arguments) = self.security_module.shell();
        let arguments = [first_arguments, &["-euo", "pipefail", "-c", lines]].concat();
        let shell = json!({
            "path": program,
            "arg": arguments,
            "env": [PATH, "HOME=/root", "LC_ALL=C"],
            "capture-output": true,
        });
        let process = self.agent("guest-exec", shell)?;
        let mut pause = Duration::from_millis(20);
        loop {
            let ended = self.agent("guest-exec-status", json!({ "pid": process["pid"] }))?;
            if ended["exited"] == true {
                return captured(lines, &ended);
            }
            if start.elapsed() > COMMAND {
                bail!(
                    "does not end within {COMMAND:?}: {lines}\n{}",
                    self.console()
                );
            }
            sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Restarts the machine, and waits until it has booted.
    pub fn reboot(&mut self) -> Result<()> {
        let id = self.run("cat /proc/sys/kernel/random/boot_id")?;
        // If the call succeeds, the machine shuts down without an answer.
        self.agent
            .send("guest-shutdown", &json!({ "mode": "reboot" }))?;
        let start = Instant::now();
        loop {
            // A command fails if the machine ends while it runs, so failures are ignored until the
            // machine has booted.
            let up = self.wait_until_up();
            let now = up.and_then(|()| self.run("cat /proc/sys/kernel/random/boot_id"));
            match now {
                Ok(now) if now != id => return Ok(()),
                Err(error) if start.elapsed() > BOOT => return Err(error),
                _ if start.elapsed() > BOOT => {
                    bail!("does not restart:\n{}", self.console());
                }
                _ => {}
            }
            sleep(Duration::from_secs(1));
        }
    }

    /// Calls a command of QEMU's monitor (QMP).
    pub fn monitor(&mut self, command: &str, arguments: Value) -> Result<Value> {
        self.monitor.call(command, &arguments, COMMAND)
    }

    fn agent(&mut self, command: &str, arguments: Value) -> Result<Value> {
        let answer = self.agent.call(command, &arguments, COMMAND);
        answer.with_context(|| format!("the machine's console ends with:\n{}", self.console()))
    }

    /// Waits until systemd has started all units.
    fn wait_until_up(&mut self) -> Result<()> {
        let synchronized = self.agent.synchronize(BOOT);
        synchronized.with_context(|| format!("does not boot:\n{}", self.console()))?;
        self.run("systemctl is-system-running --wait || systemctl --failed --no-legend >&2")
            .map(drop)
    }

    /// Returns the end of the console output of the kernel and systemd.
    fn console(&self) -> String {
        end_of(&console(self.directory()))
    }
}

/// Returns the command of QEMU with a kernel, whose first disks are the root file system and the
/// modules. The initramfs expects them in this order. `written` is the option that tells what
/// happens to data that is written to the root file system.
fn qemu(
    kernel: &Kernel,
    security_module: SecurityModule,
    root: &Path,
    written: &str,
    directory: &Path,
) -> Result<Command> {
    let files = kernel.files()?;
    let architecture = kernel.architecture();
    let append = format!(
        "{} {COMMAND_LINE} {}",
        architecture.command_line(),
        security_module.command_line()
    );
    let mut command = Command::new(architecture.qemu());
    command
        .args(options(architecture.machine(), directory))
        .args(options(MACHINE, directory))
        .args(["-drive", &drive(root, written)])
        .args(["-drive", &drive(&files.join("modules.ext4"), "snapshot=on")])
        .args(["-append", &append, "-kernel"])
        .arg(files.join("vmlinuz"))
        .arg("-initrd")
        .arg(files.join("initramfs"))
        // QEMU stores the data that is written to the disks here.
        .env("TMPDIR", directory);
    Ok(command)
}

/// Splits a text into the options of QEMU, and replaces `{dir}` by the directory.
fn options(text: &str, directory: &Path) -> Vec<String> {
    let directory = directory.display().to_string();
    let words = text.split_whitespace();
    words
        .map(|word| word.replace("{dir}", &directory))
        .collect()
}

fn drive(file: &Path, written: &str) -> String {
    let file = file.display();
    format!("if=virtio,format=raw,cache=unsafe,{written},file={file}")
}

/// Reads the console output of the machine whose files are in this directory.
fn console(directory: &Path) -> String {
    let text = fs::read(directory.join("console")).unwrap_or_default();
    String::from_utf8_lossy(&text).replace('\r', "")
}

fn end_of(console: &str) -> String {
    let lines: Vec<_> = console.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

impl Drop for Vm {
    fn drop(&mut self) {
        // The machine may have ended already. Then these calls fail.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Returns the result of a process that has ended, from the answer of the guest agent.
fn captured(lines: &str, ended: &Value) -> Result<Captured> {
    let text = |key: &str| -> Result<String> {
        let bytes = BASE64_STANDARD.decode(ended[key].as_str().unwrap_or_default())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let code = ended["exitcode"].as_i64().map_or(9, |code| code << 8);
    let status = ExitStatus::from_raw(i32::try_from(code)?);
    Ok(Captured::from_output(
        lines,
        status,
        text("out-data")?,
        text("err-data")?,
    ))
}
