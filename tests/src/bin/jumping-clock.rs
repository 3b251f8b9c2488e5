//! `jumping-clock COMMAND [ARGUMENT...]` runs a command that reads a wall clock which is ten years
//! ahead and ten years behind by turns. The machine's clock does not change.
//!
//! A child process traces the command (ptrace(2)). It hides the vDSO (vdso(7)), so that reading the
//! clock becomes a system call, and changes the result of the call.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use harness::exit;
use nix::sys::ptrace::{self, AddressType, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

const USAGE: &str = "usage: jumping-clock COMMAND [ARGUMENT...]";

/// The argument that starts the tracer; the id of the process to trace follows.
const TRACE: &str = "--trace";

/// The difference to the real time in seconds: ten years.
const JUMP: i64 = 315_360_000;

/// The size in bytes of a word on the stack and of `time_t`.
const WORD: u64 = 8;

/// Types of entries in the auxiliary vector (getauxval(3), linux/auxvec.h).
const AT_NULL: i64 = 0;
const AT_IGNORE: i64 = 1;
const AT_SYSINFO_EHDR: i64 = 33;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ran = match arguments.as_slice() {
        [trace, process] if trace == TRACE => process
            .parse()
            .context(USAGE)
            .and_then(|process| follow(Pid::from_raw(process))),
        [program, arguments @ ..] => become_traced(program, arguments),
        [] => Err(anyhow::anyhow!(USAGE)),
    };
    exit::with("jumping-clock", ran)
}

fn become_traced(program: &str, arguments: &[String]) -> Result<()> {
    let mut tracer = Command::new("/proc/self/exe")
        .args([TRACE, &getpid().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let stdout = tracer.stdout.take().context("no pipe to read from")?;
    BufReader::new(stdout).read_line(&mut line)?;
    ensure!(!line.is_empty(), "this process cannot be traced");
    trace_the_wall_clock()?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {program}"))
}

/// Installs a seccomp filter that stops this process for its tracer at each `clock_gettime` of the
/// wall clock.
fn trace_the_wall_clock() -> Result<()> {
    let clock = u64::from(libc::CLOCK_REALTIME.unsigned_abs());
    let is_wall = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, clock)?;
    let rules = [(
        libc::SYS_clock_gettime,
        vec![SeccompRule::new(vec![is_wall])?],
    )];
    let architecture = std::env::consts::ARCH
        .try_into()
        .context("no seccomp filter for this machine")?;
    let (other, wall) = (SeccompAction::Allow, SeccompAction::Trace(0));
    let filter = SeccompFilter::new(rules.into(), other, wall, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    apply_filter(&program).context("cannot set the seccomp filter")
}

/// Traces `process` and the threads that it starts, until the process ends.
fn follow(process: Pid) -> Result<()> {
    let options = Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACESECCOMP
        | Options::PTRACE_O_TRACESYSGOOD;
    ptrace::seize(process, options)?;
    println!("traced");
    std::io::stdout().flush()?;
    // The address at which `clock_gettime` will write the time, by thread that is in the call.
    let mut reading: HashMap<Pid, u64> = HashMap::new();
    let mut jump = JUMP;
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL))? {
            WaitStatus::Exited(ended, _) | WaitStatus::Signaled(ended, ..) if ended == process => {
                return Ok(());
            }
            WaitStatus::PtraceEvent(thread, _, libc::PTRACE_EVENT_EXEC) => {
                hide_vdso(thread)?;
                ptrace::cont(thread, None)?;
            }
            WaitStatus::PtraceEvent(thread, _, libc::PTRACE_EVENT_SECCOMP) => {
                reading.insert(thread, second_argument(thread)?);
                ptrace::syscall(thread, None)?;
            }
            WaitStatus::PtraceSyscall(thread) => {
                if let Some(address) = reading.remove(&thread) {
                    let seconds = ptrace::read(thread, to_pointer(address))?;
                    ptrace::write(thread, to_pointer(address), seconds + jump)?;
                    jump = -jump;
                }
                ptrace::cont(thread, None)?;
            }
            WaitStatus::PtraceEvent(thread, ..) => ptrace::cont(thread, None)?,
            WaitStatus::Stopped(thread, signal) => ptrace::cont::<Signal>(thread, signal)?,
            _ => {}
        }
    }
}

/// Removes the address of the vDSO from the auxiliary vector of a program that has just been
/// executed. Above its stack pointer are argc, argv, the environment and the auxiliary vector; argv
/// and the environment each end with a null pointer.
fn hide_vdso(process: Pid) -> Result<()> {
    let mut address = stack_pointer(process)?;
    let mut next = || {
        address += WORD;
        Ok::<_, nix::Error>((address, ptrace::read(process, to_pointer(address))?))
    };
    for _ in ["arguments", "environment"] {
        while next()?.1 != 0 {}
    }
    loop {
        match next()? {
            (_, AT_NULL) => bail!("there is no vDSO"),
            (address, AT_SYSINFO_EHDR) => {
                return Ok(ptrace::write(process, to_pointer(address), AT_IGNORE)?);
            }
            _ => next()?,
        };
    }
}

fn to_pointer(address: u64) -> AddressType {
    address as AddressType
}

#[cfg(target_arch = "x86_64")]
fn stack_pointer(thread: Pid) -> Result<u64> {
    Ok(ptrace::getregs(thread)?.rsp)
}

#[cfg(target_arch = "x86_64")]
fn second_argument(thread: Pid) -> Result<u64> {
    Ok(ptrace::getregs(thread)?.rsi)
}

#[cfg(target_arch = "aarch64")]
fn stack_pointer(thread: Pid) -> Result<u64> {
    Ok(ptrace::getregs(thread)?.sp)
}

#[cfg(target_arch = "aarch64")]
fn second_argument(thread: Pid) -> Result<u64> {
    Ok(ptrace::getregs(thread)?.regs[1])
}
