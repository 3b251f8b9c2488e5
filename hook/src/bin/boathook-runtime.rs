//! `boathook-runtime`: an OCI runtime that adds the hook to a container that
//! asks for devices, and then is the real one.

use std::process::ExitCode;

fn main() -> ExitCode {
    hook::wrapper::run(std::env::args_os().collect()).into()
}
