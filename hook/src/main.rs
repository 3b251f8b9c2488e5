//! `boathook`: the hook, and the commands that explain it.

use std::process::ExitCode;

fn main() -> ExitCode {
    hook::main()
}
