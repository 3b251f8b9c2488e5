//! Runs programs of the host. In a container, the host's files are mounted below a directory. A
//! program of the host needs this directory as its root directory, because its loader, its
//! libraries and the paths in its arguments are there.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use injection_plan::program_output::LIBRARY_PATH_ENV;

use crate::command_line::{self, ChrootProgram};

/// The name of the hidden subcommand that calls [`exec_in_root`].
pub const IN_ROOT_SUBCOMMAND: &str = "in-root";

/// The exit status of the hidden subcommand if the program could not be executed. Shells use the
/// same status.
pub(super) const NOT_EXECUTED_STATUS: u8 = 126;

/// Builds the command that runs a program of the host with the root directory `root`. A process can
/// change only its own root directory. So if `root` is not `/`, the command starts this executable
/// with the hidden subcommand, and the new process calls [`exec_in_root`].
pub fn build_command(root: &Path, program: &Path, arguments: &[String]) -> Command {
    let mut command;
    if root == Path::new("/") {
        command = Command::new(program);
    } else {
        command = Command::new("/proc/self/exe");
        command.arg(IN_ROOT_SUBCOMMAND).arg(root).arg(program);
    }
    command.args(arguments);
    command
}

/// Executes a program in place of this process, with another root directory. Returns only if it
/// fails. Then prints the error on stderr with `own_name`, the name of this program, and returns
/// the exit status.
pub fn exec_in_root(own_name: &str, program: &ChrootProgram) -> ExitCode {
    let error = enter_root_and_exec(&program.root, &program.program, &program.arguments);
    let message = format!("cannot run {}: {error}", program.program.display());
    command_line::print_warning(own_name, &message);
    ExitCode::from(NOT_EXECUTED_STATUS)
}

/// Changes the root directory of this process to `root` and executes the program. This requires
/// CAP_SYS_CHROOT. Returns only if it fails.
fn enter_root_and_exec(root: &Path, program: &Path, arguments: &[String]) -> io::Error {
    if let Err(error) = nix::unistd::chroot(root) {
        let root = root.display();
        return io::Error::other(format!("cannot change the root to {root}: {error}"));
    }
    let mut command = Command::new(program);
    command.current_dir("/").args(arguments).env_clear();
    if let Some(value) = std::env::var_os(LIBRARY_PATH_ENV) {
        command.env(LIBRARY_PATH_ENV, value);
    }
    command.exec()
}
