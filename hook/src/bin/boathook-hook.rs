//! `boathook-hook`: the OCI hook. Container runtimes call it when they start a container, and write
//! the container's state to its stdin.

use std::process::ExitCode;

use hook::SingleThreadMemory;

#[global_allocator]
static MEMORY: SingleThreadMemory = SingleThreadMemory::new();

fn main() -> ExitCode {
    hook::hook_main()
}
