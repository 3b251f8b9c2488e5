//! Mounting into a container's namespace, as root, with the newer system calls
//! and with each way of hiding them.
//!
//! Entering a mount namespace takes a process of one thread, and the usual
//! test harness has several. So this is a program of its own: it starts itself
//! once for each case and set of calls. A case lives in a private mount
//! namespace, with everything it makes on a tmpfs there; when it ends, nothing
//! is left.

#![allow(clippy::disallowed_methods, reason = "tests make their own files")]

mod cases;
mod container;
mod hidden;
mod loader_files;
mod race;
mod refusals;
mod runner;
mod scene;
mod user_namespace;
mod volumes;

use std::process::ExitCode;

/// What this program can be started as.
fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["--as-case", name, calls, base] => runner::run_case(name, calls, base),
        ["--as-container", base, kind] => container::run(base, kind),
        ["--as-swapper", how, one, other] => race::swap(how, one, other),
        ["--as-mapper", pid, ids] => container::map(pid, ids),
        ["--as-witness"] => container::wait_for_end(),
        _ => return runner::run_all(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
