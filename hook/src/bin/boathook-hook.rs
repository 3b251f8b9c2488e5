//! `boathook-hook`: the OCI hook, which container runtimes call at the start of each container.

use std::process::ExitCode;

use hook::SingleThreadMemory;

#[global_allocator]
static MEMORY: SingleThreadMemory = SingleThreadMemory::new();

fn main() -> ExitCode {
    hook::hook_main()
}
