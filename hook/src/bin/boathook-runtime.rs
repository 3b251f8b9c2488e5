//! `boathook-runtime`: an OCI runtime that adds the hook to a container that requests devices,
//! and then executes the real runtime.

use std::process::ExitCode;

use hook::SingleThreadMemory;

#[global_allocator]
static MEMORY: SingleThreadMemory = SingleThreadMemory::new();

fn main() -> ExitCode {
    hook::runtime_main()
}
