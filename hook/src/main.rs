//! `boathook`: the hook, and the commands that explain it.

use std::process::ExitCode;

use hook::SingleThreadMemory;

#[global_allocator]
static MEMORY: SingleThreadMemory = SingleThreadMemory::new();

fn main() -> ExitCode {
    hook::main()
}
